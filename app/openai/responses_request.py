"""The request of `/v1/responses`, read as a chat.

Nothing of a response is stored, so a conversation is sent whole: an id of an earlier response is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from pydantic import Field

from app.api.conversations import PolicyBody, message_text
from app.api.schemas import ObjectOrString
from app.errors import InvalidRequest, JobFailed, RequestOverLimit, UnknownField
from app.messages import ALTERNATIVES_MAX
from app.openai.fields import BUILD_AT_ONCE, OpenBody, spelled_elsewhere, unsupported, validated
from app.openai.requests import (
    ChatRequest,
    MessageBody,
    OpenAIRequest,
    ReasoningEffort,
    TemplateArguments,
    ThinkingFields,
)
from app.openai.tool_bodies import CustomToolBody, FunctionBody, ToolBody, ToolGrammarBody
from app.openai.unknown_fields import StrayField, stray_keys
from compiler.errors import SpecSyntaxError, SpecUnsupported

ITEMS_MAX = 4096
_LOGPROBS = "message.output_text.logprobs"
_NO_STATE = "no response is stored: send the whole conversation in `input`"
# Fields that are read, and those of answers that clients send back.
_ITEM_FIELDS = frozenset({
    "type", "id", "status", "role", "content", "call_id", "name", "arguments", "input", "output", "summary",
    "encrypted_content", "phase", "namespace", "created_by",
})  # fmt: skip
_PART_FIELDS = frozenset({"type", "text", "annotations", "logprobs", "refusal", "prompt_cache_breakpoint"})
# Paths of a chat, and those of a response's request in their place.
_PATHS = (
    (re.compile(r"^response_format\.json_schema"), "text.format"), (re.compile(r"^response_format"), "text.format"),
    (re.compile(r"^messages"), "input"), (re.compile(r"^(input\.[0-9]+)\.tool_calls\b.*"), r"\1"),
    (re.compile(r"^max_completion_tokens"), "max_output_tokens"),
    (re.compile(r"^(tools\.[0-9*]+)\.custom\.format\.grammar"), r"\1.format"),
    (re.compile(r"^(tools\.[0-9*]+)\.(function|custom)"), r"\1"),
    (re.compile(r"^tool_choice\.(function|custom|allowed_tools)"), "tool_choice"),
    (re.compile(r"^reasoning_effort"), "reasoning.effort"),
)  # fmt: skip


class TextBody(OpenBody):
    """How the text is constrained."""

    format: dict[str, Any] | None = Field(
        None, description='{"type": "json_schema", "name": "...", "schema": {...}}, {"type": "json_object"} or '
        '{"type": "text"}'
    )
    verbosity: Literal["low", "medium", "high"] | None = Field(None, description="No effect")


class ReasoningBody(OpenBody):
    """Whether the answer thinks."""

    effort: ReasoningEffort = None
    summary: str | None = Field(None, description="No effect: items of reasoning have the thoughts themselves")
    generate_summary: str | None = Field(None, description="No effect")


class ResponsesRequest(OpenAIRequest, ThinkingFields):
    """A conversation to answer with one response. The fields of a chat for constraints and searches are taken, too."""

    model_config = BUILD_AT_ONCE

    input: ObjectOrString = Field(description="A text, or items: messages, thoughts, calls and their outputs")
    instructions: str | None = Field(None, description="A message of the developer before all others")
    max_output_tokens: int | None = Field(None, ge=1, description="The budget; default 256")
    text: TextBody | None = None
    tools: list[dict[str, Any]] | None = Field(
        None, max_length=1024, description="Functions and custom tools that may be called"
    )
    tool_choice: ObjectOrString = None
    policy: PolicyBody | None = Field(None, description="Rules over the order of calls, results and replies")
    parallel_tool_calls: bool | None = Field(
        None, description="Whether a response may have several calls, if the model's format has; true by default"
    )
    include: list[str] | None = Field(None, max_length=64, description=f"{_LOGPROBS}; others have no effect")
    top_logprobs: int | None = Field(None, ge=0, le=ALTERNATIVES_MAX)
    chat_template_kwargs: TemplateArguments = None
    reasoning: ReasoningBody | None = None
    truncation: Any = unsupported("no input is cut", "disabled", "auto")
    background: Any = unsupported("send `Prefer: respond-async` to /generate, or wait", False)
    previous_response_id: Any = unsupported(_NO_STATE)
    conversation: Any = unsupported(_NO_STATE)
    prompt: Any = unsupported("no prompts are stored: send `input`")
    max_tool_calls: Any = spelled_elsewhere(
        "parallel_tool_calls", "it counts calls of built-in tools, of which there are none"
    )

    @property
    def top_log_probs(self) -> int | None:
        """How many alternatives of each token to list. None: no log-probs at all."""
        if self.top_logprobs is None and _LOGPROBS not in (self.include or ()):
            return None
        return self.top_logprobs or 0


def chat_of(request: ResponsesRequest) -> ChatRequest:
    """The chat that a request means. Raises InvalidRequest with the request's own paths."""
    for name, other in (("max_tokens", "max_output_tokens"), ("n", "several requests"), ("best_of", "beams")):
        if getattr(request, name) not in (None, 1):
            raise InvalidRequest(((name, f"is no field of this path: use {other}"),))
    shared = {name: getattr(request, name) for name in OpenAIRequest.model_fields}
    shared |= {name: getattr(request, name) for name in ThinkingFields.model_fields}
    shared |= {"chat_template_kwargs": request.chat_template_kwargs, "parallel_tool_calls": request.parallel_tool_calls}
    shared["reasoning_effort"] = None if request.reasoning is None else request.reasoning.effort
    if request.text is not None and request.text.format is not None:
        if request.response_format is not None:
            raise InvalidRequest((("text.format", "response_format is another constraint: give one"),))
        shared["response_format"] = _response_format(request.text.format)
    return ChatRequest.model_construct(
        **shared, messages=_messages(request), tools=_tools(request.tools),
        tool_choice=_tool_choice(request.tool_choice), max_completion_tokens=request.max_output_tokens,
        logprobs=request.top_log_probs is not None, top_logprobs=request.top_log_probs, policy=request.policy,
    )  # fmt: skip


