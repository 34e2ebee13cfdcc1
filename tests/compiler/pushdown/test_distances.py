"""Distances of pushdown automata against search over explicit configurations, on small vocabularies."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from compiler.lifting import UNREACHABLE
from compiler.pushdown import (
    ACCEPTED,
    BOTTOM,
    Configurations,
    ExitCosts,
    Grammar,
    PushdownMachine,
    PushdownTables,
    build_machine,
    call,
    lift_to_tokens,
    saturate,
    saturation,
)
from compiler.regex import Concat, literal_node
from compiler.vocab import Vocabulary
from tests.compiler.pushdown.grammars import GRAMMARS
from tests.compiler.pushdown.test_tokens import guard
from tests.references.pushdown import explicit_distances, toy_vocabulary
from tests.servers.cluster import FULL

QUICK = [name for name in GRAMMARS if name not in ("json", "tree", "sql")]  # the others take seconds: tests/long


def compared(machine: PushdownMachine, vocabulary: Vocabulary, heights: tuple[int, int]) -> tuple[int, list[object]]:
    """Counts configurations with low stacks, and lists those with wrong distances."""
    stacks, expected = explicit_distances(machine, vocabulary, heights[0])
    automaton = lift_to_tokens(machine, vocabulary, guard())
    assert automaton.min_tokens == expected.get((machine.start, BOTTOM), UNREACHABLE)
    states = Configurations(automaton)
    places = [(control, stacks.symbols(node), distance) for (control, node), distance in expected.items()]
    low = [place for place in places if place[0] != ACCEPTED and len(place[1]) <= heights[1]]
    return len(low), [place for place in low if states.distance_of(state_of(states, place[0], place[1])) != place[2]]


def state_of(states: Configurations, control: int, symbols: tuple[int, ...]) -> int:
    node = BOTTOM
    for symbol in reversed(symbols):
        node = states.stacks.push(symbol, node)
    return states.state_of([(control, node)])


@pytest.mark.parametrize("inline", [2_000, 0])
@pytest.mark.parametrize("name", QUICK)
@pytest.mark.sample(8)
def test_distances_are_those_of_explicit_search(name: str, inline: int) -> None:
    finite = 0
    for seed in range(3 if FULL else 2):
        draw = random.Random(f"{name} {seed}")
        machine = build_machine(GRAMMARS[name].grammar, guard(), inline_growth_max=inline)
        count, wrong = compared(machine, toy_vocabulary(GRAMMARS[name], draw), GRAMMARS[name].heights)
        assert wrong == []
        finite += count
    assert finite > 7


def test_real_weights_give_the_distances_of_dijkstra() -> None:
    for name in ("brackets", "arithmetic", "dangling else", "right recursion"):
        case, draw = GRAMMARS[name], random.Random(name)
        vocabulary = toy_vocabulary(case, draw)
        machine = build_machine(case.grammar, guard())
        automaton = lift_to_tokens(machine, vocabulary, guard())
        costs = [draw.uniform(0.5, 2) for _ in vocabulary.tokens]
        by_class = np.full(automaton.tables.classes, np.inf)
        np.minimum.at(by_class, automaton.tables.token_class, costs)
        distances = saturate(automaton.tables, guard(), by_class)
        states = Configurations(automaton, costs=ExitCosts(automaton.tables, distances))
        stacks, expected = explicit_distances(machine, vocabulary, case.heights[0], costs)
        count = 0
        for (control, node), distance in expected.items():
            symbols = stacks.symbols(node)
            if control != ACCEPTED and len(symbols) <= 2:
                cost = states.costs(np.array([state_of(states, control, symbols)]))[0]
                assert math.isclose(cost, distance, abs_tol=1e-9)
                count += 1
        assert count > 5


@pytest.mark.parametrize("name", ["brackets", "arithmetic", "json", "palindromes", "sql"])
@pytest.mark.parametrize("block", [saturation._BLOCK, 3])
@pytest.mark.sample(6)
def test_saturation_is_the_dense_fixpoint(name: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saturation, "_BLOCK", block)
    case = GRAMMARS[name]
    machine = build_machine(case.grammar, guard())
    tables = lift_to_tokens(machine, toy_vocabulary(case, random.Random(7)), guard()).tables
    through, behind = dense_fixpoint(tables)
    found = saturate(tables, guard())
    expected = np.argwhere(np.isfinite(through))
    assert np.array_equal(np.column_stack([found.landing, found.pending]), expected)
    assert np.array_equal(found.within, through[tuple(expected.T)])
    arrivals = ExitCosts(tables, found).arrivals
    for symbol, entered, arrival in zip(tables.entry_symbol, tables.entry_pending, tables.entry_arrival, strict=True):
        place, _ = arrivals.of(np.array([arrival]))
        expected = np.flatnonzero(np.isfinite(behind[symbol, entered]))
        assert np.array_equal(arrivals.pending[place], expected)
        assert np.array_equal(arrivals.cost[place], behind[symbol, entered, expected])
    unit = saturate(tables, guard(), np.ones(tables.classes))
    assert np.array_equal(unit.within, found.within) and np.array_equal(unit.pending, found.pending)


def dense_fixpoint(tables: PushdownTables) -> tuple[np.ndarray, np.ndarray]:
    """The equations of saturation, iterated over full matrices until nothing changes."""
    landings, size = len(tables.landing_state), tables.pendings
    through = np.full((landings, size), np.inf)
    behind = np.full((tables.symbols, size, size), np.inf)
    source, _, reached = tables.edges_of(np.arange(tables.states))
    edges = sorted(set(zip(source.tolist(), reached.tolist(), strict=True)))
    entries = zip(tables.entry_symbol, tables.entry_pending, tables.entry_arrival, strict=True)
    places = [((symbol, pending), int(arrival)) for symbol, pending, arrival in entries]

    def arrived(arrival: int) -> np.ndarray:
        least = np.full(size, np.inf)
        for item in tables.items(arrival).tolist():
            if item >= 0:
                least = np.minimum(least, through[item])
            else:
                least[~item] = 0
        return least

    while True:
        before = through.copy(), behind.copy()
        for landing in range(tables.states, landings):
            below, symbol = tables.landing_below[landing], tables.landing_symbol[landing]
            through[landing] = (through[below][:, None] + behind[symbol]).min(axis=0)
        for state, arrival in edges:
            through[state] = np.minimum(through[state], 1 + arrived(arrival))
        for place, arrival in places:
            behind[place] = arrived(arrival)
        if np.array_equal(before[0], through) and np.array_equal(before[1], behind):
            return through, behind


def test_distances_may_be_exponential_in_the_rules() -> None:
    def doubled(rules: int) -> int:
        """The fewest tokens of a text of 2 ** rules characters."""
        nodes = [Concat((call(rule + 1), call(rule + 1))) for rule in range(rules)]
        grammar = Grammar(tuple(map(str, range(rules + 1))), (*nodes, literal_node("x", False)))
        machine, vocabulary = build_machine(grammar, guard()), Vocabulary((None, b"x", b"xxx"), (0,))
        return lift_to_tokens(machine, vocabulary, guard()).min_tokens

    for rules in (0, 1, 5, 20):
        threes, ones = divmod(2**rules, 3)
        assert doubled(rules) == threes + ones + 1  # EOS
    assert doubled(40) == UNREACHABLE  # over what any budget allows


def test_members_over_the_limit_keep_the_nearest() -> None:
    case = GRAMMARS["palindromes"]
    machine: PushdownMachine = build_machine(case.grammar, guard())
    vocabulary = Vocabulary((None, b"a", b"b", b"ab", b"ba"), (0,))
    automaton = lift_to_tokens(machine, vocabulary, guard())
    every, few = Configurations(automaton), Configurations(automaton, members_max=3)
    draw = random.Random(3)
    exact, limited, dropped = every.start, few.start, 0
    for _ in range(30):
        after = few.distances_after(limited)
        choices = np.flatnonzero((after < UNREACHABLE) & (after > 0)).tolist()
        if not choices:
            break
        token_class = draw.choice(choices)
        token = int(np.flatnonzero(automaton.token_class == token_class)[0])
        exact, limited = every.advance(exact, token), few.advance(limited, token)
        dropped += len(every.members(exact)) - len(few.members(limited))
        assert len(few.members(limited)) <= 3
        assert UNREACHABLE > few.distance_of(limited) >= every.distance_of(exact)
    assert dropped > 3
    left = few.distance_of(limited)
    while not few.is_accepting(limited):  # what was kept can be finished within its distance
        after = few.distances_after(limited)
        assert after.min() == left - 1
        token = int(np.flatnonzero(automaton.token_class == after.argmin())[0])
        limited, left = few.advance(limited, token), left - 1
    assert left == 0
