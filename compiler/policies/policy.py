"""Which events may come next, so that all rules can be met.

The rules are one automaton over the letters of events. On it, the model plays against the results of its calls: it
chooses the call and its arguments, and any possible result may follow. The distance of a state is the fewest calls
with which the model reaches a reply that satisfies all rules, whatever the results are; it is the value of a
reachability game, found by iteration from above.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from compiler.automata import UNREACHABLE, Dfa, live_states, minimize, product
from compiler.errors import SpecSyntaxError, SpecUnsupported, require, shown_name
from compiler.limits import ResourceGuard
from compiler.ltlf import formula_to_dfa
from compiler.policies.events import Event, EventKind, EventProposition
from compiler.policies.letters import ANY_OBJECT, Letters, Writable, letters_of, schema_of
from compiler.policies.rules import Rule

Move: TypeAlias = tuple[tuple[int, ...], list[str]]
"""Letters that follow each other, and the events that they are, as text."""


@dataclass(frozen=True, slots=True)
class NextEvents:
    """What may come next.

    reply      whether the model may reply
    arguments  the schemas of the arguments, for each tool that it may call
    """

    reply: bool
    arguments: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class RuleViolation:
    """A rule that a conversation breaks.

    event  the number of the first event after which it cannot be met; None where the conversation ends before it is
    """

    rule: str
    event: int | None


@dataclass(frozen=True, kw_only=True)
class PolicyAutomaton:
    """Rules as an automaton, with a distance for each state.

    rules     the texts of the rules
    letters   what events are to the rules
    tools     the schemas of the arguments of the tools that may be called
    possible  for each tool, the letters that its calls can be, and those that its results can be
    automaton the conjunction of the rules over the letters
    parts     the automaton of each rule
    distance  int32 [S], the fewest calls to a reply that satisfies, whatever the results are; UNREACHABLE for none
    """

    rules: tuple[str, ...]
    letters: Letters
    tools: dict[str, dict[str, Any]]
    possible: dict[str, tuple[list[int], list[int]]]
    automaton: Dfa
    parts: tuple[Dfa, ...]
    distance: np.ndarray

    def state(self, events: Iterable[Event]) -> int:
        """The state of the automaton after these events."""
        return self.automaton.run(self.letters.number(event) for event in events)

    def next_events(self, state: int, calls: int | None = None) -> NextEvents:
        """What may come next. At most `calls` calls may still be made; None for any number."""
        limit = UNREACHABLE - 1 if calls is None else calls
        arguments = {}
        for tool, schema in self.tools.items():
            made, _ = self.possible[tool]
            allowed = [letter for letter in made if self._after_call(state, letter, tool) < limit]
            conditions = self.letters.conditions.get((EventKind.CALL, tool), ())
            holds = [{self.letters.letters[letter].holds for letter in letters} for letters in (allowed, made)]
            fitting = schema_of(schema, conditions, *holds)
            if fitting is not None:
                arguments[tool] = fitting
        return NextEvents(bool(self._may_reply[state]), arguments)

    def allows(self, state: int, event: Event, calls: int | None = None) -> bool:
        """Whether a reply or a call may come next. The arguments of a call are taken to satisfy its schema."""
        if event.kind is EventKind.REPLY:
            return bool(self._may_reply[state])
        limit = UNREACHABLE - 1 if calls is None else calls
        return event.tool in self.tools and self._after_call(state, self.letters.number(event), event.tool) < limit

    def _after_call(self, state: int, letter: int, tool: str) -> int:
        """The greatest distance after a call and any of its results."""
        after = self.automaton.step(state, letter)
        _, results = self.possible[tool]
        return max(int(self.distance[self.automaton.step(after, result)]) for result in results)

    @cached_property
    def _may_reply(self) -> np.ndarray:
        return _accepts_reply(self.automaton, self.letters)

    def violations(self, events: Sequence[Event], ended: bool) -> list[RuleViolation]:
        """The rules that these events break. Where the conversation has ended, those that are not met count as well."""
        symbols = [self.letters.number(event) for event in events]
        found = []
        for rule, dfa in zip(self.rules, self.parts, strict=True):
            live, state, broken = live_states(dfa), dfa.start, None
            for number, symbol in enumerate(symbols):
                state = dfa.step(state, symbol)
                if not live[state]:
                    broken = number
                    break
            if broken is not None or (ended and symbols and not dfa.accepting[state]):
                found.append(RuleViolation(rule, broken))
        return found

    def open_rules(self, events: Sequence[Event]) -> list[str]:
        """The rules that a reply after these events would leave unmet."""
        symbols = [*map(self.letters.number, events), self.letters.number(Event(EventKind.REPLY))]
        return [rule for rule, dfa in zip(self.rules, self.parts, strict=True) if not dfa.accepts(symbols)]

    def conflict(self, events: Sequence[Event], calls: int | None, guard: ResourceGuard) -> list[str]:
        """Rules that cannot be met together after these events.

        None of them can be left out. It is empty where all can be met.
        """
        symbols = [self.letters.number(event) for event in events]
        limit = UNREACHABLE - 1 if calls is None else calls

        def can_be_met(kept: Sequence[int]) -> bool:
            joint = _conjunction([self.parts[number] for number in kept], len(self.letters.letters), guard)
            distance = _distances(joint, self.letters, self.possible, guard)
            return bool(distance[joint.run(symbols)] <= limit)

        if self.distance[self.automaton.run(symbols)] <= limit:
            return []
        kept = list(range(len(self.rules)))
        for number in list(kept):
            without = [each for each in kept if each != number]
            if not can_be_met(without):
                kept = without
        return [self.rules[number] for number in kept]

    def shortest_past(self, state: int) -> list[str]:
        """The fewest events that lead to a state, as text."""
        moves = [((letter,), [self._shown(letter)]) for letter in range(len(self.letters.letters))]
        return next(past for reached, past in self._pasts(moves, self.automaton.states) if reached == state)

    def turns(self, states_max: int) -> Iterator[tuple[int, list[str]]]:
        """States in which it is the model's turn, with their pasts.

        The nearest come first. In these pasts every call is followed by a result, and by nothing that cannot be.
        """
        moves: list[Move] = [((self.letters.number(Event(EventKind.REPLY)),), [EventKind.REPLY.value])]
        for tool, (made, results) in self.possible.items():
            for turn in itertools.product(made, results):
                moves.append((turn, [self._shown(letter, tool) for letter in turn]))
        return self._pasts(moves, states_max)

    def _pasts(self, moves: Sequence[Move], states_max: int) -> Iterator[tuple[int, list[str]]]:
        """The first states that moves lead to. A shortest sequence of events to each is text."""
        waiting: deque[tuple[int, list[str]]] = deque([(self.automaton.start, [])])
        seen = {self.automaton.start}
        while waiting:
            state, past = waiting.popleft()
            yield state, past
            for letters, texts in moves:
                following = self.automaton.run(letters, state)
                if following not in seen and len(seen) < states_max:
                    seen.add(following)
                    waiting.append((following, [*past, *texts]))

    def _shown(self, number: int, tool: str = "") -> str:
        letter = self.letters.letters[number]
        conditions = self.letters.conditions.get((letter.kind, letter.tool), ())
        held = tuple(condition for index, condition in enumerate(conditions) if index in letter.holds)
        return str(EventProposition(letter.kind, letter.tool or tool or None, held))


def compile_policy(
    rules: Sequence[Rule],
    tools: Mapping[str, dict[str, Any]],
    *,
    writable: Writable,
    guard: ResourceGuard,
    assume: Sequence[EventProposition] = (),
) -> PolicyAutomaton:
    """The policy of these rules for these tools.

    tools     the schema of each tool's arguments, by name
    writable  whether a JSON Schema has an instance that can be written
    assume    results that satisfy their conditions whenever their tools answer
    Raises SpecSyntaxError where assumptions contradict each other, and LimitExceeded over letters_max, dfa_states_max,
    bdd_nodes_max or compile_s_max.
    """
    propositions = {name: each for rule in rules for name, each in rule.propositions.items()}
    letters = letters_of([*propositions.values(), *assume], guard)
    names = letters.true_names(propositions)
    assumed = {str(each): each for each in assume}
    assumed_names = letters.true_names(assumed)
    parts = tuple(formula_to_dfa(rule.formula, names, guard) for rule in rules)
    automaton = _conjunction(parts, len(letters.letters), guard)
    possible = {}
    for number, (tool, schema) in enumerate(tools.items()):
        required = {name for name, each in assumed.items() if each.tool == tool}
        results = letters.satisfiable(EventKind.RESULT, tool, {}, writable)
        kept = [number for number in results if required <= assumed_names[number]]
        require(bool(kept), f"no result of {shown_name(tool)} satisfies all that is assumed of it", "policy.assume")
        with _blamed(tool, number):
            possible[tool] = letters.satisfiable(EventKind.CALL, tool, schema or ANY_OBJECT, writable), kept
    distance = _distances(automaton, letters, possible, guard)
    texts = tuple(rule.text for rule in rules)
    return PolicyAutomaton(
        rules=texts,
        letters=letters,
        tools=dict(tools),
        possible=possible,
        automaton=automaton,
        parts=parts,
        distance=distance,
    )


@contextmanager
def _blamed(tool: str, number: int) -> Iterator[None]:
    """Names the tool and the place in errors of its schema."""
    try:
        yield
    except (SpecSyntaxError, SpecUnsupported) as error:
        place = error.field.removeprefix("json_schema").removeprefix(".")
        error.field = ".".join(filter(None, (f"tools.{number}.function.parameters", place)))
        error.args = (f'tool "{tool}"{place and f", {place}"}: {error}',)
        raise


def _conjunction(parts: Sequence[Dfa], letters: int, guard: ResourceGuard) -> Dfa:
    if not parts:  # no rule: everything is allowed
        return Dfa(np.zeros(letters, np.int32), np.zeros((1, 1), np.int32), np.ones(1, bool))
    return minimize(product(parts, [live_states(part) for part in parts], guard), guard)


def _accepts_reply(automaton: Dfa, letters: Letters) -> np.ndarray:
    """bool [S], whether a reply satisfies the rules."""
    reply = letters.number(Event(EventKind.REPLY))
    return np.asarray(automaton.accepting[automaton.next_state[:, automaton.symbol_class[reply]]])


def _distances(
    automaton: Dfa, letters: Letters, possible: Mapping[str, tuple[list[int], list[int]]], guard: ResourceGuard
) -> np.ndarray:
    """int32 [S], the fewest calls to a reply that satisfies. They hold whatever the results are."""
    distance = np.where(_accepts_reply(automaton, letters), 0, UNREACHABLE).astype(np.int64)
    successors = automaton.next_state[:, automaton.symbol_class]  # [S, letters]
    while True:
        guard.check_time()
        best = distance.copy()
        for made, results in possible.values():
            if made:
                worst = distance[successors[:, results]].max(axis=1)  # [S], after the call
                best = np.minimum(best, worst[successors[:, made]].min(axis=1) + 1)
        best = np.minimum(best, UNREACHABLE)
        if np.array_equal(best, distance):
            return distance.astype(np.int32)
        distance = best