def stray_parts(request: ResponsesRequest) -> Iterator[StrayField]:
    """The unknown fields of tools and items, which are read as objects."""
    for tool in request.tools or ():
        body = CustomToolBody if tool.get("type") == "custom" else FunctionBody
        yield from stray_keys(tool, "tools.*.", {"type", *body.model_fields})
        yield from stray_keys(tool.get("format"), "tools.*.format.", {"type", *ToolGrammarBody.model_fields})
    for item in request.input if isinstance(request.input, list) else ():
        yield from stray_keys(item, "input.*.", _ITEM_FIELDS)
        parts = item.get("content") if isinstance(item, dict) else None
        for part in parts if isinstance(parts, list) else ():
            yield from stray_keys(part, "input.*.content.*.", _PART_FIELDS)


def echoed_fields(request: ResponsesRequest) -> dict[str, Any]:
    """What a response repeats of its request, with defaults."""
    return {
        "instructions": request.instructions, "max_output_tokens": request.max_output_tokens,
        "metadata": request.metadata or {}, "parallel_tool_calls": request.parallel_tool_calls is not False,
        "reasoning": None if request.reasoning is None else request.reasoning.model_dump(exclude_unset=True),
        "temperature": _option(request, "temperature"), "text": {"format": {"type": "text"}} | _text(request),
        "tool_choice": request.tool_choice or "auto", "tools": [_echoed_tool(tool) for tool in request.tools or ()],
        "top_logprobs": request.top_logprobs or 0, "top_p": _option(request, "top_p"),
    }  # fmt: skip


def _option(request: ResponsesRequest, name: str) -> Any:
    return getattr(request, name)  # a field that is made from the options of POST /generate


def _text(request: ResponsesRequest) -> dict[str, Any]:
    return {} if request.text is None or request.text.format is None else {"format": request.text.format}


def _echoed_tool(tool: dict[str, Any]) -> dict[str, Any]:
    return {"parameters": None, "strict": True, **tool} if tool.get("type") == "function" else tool


def _response_format(value: dict[str, Any]) -> dict[str, Any]:
    if value.get("type") != "json_schema":
        return value
    return {"type": "json_schema", "json_schema": {name: item for name, item in value.items() if name != "type"}}


def _tools(tools: list[dict[str, Any]] | None) -> list[ToolBody] | None:
    if tools is None:
        return None
    read = []
    for number, tool in enumerate(tools):
        kind = tool.get("type")
        if kind not in ("function", "custom"):
            raise InvalidRequest(((f"tools.{number}.type", "only functions and custom tools are supported"),))
        body = {name: item for name, item in tool.items() if name != "type"}
        match body:
            case {"format": {"type": "grammar", **grammar}} if kind == "custom":
                body["format"] = {"type": "grammar", "grammar": grammar}
        read.append(validated(ToolBody, {"type": kind, kind: body}, f"tools.{number}"))
    return read


