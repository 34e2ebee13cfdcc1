"""Calls of tools by OpenAI's client and pydantic-ai, against a real server."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import openai
import pytest
from openai import OpenAI

from tests.app.openai.client_requests import NAMED, SCHEMA, USER, chat

FEED: Any = {
    "type": "function", "function": {
        "name": "feed", "parameters": {
            "type": "object", "properties": {"animal": {"enum": ["dog", "cat"]}, "grams": {"type": "integer"}},
            "required": ["animal", "grams"], "additionalProperties": False,
        },
    },
}  # fmt: skip
WALK: Any = {"type": "function", "function": {"name": "walk"}}
NAMED_FEED: Any = {"type": "function", "function": {"name": "feed"}}


@pytest.mark.parametrize("tool_choice", ["required", NAMED_FEED], ids=["required", "named"])
@pytest.mark.parametrize("options", [{}, {"temperature": 1.2, "seed": 5}], ids=["search", "sample"])
def test_a_required_call_satisfies_the_parameters(ai: OpenAI, tool_choice: Any, options: dict[str, Any]) -> None:
    answer = chat(ai, tools=[FEED, WALK], tool_choice=tool_choice, max_tokens=64, **options).choices[0]
    assert answer.finish_reason == "tool_calls" and answer.message.content is None
    (call,) = answer.message.tool_calls or ()
    assert call.type == "function" and call.id.startswith("call_")
    arguments = json.loads(call.function.arguments)
    if call.function.name == "feed":
        jsonschema.validate(arguments, FEED["function"]["parameters"])
    else:
        assert (call.function.name, arguments) == ("walk", {}) and tool_choice == "required"


def test_auto_answers_with_a_reply_or_a_call(ai: OpenAI) -> None:
    several = chat(ai, tools=[WALK], n=16, temperature=3.0, seed=1, max_tokens=24).choices
    for choice in several:
        if choice.message.tool_calls:
            assert choice.finish_reason == "tool_calls" and choice.message.content is None
        else:
            assert choice.finish_reason in ("stop", "length") and choice.message.content is not None
            assert not choice.message.content.startswith("{")


@pytest.mark.parametrize("options", [{}, {"temperature": 1.2, "seed": 5}], ids=["search", "sample"])
def test_a_streamed_call_is_the_answers_call(ai: OpenAI, options: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"tools": [FEED, WALK], "tool_choice": NAMED_FEED, "max_tokens": 64, **options}
    whole = chat(ai, **fields).choices[0].message.tool_calls
    name, arguments, ids, reasons = "", "", set[str](), list[str]()
    for chunk in ai.chat.completions.create(model="captions", messages=USER, stream=True, **fields):
        for choice in chunk.choices:
            assert not choice.delta.content
            reasons += [choice.finish_reason] if choice.finish_reason else []
            for delta in choice.delta.tool_calls or ():
                assert delta.index == 0 and delta.function is not None
                ids |= {delta.id} if delta.id else set()
                name += delta.function.name or ""
                arguments += delta.function.arguments or ""
    assert whole and (name, arguments) == (whole[0].function.name, whole[0].function.arguments)
    assert reasons == ["tool_calls"] and len(ids) == 1


def test_a_conversation_goes_on_after_a_call(ai: OpenAI) -> None:
    first = chat(ai, tools=[FEED], tool_choice="required", max_tokens=64).choices[0].message
    assert first.tool_calls
    result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "fed"}
    answer = chat(ai, [*USER, first, result], tools=[FEED], tool_choice="none", max_tokens=12, seed=3)
    assert answer.choices[0].message.content and not answer.choices[0].message.tool_calls


def test_a_reply_beside_tools_satisfies_its_own_constraint(ai: OpenAI) -> None:
    answer = chat(ai, tools=[WALK], response_format=NAMED, max_tokens=64, seed=2).choices[0].message
    if answer.tool_calls:
        assert answer.tool_calls[0].function.name == "walk"
    else:
        jsonschema.validate(json.loads(answer.content or ""), SCHEMA)


def test_a_budget_too_small_for_a_call_is_refused(ai: OpenAI) -> None:
    with pytest.raises(openai.UnprocessableEntityError) as error:
        chat(ai, tools=[WALK], tool_choice="required", max_tokens=3)
    assert error.value.code == "budget_too_small" and error.value.param == "max_tokens"
