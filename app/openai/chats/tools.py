"""The tools of a request, and how a chat template reads them."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from app.api.conversations import arguments_object
from app.errors import InvalidRequest
from app.formats import (
    NO_ARGUMENTS,
    Arguments,
    CallableTool,
    CallFormat,
    Part,
    TextSplit,
    raw_arguments,
    schema_arguments,
    schema_options,
)
from app.openai.chats.markers import WrittenCalls
from app.openai.requests import ChatRequest, MessageBody, MessageToolCallBody
from app.openai.tool_bodies import CustomToolBody, ToolBody

_INSTRUCTIONS = ("system", "developer")
_NO_TOOL = "no tool has this name"
_PARAMETERS = {"function": "function.parameters", "custom": "custom.format.grammar.definition"}
_INPUT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The tools that an answer may call.

    described  all tools of the request, which a chat template may describe
    callable   those that the answer may call
    required   whether the answer must call
    parallel   whether it may call several times
    closed_objects  whether arguments are written without undeclared properties
    """

    described: tuple[ToolBody, ...]
    callable: tuple[ToolBody, ...]
    required: bool
    parallel: bool = True
    closed_objects: bool = True


def tool_use(request: ChatRequest) -> ToolUse | None:
    """The tools of a request. None if the answer calls none. Raises InvalidRequest."""
    tools = tuple(request.tools or ())
    names = set[str]()
    for number, tool in enumerate(tools):
        if tool.name in names:
            raise InvalidRequest(((f"tools.{number}.{tool.type}.name", "another tool has this name"),))
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
    callable_tools = tuple(tool for tool in tools if tool.name in permitted)
    parallel = request.parallel_tool_calls is not False and not _is_named(request.tool_choice)
    return ToolUse(tools, callable_tools, mode == "required", parallel, request.closed_objects is not False)


def _is_named(choice: Any) -> bool:
    """Whether a choice names the one tool to call. OpenAI's answers call it once, and clients rely on it."""
    return isinstance(choice, dict) and choice["type"] in ("function", "custom")


def _choice(choice: Any) -> tuple[Literal["none", "auto", "required"], list[tuple[str, str]]]:
    """The mode of a `tool_choice`. Then paths and names of the allowed tools; without any, all are allowed."""
    match choice:
        case None:
            return "auto", []
        case "none" | "auto" | "required":
            return choice, []
        case {"type": "function" as kind, "function": {"name": str() as name}}:
            return "required", [(f"tool_choice.{kind}.name", name)]
        case {"type": "custom" as kind, "custom": {"name": str() as name}}:
            return "required", [(f"tool_choice.{kind}.name", name)]
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required" as mode, "tools": [*items]}}:
            if items:
                return mode, [_allowed(item, f"tool_choice.allowed_tools.tools.{at}") for at, item in enumerate(items)]
    message = 'must be "none", "auto", "required", {"type": "function", "function": {"name": "..."}} or allowed_tools'
    raise InvalidRequest((("tool_choice", message),))


def _allowed(tool: object, path: str) -> tuple[str, str]:
    match tool:
        case {"type": "function" as kind, "function": {"name": str() as name}}:
            return f"{path}.{kind}.name", name
        case {"type": "custom" as kind, "custom": {"name": str() as name}}:
            return f"{path}.{kind}.name", name
    raise InvalidRequest(((path, 'must be {"type": "function", "function": {"name": "..."}}'),))


def callable_tools(use: ToolUse, calls: CallFormat, split: TextSplit) -> tuple[CallableTool, ...]:
    """The tools that an answer may call, in a format."""
    options = schema_options(use.closed_objects)
    numbers = {tool.name: number for number, tool in enumerate(use.described)}
    return tuple(
        CallableTool(
            tool.name, _arguments(tool, calls, split, options), tool.custom is not None,
            f"tools.{numbers[tool.name]}.{_PARAMETERS[tool.type]}",
        )
        for tool in use.callable
    )


def _arguments(tool: ToolBody, calls: CallFormat, split: TextSplit, options: Mapping[str, Any]) -> Arguments:
    if tool.custom is not None:
        return raw_arguments(_input(tool.custom, calls), calls, split)
    assert tool.function is not None
    return schema_arguments(tool.function.parameters, calls, split, options)


def _input(tool: CustomToolBody, calls: CallFormat) -> Part:
    """The part of the texts that a custom tool takes."""
    grammar = None if tool.format is None else tool.format.grammar
    if grammar is None:
        close = (calls.parameters.quote or calls.parameters.close.strip()) if calls.parameters else ""
        ends = [end for end in (close, calls.tail.strip() or calls.trigger) if end][:1]
        return {"free": {"without": ends}}
    if grammar.syntax == "regex":
        return {"regex": grammar.definition}
    return {"grammar": grammar.definition, "syntax": "lark"}


def tool_variable(use: ToolUse | None) -> list[dict[str, Any]] | None:
    """The tools as chat templates read them. None without tools, which some templates test.

    A custom tool is a function that takes a text, because templates know functions alone.
    """
    return None if use is None else [{"type": "function", "function": _described(tool)} for tool in use.described]


