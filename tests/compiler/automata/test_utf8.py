"""The expansion to bytes and its inverse, over characters and byte strings."""

from __future__ import annotations

import operator
import random
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import compiler.automata.transducers
from compiler.automata import CharDfa, Dfa, by_characters, charset, minimize, minterms, utf8_inverse
from compiler.automata.characters import CODE_POINTS
from compiler.automata.transducers import expand
from compiler.errors import LimitExceeded
from compiler.limits import Limits, ResourceGuard
from compiler.regex import pattern_dfa
from tests.references.dfa import byte_dfa, equivalent, product

LENGTHS = ((1, 0, 0x80), (2, 0x80, 0x800), (3, 0x800, 0x10000), (4, 0x10000, CODE_POINTS))
CLASSES = [
    ".", r"(?s).", r"\w", r"\W", r"\s", r"\d", "[^a]", "a", "é", "😀", "(?i)k", r"[^\W\d_]", r"[^\s\S]",
    r"[\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff]", r"[\x7f\x80]", "[\U00010400-\U00010450]",
]  # fmt: skip


def pattern_bytes(pattern: str) -> tuple[Dfa, int]:
    return byte_dfa(*pattern_dfa(pattern, ResourceGuard(Limits())))


def scalars(low: int, high: int) -> np.ndarray:
    codes = np.arange(low, high)
    return codes[(codes < 0xD800) | (codes >= 0xE000)]


def encodings(low: int, high: int, length: int) -> np.ndarray:
    """The bytes of each character of a length: uint8 [N, length]."""
    text = "".join(map(chr, scalars(low, high).tolist()))
    return np.frombuffer(text.encode(), dtype=np.uint8).reshape(-1, length)


def accepted_strings(dfa: Dfa, length: int) -> int:
    """The number of accepted byte strings of a length, by full enumeration."""
    ways = np.zeros(dfa.states, dtype=object)
    ways[dfa.start] = 1
    for _ in range(length):
        following = np.zeros(dfa.states, dtype=object)
        for byte in range(256):
            np.add.at(following, dfa.next_state[:, dfa.symbol_class[byte]], ways)
        ways = following
    return int(ways[dfa.accepting].sum())


@pytest.mark.parametrize("pattern", CLASSES)
@pytest.mark.sample(3)
def test_a_class_accepts_exactly_the_encodings_of_its_characters(pattern: str) -> None:
    dfa, _ = pattern_bytes(pattern)
    reference = re.compile(pattern)
    for length, low, high in LENGTHS:
        state = np.full(len(scalars(low, high)), dfa.start)
        for column in encodings(low, high, length).T:
            state = dfa.next_state[state, dfa.symbol_class[column]]
        expected = [reference.fullmatch(chr(code)) is not None for code in scalars(low, high).tolist()]
        assert dfa.accepting[state].tolist() == expected
        assert accepted_strings(dfa, length) == sum(expected)  # so that no other string of bytes is accepted
    assert accepted_strings(dfa, 0) == accepted_strings(dfa, 5) == 0


