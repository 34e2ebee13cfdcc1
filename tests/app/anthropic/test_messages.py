"""`/v1/messages` through Anthropic's client. The model's template has tools and thoughts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from app.anthropic.requests import MessagesRequest, chat_of, own_path
from app.errors import InvalidRequest

# Imported where it is used: each process that collects the tests would take seconds for it.
if TYPE_CHECKING:
    from anthropic import Anthropic
    from anthropic.types import Message

MODEL = "deepseek"
FEED: Any = {"name": "feed", "description": "feeds", "input_schema": {
    "type": "object", "properties": {"animal": {"enum": ["dog", "cat"]}}, "required": ["animal"],
    "additionalProperties": False,
}}  # fmt: skip
PET = {"type": "object", "properties": {"animal": {"enum": ["dog", "cat"]}}, "required": ["animal"],
       "additionalProperties": False}  # fmt: skip
USER: Any = [{"role": "user", "content": "dog"}]


@pytest.fixture(scope="module")
def client(agent_client: TestClient) -> TestClient:
    return agent_client


@pytest.fixture(scope="module")
def ai(client: TestClient) -> Anthropic:
    from anthropic import Anthropic

    return Anthropic(base_url="http://testserver", api_key="none", http_client=client, max_retries=0)


def fields(**options: Any) -> dict[str, Any]:
    ours = {name: options.pop(name) for name in list(options) if name in ("seed", "beams", "regex")}
    ours |= {} if "beams" in ours or "regex" in ours else {"seed": ours.get("seed", 1)}
    defaults = {"max_tokens": 60, "messages": USER, "thinking": {"type": "disabled"}}
    return {"model": MODEL, **defaults, "extra_body": ours, **options}


def answer(ai: Anthropic, **options: Any) -> Message:
    from anthropic.types import Message

    message = ai.messages.create(**fields(**options))
    TypeAdapter(Message).validate_python(message.model_dump(by_alias=True))
    return message


def check_events(ai: Anthropic, **options: Any) -> None:
    """The events of a stream are in order, and make the message."""
    from anthropic.types import RawMessageStreamEvent

    plain = answer(ai, **options)
    events: list[Any] = list(ai.messages.create(**fields(**options), stream=True))
    for event in events:
        TypeAdapter(RawMessageStreamEvent).validate_python(event.model_dump(by_alias=True))
    assert [event.type for event in (events[0], *events[-2:])] == ["message_start", "message_delta", "message_stop"]
    number, inside = -1, False
    for event in events[1:-2]:
        match event.type:
            case "content_block_start":
                assert not inside and event.index == number + 1
                number, inside = event.index, True
            case "content_block_delta":
                assert inside and event.index == number
            case "content_block_stop":
                assert inside and event.index == number
                inside = False
            case other:
                raise AssertionError(other)
    assert not inside
    with ai.messages.stream(**fields(**options)) as stream:
        final = stream.get_final_message()
    strip = {"content": {"__all__": {"id"}}, "id": True}
    ours = {"automaton", "seed", "not_enforced", "approximate"}
    shown, expected = final.model_dump(exclude=strip), plain.model_dump(exclude=strip)
    compared = set(expected) - ours - {"id"}
    for block in (*shown["content"], *expected["content"]):
        block.pop("parsed_output", None)
    assert {name: shown.get(name) for name in compared} == {name: expected[name] for name in compared}


def test_messages_are_answered_by_a_message(ai: Anthropic) -> None:
    message = answer(ai, regex="[a-z]{3,9}", system="Be brief.")
    (block,) = message.content
    assert block.type == "text" and block.text.isalpha() and message.stop_reason == "end_turn"
    assert message.usage.input_tokens > 0 and message.usage.output_tokens > 0 and message.role == "assistant"
    check_events(ai, regex="[a-z]{3,9}")
    check_events(ai)


def test_keywords_without_effect_end_a_stream(ai: Anthropic) -> None:
    form = {"format": {"type": "json_schema", "schema": {"enum": ["dog", "cat"], "enmu": []}}}
    plain = answer(ai, output_config=form, regex=None)
    *_, end, _ = list(ai.messages.create(**fields(output_config=form, regex=None), stream=True))
    assert plain.model_extra and plain.model_extra["not_enforced"] == ["/enmu"]
    assert end.model_extra and end.model_extra["not_enforced"] == ["/enmu"]


def test_a_cut_text_says_so(ai: Anthropic) -> None:
    assert answer(ai, max_tokens=3).stop_reason == "max_tokens"


def test_a_stop_sequence_ends_the_text(ai: Anthropic) -> None:
    reasons = {answer(ai, stop_sequences=["e", "a"], seed=seed).stop_sequence for seed in range(4)}
    assert reasons & {"e", "a"}
    for seed in range(4):
        message = answer(ai, stop_sequences=["e", "a"], seed=seed)
        (block,) = message.content
        assert block.type == "text" and not {"e", "a"} & set(block.text)
        assert (message.stop_reason == "stop_sequence") == (message.stop_sequence is not None)


def test_a_tool_is_used_and_its_result_read(ai: Anthropic) -> None:
    first = answer(ai, tools=[FEED], tool_choice={"type": "any", "disable_parallel_tool_use": True})
    (call,) = first.content
    assert call.type == "tool_use" and call.name == "feed" and first.stop_reason == "tool_use"
    assert call.input["animal"] in ("dog", "cat")  # type: ignore[index]
    turns: Any = [
        *USER, {"role": "assistant", "content": [block.model_dump() for block in first.content]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "done"}]},
            {"type": "text", "text": "And now?"},
        ]},
    ]  # fmt: skip
    second = answer(ai, messages=turns, tools=[FEED], tool_choice={"type": "none"})
    assert second.content[-1].type == "text"
    named = answer(ai, tools=[FEED], tool_choice={"type": "tool", "name": "feed"})
    assert {block.type for block in named.content} == {"tool_use"}


def test_several_calls_are_streamed_block_by_block(ai: Anthropic) -> None:
    options: dict[str, Any] = {"tools": [FEED], "tool_choice": {"type": "any"}}
    seed = next(seed for seed in range(20) if len(answer(ai, **options, seed=seed).content) > 1)
    check_events(ai, **options, seed=seed)
    check_events(ai, tools=[FEED])


def test_an_answer_thinks_within_its_budget(ai: Anthropic) -> None:
    thinking = {"type": "enabled", "budget_tokens": 8}
    message = answer(ai, thinking=thinking)
    assert [block.type for block in message.content] == ["thinking", "text"]
    check_events(ai, thinking=thinking)
    turns: Any = [*USER, {"role": "assistant", "content": [block.model_dump() for block in message.content]}, *USER]
    assert answer(ai, messages=turns).content[-1].type == "text"
    quiet = answer(ai, thinking={**thinking, "display": "omitted"})
    assert [block.type for block in quiet.content] == ["text"]


def test_an_output_format_binds_the_text(ai: Anthropic) -> None:
    message = answer(ai, output_config={"format": {"type": "json_schema", "schema": PET}})
    (block,) = message.content
    assert block.type == "text" and json.loads(block.text)["animal"] in ("dog", "cat")


def test_tokens_are_counted_as_the_answer_counts_them(ai: Anthropic) -> None:
    sent = fields(tools=[FEED])
    plain = {name: value for name, value in sent.items() if name not in ("extra_body", "max_tokens")}
    counted = ai.messages.count_tokens(**plain)
    assert counted.input_tokens == answer(ai, tools=[FEED]).usage.input_tokens


def test_errors_have_the_shape_that_the_client_reads(ai: Anthropic, client: TestClient) -> None:
    import anthropic

    with pytest.raises(anthropic.NotFoundError) as unknown:
        answer(ai, model="other")
    body: Any = unknown.value.body
    assert body["type"] == "error" and body["error"]["type"] == "not_found_error" and body["request_id"]
    assert body["error"]["code"] == "unknown_model"
    with pytest.raises(anthropic.UnprocessableEntityError) as refused:
        answer(ai, output_config={"format": {"type": "json_schema", "schema": {"type": 5}}})
    body = refused.value.body
    assert body["error"]["type"] == "invalid_request_error"
    assert body["error"]["param"].startswith("output_config.format.schema")
    with pytest.raises(anthropic.BadRequestError, match="did you mean"):
        ai.messages.create(**{**fields(), "extra_body": {"regx": "a"}})
    with pytest.raises(anthropic.APIStatusError) as small:
        answer(ai, max_tokens=2, regex="[a-z]{200}")
    assert small.value.body["error"]["code"] == "budget_too_small"  # type: ignore[index]
    unread = client.post("/v1/messages", content=b"{", headers={"content-type": "application/json"}).json()
    assert unread["type"] == "error" and unread["error"]["code"] == "invalid_json"
    long = client.post("/v1/messages", json={"messages": USER, "tools": [FEED], "stream": True, "max_tokens": 2,
                                             "tool_choice": {"type": "any"}})  # fmt: skip
    assert long.json()["error"]["code"] == "budget_too_small"


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"messages": [{"role": "poet", "content": "a"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages.0.content.0"),
        ({"messages": [*USER, {"role": "assistant", "content": "The"}]}, "messages.1"),
        ({"tools": [{"name": "a", "type": "web_search_20250305"}]}, "tools.0.type"),
        ({"tools": [{"name": "a" * 129, "input_schema": {}}]}, "tools.0.function.name"),
        ({"tools": [{"name": "a"}]}, "tools.0.input_schema"), ({"system": 5}, "system"), ({"n": 2}, "n"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"stop": "a", "stop_sequences": ["b"]}, "stop"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
    ],
)  # fmt: skip
def test_an_invalid_field_is_named(changed: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        chat_of(MessagesRequest.model_validate({"messages": USER, **changed}))
    assert refused.value.errors[0]["path"] == path


def test_past_answers_are_read_whatever_they_say() -> None:
    inputs: list[dict[str, Any]] = [
        {"input": "{no"}, {"input": None}, {}, {"input": [1]}, {"input": {"animal": "dog"}},
    ]  # fmt: skip
    calls = [{"type": "tool_use", "id": "a", "name": "feed", **each} for each in inputs]
    other = [{"type": "server_tool_use", "id": "b", "name": "c", "input": {}}, {"type": "web_search_tool_result"}]
    turns = [*USER, {"role": "assistant", "content": [*other, *calls]}, {"role": "assistant", "content": None}, *USER]
    _, answer, empty, _ = chat_of(MessagesRequest.model_validate({"messages": turns})).messages
    written = [call.function.arguments for call in answer.tool_calls or () if call.function]
    assert written == ["{no", "{}", "{}", "[1]", '{"animal": "dog"}'] and answer.content == empty.content == ""
    assert own_path("messages.1.tool_calls") == "messages.1.content"


def test_results_come_before_the_text_beside_them() -> None:
    result = {"type": "tool_result", "tool_use_id": "a", "content": "done"}
    call = {"type": "tool_use", "id": "a", "name": "feed", "input": {"animal": "dog"}}
    blocks = [result, {"type": "text", "text": "b"}]
    turns = [*USER, {"role": "assistant", "content": [call]}, {"role": "user", "content": blocks}]
    tools = [{**FEED, "name": "a" * 128}]
    system = [{"type": "text", "text": "c"}]
    chat = chat_of(MessagesRequest.model_validate({"messages": turns, "system": system, "tools": tools}))
    assert [message.role for message in chat.messages] == ["system", "user", "assistant", "tool", "user"]
    assert own_path("tools.1.function.parameters.type") == "tools.1.input_schema.type"
    assert own_path("response_format.json_schema.schema") == "output_config.format.schema"
