"""Items of `/v1/responses`: thoughts, replies, several calls and custom tools."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import pytest
from openai import OpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from tests.app.openai.test_responses import TOOL

MODEL = "deepseek"
ASK = {"type": "custom", "name": "ask", "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "who"'}}
TEXTS = {"reasoning": "reasoning_text", "message": "output_text", "function_call": "function_call_arguments",
         "custom_tool_call": "custom_tool_call_input"}  # fmt: skip


@pytest.fixture(scope="module")
def ai(agent_client: TestClient) -> OpenAI:
    return OpenAI(base_url="http://testserver/v1", api_key="none", http_client=agent_client, max_retries=0)


def fields(**options: Any) -> dict[str, Any]:
    ours = {name: options.pop(name) for name in list(options) if name in ("seed", "beams", "max_thinking_tokens")}
    body = {"seed": 1, "max_thinking_tokens": 0, **ours}
    if "beams" in body:
        del body["seed"]
    return {"model": MODEL, "input": "dog", "max_output_tokens": 60, "extra_body": body, **options}


def respond(ai: OpenAI, **options: Any) -> Response:
    response = ai.responses.create(**fields(**options))
    TypeAdapter(Response).validate_python(response.model_dump(by_alias=True))
    return response


def text_of(item: Any) -> str:
    match item.type:
        case "function_call":
            return str(item.arguments)
        case "custom_tool_call":
            return str(item.input)
        case _:
            return str(item.content[0].text)


def check_events(ai: OpenAI, **options: Any) -> None:
    """The events of a stream are in order, and make the response."""
    plain = respond(ai, **options)
    events: list[Any] = list(ai.responses.create(**fields(**options), stream=True))
    for event in events:
        TypeAdapter(ResponseStreamEvent).validate_python(event.model_dump(by_alias=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    inner = events[2:-1]
    assert [event.type for event in (*events[:2], events[-1])] == [
        "response.created", "response.in_progress", f"response.{plain.status}",
    ]  # fmt: skip
    numbers = [event.output_index for event in inner]
    assert numbers == sorted(numbers)  # item after item
    for number, of_item in groupby(inner, key=lambda event: event.output_index):
        item, its = plain.output[number], list(of_item)
        text, part = f"response.{TEXTS[item.type]}", item.type in ("reasoning", "message")
        deltas = [event for event in its if event.type == f"{text}.delta"]
        expected = [
            "response.output_item.added", *["response.content_part.added"] * part, *[f"{text}.delta"] * len(deltas),
            f"{text}.done", *["response.content_part.done"] * part, "response.output_item.done",
        ]  # fmt: skip
        assert [event.type for event in its] == expected
        assert "".join(event.delta for event in deltas) == text_of(its[-1].item) == text_of(item)
        assert {event.item_id for event in its[1:-1]} == {its[0].item.id} == {its[-1].item.id}
    done = [event.item.model_dump(exclude={"id", "call_id"}) for event in inner if event.type.endswith("item.done")]
    assert done == [item.model_dump(exclude={"id", "call_id"}) for item in events[-1].response.output]
    assert done == [item.model_dump(exclude={"id", "call_id"}) for item in plain.output]
    with ai.responses.stream(**fields(**options)) as stream:
        assert [text_of(item) for item in stream.get_final_response().output] == list(map(text_of, plain.output))


def test_a_response_has_several_calls_by_default(ai: OpenAI) -> None:
    options: dict[str, Any] = {"tools": [TOOL], "tool_choice": "required"}
    seed = next(seed for seed in range(20) if len(respond(ai, **options, seed=seed).output) > 1)
    calls = respond(ai, **options, seed=seed).output
    assert all(json.loads(text_of(call))["animal"] in ("dog", "cat") for call in calls)
    assert len({call.call_id for call in calls}) == len(calls)  # type: ignore[union-attr]
    single = respond(ai, **options, seed=seed, parallel_tool_calls=False)
    assert len(single.output) == 1 and not single.parallel_tool_calls
    check_events(ai, **options, seed=seed)


def test_a_thought_is_an_item_before_the_message(ai: OpenAI) -> None:
    response = respond(ai, max_thinking_tokens=8)
    assert [item.type for item in response.output] == ["reasoning", "message"]
    check_events(ai, max_thinking_tokens=8)
    ours = {"seed": 1, "max_thinking_tokens": 8, "include_reasoning": False}
    hidden = ai.responses.create(**{**fields(), "extra_body": ours})
    assert [item.type for item in hidden.output] == ["message"]
    quiet = respond(ai, reasoning={"effort": "none"})
    assert [item.type for item in quiet.output] == ["message"] and quiet.reasoning and quiet.reasoning.effort == "none"


@pytest.mark.parametrize("more", [{"seed": 1}, {"beams": 2}])
def test_a_custom_tool_is_called_with_its_text(more: dict[str, Any], ai: OpenAI) -> None:
    options = {"tools": [ASK, TOOL], "tool_choice": {"type": "custom", "name": "ask"}, "max_thinking_tokens": 4, **more}
    calls = [item for item in respond(ai, **options).output if item.type == "custom_tool_call"]
    assert calls and all(call.input == "who" and call.name == "ask" for call in calls)
    check_events(ai, **options)


def test_items_of_a_response_are_read_again(ai: OpenAI) -> None:
    first = respond(ai, tools=[ASK], tool_choice="required", max_thinking_tokens=4)
    call: Any = first.output[-1]
    turns: Any = [{"role": "user", "content": "dog"}, *[item.model_dump() for item in first.output],
                  {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "me"}]  # fmt: skip
    assert respond(ai, input=turns).output[-1].type == "message"