def _described(tool: ToolBody) -> dict[str, Any]:
    if tool.custom is None:
        assert tool.function is not None
        return {**tool.function.model_dump(exclude_none=True), "parameters": tool.function.parameters or NO_ARGUMENTS}
    grammar = None if tool.custom.format is None else tool.custom.format.grammar
    lines = [tool.custom.description or ""]
    lines += [] if grammar is None else [f"The input is written by this {grammar.syntax}:", grammar.definition]
    return {"name": tool.custom.name, "description": "\n".join(filter(None, lines)), "parameters": _INPUT}


@dataclass(frozen=True, slots=True)
class TemplateFields:
    """The fields of messages that a chat template reads.

    calls    `tool_calls`; for other templates, calls become the texts that the model would write
    results  messages of the role `tool`; for other templates, results become messages of the user
    thought  the name of the field of a thought
    null     a call without text has the content null, because the template asks for it
    """

    calls: bool = True
    results: bool = True
    thought: str = "reasoning_content"
    null: bool = False


def template_messages(
    messages: Sequence[MessageBody], fields: TemplateFields, calls: CallFormat
) -> list[dict[str, Any]]:
    """Messages as a chat template reads them."""
    sent = _with_one_system(messages)
    counted = _with_counted_ids(sent, calls.id_form) if calls.id_form else sent
    return [_template_message(message, fields, calls) for message in counted]


def _with_counted_ids(messages: Sequence[MessageBody], form: str) -> Iterator[MessageBody]:
    """Messages with ids that count the calls of the conversation."""
    written, numbers = dict[str, str](), itertools.count()
    for message in messages:
        made = []
        for call in message.tool_calls or ():
            named = call.function or call.custom
            assert named is not None
            counted = form.replace("{index}", str(next(numbers))).replace("{name}", named.name)
            written |= {} if call.id is None else {call.id: counted}
            made.append(call.model_copy(update={"id": counted}))
        result = None if message.tool_call_id is None else written.get(message.tool_call_id, message.tool_call_id)
        yield message.model_copy(update={"tool_calls": made or None, "tool_call_id": result})


def _with_one_system(messages: Sequence[MessageBody]) -> Sequence[MessageBody]:
    """Merge messages of developer and system, where the first of them stands.

    Templates know the role `system` alone, and many refuse a second message of it. Several messages of the role
    `system` itself stay, because the caller has written them for the template.
    """
    instructions = [message for message in messages if message.role in _INSTRUCTIONS]
    if len(instructions) < 2 or all(message.role == "system" for message in instructions):
        return messages
    text = "\n\n".join(message.content for message in instructions if message.content)
    first = instructions[0].model_copy(update={"content": text})
    return [
        first if message is instructions[0] else message for message in messages
        if message is instructions[0] or message.role not in _INSTRUCTIONS
    ]  # fmt: skip


def _template_message(message: MessageBody, fields: TemplateFields, calls: CallFormat) -> dict[str, Any]:
    role = "system" if message.role == "developer" else message.role  # OpenAI's newer name of the role
    role = "user" if role == "tool" and not fields.results else role
    turn: dict[str, Any] = {"role": role, "content": message.content or ""}
    turn |= {} if message.name is None else {"name": message.name}
    made = message.tool_calls or ()
    # The template of gpt-oss takes a thought or a text beside calls, not both.
    if message.thought is not None and not (made and message.content and fields.thought == "thinking"):
        turn[fields.thought] = message.thought
    if message.tool_call_id is not None and fields.results:
        turn["tool_call_id"] = _template_id(message.tool_call_id, calls)
    if made and fields.calls:
        turn["tool_calls"] = [_template_call(call, calls) for call in made]
        turn |= {"content": None} if fields.null and not message.content else {}
    elif made:
        before = f"{message.content}\n" if message.content else ""
        turn["content"] = WrittenCalls((before, *_call_pieces(made, calls)))
    return turn


def _template_id(call: str, calls: CallFormat) -> str:
    return call if calls.id_chars is None else hashlib.sha256(call.encode()).hexdigest()[: calls.id_chars]


def _template_call(call: MessageToolCallBody, calls: CallFormat) -> dict[str, Any]:
    if call.function is not None:
        text = call.function.arguments
        # A call of another model may have any text. Formats of single parameters get it as one of them.
        other = text if calls.parameters is None else object_of(text)
        arguments = other if arguments_object(text) is None else json.loads(text)
        function = {"name": call.function.name, "arguments": arguments}
    else:
        assert call.custom is not None
        function = {"name": call.custom.name, "arguments": object_of(call.custom.input)}
    number = {} if call.id is None else {"id": _template_id(call.id, calls)}
    return {"type": "function", "function": function, **number}


def object_of(text: str) -> dict[str, Any]:
    """The arguments of a call that takes a text."""
    return {"input": text}


def _call_pieces(made: Sequence[MessageToolCallBody], calls: CallFormat) -> list[str]:
    """Calls as a model without calls in its template writes them. Each second piece is text of the caller."""
    separator = "\n" if calls.separator is None else calls.separator
    pieces = [calls.begin]
    for number, call in enumerate(made):
        before, _, behind = calls.head.replace("{index}", str(number)).partition("{name}")
        named = call.function or call.custom
        assert named is not None
        arguments = call.function.arguments if call.function is not None else call.custom.input if call.custom else ""
        if call.function is not None and calls.parameters is not None:
            arguments = calls.parameters.written(_template_call(call, calls)["function"]["arguments"])
        pieces[-1] += (separator if number else "") + before
        pieces += [named.name, behind, arguments, calls.tail]
    pieces[-1] += calls.end
    return pieces
