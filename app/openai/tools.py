"""Constrains answers to calls of tools, and reads these calls.

A call is written as a JSON object, `{"name": "refund", "arguments": {"amount": 5}}`, which is the whole answer. Its
arguments satisfy the tool's parameters. A reply in words never begins with `{`, so the first character decides.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from app.errors import InvalidRequest
from app.openai.requests import ChatRequest, FunctionBody, MessageBody

REPLY = {"regex": r"(?:[^\s{](?s:.*))?"}
"""A reply in words: any text that does not begin with white space or with a call."""
_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}
_NO_TOOL = "no tool has this name"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool. `arguments` is JSON text, of which the end may be missing in a stream."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class AnswerParts:
    """What an answer contains: a reply in words or a call. Both are empty as long as neither is certain."""

    content: str = ""
    call: ToolCall | None = None


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The tools that an answer may call.

    described  all tools of the request, which a chat template may describe
    callable   those that the answer may call
    required   whether the answer must be a call
    """

    described: tuple[FunctionBody, ...]
    callable: tuple[FunctionBody, ...]
    required: bool

    @property
    def calls(self) -> dict[str, Any]:
        """The constraint of a call."""
        return {"json_schema": {"anyOf": [_call_schema(number, tool) for number, tool in enumerate(self.callable)]}}

    def constraint(self, reply: dict[str, Any] | None) -> dict[str, Any]:
        """The constraint of an answer. `reply` is the request's own constraint, which a reply in words satisfies."""
        return self.calls if self.required else {"any": [self.calls, REPLY if reply is None else reply]}

    def read(self, text: str, finished: bool) -> AnswerParts:
        """The parts of an answer, or of its beginning.

        Those of a text begin those of each continuation, so a stream may send them at once.
        """
        for tool in self.callable:
            head = _call_head(tool.name)
            if text.startswith(head):
                # A last bracket closes the call, not the arguments.
                return AnswerParts(call=ToolCall(tool.name, text[len(head) :].removesuffix("}")))
            if not finished and head.startswith(text):
                return AnswerParts()
        return AnswerParts(content=text)


def tool_use(request: ChatRequest) -> ToolUse | None:
    """The tools of a request. None if the answer calls none. Raises InvalidRequest."""
    tools = tuple(tool.function for tool in request.tools or ())
    names = set[str]()
    for number, tool in enumerate(tools):
        if tool.name in names:
            raise InvalidRequest(((f"tools.{number}.function.name", "another tool has this name"),))
        names.add(tool.name)
    mode, allowed = _choice(request.tool_choice)
    for path, name in allowed:
        if name not in names:
            raise InvalidRequest(((path, _NO_TOOL if names else f"{_NO_TOOL}: send it in `tools`"),))
    if mode == "required" and not tools:
        raise InvalidRequest((("tool_choice", "requires a call, and there are no tools: send `tools`"),))
    if mode == "none" or not tools:
        return None
    permitted = {name for _, name in allowed} or names
    return ToolUse(tools, tuple(tool for tool in tools if tool.name in permitted), mode == "required")


def _choice(choice: Any) -> tuple[Literal["none", "auto", "required"], list[tuple[str, str]]]:
    """The mode of a `tool_choice`. Then paths and names of the allowed tools; without any, all are allowed."""
    match choice:
        case None:
            return "auto", []
        case "none" | "auto" | "required":
            return choice, []
        case {"type": "function", "function": {"name": str() as name}}:
            return "required", [("tool_choice.function.name", name)]
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required" as mode, "tools": [*items]}}:
            if items:
                return mode, [_allowed(item, f"tool_choice.allowed_tools.tools.{at}") for at, item in enumerate(items)]
    message = 'must be "none", "auto", "required", {"type": "function", "function": {"name": "..."}} or allowed_tools'
    raise InvalidRequest((("tool_choice", message),))


def _allowed(tool: object, path: str) -> tuple[str, str]:
    match tool:
        case {"type": "function", "function": {"name": str() as name}}:
            return f"{path}.function.name", name
    raise InvalidRequest(((path, 'must be {"type": "function", "function": {"name": "..."}}'),))


def _call_head(name: str) -> str:
    """The text of a call before its arguments."""
    return f'{{"name": "{name}", "arguments": '


def _call_schema(number: int, tool: FunctionBody) -> dict[str, Any]:
    """The schema of a call. The parameters are a resource of their own, so `#` in their references means them."""
    parameters = _NO_PARAMETERS if tool.parameters is None else {"type": "object", **tool.parameters}
    return {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": {"$id": f"urn:abs:tool:{number}", **parameters}},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def call_id(job_id: str, answer: int) -> str:
    """The id of a call. A repeated response has the same."""
    return f"call_{hashlib.sha256(f'{job_id} {answer}'.encode()).hexdigest()[:24]}"


def tool_variable(use: ToolUse | None) -> list[dict[str, Any]] | None:
    """The tools as chat templates read them. None without tools, which some templates test."""
    if use is None:
        return None
    return [{"type": "function", "function": tool.model_dump(exclude_none=True)} for tool in use.described]


def template_messages(messages: Sequence[MessageBody], knows_tools: bool) -> list[dict[str, Any]]:
    """Messages as chat templates read them.

    For a template without tools, calls become the texts that the model would write, and results become messages of the
    user.
    """
    return [_template_message(message, knows_tools) for message in messages]


def _template_message(message: MessageBody, knows_tools: bool) -> dict[str, Any]:
    role = "system" if message.role == "developer" else message.role  # OpenAI's newer name of the role
    turn: dict[str, Any] = {"role": role, "content": message.content or ""}
    turn |= {} if message.name is None else {"name": message.name}
    calls = [call.function for call in message.tool_calls or ()]
    if not knows_tools:
        texts = [f"{_call_head(call.name)}{call.arguments}}}" for call in calls]
        content = "\n".join([message.content, *texts] if message.content else texts)
        return turn | {"role": "user" if role == "tool" else role, "content": content}
    if message.tool_call_id is not None:
        turn["tool_call_id"] = message.tool_call_id
    if calls:
        turn["tool_calls"] = [
            {"type": "function", "function": {"name": call.name, "arguments": json.loads(call.arguments)}}
            for call in calls
        ]
    return turn
