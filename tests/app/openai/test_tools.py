"""Calls of tools, from the request to the answer."""

from __future__ import annotations

from typing import Any

import pytest

from app.errors import InvalidRequest
from app.formats import PLAIN_CALLS, call_id, chat_format
from app.openai.chats.tools import TemplateFields, ToolUse, template_messages, tool_use, tool_variable
from app.openai.requests import ChatRequest, MessageBody

REFUND = {
    "type": "function",
    "function": {
        "name": "refund", "description": "Pays back",
        "parameters": {
            "type": "object", "properties": {"amount": {"$ref": "#/$defs/Amount"}}, "required": ["amount"],
            "$defs": {"Amount": {"type": "integer", "minimum": 1}}, "additionalProperties": False,
        },
    },
}  # fmt: skip
NOTIFY = {"type": "function", "function": {"name": "notify"}}


def use_of(**fields: Any) -> ToolUse | None:
    body = {"messages": [{"role": "user", "content": "a"}], "tools": [REFUND, NOTIFY], **fields}
    return tool_use(ChatRequest.model_validate(body))


def names_of(use: ToolUse | None) -> list[str]:
    assert use is not None
    return [tool.name for tool in use.callable]


@pytest.mark.parametrize(
    ("choice", "required", "names"),
    [
        (None, False, ["refund", "notify"]), ("auto", False, ["refund", "notify"]),
        ("required", True, ["refund", "notify"]),
        ({"type": "function", "function": {"name": "notify"}}, True, ["notify"]),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NOTIFY]}}, False, ["notify"]),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [REFUND]}}, True, ["refund"]),
    ],
)  # fmt: skip
def test_tool_choice_selects_the_callable_tools(choice: Any, required: bool, names: list[str]) -> None:
    use = use_of(tool_choice=choice)
    assert names_of(use) == names
    assert use is not None and use.required == required and len(use.described) == 2


def test_a_named_tool_is_called_once() -> None:
    for choice, parallel in (({"type": "function", "function": {"name": "notify"}}, False), ("required", True)):
        use = use_of(tool_choice=choice)
        assert use is not None and use.parallel is parallel


def test_without_tools_nothing_is_called() -> None:
    assert use_of(tool_choice="none") is None
    assert use_of(tools=[]) is None
    assert use_of(tools=None, tool_choice="auto") is None


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"tools": [NOTIFY, NOTIFY]}, "tools.1.function.name"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "pay"}}}, "tool_choice.function.name"),
        ({"tool_choice": {"type": "custom", "custom": {"name": "pay"}}}, "tool_choice.custom.name"),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "custom"}]}}},
         "tool_choice.allowed_tools.tools.0"),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}}, "tool_choice"),
    ],
)  # fmt: skip
def test_an_invalid_choice_is_refused_with_its_path(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        use_of(**fields)
    assert refused.value.errors[0]["path"] == path


def test_custom_tools_are_described_as_functions_of_a_text() -> None:
    grammar = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "[a-z]+"}}
    custom = {"type": "custom", "custom": {"name": "query", "description": "Asks", "format": grammar}}
    use = use_of(tools=[NOTIFY, custom], tool_choice={"type": "custom", "custom": {"name": "query"}})
    assert names_of(use) == ["query"] and use is not None and use.required
    described = tool_variable(use)
    assert described is not None and "[a-z]+" in described[1]["function"]["description"]
    assert described[1]["function"]["parameters"]["required"] == ["input"]


def test_ids_have_the_length_that_a_template_requires() -> None:
    messages, calls = [MessageBody.model_validate(turn) for turn in TURNS], chat_format("", "mistral").calls
    turns = template_messages(messages, TemplateFields(), calls)
    call = turns[2]["tool_calls"][0]["id"]
    assert len(call) == 9 and call == turns[3]["tool_call_id"]


def test_ids_count_calls_where_a_template_requires_it() -> None:
    other = {**CALL, "function": {"name": "notify", "arguments": "{}"}}  # of another turn, with the same id
    turns = [*TURNS, {"role": "assistant", "tool_calls": [other, {**other, "id": None}]}, *TURNS[3:]]
    calls = chat_format("", "kimi-k2").calls
    read = template_messages([MessageBody.model_validate(turn) for turn in turns], TemplateFields(), calls)
    made = [call["id"] for turn in read for call in turn.get("tool_calls", ())]
    assert made == ["functions.refund:0", "functions.notify:1", "functions.notify:2"]
    assert [turn["tool_call_id"] for turn in read if turn["role"] == "tool"] == made[:2]


@pytest.mark.parametrize(
    ("thoughts", "read"),
    [
        ({}, None), ({"reasoning_content": "a"}, "a"), ({"reasoning": "b"}, "b"),
        ({"reasoning_content": "a", "reasoning": "b"}, "a"), ({"reasoning_content": None, "reasoning": "b"}, "b"),
    ],
)  # fmt: skip
def test_a_thought_of_either_name_is_read(thoughts: dict[str, Any], read: str | None) -> None:
    message = MessageBody.model_validate({"role": "assistant", "content": "Yes.", **thoughts})
    for name in ("reasoning_content", "reasoning", "thinking"):
        (turn,) = template_messages([message], TemplateFields(thought=name), PLAIN_CALLS)
        assert turn.get(name) == read


