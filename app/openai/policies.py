"""Policies of chats: which replies and calls the rules leave possible."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from app.api.conversations import (
    ANY_OBJECT,
    NO_ARGUMENTS,
    CalledFunctionBody,
    CalledToolBody,
    ConversationMessageBody,
    events_of,
    require_results,
)
from app.messages import PolicyResponse
from app.openai.requests import ChatRequest, MessageBody, MessageToolCallBody
from app.openai.tool_bodies import ToolBody
from app.openai.tools import ToolUse
from app.service import PolicyParams
from compiler.errors import SpecUnsatisfiable


def chat_policy(request: ChatRequest) -> PolicyParams | None:
    """The policy of a chat, its tools and events. None without a policy.

    Raises InvalidRequest where a call has no result yet, SpecSyntaxError and SpecUnsupported.
    """
    if request.policy is None:
        return None
    messages = [_conversation_message(message) for message in request.messages]
    require_results(messages)
    tools = {tool.name: _schema(tool) for tool in request.tools or ()}
    return PolicyParams(
        rules=request.policy.all_rules(), tools=tools, events=events_of(messages),
        assume=tuple(request.policy.assume), max_calls=request.policy.max_calls,
    )  # fmt: skip


def under_policy(use: ToolUse | None, decision: PolicyResponse) -> ToolUse | None:
    """The tools that an answer may call under a policy. It is a reply or one call.

    Raises SpecUnsatisfiable where the rules leave nothing of what the request allows.
    """
    allowed = () if use is None else tuple(
        _narrowed(tool, decision) for tool in use.callable if tool.name in decision.tools
    )
    reply = decision.reply and not (use is not None and use.required)
    if not allowed and not reply:
        rules = tuple(decision.conflict or decision.open_rules)
        raise SpecUnsatisfiable(f"no event that the request allows keeps the rules of the policy: {_shown(rules)}",
                                conflict=rules)  # fmt: skip
    return None if use is None else replace(use, callable=allowed, required=not reply, parallel=False)


def _shown(rules: Sequence[str]) -> str:
    return "; ".join(rules) or "tool_choice excludes those that do"


def _schema(tool: ToolBody) -> dict[str, object]:
    if tool.function is None:
        return dict(ANY_OBJECT)  # a custom tool takes a text, which no condition describes
    return tool.function.parameters or NO_ARGUMENTS


def _narrowed(tool: ToolBody, decision: PolicyResponse) -> ToolBody:
    """The tool, whose arguments satisfy the rules that speak of them."""
    if tool.function is None:
        return tool
    function = tool.function.model_copy(update={"parameters": decision.tools[tool.name]})
    return tool.model_copy(update={"function": function})


def _conversation_message(message: MessageBody) -> ConversationMessageBody:
    calls = None if message.tool_calls is None else [_called(call) for call in message.tool_calls]
    return ConversationMessageBody(
        role=message.role, content=message.content, tool_calls=calls, tool_call_id=message.tool_call_id
    )


def _called(call: MessageToolCallBody) -> CalledToolBody:
    if call.function is not None:
        function = CalledFunctionBody(name=call.function.name, arguments=call.function.arguments)
    else:
        assert call.custom is not None
        function = CalledFunctionBody(name=call.custom.name, arguments=json.dumps(call.custom.input))
    return CalledToolBody(id=call.id or "", function=function)
