"""Sets of characters against Python's own sets and string methods."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.automata import (
    ANYTHING,
    NO_MINTERM,
    CharSet,
    Minterms,
    category,
    charset,
    charset_complement,
    charset_union,
    contains,
    describe,
    ignore_case,
    literal,
    minterms,
    single,
)
from compiler.automata.characters import CODE_POINTS, NOTHING, charset_intersection

SCALARS = [code for code in range(CODE_POINTS) if not 0xD800 <= code < 0xE000]
EDGES = [0, 1, 0x41, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xD800, 0xDFFF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF, CODE_POINTS]
interval = st.tuples(st.sampled_from(EDGES), st.sampled_from(EDGES)).map(lambda pair: (min(pair), max(pair)))
char_sets = st.lists(interval, max_size=4).map(charset)


def points(char_set: CharSet) -> set[int]:
    return {code for low, high in char_set for code in range(low, high)}


@given(st.lists(interval, max_size=4))
def test_a_set_holds_its_scalar_values_in_canonical_form(intervals: list[tuple[int, int]]) -> None:
    char_set = charset(intervals)
    edges = [edge for pair in char_set for edge in pair]
    assert edges == sorted(set(edges))
    for code in (*EDGES[:-1], 0xD900):
        is_member = any(low <= code < high for low, high in intervals) and not 0xD800 <= code < 0xE000
        assert contains(char_set, code) == is_member


@given(char_sets, char_sets)
def test_set_operations_are_those_of_sets(left: CharSet, right: CharSet) -> None:
    for code in EDGES[:-1]:
        scalar = not 0xD800 <= code < 0xE000
        assert contains(charset_union(left, right), code) == (contains(left, code) or contains(right, code))
        assert contains(charset_intersection(left, right), code) == (contains(left, code) and contains(right, code))
        assert contains(charset_complement(left), code) == (scalar and not contains(left, code))
    assert charset_complement(charset_complement(left)) == left


def test_adjacent_and_overlapping_intervals_become_one() -> None:
    assert charset([(5, 9), (1, 3), (3, 5), (7, 12)]) == ((1, 12),)
    assert charset([(0, CODE_POINTS)]) == ANYTHING
    assert charset([(0xD800, 0xE000)]) == NOTHING == single(0xD900)


@pytest.mark.parametrize(
    ("escape", "holds"),
    [
        (r"\w", lambda char: char.isalnum() or char == "_"),
        (r"\d", str.isdecimal),
        (r"\s", str.isspace),
    ],
)
def test_categories_are_those_of_str(escape: str, holds: object) -> None:
    assert callable(holds)
    expected = {code for code in SCALARS if holds(chr(code))}
    assert points(category(escape)) == expected
    assert category(escape.upper()) == charset_complement(category(escape))
    in_ascii = {code for code in expected if code < 128 and code not in range(28, 32)}  # re.ASCII leaves those four out
    assert points(category(escape, ascii_only=True)) == in_ascii


@pytest.mark.parametrize("text", ["k", "s", "ß", "İ", "ı", "µ", "ΐ", "ϐ", "ﬅ", "Ǆ", "\U00010400", "1", "_", "é"])
@pytest.mark.sample(3)
def test_folding_a_literal_is_what_re_does_with_every_character(text: str) -> None:
    every = "".join(map(chr, SCALARS))
    expected = {ord(char) for char in re.findall(re.escape(text), every, re.IGNORECASE)}
    assert points(literal(ord(text), fold_case=True)) == expected
    assert points(literal(ord(text), fold_case=True, ascii_only=True)) == {
        ord(char) for char in re.findall(re.escape(text), every, re.IGNORECASE | re.ASCII)
    }
    assert literal(ord(text)) == single(ord(text))


@pytest.mark.parametrize(
    "source", ["[a-z]", "[^a-z]", r"[\Wk]", "[\u00b5-\u00f0]", "[\U00010400-\U00010410]", "[^\U00010400x]"]
)
@pytest.mark.sample(2)
def test_folding_a_class_is_what_re_does_with_every_character(source: str) -> None:
    every = "".join(map(chr, SCALARS))
    unfolded = charset((ord(char), ord(char) + 1) for char in re.findall(source, every))
    assert points(ignore_case(source, unfolded)) == set(map(ord, re.findall(source, every, re.IGNORECASE)))


@given(st.lists(char_sets, max_size=5))
def test_minterms_are_the_coarsest_partition(sets: list[CharSet]) -> None:
    parts = minterms(sets)
    codes = np.array([code for code in EDGES[:-1] if not 0xD800 <= code < 0xE000])
    membership = [tuple(contains(char_set, code) for char_set in sets) for code in codes.tolist()]
    cells = parts.of(codes).tolist()
    assert len(set(zip(membership, cells, strict=True))) == len(set(membership)) == len(set(cells)) == parts.count
    for char_set, members in zip(sets, parts.members, strict=True):
        assert parts.charset(members) == char_set
    assert parts.charset(range(parts.count)) == ANYTHING
    lengths = [sum(end - begin for begin, end in parts.charset([part])) for part in range(parts.count)]
    assert parts.sizes().tolist() == lengths


def test_surrogates_are_in_no_minterm() -> None:
    parts = minterms([ANYTHING])
    assert parts.of(np.array([0xD7FF, 0xD800, 0xDFFF, 0xE000])).tolist() == [0, NO_MINTERM, NO_MINTERM, 0]
    assert parts.word("a\ud912") == [0, NO_MINTERM]


def test_minterms_are_numbered_by_first_character_and_have_a_representative() -> None:
    parts = minterms([charset([(0x61, 0x7B)]), single(0x6D)])
    assert [parts.representative(part) for part in range(parts.count)] == ["\0", "a", "m"]
    assert parts.members == ((1, 2), (2,))
    assert parts.word("zm!") == [1, 2, 0]


def test_an_inconsistent_partition_is_refused() -> None:
    cuts, cell = np.array([0, 5], dtype=np.int32), np.array([0, 1], dtype=np.int32)
    with pytest.raises(ValueError, match="cell names"):
        Minterms(cuts, cell, 1, ())
    with pytest.raises(ValueError, match="cuts ascend"):
        Minterms(cuts[::-1].copy(), cell, 2, ())


@pytest.mark.parametrize(
    ("char_set", "name"),
    [
        (single(0x78), "'x'"),
        (single(0x0A), r"'\n'"),
        (charset([(0x30, 0x3A)]), "[0-9]"),
        (charset([(0x61, 0x63), (0x5D, 0x5E)]), r"[\]ab]"),
        (charset_complement(single(0x61)), "[^a]"),
        (charset_complement(charset([(0x61, 0x64), (0x00, 0x20)])), r"[^\x00-\x1fa-c]"),
        (category(r"\w"), r"\w"),
        (category(r"\S"), r"\S"),
        (ANYTHING, "any"),
        (NOTHING, "none"),
        (charset((code, code + 1) for code in range(0x61, 0x7B, 2)), "[acegik…]"),
    ],
)
def test_sets_have_short_names(char_set: CharSet, name: str) -> None:
    assert describe(char_set) == name
