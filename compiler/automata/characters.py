"""Character sets, their coarsest common partition, and DFAs over its parts.

A character is a Unicode scalar value: surrogates belong to no set. What `\\w`, `\\d`, `\\s` and IGNORECASE mean is
asked of Python's own `re`, once per process, so that the answers agree with `re.fullmatch` on every version of Python.
A symbol of a `CharDfa` is a minterm, so a complement is one within valid UTF-8: no word of symbols spells bytes that
are not a text. Knows nothing of patterns, formulas or tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from compiler.automata import products
from compiler.automata.dfa import Dfa, complement
from compiler.automata.interning import unique_rows
from compiler.limits import ResourceGuard

CODE_POINTS = 0x110000
SURROGATES = (0xD800, 0xE000)
NO_MINTERM = -1  # in `Minterms.cell`: the interval of the surrogates, which no text holds

CharSet: TypeAlias = tuple[tuple[int, int], ...]  # sorted, disjoint, not adjacent, half-open, without surrogates

NOTHING: CharSet = ()
ANYTHING: CharSet = ((0, SURROGATES[0]), (SURROGATES[1], CODE_POINTS))
_NAMED = ((r"\w", r"\W"), (r"\d", r"\D"), (r"\s", r"\S"))
_NAME_PARTS_MAX = 6


def charset(intervals: Iterable[tuple[int, int]]) -> CharSet:
    """The set of the code points in any of the half-open `intervals`. These may overlap and come in any order."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(_drop_surrogates(intervals)):
        # Adjacent intervals are joined too: equal sets must be equal tuples, since sets are dictionary keys.
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def _drop_surrogates(intervals: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    first, end = SURROGATES
    for low, high in intervals:
        if high <= first or low >= end:
            pieces: tuple[tuple[int, int], ...] = ((low, high),)
        else:
            pieces = ((low, first), (end, high))
        yield from (piece for piece in pieces if piece[0] < piece[1])


def single(code_point: int) -> CharSet:
    """The set of one character; empty for a surrogate."""
    return charset(((code_point, code_point + 1),))


def charset_union(*sets: CharSet) -> CharSet:
    """The characters in any of `sets`."""
    return charset(interval for charset_ in sets for interval in charset_)


def charset_complement(charset_: CharSet) -> CharSet:
    """The characters that are not in `one`."""
    edges = [0, *(edge for interval in charset_ for edge in interval), CODE_POINTS]
    gaps = [(low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high]
    # The gaps are already sorted and disjoint, so only the one around the surrogates needs work.
    cut = [gap for gap in gaps if gap[0] < SURROGATES[1] and gap[1] > SURROGATES[0]]  # at most one
    if not cut:
        return tuple(gaps)
    gap_number = gaps.index(cut[0])
    return (*gaps[:gap_number], *_drop_surrogates(cut), *gaps[gap_number + 1 :])


def charset_intersection(left: CharSet, right: CharSet) -> CharSet:
    """The characters in both sets."""
    return charset_complement(charset_union(charset_complement(left), charset_complement(right)))


def contains(charset_: CharSet, code_point: int) -> bool:
    """True when the code point is in the set."""
    return any(low <= code_point < high for low, high in charset_)


@lru_cache(maxsize=1)
def _every_code_point() -> str:
    """The string whose character at i has code point i. Surrogates are included, so that offsets are code points."""
    return np.arange(CODE_POINTS, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")


@lru_cache(maxsize=32)
def category(escape: str, ascii_only: bool = False) -> CharSet:
    r"""The meaning of \w \W \d \D \s \S in `re`. `ascii_only` is its ASCII flag."""
    if escape[1].isupper():
        return charset_complement(category(escape.lower(), ascii_only))
    # One scan of all code points by `re` finds the intervals, in C.
    runs = re.compile(escape + "+", re.ASCII if ascii_only else re.NOFLAG)
    return charset(match.span() for match in runs.finditer(_every_code_point()))


@lru_cache(maxsize=1)
def _cased_characters() -> str:
    """The characters whose verdict IGNORECASE can change. These are characters with another case, and those cases."""
    every, cased = _every_code_point(), set[str]()
    # Most blocks have no cased character, which one comparison of whole strings shows.
    for block in (every[low : low + 256] for low in range(0, CODE_POINTS, 256)):
        if block.lower() != block or block.upper() != block:
            for char in block:
                cases = char.lower() + char.upper()
                if cases != char + char:
                    cased.update(char, cases)
    return "".join(sorted(cased))


@lru_cache(maxsize=1)
def _uncased_characters() -> CharSet:
    return charset_complement(charset((ord(char), ord(char) + 1) for char in _cased_characters()))


@lru_cache(maxsize=1024)
def ignore_case(source: str, case_sensitive: CharSet, ascii_only: bool = False) -> CharSet:
    r"""What the one-character pattern `source` matches under IGNORECASE.

    case_sensitive  the characters it matches without the flag. They are right for characters that have no case. The
                    others are matched by `re` itself, which has rules of its own: `k` takes U+212A, the Kelvin sign,
                    and U+00DF takes U+1E9E, but not "SS".
    """
    flags = re.IGNORECASE | (re.ASCII if ascii_only else re.NOFLAG)
    # Only cased characters are put to `re`: a few thousand instead of a million.
    cased = re.compile(source, flags).findall(_cased_characters())
    return charset_union(
        charset_intersection(case_sensitive, _uncased_characters()), tuple((ord(char), ord(char) + 1) for char in cased)
    )


@lru_cache(maxsize=4096)
def literal(code_point: int, fold_case: bool = False, ascii_only: bool = False) -> CharSet:
    """The set of one character, and of its other cases when `fold_case`."""
    case_sensitive = single(code_point)
    if not fold_case or not case_sensitive or any(low <= code_point < high for low, high in _uncased_characters()):
        return case_sensitive
    return ignore_case(re.escape(chr(code_point)), case_sensitive, ascii_only)


@lru_cache(maxsize=1024)
def describe(charset_: CharSet) -> str:
    r"""A short name for people: `'x'`, `[0-9]`, `[^a]`, `\w`, `any`; long ones are cut with an ellipsis."""
    if charset_ in (NOTHING, ANYTHING):
        return "any" if charset_ else "none"
    for escape in (name for pair in _NAMED for name in pair):
        if charset_ == category(escape):
            return escape
    other = charset_complement(charset_)
    if len(charset_) == 1 and charset_[0][1] - charset_[0][0] == 1:
        return repr(chr(charset_[0][0]))
    negated = len(other) < len(charset_) or (charset_[-1][1] == CODE_POINTS and len(other) <= len(charset_))
    parts = other if negated else charset_
    shown = "".join(_part(low, high) for low, high in parts[:_NAME_PARTS_MAX])
    return f"[{'^' if negated else ''}{shown}{'…' if len(parts) > _NAME_PARTS_MAX else ''}]"


def _part(low: int, high: int) -> str:
    ends = [_escape(code) for code in ((low,) if high - low == 1 else (low, high - 1))]
    return ("" if high - low == 2 else "-").join(ends)


def _escape(code: int) -> str:
    char = chr(code)
    if char in "\\]^-":
        return "\\" + char
    return char if char.isprintable() else repr(char)[1:-1]


@dataclass(frozen=True, slots=True, eq=False)
class Minterms:
    """The coarsest partition of the characters for a family of sets. Each set is a union of its parts.

    cuts     int32 [N]  first code point of each interval; cuts[0] = 0, ascending
    cell     int32 [N]  the minterm of each interval, NO_MINTERM for the surrogates
    count    how many minterms there are; they are numbered by their first code point
    members  for each set of the family, the minterms it is made of, ascending
    """

    cuts: np.ndarray
    cell: np.ndarray
    count: int
    members: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if self.cuts.shape != self.cell.shape or self.cuts[0] != 0 or (np.diff(self.cuts) <= 0).any():
            raise ValueError("cuts ascend from 0, one cell to each")
        if self.cell.max() >= self.count or self.cell.min() < NO_MINTERM:
            raise ValueError("cell names a minterm that does not exist")

    def of(self, code_points: np.ndarray) -> np.ndarray:
        """The minterm of each code point: int32, same shape."""
        return np.asarray(self.cell[np.searchsorted(self.cuts, code_points, side="right") - 1])

    def word(self, text: str) -> list[int]:
        """The minterm of each character of a text. NO_MINTERM for a lone surrogate."""
        return [int(minterm) for minterm in self.of(np.array([ord(char) for char in text], dtype=np.int64))]

    def representative(self, minterm: int) -> str:
        """The first character of the minterm."""
        return chr(int(self.cuts[np.argmax(self.cell == minterm)]))

    def sizes(self) -> np.ndarray:
        """How many characters each minterm has: int64 [M]."""
        real = self.cell != NO_MINTERM
        lengths = np.diff(np.append(self.cuts, CODE_POINTS))
        return np.bincount(self.cell[real], lengths[real], minlength=self.count).astype(np.int64)

    def charset(self, chosen: Iterable[int]) -> CharSet:
        """The characters of the minterms `chosen`, together."""
        ends = np.append(self.cuts[1:], CODE_POINTS)
        numbers = list(chosen)
        keep = self.cell == numbers[0] if len(numbers) == 1 else np.isin(self.cell, numbers)
        return charset(zip(self.cuts[keep].tolist(), ends[keep].tolist(), strict=True))


def minterms(sets: Sequence[CharSet]) -> Minterms:
    """The minterms of a family of character sets. The characters that lie in no set form one of them, if there are any.

    >>> parts = minterms([charset([(97, 123)]), charset([(120, 128)])])  # a-z, and x to U+007F
    >>> parts.count, parts.members, parts.word("ax~!")
    (4, ((1, 2), (2, 3)), [1, 2, 3, 0])
    """
    # [I, 2]: the ends of all intervals, and the set that each belongs to.
    ends = [interval for charset_ in sets for interval in charset_]
    flat = np.array(ends, dtype=np.int64).reshape(-1, 2)
    owner = np.repeat(np.arange(len(sets)), np.array([len(charset_) for charset_ in sets], dtype=np.int64))
    cuts = np.unique(np.concatenate([[0, *SURROGATES], flat.reshape(-1)]))
    cuts = cuts[cuts < CODE_POINTS]
    steps = np.zeros((len(sets) + 1, len(cuts) + 1), dtype=np.int8)  # a set's intervals are apart: sums are 0 or 1
    # +1 where an interval begins and -1 behind its end: the running sum is 1 inside a set.
    steps[owner, np.searchsorted(cuts, flat[:, 0])] += 1
    steps[owner, np.searchsorted(cuts, flat[:, 1])] -= 1
    inside = np.cumsum(steps[:, :-1], axis=1, dtype=np.int8).astype(bool)
    real = cuts != SURROGATES[0]
    # Intervals that lie in the same sets are one minterm. Eight sets a byte keep the rows short.
    first, which = unique_rows(np.packbits(inside[:, real], axis=0).T)
    cell = np.full(len(cuts), NO_MINTERM, dtype=np.int32)
    cell[real] = which
    of_first = inside[:, real][:, first]
    members = tuple(tuple(np.flatnonzero(of_first[row]).tolist()) for row in range(len(sets)))
    return Minterms(cuts.astype(np.int32), cell, len(first), members)


@dataclass(frozen=True, slots=True, eq=False)
class CharDfa:
    """A language of texts as a DFA.

    Symbol i is the minterm i. Raises ValueError where the numbers of symbols and minterms differ.
    """

    dfa: Dfa
    minterms: Minterms

    def __post_init__(self) -> None:
        if self.dfa.symbols != self.minterms.count:
            raise ValueError("a DFA over minterms has one symbol for each")

    def accepts(self, text: str) -> bool:
        """True when the text is in the language. A text with half a surrogate pair never is."""
        word = self.minterms.word(text)
        return NO_MINTERM not in word and self.dfa.accepts(word)


def everything() -> CharDfa:
    """All texts."""
    zero = np.zeros(1, dtype=np.int32)
    return CharDfa(Dfa(zero, zero.reshape(1, 1), np.ones(1, dtype=bool)), minterms(()))


def char_complement(part: CharDfa) -> CharDfa:
    """Exactly the texts that `part` rejects."""
    return CharDfa(complement(part.dfa), part.minterms)


def char_union(parts: Sequence[CharDfa], guard: ResourceGuard) -> CharDfa:
    """The texts in any part, minimal. Raises as `char_intersection` does."""
    return char_complement(char_intersection([char_complement(part) for part in parts], guard))


def char_intersection(parts: Sequence[CharDfa], guard: ResourceGuard) -> CharDfa:
    """The texts in every part, as a minimal DFA. Without parts these are all texts.

    Only pairs that are reachable, and alive in each part, are built.
    Raises LimitExceeded over `dfa_states_max`, `table_bytes_max` or `compile_s_max`.
    """
    if len(parts) < 2:
        return parts[0] if parts else everything()
    # The parts read different partitions of the characters: they are rewritten over the coarsest common one.
    common, members = common_minterms([part.minterms for part in parts])
    dfas = [
        Dfa(part.dfa.symbol_class[symbol_of], part.dfa.next_state, part.dfa.accepting, part.dfa.start)
        for part, symbol_of in zip(parts, members, strict=True)
    ]
    return coarsened(CharDfa(products.intersection(dfas, guard), common))


def coarsened(part: CharDfa) -> CharDfa:
    """The same language over as few minterms as it tells apart."""
    # Minterms that read the same column are one minterm of the result.
    cell = np.where(part.minterms.cell == NO_MINTERM, NO_MINTERM, part.dfa.symbol_class[part.minterms.cell])
    # A cut between two intervals of one minterm is no longer needed.
    keep = np.concatenate([[True], cell[1:] != cell[:-1]])
    columns = part.dfa.next_state.shape[1]
    merged = Minterms(part.minterms.cuts[keep], cell[keep].astype(np.int32), columns, ())
    return CharDfa(
        Dfa(np.arange(columns, dtype=np.int32), part.dfa.next_state, part.dfa.accepting, part.dfa.start), merged
    )


def common_minterms(families: Sequence[Minterms]) -> tuple[Minterms, list[np.ndarray]]:
    """The coarsest partition that refines all families.

    For each family it also gives the minterm that holds each part: int64 [M].
    """
    cuts = np.unique(np.concatenate([family.cuts for family in families]))
    # [N, F]: the minterm of each interval in each family. Equal rows are one minterm of the refinement.
    cells = np.column_stack([family.of(cuts) for family in families])
    real = cells[:, 0] != NO_MINTERM
    first, which = unique_rows(cells[real])
    cell = np.full(len(cuts), NO_MINTERM, dtype=np.int32)
    cell[real] = which
    members_of = cells[real][first]
    return Minterms(cuts.astype(np.int32), cell, len(first), ()), list(members_of.T.astype(np.int64))