def _tool_choice(choice: Any) -> Any:
    """The choice as a chat spells it, with names in objects."""
    match choice:
        case {"type": "function" | "custom" as kind, "name": name}:
            return {"type": kind, kind: {"name": name}}
        case {"type": "allowed_tools", "mode": mode, "tools": [*tools]}:
            allowed = {"mode": mode, "tools": [_tool_choice(tool) for tool in tools]}
            return {"type": "allowed_tools", "allowed_tools": allowed}
        case _:
            return choice


def _messages(request: ResponsesRequest) -> list[MessageBody]:
    items = [{"role": "user", "content": request.input}] if isinstance(request.input, str) else request.input
    if not isinstance(items, list) or not items or len(items) > ITEMS_MAX:
        raise InvalidRequest((("input", f"must be a text, or 1 to {ITEMS_MAX} items"),))
    turns: list[dict[str, Any]] = []
    if request.instructions is not None:
        turns.append({"role": "developer", "content": request.instructions})
    places = [""] * len(turns)  # the item of each turn
    thought = ""  # the items of reasoning before a turn
    for number, item in enumerate(items):
        turn = _turn(item, f"input.{number}")
        if turn["role"] == "reasoning":
            thought += turn["content"]
        elif "tool_calls" in turn and turns and turns[-1]["role"] == "assistant" and not thought:
            turns[-1].setdefault("tool_calls", []).extend(turn["tool_calls"])  # calls belong to the turn before
        else:
            turns.append(turn | {"reasoning_content": thought} if thought and turn["role"] == "assistant" else turn)
            places.append(f"input.{number}")
            thought = ""
    return [validated(MessageBody, turn, place).placed(place) for turn, place in zip(turns, places, strict=True)]


def _turn(item: Any, path: str) -> dict[str, Any]:
    """An item as a message of a chat. The role of a thought is "reasoning"."""
    match item:
        case {"type": "function_call", "call_id": str() as call_id, "name": str() | None as name}:
            function = {"name": name, "arguments": item.get("arguments")}
            call = {"id": call_id, "type": "function", "function": function}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        case {"type": "custom_tool_call", "call_id": str() as call_id, "name": str() | None as name}:
            text = item.get("input")
            call = {"id": call_id, "type": "custom", "custom": {"name": name, "input": text}}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        case {"type": "function_call_output" | "custom_tool_call_output", "call_id": str() as call, "output": output}:
            return {"role": "tool", "tool_call_id": call, "content": _output(output, f"{path}.output")}
        case {"role": role, "content": content} if item.get("type", "message") == "message":
            return {"role": role, "content": "" if content == [] else content}
        case {"type": "reasoning"}:
            return {"role": "reasoning", "content": _thought(item.get("content"))}
        case {"type": "item_reference"}:
            message = "no item is stored: send the item itself, as clients do with `store: false`"
        case _:
            message = "must be a message with role and content, reasoning, function_call or function_call_output"
    raise InvalidRequest(((path, message),))


def _thought(content: object) -> str:
    """The text of an item of reasoning. A summary or an encrypted text is none."""
    parts = content if isinstance(content, list) else []
    return "".join(
        part["text"] for part in parts if isinstance(part, dict) and part.get("type") == "reasoning_text"
        and isinstance(part.get("text"), str)
    )  # fmt: skip


def _output(value: object, path: str) -> str:
    """The text of a call's output."""
    try:
        return str(message_text("" if value in (None, []) else value, "tool"))
    except ValueError as error:
        raise InvalidRequest(((path, str(error)),)) from None


def own_path(path: str) -> str:
    """The path of a field of a chat in the request."""
    for pattern, own in _PATHS:
        if pattern.search(path):
            return pattern.sub(own, path)
    return path


@contextmanager
def own_paths(own_path: Callable[[str], str] = own_path) -> Iterator[None]:
    """Rewrites the fields of a chat's errors to those of the request."""
    try:
        yield
    except (InvalidRequest, UnknownField) as error:
        raise type(error)(tuple((own_path(fault["path"]), fault["message"]) for fault in error.errors)) from None
    except (SpecSyntaxError, SpecUnsupported) as error:
        error.field = own_path(error.field)
        raise
    except RequestOverLimit as error:
        raise RequestOverLimit(own_path(error.path), error.limit, error.cap) from None
    except JobFailed as error:
        if isinstance(error.fields.get("field"), str):
            error.fields["field"] = own_path(str(error.fields["field"]))
        raise
