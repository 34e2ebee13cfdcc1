"""The next events of a conversation, beside a search over all conversations."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from compiler.automata import UNREACHABLE
from compiler.errors import LimitExceeded, SpecSyntaxError
from compiler.limits import DEFAULT_LIMITS, Limits, ResourceGuard
from compiler.policies import Event, EventKind, read_decl
from compiler.policies.events import EventProposition, read_proposition
from compiler.policies.letters import writable_within
from compiler.policies.policy import PolicyAutomaton, compile_policy
from compiler.policies.rules import Rule, read_rules
from tests.references.ltlf import satisfies

AMOUNT = {"type": "object", "properties": {"amount": {"type": "integer", "minimum": 0}}, "required": ["amount"]}
TOOLS: dict[str, dict[str, Any]] = {"refund": AMOUNT, "notify": {"type": "object"}, "approve": {"type": "object"}}
REPLY = Event(EventKind.REPLY)


def policy_of(rules: Sequence[str], tools: dict[str, Any] = TOOLS, assume: Sequence[str] = ()) -> PolicyAutomaton:
    guard = ResourceGuard(DEFAULT_LIMITS)
    assumed = [found[0] for found in (read_proposition(text, 0) for text in assume) if found]
    return compile_policy(
        read_rules(rules, tools, guard), tools, writable=writable_within(guard), guard=guard, assume=assumed
    )


def call(tool: str, **arguments: Any) -> Event:
    return Event(EventKind.CALL, tool, arguments)


def result(tool: str, **content: Any) -> Event:
    return Event(EventKind.RESULT, tool, content)


# --- examples -------------------------------------------------------------------------------------------------------


def test_an_obligation_is_met_before_the_reply() -> None:
    policy = policy_of(["response(refund, notify)"])
    past = [call("refund", amount=5), result("refund")]
    after = policy.next_events(policy.state(past))
    assert not after.reply and set(after.arguments) == set(TOOLS)
    assert policy.open_rules(past) == ["response(refund, notify)"]
    last = policy.next_events(policy.state(past), calls=1)
    assert set(last.arguments) == {"notify"}
    assert policy.next_events(policy.state([*past, call("notify"), result("notify")]), calls=0).reply


def test_what_comes_first_is_called_first() -> None:
    policy = policy_of(["precedence(approve, refund)"])
    assert set(policy.next_events(policy.state([])).arguments) == {"approve", "notify"}
    assert set(policy.next_events(policy.state([call("approve"), result("approve")])).arguments) == set(TOOLS)


def test_the_last_call_comes_before_the_reply() -> None:
    policy = policy_of(read_decl("End[notify]"))
    assert not policy.next_events(policy.state([])).reply and set(policy.next_events(0).arguments) == set(TOOLS)
    past = [call("notify"), result("notify")]
    assert policy.next_events(policy.state(past)).reply
    assert set(policy.next_events(policy.state([*past, REPLY, call("refund"), result("refund")]), 1).arguments) == {
        "notify"
    }


def test_arguments_are_constrained_by_the_rules_that_speak_of_them() -> None:
    policy = policy_of(["G(call(refund, amount > 100) -> O(result(approve, ok = true)))"])
    schema = policy.next_events(policy.state([])).arguments["refund"]
    validator = Draft202012Validator(schema)
    assert [validator.is_valid({"amount": amount}) for amount in (0, 100, 101)] == [True, True, False]
    approved = [call("approve"), result("approve", ok=True)]
    assert policy.next_events(policy.state(approved)).arguments["refund"] == AMOUNT
    refused = [call("approve"), result("approve", ok=False)]
    assert policy.next_events(policy.state(refused)).arguments["refund"] == schema


def test_a_rule_that_depends_on_a_result_needs_an_assumption() -> None:
    rules = ["existence(result(approve, ok = true))"]
    assert policy_of(rules).distance[0] == UNREACHABLE
    assumed = policy_of(rules, assume=["result(approve, ok = true)"])
    assert assumed.distance[assumed.automaton.start] == 1


def test_what_contradictory_assumptions_say_is_refused() -> None:
    with pytest.raises(SpecSyntaxError, match="no result of approve satisfies all that is assumed"):
        policy_of([], assume=["result(approve, ok = true)", "result(approve, ok = false)"])


def test_combinations_that_no_arguments_have_are_left_out() -> None:
    tools = {"refund": AMOUNT | {"properties": {"amount": {"type": "integer", "maximum": 50}}}}
    policy = policy_of(["F call(refund, amount > 100)"], tools)
    assert policy.distance[policy.automaton.start] == UNREACHABLE
    assert policy.next_events(policy.state([])).arguments == {}
    assert policy.conflict([], None, ResourceGuard(DEFAULT_LIMITS)) == ["F call(refund, amount > 100)"]


def test_rules_that_conflict_are_named_with_the_shortest_past() -> None:
    policy = policy_of(["response(refund, notify)", "absence(notify)", "existence(approve)"])
    past = [call("notify"), result("notify"), call("refund", amount=1), result("refund")]
    guard = ResourceGuard(DEFAULT_LIMITS)
    assert policy.conflict([], None, guard) == []
    assert policy.conflict(past, None, guard) == ["absence(notify)"]
    past = past[2:]
    assert policy.conflict(past, None, guard) == ["response(refund, notify)", "absence(notify)"]
    assert policy.conflict([], 0, guard) == ["existence(approve)"]
    assert policy.shortest_past(policy.state(past)) == ["call(refund)"]


def test_violations_name_the_event_that_broke_a_rule() -> None:
    policy = policy_of(["precedence(approve, refund)", "response(refund, notify)", "existence(approve)"])
    events = [call("notify"), result("notify"), call("refund", amount=1), result("refund"), REPLY]
    found = {each.rule: each.event for each in policy.violations(events, ended=True)}
    assert found == {"precedence(approve, refund)": 2, "response(refund, notify)": None, "existence(approve)": None}
    open_ones = {each.rule for each in policy.violations(events, ended=False)}
    assert open_ones == {"precedence(approve, refund)"}


def test_events_of_unknown_tools_count_as_events_of_any_tool() -> None:
    policy = policy_of(["absence(call, 2)"])
    state = policy.state([call("former tool"), result("former tool")])
    assert policy.next_events(state).arguments == {}
    assert policy.next_events(state).reply


def test_too_many_conditions_of_one_tool_are_refused_by_limit() -> None:
    rules = [f"G(call(refund, amount != {number}))" for number in range(8)]
    guard = ResourceGuard(Limits(letters_max=100))
    with pytest.raises(LimitExceeded, match="letters_max"):
        compile_policy(read_rules(rules, TOOLS, guard), TOOLS, writable=writable_within(guard), guard=guard)


# --- a search over all conversations --------------------------------------------------------------------------------

SMALL: dict[str, dict[str, Any]] = {
    "a": {"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"], "additionalProperties": False},
    "b": {"type": "object", "additionalProperties": False},
}
_CALLS = [call("a", x=1), call("a", x=2), call("b")]
_RESULTS = {"a": [result("a", ok=True), result("a", ok=False)], "b": [result("b")]}
_NAMES = ["call(a)", "call(b)", "call(a, x = 1)", "call(a, x > 1)", "result(a, ok = true)", "reply", "call", "result"]
_TEMPLATES = ["response", "precedence", "chain_response", "alternate_response", "not_succession", "chain_precedence"]


def random_rule(rng: random.Random) -> str:
    a, b = rng.sample(_NAMES, 2)
    return rng.choice(
        [
            f"{rng.choice(_TEMPLATES)}({a}, {b})",
            f"existence({a})",
            f"absence({a}, {rng.randint(1, 3)})",
            f"end({a})",
            f"G({a} -> O {b})",
            f"F({a} & Y {b})",
            f"F({a} & X({b} | X {a}))",
            f"{a} | F({b} & X(reply))",
            f"G({a} -> X(!{a} U {b}))",
        ]
    )


class Search:
    """Plays every conversation. Rules are judged by the evaluator on the trace, conditions by their own truth."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = rules
        self.wins = cache(self._wins)

    def satisfied(self, events: Sequence[Event]) -> bool:
        return all(
            satisfies(rule.formula, [self._names(event, rule.propositions) for event in events]) for rule in self.rules
        )

    def _names(self, event: Event, propositions: dict[str, EventProposition]) -> frozenset[str]:
        return frozenset(
            name for name, each in propositions.items()
            if each.kind is event.kind and each.tool in (None, event.tool)
            and all(condition.holds(event.value) for condition in each.conditions)
        )  # fmt: skip

    def _wins(self, played: str, calls: int) -> bool:
        """Whether the model can end these events well with this many calls."""
        events = [_event(row) for row in json.loads(played)]
        if self.satisfied([*events, REPLY]):
            return True
        return calls > 0 and any(self.call_wins(events, each, calls) for each in _CALLS)

    def call_wins(self, events: Sequence[Event], made: Event, calls: int) -> bool:
        return all(self.wins(_text([*events, made, each]), calls - 1) for each in _RESULTS[made.tool])


