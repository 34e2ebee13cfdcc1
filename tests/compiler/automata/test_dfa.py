"""Laws of automata: minimization is canonical, and Boolean operations act on languages."""

from __future__ import annotations

import operator

import numpy as np
import pytest

from compiler.automata import Dfa, complement, intersection, is_empty, live_states, minimize, union, unique_rows
from compiler.errors import LimitExceeded
from compiler.limits import DEFAULT_LIMITS, Limits, ResourceGuard
from tests.references.dfa import assert_same, equivalent, product
from tests.references.random_formulas import traces
from tests.references.shortest_word import shortest_word

WORDS = list(traces(3, 5))


def random_dfa(seed: int, states: int = 6, symbols: int = 3) -> Dfa:
    draw = np.random.default_rng(seed)
    columns = int(draw.integers(1, symbols + 1))
    return Dfa(
        draw.integers(0, columns, symbols).astype(np.int32),
        draw.integers(0, states, (states, columns)).astype(np.int32),
        draw.random(states) < 0.4,
        int(draw.integers(states)),
    )


def language(dfa: Dfa) -> list[bool]:
    return [dfa.accepts(word) for word in WORDS]


@pytest.mark.parametrize("seed", range(40))
def test_minimizing_keeps_the_language_and_is_idempotent(seed: int) -> None:
    dfa = random_dfa(seed)
    minimal = minimize(dfa)
    assert language(minimal) == language(dfa)
    assert minimal.states <= dfa.states
    assert_same(minimize(minimal), minimal)


@pytest.mark.parametrize("seed", range(40))
def test_equal_languages_have_equal_minimal_arrays(seed: int) -> None:
    dfa = random_dfa(seed)
    draw = np.random.default_rng(seed + 1_000)
    order = draw.permutation(dfa.states)
    next_state = np.empty_like(dfa.next_state)
    next_state[order] = order[dfa.next_state]
    accepting = np.empty_like(dfa.accepting)
    accepting[order] = dfa.accepting
    permuted_dfa = Dfa(dfa.symbol_class, next_state, accepting, int(order[dfa.start]))
    assert_same(minimize(dfa), minimize(permuted_dfa))
    assert equivalent(dfa, permuted_dfa)


@pytest.mark.parametrize("seed", range(40))
def test_products_and_complements_are_those_of_the_languages(seed: int) -> None:
    left, right = random_dfa(seed), random_dfa(seed + 500)
    guard = ResourceGuard(DEFAULT_LIMITS)
    both, sum_dfa = intersection([left, right], guard), union([left, right], guard)
    assert equivalent(both, product(left, right, operator.and_))
    assert equivalent(sum_dfa, product(left, right, operator.or_))
    pairs = list(zip(language(left), language(right), strict=True))
    assert language(both) == [a and b for a, b in pairs]
    assert language(sum_dfa) == [a or b for a, b in pairs]
    assert language(complement(left)) == [not a for a in language(left)]
    assert equivalent(left, right) == (
        minimize(left).states == minimize(right).states and language(left) == language(right)
    )


@pytest.mark.parametrize("seed", range(40))
def test_a_shortest_word_is_accepted_and_none_is_shorter(seed: int) -> None:
    dfa = random_dfa(seed)
    word = shortest_word(dfa)
    accepted = [candidate for candidate in WORDS if dfa.accepts(candidate)]
    assert is_empty(dfa) == (word is None)
    if word is None:
        assert not accepted
    else:
        assert dfa.accepts(word)
        assert not accepted or len(word) == len(accepted[0])


def test_live_states_are_those_that_reach_acceptance() -> None:
    dfa = Dfa(np.zeros(1, np.int32), np.array([[1], [2], [2], [3]], np.int32), np.array([False, True, False, False]))
    assert live_states(dfa).tolist() == [True, True, False, False]


def test_a_product_over_the_limit_is_refused() -> None:
    ring = [
        Dfa(np.zeros(1, np.int32), np.roll(np.arange(n), -1)[:, None].astype(np.int32), np.arange(n) == 0)
        for n in (17, 19)
    ]
    with pytest.raises(LimitExceeded, match="dfa_states_max"):
        intersection(ring, ResourceGuard(Limits(dfa_states_max=100)))


@pytest.mark.parametrize(
    ("symbol_class", "next_state", "accepting", "start"),
    [([0], [[2]], [True], 0), ([1], [[0]], [True], 0), ([0], [[0]], [True, False], 0), ([0], [[0]], [True], 1)],
)
def test_an_inconsistent_automaton_cannot_be_constructed(
    symbol_class: list[int], next_state: list[list[int]], accepting: list[bool], start: int
) -> None:
    with pytest.raises(ValueError, match=r"state|column|shape|accepting"):
        Dfa(np.array(symbol_class, np.int32), np.array(next_state, np.int32), np.array(accepting), start)


def test_unique_rows_numbers_rows_by_first_appearance() -> None:
    draw = np.random.default_rng(3)
    for width in (1, 2, 7):
        rows = draw.integers(0, 3, (200, width))
        first, inverse = unique_rows(rows)
        assert np.array_equal(rows[first][inverse], rows)
        assert sorted(first.tolist()) == first.tolist()
        assert len(first) == len({tuple(row) for row in rows.tolist()})


def test_unique_rows_survives_a_hash_that_always_collides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.automata.interning.hash_rows", lambda rows: np.zeros(len(rows), dtype=np.uint64))
    rows = np.array([[1, 2], [3, 4], [1, 2]])
    first, inverse = unique_rows(rows)
    assert np.array_equal(rows[first][inverse], rows)
    assert len(first) == 2
