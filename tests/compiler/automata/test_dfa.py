"""Laws of automata over symbols and over characters.

Minimization is canonical, and Boolean operations act on languages.
"""

from __future__ import annotations

import itertools
import operator
import re

import numpy as np
import pytest

from compiler.automata import (
    SINK,
    CharDfa,
    Dfa,
    char_complement,
    char_intersection,
    char_union,
    complement,
    everything,
    explore,
    intersection,
    is_empty,
    live_states,
    minimize,
    union,
    unique_rows,
)
from compiler.automata.transducers import expand
from compiler.errors import LimitExceeded
from compiler.limits import DEFAULT_LIMITS, Limits, ResourceGuard
from compiler.regex import pattern_dfa
from tests.references.dfa import assert_same, equivalent, product
from tests.references.random_formulas import traces

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
@pytest.mark.sample(16)
def test_minimizing_keeps_the_language_and_is_idempotent(seed: int) -> None:
    dfa = random_dfa(seed)
    minimal = minimize(dfa)
    assert language(minimal) == language(dfa)
    assert is_empty(dfa) == (not any(language(dfa)))  # six states: a shortest word has at most five symbols
    assert minimal.states <= dfa.states
    assert_same(minimize(minimal), minimal)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sample(16)
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
@pytest.mark.sample(16)
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


def test_live_states_are_those_that_reach_acceptance() -> None:
    dfa = Dfa(np.zeros(1, np.int32), np.array([[1], [2], [2], [3]], np.int32), np.array([False, True, False, False]))
    assert live_states(dfa).tolist() == [True, True, False, False]


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


PATTERNS = ("[ab]*a", r"(?s).{2,4}", r"\w+", "a|é|日本", "", "[^a]*", r"\s?b?")
TEXTS = ["".join(text) for length in range(5) for text in itertools.product("ab é日", repeat=length)]


def texts_of(pattern: str) -> CharDfa:
    return CharDfa(*pattern_dfa(pattern, ResourceGuard(Limits())))


@pytest.mark.parametrize(("left", "right"), list(itertools.combinations(PATTERNS, 2)))
def test_operations_on_languages_are_operations_on_verdicts(left: str, right: str) -> None:
    guard = ResourceGuard(Limits())
    left_dfa, right_dfa = texts_of(left), texts_of(right)
    intersection, union, difference = (
        char_intersection([left_dfa, right_dfa], guard),
        char_union([left_dfa, right_dfa], guard),
        char_intersection([left_dfa, char_complement(right_dfa)], guard),
    )
    for text in TEXTS:
        first, second = (re.fullmatch(pattern, text) is not None for pattern in (left, right))
        verdicts = (intersection.accepts(text), union.accepts(text), difference.accepts(text))
        assert verdicts == (first and second, first or second, first and not second), text


def test_a_complement_is_one_within_valid_utf_8() -> None:
    complement = char_complement(texts_of("a*"))
    table = expand(
        complement.dfa.next_state[:, complement.dfa.symbol_class], complement.minterms, 10**6, ResourceGuard(Limits())
    )
    assert (table.table[: table.boundary, table.byte_class[0xC0]] == 10**6).all()  # no character begins with this byte
    assert not complement.accepts("\ud800") and complement.accepts("é")


def test_intersecting_zero_parts_accepts_all_and_one_part_is_unchanged() -> None:
    assert all(everything().accepts(text) for text in ("", "é", "\x00"))
    automaton = texts_of("ab")
    assert char_intersection([automaton], ResourceGuard(Limits())) is automaton
    assert char_intersection([], ResourceGuard(Limits())).accepts("anything")


@pytest.mark.parametrize("seed", range(20))
def test_the_intersection_of_words_is_minimal_and_exact(seed: int) -> None:
    parts = [random_dfa(3 * seed + number) for number in range(3)]
    result = intersection(parts, ResourceGuard(Limits()))
    assert result.states == minimize(result).states
    for word in traces(3, 4):
        assert result.accepts(word) == all(part.accepts(word) for part in parts)


def test_a_product_that_grows_too_large_is_stopped() -> None:
    parts = [texts_of(f"(?:[ab]{{{size}}})*") for size in (7, 11, 13, 17)]
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "dfa_states_max"):
        char_intersection(parts, ResourceGuard(Limits(dfa_states_max=1_000)))


def test_many_parts_are_joined_in_halves() -> None:
    parts = [texts_of(f"(?s:.*)[^{chr(97 + number)}]|") for number in range(24)] + [texts_of("(?s:.){0,9}")] * 40
    result = char_intersection(parts, ResourceGuard(Limits()))
    assert result.accepts("yz") and not result.accepts("ya")


def test_a_product_with_state_numbers_beyond_int64_is_exact() -> None:
    tables = [np.column_stack([np.minimum(np.arange(9_000) + 1, 8_999), np.zeros(9_000, dtype=np.int64)])] * 6
    live = [np.arange(9_000) < 3 + number for number in range(6)]
    result = explore(tables, live, [[0] * 6, [1, 0, 0, 0, 0, 0]], ResourceGuard(Limits()))
    expected = explore(
        [table[:20] % 20 for table in tables], [mask[:20] for mask in live], [[0] * 6], ResourceGuard(Limits())
    )
    state, same = result.starts[0], expected.starts[0]
    for column in (0, 0, 1, 0, 0, 0):
        state, same = result.next_state[state, column], expected.next_state[same, column]
        assert (state == SINK) == (same == SINK)
        assert state == SINK or result.component[state].tolist() == expected.component[same].tolist()


def test_a_product_explores_only_live_states() -> None:
    chain = np.minimum(np.arange(100)[:, None] + 1, 99)
    live = np.arange(100) < 5
    result = explore([chain, chain], [live, live], [[0, 0]], ResourceGuard(Limits()))
    assert len(result.next_state) == 6 and result.next_state[-1, 0] == SINK
