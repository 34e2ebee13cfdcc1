"""The request of `/v1/messages`, read as a chat."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from app.api.schemas import Stops
from app.errors import InvalidRequest
from app.openai.fields import BUILD_AT_ONCE, OpenBody, unsupported, validated
from app.openai.requests import ChatRequest, MessageBody, OpenAIRequest, TemplateArguments, ThinkingBody
from app.openai.responses import DeferredModel
from app.openai.responses_request import ITEMS_MAX
from app.openai.tool_bodies import ToolBody
from app.openai.unknown_fields import StrayField, stray_keys

_TEXT_ONLY = "contains a block that is not text: the model reads text only"
# Fields that are read, and those of answers that clients send back.
_MESSAGE_FIELDS = frozenset({"role", "content", "id", "type", "model", "stop_reason", "stop_sequence", "usage"})
_BLOCK_FIELDS = frozenset({
    "type", "text", "id", "name", "input", "tool_use_id", "content", "thinking", "signature", "data", "cache_control",
    "citations", "is_error", "caller",
})  # fmt: skip
# Paths of a chat, and those of this request in their place.
_PATHS = (
    (re.compile(r"^response_format\.json_schema"), "output_config.format"),
    (re.compile(r"^response_format"), "output_config.format"), (re.compile(r"^stop\b"), "stop_sequences"),
    (re.compile(r"^(tools\.[0-9*]+)\.function\.parameters"), r"\1.input_schema"),
    (re.compile(r"^(tools\.[0-9*]+)\.function"), r"\1"), (re.compile(r"^tool_choice\.function"), "tool_choice"),
    (re.compile(r"^(messages\.[0-9]+)\.tool_calls\b.*"), r"\1.content"),
    (re.compile(r"^max_completion_tokens"), "max_tokens"),
    (re.compile(r"^reasoning_effort"), "thinking"),
)  # fmt: skip


class MessagesToolBody(OpenBody):
    """A tool of the caller. `strict` has no effect: the input of a call always satisfies the schema."""

    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = Field(None, description="The JSON schema of the input")
    strict: bool | None = None
    cache_control: dict[str, Any] | None = Field(None, description="No effect")
    input_examples: list[Any] | None = Field(None, description="No effect")
    eager_input_streaming: bool | None = Field(None, description="No effect: input is always streamed as it is written")


class MessagesToolChoiceBody(OpenBody):
    """Whether an answer calls.

    It is `auto` (a text or calls), `any` (a call), `tool` (a call of that one) or `none`.
    """

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class MessagesThinkingBody(ThinkingBody):
    """Whether the answer thinks first, and whether it shows that."""

    display: str | None = Field(None, description="`omitted` leaves the thoughts out of the answer")


class MessagesOutputBody(OpenBody):
    """The format of the text, and how much the answer thinks."""

    format: dict[str, Any] | None = Field(None, description='{"type": "json_schema", "schema": {...}}')
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None


class MessagesRequest(OpenAIRequest):
    """Messages to answer, in Anthropic's format. The fields of a chat for constraints and searches are taken, too."""

    model_config = BUILD_AT_ONCE

    messages: list[dict[str, Any]] = Field(min_length=1, max_length=ITEMS_MAX)
    system: Any = Field(None, description="A text, or blocks of text, before all messages")
    stop_sequences: Stops = Field((), description="Strings that end the text and are not part of it")
    tools: list[MessagesToolBody] | None = Field(None, max_length=1024)
    tool_choice: MessagesToolChoiceBody | None = None
    thinking: MessagesThinkingBody | None = None
    output_config: MessagesOutputBody | None = None
    metadata: dict[str, Any] | None = Field(None, description="No effect")
    chat_template_kwargs: TemplateArguments = None
    cache_control: dict[str, Any] | None = Field(None, description="No effect")
    container: Any = unsupported("there is no container")
    mcp_servers: Any = unsupported("no servers are called: send their tools in `tools`", [])
    context_management: Any = unsupported("no messages are removed: send those that the model is to read")

    @property
    def top_log_probs(self) -> int | None:
        """How many alternatives of each token to list. None: no log-probs at all."""
        return None


class CountTokensResponse(DeferredModel):
    """The tokens of the prompt that the messages make."""

    input_tokens: int


def chat_of(request: MessagesRequest) -> ChatRequest:
    """The chat that a request means. Raises InvalidRequest with the request's own paths."""
    for name in ("n", "best_of"):
        if getattr(request, name) not in (None, 1):
            raise InvalidRequest(((name, "is no field of this path: send several requests"),))
    if request.stop and request.stop_sequences:
        raise InvalidRequest((("stop", "stop_sequences is its name here: give one"),))
    shared = {name: getattr(request, name) for name in OpenAIRequest.model_fields}
    shared |= {"stop": request.stop or request.stop_sequences, "metadata": None}
    output = request.output_config
    if output is not None and output.format is not None:
        if request.response_format is not None:
            raise InvalidRequest((("output_config.format", "response_format is another constraint: give one"),))
        shared["response_format"] = _response_format(output.format)
    effort = None if output is None else output.effort
    choice = request.tool_choice
    return ChatRequest.model_construct(
        **shared, messages=_messages(request), tools=_tools(request.tools), tool_choice=_tool_choice(choice),
        parallel_tool_calls=not (choice is not None and choice.disable_parallel_tool_use),
        chat_template_kwargs=request.chat_template_kwargs, reasoning_effort="xhigh" if effort == "max" else effort,
        **_thinking(request.thinking),
    )  # fmt: skip


