"""A request with tools in the form of each engine.

All forms describe one or more calls in the format of Hermes and Qwen, without a reply: `tool_choice` is "required".
Arguments have a space behind commas and colons. XGrammar's structural tags take no separators: they have at most one
white space in each place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.formats import chat_format
from app.models import ModelFiles
from app.openai.chats.chat_turn import answer_format
from app.openai.chats.tools import ToolUse
from app.openai.tool_bodies import ToolBody
from benchmarks.bfcl.suite import Tool
from benchmarks.compiler.cases import Expression
from compiler.vocab import Vocabulary
from tests.references.json_validator import is_valid

_FAMILY = chat_format(None, "hermes")
_SEPARATOR = "\n"
_CALL = re.compile(r'<tool_call>\n\{"name": "([^"\\]+)", "arguments": (.*)\}\n</tool_call>', re.DOTALL)
_COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def request_form(engine: str, tools: Sequence[Tool], vocabulary: Vocabulary) -> Expression:
    """The constraint of a request for one engine. Ours is that of the chat route."""
    match engine:
        case "ours":
            return Expression("constraint", json.dumps(_our_constraint(tools, vocabulary)))
        case "xgrammar":
            return Expression("structural_tag", json.dumps(_structural_tag(tools)))
        case "llguidance":
            return Expression("lark", _lark(tools))
    raise ValueError(f"no form for {engine}")


def _our_constraint(tools: Sequence[Tool], vocabulary: Vocabulary) -> dict[str, Any]:
    bodies = tuple(
        ToolBody.model_validate({"type": "function", "function": {"name": tool.name, "parameters": tool.parameters}})
        for tool in tools
    )
    files = ModelFiles(Path(), vocabulary, None, None)
    answer = answer_format(files, _FAMILY, ToolUse(bodies, bodies, required=True), None)
    assert answer is not None
    return answer.constraint


def _texts_of(tool: Tool) -> tuple[str, str]:
    """The texts before and behind the arguments of a call."""
    return _FAMILY.calls.head.replace("{name}", tool.name), _FAMILY.calls.tail


def _structural_tag(tools: Sequence[Tool]) -> dict[str, Any]:
    tags = []
    for tool in tools:
        begin, end = _texts_of(tool)
        content = {"type": "json_schema", "json_schema": tool.parameters, "max_whitespace_cnt": 1}
        tags.append({"type": "tag", "begin": begin, "content": content, "end": end})
    form = {"type": "tags_with_separator", "tags": tags, "separator": _SEPARATOR, "at_least_one": True}
    return {"type": "structural_tag", "format": form}


def _lark(tools: Sequence[Tool]) -> str:
    names = " | ".join(f"call_{number}" for number in range(len(tools)))
    lines = [f"start: call ({json.dumps(_SEPARATOR)} call)*", f"call: {names}"]
    for number, tool in enumerate(tools):
        begin, end = map(json.dumps, _texts_of(tool))
        schema = json.dumps(tool.parameters | {"x-guidance": _COMPACT})
        lines += [f"call_{number}: {begin} arguments_{number} {end}", f"arguments_{number}: %json {schema}"]
    return "\n".join(lines)


def calls_are_valid(text: str, schemas: Mapping[str, Any]) -> bool | None:
    """Whether a text is calls of the tools, with valid arguments.

    None where the validator fails.
    """
    verdicts = []
    # No string of JSON has a line break, so that the separator is none of an argument. The chat route takes the space
    # away with which an answer may begin.
    for written in text.removeprefix(" ").split(f"</tool_call>{_SEPARATOR}"):
        call = _CALL.fullmatch(written if written.endswith("</tool_call>") else f"{written}</tool_call>")
        if call is None or call[1] not in schemas:
            return False
        verdicts.append(is_valid(schemas[call[1]], call[2]))
    return False if False in verdicts else None if None in verdicts else True
