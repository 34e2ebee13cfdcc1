"""Conversations of requests, and the events that a policy sees in them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, model_validator

from app.api.middleware.body import read_json
from app.auth import KeyPolicy
from app.errors import InvalidJson, InvalidRequest
from app.formats import NO_ARGUMENTS
from app.messages import PolicyEvent, StrictModel
from app.service import PolicyParams
from compiler.exact_json import dump_json, read_float
from compiler.policies import read_decl

ANY_OBJECT: dict[str, Any] = {"type": "object"}
ANY_TEXT: dict[str, Any] = {"type": "string"}
RULES_MAX, MESSAGES_MAX, TOOLS_MAX = 256, 10_000, 1_000
NO_EFFECT = "No effect"


class PolicyBody(StrictModel):
    """Rules over the events of a conversation: LTLf formulas, or templates of Declare.

    The promise is about the model: whatever the results are, its next event leaves all rules possible to meet.
    """

    rules: list[str] = Field([], max_length=RULES_MAX, description="LTLf formulas or templates of Declare")
    decl: str | None = Field(None, description="More rules, as the text of a Declare file")
    max_calls: int | None = Field(None, ge=0, le=10_000, description="How many calls may still be made")
    assume: list[str] = Field([], max_length=RULES_MAX, description="What results satisfy whenever a tool answers")

    def all_rules(self) -> tuple[str, ...]:
        """The rules, and those of the Declare file. Raises SpecSyntaxError and SpecUnsupported."""
        return (*self.rules, *(read_decl(self.decl) if self.decl else ()))


NO_RULES = PolicyBody.model_validate({})


_TEXTS = ("text", "input_text", "output_text")  # types of the parts of a message


def message_text(value: object, role: object) -> object:
    """The text of a message, whose parts are joined by newlines. Raises ValueError for parts that are not text.

    An earlier answer may be of another model, so its parts that are not text are left out.
    """
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise ValueError('must be a string, or a list of parts {"type": "text", "text": "..."}')
    return "\n".join(_parts(value, role == "assistant"))


def _text(value: object, info: ValidationInfo) -> object:
    return message_text(value, info.data.get("role"))


def _parts(parts: Iterable[object], is_answer: bool) -> Iterable[str]:
    for part in parts:
        match part:
            case {"type": kind, "text": str() as text} if kind in _TEXTS:
                yield text
            case {"type": "refusal", "refusal": str() as text} if is_answer:
                yield text
            case dict() if is_answer:
                pass
            case _:
                raise ValueError("contains a part that is not text: the model reads text only")


_TEXT_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "minItems": 1, "items": {
            "type": "object", "required": ["type", "text"],
            "properties": {"type": {"enum": [*_TEXTS]}, "text": {"type": "string"}},
        }},
        {"type": "null"},
    ]
}
MessageText = Annotated[str | None, BeforeValidator(_text), WithJsonSchema(_TEXT_SCHEMA)]


def _past_text(value: object) -> object:
    return "" if value is None else value


def _past_arguments(value: object) -> str:
    if value is None or (isinstance(value, str) and not value.strip()):
        return "{}"
    return value if isinstance(value, str) else dump_json(value, ensure_ascii=False, separators=(", ", ": "))


PastText = Annotated[str, BeforeValidator(_past_text), WithJsonSchema({"type": ["string", "null"]})]
PastArguments = Annotated[str, BeforeValidator(_past_arguments), WithJsonSchema({"type": ["string", "object", "null"]})]


def arguments_object(text: str) -> dict[str, Any] | None:
    """The arguments of an earlier call. None for a text that is not the JSON of an object."""
    try:
        value = read_json(text.encode())
    except InvalidJson:
        return None
    return value if isinstance(value, dict) else None


def require_kind(body: Any) -> None:
    """Raise ValueError unless a call or tool has its type's field.

    That is `function` or `custom`, and not both.
    """
    if (body.function is None) == (body.custom is None) or getattr(body, body.type) is None:
        raise ValueError(f"has one further field, `{body.type}`")


class CalledFunctionBody(StrictModel):
    """A call's function, and its arguments.

    The arguments are mostly the JSON text of an object, but any text is taken.
    """

    name: PastText
    arguments: PastArguments = "{}"
    parsed_arguments: Any = Field(None, description=NO_EFFECT)


class CalledCustomBody(StrictModel):
    """A call's custom tool, and the text for it."""

    name: PastText
    input: PastText


class CalledToolBody(StrictModel):
    """A call of a tool in a message of the assistant."""

    id: str | None = None
    type: Literal["function", "custom"] = "function"
    function: CalledFunctionBody | None = None
    custom: CalledCustomBody | None = None
    index: int | None = Field(None, description=NO_EFFECT)

    @model_validator(mode="after")
    def _require_kind(self) -> Self:
        require_kind(self)
        return self


class ConversationMessageBody(StrictModel):
    """One message of a conversation, as the chat API writes it. One of the role `tool` is the result of a call.

    Answers of chats are such messages, as they are or as OpenAI's client dumps them.
    """

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: MessageText = None
    name: str | None = None
    tool_calls: list[CalledToolBody] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = Field(None, description="vLLM's newer name of reasoning_content, which goes before it")
    refusal: str | None = Field(None, description=NO_EFFECT)
    annotations: list[Any] | None = Field(None, description=NO_EFFECT)
    parsed: Any = Field(None, description=NO_EFFECT)
    function_call: None = None
    audio: None = None

    @property
    def place(self) -> str:
        """As of a message of a chat."""
        return ""