CALL = {"id": "call_1", "type": "function", "function": {"name": "refund", "arguments": '{"amount": 5}'}}
TURNS: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Refund 5."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "done"},
]  # fmt: skip


def test_a_template_without_tools_reads_calls_as_text() -> None:
    fields = TemplateFields(calls=False, results=False)
    turns = template_messages([MessageBody.model_validate(turn) for turn in TURNS], fields, PLAIN_CALLS)
    turns[2]["content"] = "".join(turns[2]["content"].pieces)
    assert turns == [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Refund 5."},
        {"role": "assistant", "content": '{"name": "refund", "arguments": {"amount": 5}}'},
        {"role": "user", "content": "done"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ({"arguments": '{"amount": 5}'}, {"amount": 5}), ({"arguments": {"amount": 5}}, {"amount": 5}),
        ({"arguments": ""}, {}), ({"arguments": " \n"}, {}), ({"arguments": None}, {}), ({}, {}),
        *(({"arguments": text}, text) for text in ('{"amount', "[1]", "null", '{"a": NaN}', '{"a": "\\ud800"}')),
        ({"arguments": "[" * 9_999}, "[" * 9_999), ({"arguments": [1]}, "[1]"),
        ({"arguments": "{}", "name": None}, {}), ({"arguments": "{}", "name": "a.b c"}, {}),
    ],
)  # fmt: skip
def test_past_calls_are_read_whatever_they_say(sent: dict[str, Any], read: object) -> None:
    call = {**CALL, "function": {"name": "refund", **sent}}
    turn = MessageBody.model_validate({"role": "assistant", "content": None, "tool_calls": [call]})
    (written,) = template_messages([turn], TemplateFields(), PLAIN_CALLS)
    (made,) = written["tool_calls"]
    assert made["function"] == {"name": sent.get("name", "refund") or "", "arguments": read}
    (single,) = template_messages([turn], TemplateFields(), chat_format("", "glm").calls)
    as_parameters = read if isinstance(read, dict) else {"input": read}
    assert single["tool_calls"][0]["function"]["arguments"] == as_parameters


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"content": None}, ""), ({}, ""), ({"content": []}, ""), ({"content": "", "refusal": "No."}, "No."),
        ({"content": None, "refusal": "No."}, "No."), ({"content": [{"type": "refusal", "refusal": "No."}]}, "No."),
        ({"content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Yes."}]}, "Yes."),
        ({"content": [{"type": "tool_use", "id": "1", "name": "a", "input": {}}], "tool_calls": [CALL]}, ""),
    ],
    ids=str,
)  # fmt: skip
def test_past_answers_are_read_whatever_they_say(answer: dict[str, Any], text: str) -> None:
    assert MessageBody.model_validate({"role": "assistant", **answer}).content == text


def test_several_calls_as_text_are_one_answer() -> None:
    turn = MessageBody.model_validate({"role": "assistant", "content": "So.", "tool_calls": [CALL, CALL]})
    fields, calls = TemplateFields(calls=False), chat_format("", "deepseek-v3.1").calls
    call = '<｜tool▁call▁begin｜>refund<｜tool▁sep｜>{"amount": 5}<｜tool▁call▁end｜>'
    (written,) = template_messages([turn], fields, calls)
    assert "".join(written["content"].pieces) == f"So.\n<｜tool▁calls▁begin｜>{call}{call}<｜tool▁calls▁end｜>"


def test_thoughts_beside_text_and_calls_are_left_out_for_harmony() -> None:
    fields, turn = TemplateFields(thought="thinking"), {"role": "assistant", "reasoning_content": "Hm."}
    for more, thinks in (({"content": "a"}, True), ({"tool_calls": [CALL]}, True),
                         ({"content": "a", "tool_calls": [CALL]}, False)):  # fmt: skip
        (written,) = template_messages([MessageBody.model_validate(turn | more)], fields, PLAIN_CALLS)
        assert ("thinking" in written) == thinks and "reasoning_content" not in written


def test_a_template_with_tools_reads_them_as_in_transformers() -> None:
    turns = template_messages([MessageBody.model_validate(turn) for turn in TURNS], TemplateFields(), PLAIN_CALLS)
    function = {"name": "refund", "arguments": {"amount": 5}}
    call = {"type": "function", "function": function, "id": "call_1"}
    assert turns[2] == {"role": "assistant", "content": "", "tool_calls": [call]}
    assert turns[3] == {"role": "tool", "content": "done", "tool_call_id": "call_1"}
    described = tool_variable(use_of())
    assert described is not None and described[0] == REFUND and tool_variable(None) is None


def test_ids_of_calls_are_repeatable_and_distinct() -> None:
    assert call_id("a", 0, 0) == call_id("a", 0, 0) != call_id("a", 0, 1) != call_id("a", 1, 0)
    assert call_id("a", 0, 0).startswith("call_")
