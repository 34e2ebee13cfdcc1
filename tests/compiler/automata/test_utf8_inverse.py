"""Automata over UTF-8 bytes, read as automata over characters. The byte automata are the reference."""

from __future__ import annotations

import operator
import random

import numpy as np
import pytest

from compiler.automata import CharDfa, Dfa, by_characters, minimize, utf8_inverse
from compiler.errors import LimitExceeded
from compiler.limits import Limits, ResourceGuard
from compiler.regex import pattern_dfa
from tests.references.byte_dfa import byte_dfa
from tests.references.dfa import equivalent, product

EDGES = (0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x3FFFF, 0x40000, 0xFFFFF, 0x100000, 0x10FFFF)


def random_byte_dfa(rng: random.Random, states: int, classes: int) -> Dfa:
    """A random DFA over bytes whose classes are a few runs. It distinguishes characters of every length."""
    cuts = sorted(rng.sample((*range(1, 256), 0x80, 0xC2, 0xE0, 0xED, 0xF0, 0xF4), classes - 1))
    symbol_class = np.searchsorted(cuts, np.arange(256), side="right").astype(np.int32)
    table = np.array([[rng.randrange(states) for _ in range(classes)] for _ in range(states)], dtype=np.int32)
    return Dfa(symbol_class, table, np.array([rng.random() < 0.5 for _ in range(states)]), rng.randrange(states))


def read_by_characters(rng: random.Random) -> tuple[Dfa, CharDfa]:
    """A random DFA over bytes, and the same over characters."""
    over_bytes = random_byte_dfa(rng, rng.randint(1, 6), rng.randint(2, 9))
    return over_bytes, by_characters(over_bytes, ResourceGuard(Limits()))


@pytest.mark.parametrize("seed", range(20))
def test_random_automata_over_bytes_agree_with_their_bytes(seed: int) -> None:
    rng = random.Random(seed)
    over_bytes, result = read_by_characters(rng)
    points = [*EDGES, *(rng.randrange(0x80) for _ in range(20)), *(rng.randrange(0x110000) for _ in range(60))]
    texts = [chr(point) for point in points if not 0xD800 <= point < 0xE000]
    for text in ["", *texts, *("".join(rng.choices(texts, k=rng.randint(2, 5))) for _ in range(150))]:
        assert result.accepts(text) == over_bytes.accepts(text.encode()), text


@pytest.mark.parametrize("seed", range(20))
def test_the_way_back_to_bytes_is_the_automaton_within_utf8(seed: int) -> None:
    over_bytes, result = read_by_characters(random.Random(seed))
    dfa, parts = pattern_dfa(r"[\s\S]*", ResourceGuard(Limits()))
    within_utf8 = product(over_bytes, byte_dfa(dfa, parts)[0], operator.and_)
    assert equivalent(byte_dfa(result.dfa, result.minterms)[0], within_utf8)
    assert minimize(result.dfa).states == result.dfa.states
    assert len(np.unique(result.dfa.symbol_class)) == result.minterms.count  # no two minterms act alike


@pytest.mark.parametrize("seed", range(5))
def test_blockwise_and_whole_composition_give_the_same_automaton(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    over_bytes = random_byte_dfa(random.Random(seed), 5, 8)
    expected = by_characters(over_bytes, ResourceGuard(Limits()))
    monkeypatch.setattr(utf8_inverse, "_CELLS", 60)
    result = by_characters(over_bytes, ResourceGuard(Limits()))
    assert (result.minterms.cuts == expected.minterms.cuts).all() and (
        result.minterms.cell == expected.minterms.cell
    ).all()
    assert (result.dfa.next_state == expected.dfa.next_state).all()


def test_characters_that_all_act_differently_meet_the_limit() -> None:
    rng = np.random.default_rng(0)
    table = rng.integers(0, 40, (40, 256)).astype(np.int32)
    random_dfa = Dfa(np.arange(256, dtype=np.int32), table, rng.random(40) < 0.5)
    with pytest.raises(LimitExceeded, check=lambda error: error.limit in ("table_bytes_max", "compile_s_max")):
        by_characters(random_dfa, ResourceGuard(Limits()))
