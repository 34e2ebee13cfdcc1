"""Policies of chats: which replies and calls the rules leave possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fastapi import Request

from app.api.conversations import NO_RULES, events_of, require_results, schemas_of
from app.api.dependencies import key_policy_of, while_connected
from app.auth import KeyPolicy
from app.messages import PolicyResponse
from app.openai.chats.tools import ToolUse
from app.openai.requests import ChatRequest
from app.openai.tool_bodies import ToolBody
from app.service import PolicyParams, Service
from compiler.errors import PolicyUnsatisfiable


@dataclass(frozen=True, slots=True)
class AppliedPolicy:
    """A policy, and what it says of the messages."""

    params: PolicyParams
    decision: PolicyResponse


def chat_policy(request: ChatRequest, key: KeyPolicy | None) -> PolicyParams | None:
    """The policies of a chat and its API key. None without a policy.

    Raises InvalidRequest where a call has no result yet or the request weakens the key's policy, SpecSyntaxError and
    SpecUnsupported.
    """
    policy = NO_RULES if request.policy is None and key is not None else request.policy
    if policy is None:
        return None
    require_results(request.messages)
    return PolicyParams(
        rules=policy.all_rules(), tools=schemas_of(request.tools or ()), events=events_of(request.messages),
        assume=tuple(policy.assume), max_calls=policy.max_calls, key=key,
    )  # fmt: skip


async def applied_policy(request: Request, service: Service, body: ChatRequest) -> AppliedPolicy | None:
    """The policies of a chat and its API key, applied. None without a policy."""
    params = chat_policy(body, key_policy_of(request))
    if params is None:
        return None
    return AppliedPolicy(params, await while_connected(request, service.apply_policy(params)))


def under_policy(use: ToolUse | None, policy: AppliedPolicy) -> ToolUse | None:
    """The tools that an answer may call under a policy. It is a reply or one call.

    Raises PolicyUnsatisfiable where the rules leave nothing of what the request allows.
    """
    decision = policy.decision
    allowed = () if use is None else tuple(
        _narrowed(tool, decision) for tool in use.callable if tool.name in decision.tools
    )
    reply = decision.reply and not (use is not None and use.required)
    if not allowed and not reply:
        rules = tuple(decision.conflict or decision.open_rules)
        reason = f"{_shown(rules)}{_calls(policy)}"
        message = f"no event that the request allows keeps the policy: {reason}"
        raise PolicyUnsatisfiable(message, conflict=rules, past=tuple(decision.past))
    return None if use is None else replace(use, callable=allowed, required=not reply, parallel=False)


def _shown(rules: Sequence[str]) -> str:
    return "; ".join(rules) or "tool_choice excludes those that do"


def _calls(policy: AppliedPolicy) -> str:
    """How many calls are left, where more are needed."""
    left, needed = policy.params.calls_left, policy.decision.calls_needed
    if left is None or needed is None or needed <= left != 0:
        return ""
    own = left == policy.params.max_calls
    return f"; max_calls of {'the policy' if own else 'the policy of the API key'} is {left}"


def _narrowed(tool: ToolBody, decision: PolicyResponse) -> ToolBody:
    """The tool, whose arguments satisfy the rules that speak of them."""
    if tool.function is None:
        return tool
    function = tool.function.model_copy(update={"parameters": decision.tools[tool.name]})
    return tool.model_copy(update={"function": function})