class ToolParametersBody(StrictModel):
    """A function that the model may call. `parameters` is the JSON schema of its arguments."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class CustomGrammarBody(StrictModel):
    """A grammar in Lark, or a pattern."""

    syntax: Literal["lark", "regex"]
    definition: str


class CustomFormatBody(StrictModel):
    """The format of the text that a custom tool takes."""

    type: Literal["text", "grammar"]
    grammar: CustomGrammarBody | None = None


class ConversationCustomBody(StrictModel):
    """A tool that takes a text. Without a format it takes any text."""

    name: str
    description: str | None = None
    format: CustomFormatBody | None = None


class ConversationToolBody(StrictModel):
    """A tool of a conversation: a function or a custom tool."""

    type: Literal["function", "custom"]
    function: ToolParametersBody | None = None
    custom: ConversationCustomBody | None = None

    @model_validator(mode="after")
    def _require_kind(self) -> Self:
        require_kind(self)
        return self


Messages = Annotated[list[ConversationMessageBody], Field(max_length=MESSAGES_MAX, fail_fast=True)]
Tools = Annotated[list[ConversationToolBody], Field(max_length=TOOLS_MAX, fail_fast=True)]


def policy_params(
    policy: PolicyBody | None, tools: Sequence[ConversationToolBody] | None, messages: Sequence[_Message] = (),
    *, key: KeyPolicy | None = None, states_max: int = 0,
) -> PolicyParams | None:
    """A policy with its tools and the events of the messages. Without tools, those that are called may be called.

    key  the policy of the caller's API key, which holds as well
    """
    if policy is None:
        return None
    events = events_of(messages)
    schemas = _called_schemas(messages) if tools is None else schemas_of(tools)
    return PolicyParams(
        rules=policy.all_rules(), tools=schemas, events=events, assume=tuple(policy.assume),
        max_calls=policy.max_calls, states_max=states_max, key=key,
    )


def _called_schemas(messages: Sequence[_Message]) -> dict[str, dict[str, Any]]:
    """The schemas of tools of which calls alone are known."""
    calls = [call for message in messages if message.role == "assistant" for call in message.tool_calls or ()]
    functions = {call.function.name: ANY_OBJECT for call in calls if call.function}
    return functions | {call.custom.name: ANY_TEXT for call in calls if call.custom}


class _Function(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def parameters(self) -> dict[str, Any] | None: ...


class _Named(Protocol):
    @property
    def name(self) -> str: ...


class _Tool(Protocol):
    @property
    def function(self) -> _Function | None: ...
    @property
    def custom(self) -> _Named | None: ...


def schemas_of(tools: Sequence[_Tool]) -> dict[str, dict[str, Any]]:
    """The schema of the arguments of each tool. A custom tool takes a text, of which no condition holds."""
    functions = {tool.function.name: tool.function.parameters or NO_ARGUMENTS for tool in tools if tool.function}
    return functions | {tool.custom.name: ANY_TEXT for tool in tools if tool.custom}


class _CalledFunction(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def arguments(self) -> str: ...


class _CalledCustom(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def input(self) -> str: ...


class _Call(Protocol):
    @property
    def id(self) -> str | None: ...
    @property
    def function(self) -> _CalledFunction | None: ...
    @property
    def custom(self) -> _CalledCustom | None: ...


class _Message(Protocol):
    @property
    def role(self) -> str: ...
    @property
    def content(self) -> str | None: ...
    @property
    def tool_calls(self) -> Sequence[_Call] | None: ...
    @property
    def tool_call_id(self) -> str | None: ...
    @property
    def place(self) -> str: ...


def events_of(messages: Sequence[_Message]) -> list[PolicyEvent]:
    """The calls, results and replies of a conversation. What users and the system say is no event.

    A message of the assistant with calls is its calls alone. Arguments and results that are not JSON are strings.
    Raises InvalidRequest for a result without its call.
    """
    return list(_events(messages))


def _events(messages: Sequence[_Message]) -> Iterator[PolicyEvent]:
    tool_of: dict[str, str] = {}
    for number, message in enumerate(messages):
        if message.role == "assistant" and message.tool_calls:
            for call in message.tool_calls:
                tool, arguments = _called(call)
                tool_of[call.id or ""] = tool
                yield PolicyEvent("call", tool, arguments, number)
        elif message.role == "assistant":
            yield PolicyEvent("reply", "", None, number)
        elif message.role == "tool":
            answered = tool_of.get(message.tool_call_id or "")
            if answered is None:
                raise InvalidRequest(((_path(message, number), "no call before this result has its tool_call_id"),))
            yield PolicyEvent("result", answered, _content(message.content or ""), number)


def require_results(messages: Sequence[_Message]) -> None:
    """Raise InvalidRequest where a call has no result yet. The next event would be the result, not the model's."""
    waiting: dict[str, str] = {}
    for number, message in enumerate(messages):
        waiting |= {call.id or "": _path(message, number) for call in message.tool_calls or ()}
        waiting.pop(message.tool_call_id or "", None)
    for path in waiting.values():
        raise InvalidRequest(((path, "a call of this message has no result yet"),))


def _path(message: _Message, number: int) -> str:
    """The path of a message in the caller's request."""
    return message.place or f"messages.{number}"


def _called(call: _Call) -> tuple[str, Any]:
    """The tool of a call, and its arguments."""
    if call.function is not None:
        return call.function.name, _content(call.function.arguments)
    assert call.custom is not None
    return call.custom.name, call.custom.input


def _content(text: str) -> Any:
    """The JSON value of arguments or a result. Any other text is a string."""
    try:
        return _parsed(text)
    except ValueError:
        return text


def _parsed(text: str) -> Any:
    """The JSON value of a text. Raises ValueError, also for NaN and for a nesting that is too deep."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    try:
        value = json.loads(text, parse_constant=refuse, parse_float=read_float)
        json.dumps(value, allow_nan=False)  # 1e999 is read as infinity
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value
