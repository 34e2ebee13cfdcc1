"""Calls of tools, from the request to the answer."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from app.errors import InvalidRequest
from app.openai.requests import ChatRequest, MessageBody
from app.openai.tools import (
    AnswerParts,
    ToolCall,
    ToolUse,
    call_id,
    template_messages,
    tool_use,
    tool_variable,
)

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


def test_the_schema_accepts_the_calls_of_the_tools() -> None:
    use = use_of(tool_choice="required")
    assert use is not None
    validator = jsonschema.Draft202012Validator(use.constraint(None)["json_schema"])
    assert validator.is_valid({"name": "refund", "arguments": {"amount": 5}})
    assert validator.is_valid({"name": "notify", "arguments": {}})
    assert not validator.is_valid({"name": "refund", "arguments": {"amount": 0}})
    assert not validator.is_valid({"name": "notify", "arguments": {"amount": 5}})
    assert not validator.is_valid({"name": "pay", "arguments": {}})


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
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "custom"}]}}},
         "tool_choice.allowed_tools.tools.0"),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}}, "tool_choice"),
    ],
)  # fmt: skip
def test_an_invalid_choice_is_refused_with_its_path(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        use_of(**fields)
    assert refused.value.errors[0]["path"] == path


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('{"name": "refund", "arguments": {"amount": 5}}', AnswerParts(call=ToolCall("refund", '{"amount": 5}'))),
        ('{"name": "notify", "arguments": {}}', AnswerParts(call=ToolCall("notify", "{}"))),
        ("{curly}", AnswerParts("{curly}")), ("Refunded.", AnswerParts("Refunded.")), ("", AnswerParts()),
    ],
)
def test_an_answer_is_read_the_same_way_in_pieces(text: str, parts: AnswerParts) -> None:
    use = use_of()
    assert use is not None and use.read(text, finished=True) == parts
    former = AnswerParts()
    for end in range(len(text)):
        current = use.read(text[:end], finished=False)
        assert current.content.startswith(former.content)
        if former.call is not None:
            assert current.call is not None and current.call.arguments.startswith(former.call.arguments)
        former = current
    assert parts.content.startswith(former.content)
    assert former.call is None or (parts.call and parts.call.arguments.startswith(former.call.arguments))


CALL = {"id": "call_1", "type": "function", "function": {"name": "refund", "arguments": '{"amount": 5}'}}
TURNS: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Refund 5."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "done"},
]  # fmt: skip


def test_a_template_without_tools_reads_calls_as_text() -> None:
    turns = template_messages([MessageBody.model_validate(turn) for turn in TURNS], knows_tools=False)
    assert turns == [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Refund 5."},
        {"role": "assistant", "content": '{"name": "refund", "arguments": {"amount": 5}}'},
        {"role": "user", "content": "done"},
    ]  # fmt: skip


def test_a_template_with_tools_reads_them_as_in_transformers() -> None:
    turns = template_messages([MessageBody.model_validate(turn) for turn in TURNS], knows_tools=True)
    function = {"name": "refund", "arguments": {"amount": 5}}
    assert turns[2] == {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}
    assert turns[3] == {"role": "tool", "content": "done", "tool_call_id": "call_1"}
    described = tool_variable(use_of())
    assert described is not None and described[0] == REFUND and tool_variable(None) is None


def test_ids_of_calls_are_repeatable_and_distinct() -> None:
    assert call_id("a", 0) == call_id("a", 0) != call_id("a", 1)
    assert call_id("a", 0).startswith("call_")
