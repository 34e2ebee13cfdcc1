"""Compares automata of finite sets with the sets themselves."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.automata import minimize, texts_dfa, words_dfa
from compiler.errors import LimitExceeded
from compiler.limits import Limits, ResourceGuard

TEXT = st.text(alphabet="ab é😀\n", max_size=5)


def guard(limits: Limits | None = None) -> ResourceGuard:
    return ResourceGuard(limits or Limits())


@settings(max_examples=150, deadline=None)
@given(st.lists(TEXT, max_size=8), TEXT)
def test_an_automaton_of_texts_accepts_exactly_these(texts: list[str], other: str) -> None:
    dfa = texts_dfa(texts, guard())
    assert all(dfa.accepts(text) for text in texts)
    assert dfa.accepts(other) == (other in texts)
    # The character that no text has is a symbol as well.
    assert not dfa.accepts("z")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), max_size=5), max_size=12))
def test_the_automaton_is_minimal(words: list[list[int]]) -> None:
    dfa = words_dfa(words, 4, guard())
    again = minimize(dfa)
    assert (dfa.states, dfa.next_state.tolist()) == (again.states, again.next_state.tolist())


def test_common_beginnings_and_ends_are_shared() -> None:
    texts = [f"a long beginning {number} and a long end" for number in range(100, 200)]
    assert texts_dfa(texts, guard()).dfa.states < 40


def test_texts_that_are_prefixes_of_each_other() -> None:
    dfa = texts_dfa(["ab" * length for length in range(1_200)], guard())
    assert dfa.accepts("ab" * 1_199) and dfa.accepts("") and not dfa.accepts("ab" * 1_200) and not dfa.accepts("aba")


def test_many_random_texts_fit_the_default_limits() -> None:
    rng = random.Random(0)
    texts = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=13)) for _ in range(5_000)]
    dfa = texts_dfa(texts, guard())
    assert all(dfa.accepts(text) for text in texts) and not dfa.accepts(texts[0][:-1])


def test_too_many_states_meet_the_limit() -> None:
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "table_bytes_max"):
        texts_dfa(["abc", "bcd", "cde"], guard(Limits(table_bytes_max=16)))
