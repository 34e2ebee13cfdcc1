"""Compares Boolean operations on character automata with `re` and with plain loops."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from compiler.automata import (
    SINK,
    CharDfa,
    char_complement,
    char_intersection,
    char_union,
    everything,
    explore,
    minimize,
)
from compiler.automata import intersection as words_of_all
from compiler.automata.transducers import expand
from compiler.errors import LimitExceeded
from compiler.limits import Limits, ResourceGuard
from compiler.regex import pattern_dfa
from tests.compiler.automata.test_dfa import random_dfa
from tests.references.random_formulas import traces

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
    result = words_of_all(parts, ResourceGuard(Limits()))
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