@pytest.mark.parametrize(
    "invalid",
    [
        *(b"\x80", b"\xbf", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xff", b"\xfe"),  # torn apart
        *(b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xe0\x9f\xbf"),  # overlong
        *(b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf"),
        *(b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xed\xa0\xbd\xed\xb8\x80"),  # surrogates
        *(b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf8\x88\x80\x80\x80"),  # past U+10FFFF
    ],
)
def test_invalid_utf_8_leads_to_the_dead_state(invalid: bytes) -> None:
    dfa, boundary = pattern_bytes(r"(?s).*")
    state = dfa.run(invalid)
    assert state == 0 or state >= boundary
    assert not dfa.accepting[state]
    with pytest.raises(UnicodeDecodeError):
        invalid.decode()


@pytest.mark.parametrize(
    "pattern", [r"\w+(?: \w+){0,3}", r"[^\n]{1,5}", "(?i)straße|kelvin", "é|è|ü{2}", r"(?s).*", "ab|cd"]
)
def test_the_expansion_of_a_minimal_automaton_is_minimal(pattern: str) -> None:
    dfa, _ = pattern_bytes(pattern)
    minimal = minimize(dfa)
    assert (minimal.states, minimal.next_state.shape[1]) == (dfa.states, dfa.next_state.shape[1])


def test_states_are_ordered_dead_boundary_inner() -> None:
    dfa, boundary = pattern_bytes("(?:é|x)+")
    assert (dfa.next_state[0] == 0).all() and not dfa.accepting[0] and not dfa.accepting[boundary:].any()
    assert dfa.run(b"x") < boundary <= dfa.run(b"\xc3") and dfa.run("é".encode()) < boundary


edges = st.sampled_from([0, 0x41, 0x7F, 0x80, 0x81, 0x7FF, 0x800, 0x1234, 0xE000, 0xFFFF, 0x10000, CODE_POINTS])
intervals = st.lists(st.tuples(edges, edges).map(lambda pair: (min(pair), max(pair))), max_size=3)


@given(st.lists(intervals, min_size=1, max_size=4), st.integers(0, 9), st.integers(0, 2**32 - 1))
def test_opaque_codes_are_emitted_on_the_last_byte(family: list[list[tuple[int, int]]], dead: int, seed: int) -> None:
    parts = minterms([charset(one) for one in family])
    table = np.random.default_rng(seed).integers(0, 10, (3, parts.count))
    result = expand(table, parts, dead, ResourceGuard(Limits()))
    assert result.boundary == 3 and len(result.table) == 3 + result.inner
    for code in [*range(0x78, 0x88), 0x7FF, 0x800, 0x1233, 0x1234, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x1F600, 0x10FFFF]:
        for row in range(3):
            assert walk(result, row, chr(code).encode()) == table[row, parts.word(chr(code))[0]]


def walk(result: compiler.automata.transducers.ByteTable, row: int, encoded: bytes) -> int:
    """The code that the bytes of one character reach. A dead prefix stays dead."""
    for number, byte in enumerate(encoded):
        entry = int(result.table[row, result.byte_class[byte]])
        if entry >= 0:
            assert number == len(encoded) - 1 or entry == int(result.table[0, result.byte_class[0xFF]])
            return entry
        row = result.boundary - 1 - entry
    raise AssertionError("the character does not end with its last byte")


def test_rows_that_differ_only_in_ascii_share_inner_states() -> None:
    parts = minterms([charset([(0x61, 0x62)]), charset([(0x80, 0x900)])])
    single_row = expand(np.array([[1, 2, 3]]), parts, 0, ResourceGuard(Limits()))
    five_rows = expand(np.array([[1, code, 3] for code in range(5)]), parts, 0, ResourceGuard(Limits()))
    assert single_row.inner == five_rows.inner > 0


def test_a_fully_dead_table_has_no_inner_state() -> None:
    result = expand(np.array([[7, 1]]), minterms([charset([(0x61, 0x62)])]), 7, ResourceGuard(Limits()))
    assert result.inner == 0
    assert result.table[0, result.byte_class].tolist() == [1 if byte == 0x61 else 7 for byte in range(256)]


def test_colliding_hashes_cost_time_but_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    dfa, parts = pattern_dfa(r"\w(?: [à-ü])?", ResourceGuard(Limits()))
    honest, _ = byte_dfa(dfa, parts)
    monkeypatch.setattr(compiler.automata.transducers, "mix", lambda values: np.zeros(values.shape, dtype=np.uint64))
    colliding, _ = byte_dfa(dfa, parts)
    expected, result = minimize(honest), minimize(colliding)
    assert colliding.states == honest.states and (expected.next_state == result.next_state).all()


def test_inner_rows_over_the_byte_limit_are_refused_early() -> None:
    dfa, parts = pattern_dfa(r"\w{1,50}", ResourceGuard(Limits()))
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "table_bytes_max"):
        byte_dfa(dfa, parts, ResourceGuard(Limits(table_bytes_max=100_000)))


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
@pytest.mark.sample(10)
def test_random_automata_over_bytes_agree_with_their_bytes(seed: int) -> None:
    rng = random.Random(seed)
    over_bytes, result = read_by_characters(rng)
    points = [*EDGES, *(rng.randrange(0x80) for _ in range(20)), *(rng.randrange(0x110000) for _ in range(60))]
    texts = [chr(point) for point in points if not 0xD800 <= point < 0xE000]
    for text in ["", *texts, *("".join(rng.choices(texts, k=rng.randint(2, 5))) for _ in range(150))]:
        assert result.accepts(text) == over_bytes.accepts(text.encode()), text


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.sample(8)
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
        by_characters(random_dfa, ResourceGuard(Limits(table_bytes_max=1_000_000)))