def _text(events: Sequence[Event]) -> str:
    return json.dumps([(event.kind.value, event.tool, event.value) for event in events])


def _event(row: Sequence[Any]) -> Event:
    return Event(EventKind(row[0]), row[1], row[2])


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.sample(10)
def test_next_events_are_those_of_a_search_over_conversations(seed: int) -> None:
    rng = random.Random(seed)
    texts = [random_rule(rng) for _ in range(rng.randint(1, 3))]
    policy = policy_of(texts, SMALL)
    search = Search(read_rules(texts, SMALL, ResourceGuard(DEFAULT_LIMITS)))
    for _ in range(4):
        events: list[Event] = []
        for _ in range(rng.randint(0, 2)):
            made = rng.choice(_CALLS)
            events += [made, rng.choice(_RESULTS[made.tool])]
            if rng.random() < 0.2:
                events.append(REPLY)
        state = policy.state(events)
        for calls in range(4):
            assert bool(policy.distance[state] <= calls) is search.wins(_text(events), calls), (texts, events, calls)
            following = policy.next_events(state, calls)
            assert following.reply is search.satisfied([*events, REPLY]) is policy.allows(state, REPLY, calls)
            for made in _CALLS:
                schema = following.arguments.get(made.tool)
                allowed = schema is not None and Draft202012Validator(schema).is_valid(made.value)
                assert policy.allows(state, made, calls) is allowed
                assert allowed is (calls > 0 and search.call_wins(events, made, calls)), (texts, events, made, calls)