def stray_parts(request: MessagesRequest) -> Iterator[StrayField]:
    """The unknown fields of messages, which are read as objects."""
    for message in request.messages:
        yield from stray_keys(message, "messages.*.", _MESSAGE_FIELDS)
        blocks = message.get("content")
        for block in blocks if isinstance(blocks, list) else ():
            yield from stray_keys(block, "messages.*.content.*.", _BLOCK_FIELDS)


def own_path(path: str) -> str:
    """The path of a field of a chat in the request."""
    for pattern, own in _PATHS:
        if pattern.search(path):
            return pattern.sub(own, path)
    return path


def _response_format(value: dict[str, Any]) -> dict[str, Any]:
    if value.get("type") != "json_schema":
        raise InvalidRequest((("output_config.format.type", 'must be "json_schema"'),))
    return {"type": "json_schema", "json_schema": {name: item for name, item in value.items() if name != "type"}}


def _thinking(thinking: MessagesThinkingBody | None) -> dict[str, Any]:
    """The fields of a chat for thoughts."""
    if thinking is None:
        return {}
    return {"thinking": thinking, "include_reasoning": thinking.display != "omitted"}


def _tools(tools: list[MessagesToolBody] | None) -> list[ToolBody] | None:
    return None if tools is None else [_tool(tool, f"tools.{number}") for number, tool in enumerate(tools)]


def _tool(tool: MessagesToolBody, path: str) -> ToolBody:
    if tool.type not in (None, "custom"):
        raise InvalidRequest(((f"{path}.type", "no tools run here: only those of the caller are supported"),))
    if tool.input_schema is None:
        raise InvalidRequest(((f"{path}.input_schema", "is missing"),))
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    read: ToolBody = validated(ToolBody, {"type": "function", "function": function}, path)
    return read


def _tool_choice(choice: MessagesToolChoiceBody | None) -> Any:
    match None if choice is None else choice.type:
        case "any":
            return "required"
        case "tool":
            assert choice is not None
            if choice.name is None:
                raise InvalidRequest((("tool_choice.name", "is missing"),))
            return {"type": "function", "function": {"name": choice.name}}
        case kind:
            return kind


def _messages(request: MessagesRequest) -> list[MessageBody]:
    turns = list[tuple[dict[str, Any], str]]()
    if request.system is not None:
        turns.append(({"role": "system", "content": _text(request.system, "system")}, "system"))
    for number, message in enumerate(request.messages):
        path = f"messages.{number}"
        turns += [(turn, path) for turn in _turns(message, path)]
    if turns[-1][0]["role"] == "assistant":
        raise InvalidRequest(((turns[-1][1], "an answer cannot continue a message: let the last one be the user's"),))
    return [validated(MessageBody, turn, path).placed(path) for turn, path in turns]


def _turns(message: dict[str, Any], path: str) -> Iterator[dict[str, Any]]:
    """The messages of a chat for one message. Results of calls are messages of their own."""
    match message:
        case {"role": "user" | "assistant" as role, "content": str() as text}:
            yield {"role": role, "content": text}
        case {"role": "assistant", "content": None}:
            yield {"role": "assistant", "content": ""}
        case {"role": "assistant", "content": [*blocks]}:
            yield _answer(blocks, f"{path}.content")
        case {"role": "user", "content": [*blocks]}:
            yield from _user_turns(blocks, f"{path}.content")
        case {"role": "user" | "assistant"}:
            raise InvalidRequest(((f"{path}.content", "must be a text or blocks"),))
        case _:
            raise InvalidRequest(((f"{path}.role", 'must be "user" or "assistant"; `system` is a field of its own'),))


def _user_turns(blocks: list[Any], path: str) -> Iterator[dict[str, Any]]:
    texts = list[str]()
    for number, block in enumerate(blocks):
        match block:
            case {"type": "tool_result", "tool_use_id": str() as call}:
                if texts:
                    yield {"role": "user", "content": "\n".join(texts)}
                    texts = []
                content = _text(block.get("content") or "", f"{path}.{number}.content")
                yield {"role": "tool", "tool_call_id": call, "content": content}
            case _:
                texts.append(_block_text(block, f"{path}.{number}"))
    if texts or not blocks:
        yield {"role": "user", "content": "\n".join(texts)}


def _answer(blocks: list[Any], path: str) -> dict[str, Any]:
    """An earlier answer: its thoughts, texts and calls. Other blocks, of tools that do not run here, are left out."""
    texts, thoughts, calls = list[str](), list[str](), list[dict[str, Any]]()
    for number, block in enumerate(blocks):
        match block:
            case {"type": "tool_use", "id": str() as call, "name": str() | None as name}:
                function = {"name": name, "arguments": block.get("input")}
                calls.append({"id": call, "type": "function", "function": function})
            case {"type": "thinking", "thinking": str() as thought}:
                thoughts.append(thought)
            case {"type": "text", "text": str() as text}:
                texts.append(text)
            case {"type": str() as kind} if kind not in ("text", "tool_use"):
                pass
            case _:
                raise InvalidRequest(((f"{path}.{number}", "must be a block with a type, and what belongs to it"),))
    turn: dict[str, Any] = {"role": "assistant", "content": "\n".join(texts) if texts or not calls else None}
    turn |= {"tool_calls": calls} if calls else {}
    return turn | ({"reasoning_content": "".join(thoughts)} if thoughts else {})


def _text(content: Any, path: str) -> str:
    """The text of a content, whose blocks are joined by newlines."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidRequest(((path, "must be a text or blocks of text"),))
    return "\n".join(_block_text(block, f"{path}.{number}") for number, block in enumerate(content))


def _block_text(block: Any, path: str) -> str:
    match block:
        case {"type": "text", "text": str() as text}:
            return text
    raise InvalidRequest(((path, _TEXT_ONLY),))
