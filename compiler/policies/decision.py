"""What a policy says of a conversation, and of its states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from compiler.automata import UNREACHABLE
from compiler.errors import SpecSyntaxError
from compiler.limits import ResourceGuard
from compiler.policies.events import Event, EventKind, EventProposition, read_proposition
from compiler.policies.letters import writable_within
from compiler.policies.policy import NextEvents, PolicyAutomaton, RuleViolation, compile_policy
from compiler.policies.rules import read_rules

KEY_MARK, KEY_FIELD = "key: ", "key.policy.rules"  # of a rule that an operator has bound to an API key


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDecision:
    """What a policy says after some events.

    broken        rules that the events break, or that are not met if the conversation ends here
    open_rules    rules that a reply now would leave unmet
    following     what may come next
    calls_needed  the fewest calls before a reply that satisfies, whatever the results are; None for none
    conflict      rules that cannot be met together any more, of which none can be left out; empty if all can be met
    past          where there is a conflict, the fewest events that lead to it, as text
    """

    broken: list[RuleViolation]
    open_rules: list[str]
    following: NextEvents
    calls_needed: int | None
    conflict: list[str]
    past: list[str]


@dataclass(frozen=True, slots=True)
class PolicyTurn:
    """A state in which it is the model's turn. It has a shortest past, as text."""

    past: list[str]
    calls_needed: int | None
    reply: bool
    tools: list[str]


def read_policy(
    rules: Sequence[str], tools: Mapping[str, dict[str, Any]], assume: Sequence[str], guard: ResourceGuard,
    *, key_rules: Sequence[str] = (),
) -> PolicyAutomaton:
    """The policy of these rules and assumptions.

    Rules of an API key hold as well. They may name any tools, and are marked by `KEY_MARK` in results. Raises
    SpecSyntaxError, SpecUnsupported and LimitExceeded.
    """
    guard.check("parts_max", len(rules) + len(key_rules) + len(assume))
    guard.check("formulas_chars_max", sum(map(len, [*rules, *key_rules, *assume])))
    assumed = [_assumption(text, number) for number, text in enumerate(assume)]
    of_key = [replace(rule, text=KEY_MARK + rule.text) for rule in read_rules(key_rules, None, guard, KEY_FIELD)]
    read = [*of_key, *read_rules(rules, tools, guard)]
    return compile_policy(read, tools, writable=writable_within(guard), guard=guard, assume=assumed)


def check_rules(rules: Sequence[str], assume: Sequence[str], guard: ResourceGuard) -> None:
    """Read rules and assumptions. Raises SpecSyntaxError, SpecUnsupported and LimitExceeded."""
    read_rules(rules, None, guard)
    for number, text in enumerate(assume):
        _assumption(text, number)


def decide(
    policy: PolicyAutomaton, events: Sequence[Event], max_calls: int | None, guard: ResourceGuard
) -> PolicyDecision:
    """What the policy says after these events. At most `max_calls` calls may still be made."""
    state = policy.state(events)
    conflict = policy.conflict(events, max_calls, guard)
    return PolicyDecision(
        broken=policy.violations(events, ended=True),
        open_rules=policy.open_rules(events),
        following=policy.next_events(state, max_calls),
        calls_needed=_finite(policy.distance[state]),
        conflict=conflict,
        past=policy.shortest_past(state) if conflict else [],
    )


def states_of(policy: PolicyAutomaton, states_max: int) -> list[PolicyTurn]:
    """The first states in which it is the model's turn."""
    found = []
    for state, past in policy.turns(states_max):
        following = policy.next_events(state)
        calls = _finite(policy.distance[state])
        found.append(PolicyTurn(past, calls, following.reply, list(following.arguments)))
    return found


def _finite(distance: int) -> int | None:
    return None if distance == UNREACHABLE else int(distance)


def _assumption(text: str, number: int) -> EventProposition:
    found = read_proposition(text, 0)
    if found is None or text[found[1] :].strip() or found[0].kind is not EventKind.RESULT or found[0].tool is None:
        message = "an assumption is the result of a tool"
        raise SpecSyntaxError(message, expected="result(tool, path = value)", field=f"policy.assume.{number}")
    return found[0]
