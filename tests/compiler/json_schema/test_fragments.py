"""The states of products of fragments count against the compilation limit."""

from __future__ import annotations

import dataclasses

import pytest

from compiler.automata import words_dfa
from compiler.errors import LimitExceeded
from compiler.json_schema.fragments import Fragment, combine, fragment_of, product
from compiler.limits import DEFAULT_LIMITS, ResourceGuard


def guard(states: int = DEFAULT_LIMITS.dfa_states_max) -> ResourceGuard:
    """A guard of its own for each call: its time begins here."""
    return ResourceGuard(dataclasses.replace(DEFAULT_LIMITS, dfa_states_max=states))


def word(*symbols: int) -> Fragment:
    fragment = fragment_of(words_dfa([symbols], 2, guard()))
    assert fragment is not None
    return fragment


def test_a_union_has_one_dead_state() -> None:
    pairs = product([word(0), word(1)], guard(), (False, False))
    assert sorted(map(tuple, pairs.states.tolist())) == [(0, 0), (0, 2), (1, 1), (2, 0)]
    assert not pairs.table[0].any() and pairs.states[0].tolist() == [0, 0] and pairs.states[1].tolist() == [1, 1]


def test_the_states_of_a_union_count_against_the_limit() -> None:
    union = combine(word(0), word(1), "or", guard(4))
    assert union is not None and [union.run([0]), union.run([1]), union.run([0, 1])] == [1, 1, 0]
    with pytest.raises(LimitExceeded, match="dfa_states_max"):
        combine(word(0), word(1), "or", guard(3))
