"""Applies a policy to a conversation, in the sandbox."""

from __future__ import annotations

from app.messages import BrokenRuleBody, PolicyEvent, PolicyJob, PolicyJobResult, PolicyStateBody
from compiler.limits import ResourceGuard
from compiler.policies import Event, EventKind, decide, read_policy, states_of


def apply_policy(job: PolicyJob, guard: ResourceGuard) -> PolicyJobResult:
    """What the policy of a job says of its events."""
    policy = read_policy(job.rules, job.tools, job.assume, guard, key_rules=job.key_rules)
    events = [Event(EventKind(event.kind), event.tool, event.value) for event in job.events]
    found = decide(policy, events, job.max_calls, guard)
    broken = tuple(
        BrokenRuleBody(each.rule, None, None)
        if each.event is None
        else BrokenRuleBody(each.rule, _shown(job.events[each.event]), job.events[each.event].message)
        for each in found.broken
    )
    states = tuple(
        PolicyStateBody(tuple(each.past), each.calls_needed, each.reply, tuple(each.tools))
        for each in states_of(policy, job.states_max)
    )
    return PolicyJobResult(
        satisfied=not broken, broken=broken, open_rules=tuple(found.open_rules), reply=found.following.reply,
        tools=found.following.arguments, calls_needed=found.calls_needed, conflict=tuple(found.conflict),
        past=tuple(found.past), states=states or None,
    )


def _shown(event: PolicyEvent) -> str:
    return f"{event.kind}({event.tool})" if event.tool else event.kind
