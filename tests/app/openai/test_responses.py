"""`/v1/responses` through OpenAI's client, whose models check the shape."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from openai import BadRequestError, NotFoundError, OpenAI, UnprocessableEntityError
from openai.types.responses import Response
from pydantic import BaseModel, TypeAdapter

from app.errors import InvalidRequest
from app.openai.responses_request import ResponsesRequest, chat_of, own_path

TOOL: Any = {
    "type": "function", "name": "feed", "description": "feeds", "strict": True,
    "parameters": {"type": "object", "properties": {"animal": {"enum": ["dog", "cat"]}}, "required": ["animal"],
                   "additionalProperties": False},
}  # fmt: skip


class Pet(BaseModel):
    """A typed answer."""

    animal: Literal["dog", "cat"]
    age: Literal[1, 2, 3]


def respond(ai: OpenAI, **options: Any) -> Response:
    fields = {"model": "captions", "input": "dog, frisbee, catch", "max_output_tokens": 40, **options}
    response = ai.responses.create(**fields)
    assert isinstance(response, Response)
    # The client constructs its models without checks, so they are checked here.
    TypeAdapter(Response).validate_python(response.model_dump(by_alias=True))
    return response


def test_a_text_is_answered_by_a_message(ai: OpenAI) -> None:
    response = respond(ai, extra_body={"seed": 3, "constraint": {"keywords": ["dog"]}}, instructions="Be brief.")
    assert "dog" in response.output_text.lower() and response.status == "completed"
    assert response.model_extra and response.model_extra["store"] is False and response.model_extra["seed"] == 3
    assert response.usage and response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert response.id.startswith("resp_") and response.output[0].type == "message"


def test_a_cut_text_is_incomplete(ai: OpenAI) -> None:
    response = respond(ai, max_output_tokens=3, extra_body={"seed": 1})
    assert response.status == "incomplete" and response.incomplete_details
    assert response.incomplete_details.reason == "max_output_tokens"


def test_a_typed_answer_is_parsed(ai: OpenAI) -> None:
    response = ai.responses.parse(model="captions", input="A pet?", text_format=Pet, max_output_tokens=40)
    assert isinstance(response.output_parsed, Pet)
    loose = respond(ai, text={"format": {"type": "json_object"}})
    assert isinstance(json.loads(loose.output_text), dict)


def test_a_call_and_its_output_go_round(ai: OpenAI) -> None:
    first = respond(ai, tools=[TOOL], tool_choice="required")
    (call,) = first.output
    assert call.type == "function_call" and call.name == "feed"
    assert json.loads(call.arguments)["animal"] in ("dog", "cat")
    turns: Any = [
        {"role": "user", "content": [{"type": "input_text", "text": "Feed the dog."}]}, call.model_dump(),
        {"type": "function_call_output", "call_id": call.call_id, "output": "done"},
    ]  # fmt: skip
    second = respond(ai, input=turns, tools=[TOOL], tool_choice="none", extra_body={"seed": 2})
    assert second.output[0].type == "message"
    named = respond(ai, tools=[TOOL], tool_choice={"type": "function", "name": "feed"})
    assert named.output[0].type == "function_call"


@pytest.mark.parametrize(
    "options",
    [
        {"extra_body": {"seed": 5}}, {"tools": [TOOL], "tool_choice": "required"},
        {"extra_body": {"regex": "[a-z ]{3,20}"}},
    ],
    ids=["text", "call", "search"],
)
def test_the_events_put_together_are_the_response(options: dict[str, Any], ai: OpenAI) -> None:
    plain = respond(ai, **options)
    fields: Any = {"model": "captions", "input": "dog, frisbee, catch", "max_output_tokens": 40, **options}
    events = list(ai.responses.create(**fields, stream=True))
    types = [event.type for event in events]
    assert types[:2] == ["response.created", "response.in_progress"] and types[-1] == f"response.{plain.status}"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    added = "".join(event.delta for event in events if event.type.endswith(".delta"))  # type: ignore[union-attr]
    item = plain.output[0]
    assert added == (item.arguments if item.type == "function_call" else plain.output_text)
    last = events[-1].response  # type: ignore[union-attr]
    kept = {"id", "created_at", "output"}
    assert last.model_dump(exclude=kept) == plain.model_dump(exclude=kept)
    with ai.responses.stream(**{name: value for name, value in fields.items() if name != "stream"}) as stream:
        assert stream.get_final_response().output_text == plain.output_text


def test_log_probs_are_included_on_request(ai: OpenAI) -> None:
    response = respond(ai, include=["message.output_text.logprobs"], top_logprobs=2, extra_body={"regex": "yes|no"})
    part: Any = response.output[0].content[0]  # type: ignore[union-attr]
    assert "".join(token.token for token in part.logprobs).strip() == response.output_text
    assert all(len(token.top_logprobs) == 2 for token in part.logprobs)


def test_what_needs_stored_state_is_refused(ai: OpenAI) -> None:
    for fields in ({"previous_response_id": "resp_1"}, {"conversation": "conv_1"}, {"background": True}):
        with pytest.raises(UnprocessableEntityError, match=next(iter(fields))):
            respond(ai, **fields)
    with pytest.raises(UnprocessableEntityError, match="no item is stored: send the item itself"):
        ai.responses.create(model="captions", input=[{"type": "item_reference", "id": "msg_1"}])
    with pytest.raises(NotFoundError):
        ai.responses.retrieve("resp_1")
    with pytest.raises(BadRequestError, match="did you mean"):
        respond(ai, extra_body={"regx": "a"})
    with pytest.raises(UnprocessableEntityError) as refused:
        respond(ai, text={"format": {"type": "json_schema", "name": "a", "schema": {"type": 5}}})
    assert refused.value.param is not None and refused.value.param.startswith("text.format.schema")


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"input": []}, "input"), ({"input": 5}, "input"), ({"input": [{"type": "item_reference"}]}, "input.0"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input.0.content"),
        ({"input": [{"role": "poet", "content": "a"}]}, "input.0.role"),
        ({"input": [{"type": "function_call", "call_id": "a", "name": 5, "arguments": "{}"}]}, "input.0"),
        ({"input": [{"type": "function_call_output", "call_id": "a", "output": [{"type": "input_image"}]}]},
         "input.0.output"),
        ({"tools": [{"type": "custom", "name": "a", "format": {"type": "grammar", "syntax": "b", "definition": ""}}]},
         "tools.0.custom.format.grammar.syntax"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type"),
        ({"tools": [{"type": "function", "name": "a b"}]}, "tools.0.function.name"), ({"max_tokens": 5}, "max_tokens"),
        ({"n": 2}, "n"),
    ],
)  # fmt: skip
def test_an_invalid_item_is_named(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        chat_of(ResponsesRequest.model_validate({"input": "a", **fields}))
    assert refused.value.errors[0]["path"] == path


def test_calls_join_the_turn_before_them() -> None:
    call = {"type": "function_call", "call_id": "a", "name": "feed", "arguments": "{}"}
    items = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, call, {**call, "call_id": "c"}]
    chat = chat_of(ResponsesRequest.model_validate({"input": items, "instructions": "d"}))
    assert [message.role for message in chat.messages] == ["developer", "user", "assistant"]
    assert [called.id for called in chat.messages[-1].tool_calls or ()] == ["a", "c"]


def test_thoughts_belong_to_the_turn_behind_them() -> None:
    thought = {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    call = {"type": "custom_tool_call", "call_id": "a", "name": "ask", "input": "who"}
    output = {"type": "custom_tool_call_output", "call_id": "a", "output": "me"}
    user, reply = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
    items = [user, thought, call, output, thought, reply, thought, user]
    chat = chat_of(ResponsesRequest.model_validate({"input": items}))
    assert [(turn.role, turn.reasoning_content) for turn in chat.messages] == [
        ("user", None), ("assistant", "hm"), ("tool", None), ("assistant", "hm"), ("user", None),
    ]  # fmt: skip
    (made,) = chat.messages[1].tool_calls or ()
    assert made.custom and made.custom.input == "who"


def test_paths_of_a_chat_become_those_of_a_response() -> None:
    assert own_path("response_format.json_schema.schema.properties") == "text.format.schema.properties"
    assert own_path("tools.3.function.parameters.type") == "tools.3.parameters.type"
    assert own_path("max_completion_tokens") == "max_output_tokens" and own_path("regex") == "regex"
    assert own_path("tools.3.custom.format.grammar.definition") == "tools.3.format.definition"
    assert own_path("tools.3.custom.name") == "tools.3.name"
    assert own_path("tool_choice.custom.name") == "tool_choice.name"
    assert own_path("input.3.tool_calls.1.custom.input") == "input.3"
