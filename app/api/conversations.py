"""Conversations of requests, and the events that a policy sees in them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field

from app.auth import KeyPolicy
from app.errors import InvalidRequest
from app.formats import NO_ARGUMENTS
from app.messages import PolicyEvent, StrictModel
from app.service import PolicyParams
from compiler.policies import read_decl

ANY_OBJECT: dict[str, Any] = {"type": "object"}
RULES_MAX, MESSAGES_MAX, TOOLS_MAX = 256, 10_000, 1_000


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


class CalledFunctionBody(StrictModel):
    """A call's function, and its arguments as JSON text."""

    name: str
    arguments: str


class CalledToolBody(StrictModel):
    """A call of a tool in a message of the assistant."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunctionBody


class ConversationMessageBody(StrictModel):
    """One message of a conversation, as the chat API writes it. One of the role `tool` is the result of a call."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | None = None
    name: str | None = None
    tool_calls: list[CalledToolBody] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


class ToolParametersBody(StrictModel):
    """A function that the model may call. `parameters` is the JSON schema of its arguments."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ConversationToolBody(StrictModel):
    """A tool of a conversation. Only functions are tools."""

    type: Literal["function"]
    function: ToolParametersBody


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
    if tools is None:
        schemas = {event.tool: ANY_OBJECT for event in events if event.tool}
    else:
        schemas = {tool.function.name: tool.function.parameters or NO_ARGUMENTS for tool in tools}
    return PolicyParams(
        rules=policy.all_rules(), tools=schemas, events=events, assume=tuple(policy.assume),
        max_calls=policy.max_calls, states_max=states_max, key=key,
    )


class _Function(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def arguments(self) -> str: ...


class _Call(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def function(self) -> _Function: ...


class _Message(Protocol):
    @property
    def role(self) -> str: ...
    @property
    def content(self) -> str | None: ...
    @property
    def tool_calls(self) -> Sequence[_Call] | None: ...
    @property
    def tool_call_id(self) -> str | None: ...


def events_of(messages: Sequence[_Message]) -> list[PolicyEvent]:
    """The calls, results and replies of a conversation. What users and the system say is no event.

    A message of the assistant with calls is its calls alone. Raises InvalidRequest for arguments that are no JSON, and
    for a result without its call.
    """
    return list(_events(messages))


def _events(messages: Sequence[_Message]) -> Iterator[PolicyEvent]:
    tool_of: dict[str, str] = {}
    for number, message in enumerate(messages):
        if message.role == "assistant" and message.tool_calls:
            for place, call in enumerate(message.tool_calls):
                tool_of[call.id] = call.function.name
                where = f"messages.{number}.tool_calls.{place}.function.arguments"
                arguments = _arguments(call.function.arguments, where)
                yield PolicyEvent("call", call.function.name, arguments, number)
        elif message.role == "assistant":
            yield PolicyEvent("reply", "", None, number)
        elif message.role == "tool":
            tool = tool_of.get(message.tool_call_id or "")
            if tool is None:
                raise InvalidRequest(((f"messages.{number}", "no call before this result has its tool_call_id"),))
            yield PolicyEvent("result", tool, _content(message.content or ""), number)


def require_results(messages: Sequence[_Message]) -> None:
    """Raise InvalidRequest where a call has no result yet. The next event would be the result, not the model's."""
    waiting: dict[str, int] = {}
    for number, message in enumerate(messages):
        waiting |= {call.id: number for call in message.tool_calls or ()}
        waiting.pop(message.tool_call_id or "", None)
    for number in waiting.values():
        raise InvalidRequest(((f"messages.{number}", "a call of this message has no result yet"),))


def _arguments(text: str, where: str) -> Any:
    try:
        return _parsed(text or "{}")
    except ValueError:
        raise InvalidRequest(((where, "the arguments of a call are JSON"),)) from None


def _content(text: str) -> Any:
    """A result's JSON value. Any other text is a string."""
    try:
        return _parsed(text)
    except ValueError:
        return text


def _parsed(text: str) -> Any:
    """The JSON value of a text. Raises ValueError, also for NaN and for a nesting that is too deep."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    try:
        value = json.loads(text, parse_constant=refuse)
        json.dumps(value, allow_nan=False)  # 1e999 is read as infinity
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value
