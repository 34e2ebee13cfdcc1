"""Translates automata over UTF-8 bytes to automata over characters.

It is the inverse of `compiler.automata.transducers`.

What a character does is the composition of what its bytes do, a function on the states between characters. Code points
with equal functions are one class. Functions are interned after each byte, so that the work is in the distinct ones.
"""

from __future__ import annotations

import numpy as np

from compiler.automata.characters import CODE_POINTS, NO_MINTERM, SURROGATES, CharDfa, Minterms
from compiler.automata.dfa import Dfa, live_states, minimize
from compiler.automata.interning import unique_rows
from compiler.automata.products import intersection
from compiler.limits import ResourceGuard

_BYTES = 256
_ASCII = slice(0x00, 0x80)
_CONTINUATION = slice(0x80, 0xC0)
_LEADS_2, _LEADS_3, _LEADS_4 = slice(0xC2, 0xE0), slice(0xE0, 0xF0), slice(0xF0, 0xF5)
_FIRST_3, _FIRST_4 = 0x800, 0x10000  # the first code points of three and of four bytes
_CELLS = 1_000_000  # of candidate functions compared at a time: some 30 MB
_CELL_BYTES = 4


def _utf8_dfa() -> Dfa:
    """The DFA over bytes of the valid UTF-8 texts."""
    boundary, one_more, two_more, three_more, after_e0, after_ed, after_f0, after_f4, dead = range(9)
    table = np.full((9, _BYTES), dead, dtype=np.int32)
    table[boundary, _ASCII] = boundary
    table[boundary, _LEADS_2], table[boundary, _LEADS_3], table[boundary, 0xF1:0xF4] = one_more, two_more, three_more
    table[boundary, 0xE0], table[boundary, 0xED] = after_e0, after_ed
    table[boundary, 0xF0], table[boundary, 0xF4] = after_f0, after_f4
    table[[one_more, two_more, three_more], _CONTINUATION] = np.array([[boundary], [one_more], [two_more]])
    table[after_e0, 0xA0:0xC0] = one_more  # below, the form is overlong
    table[after_ed, 0x80:0xA0] = one_more  # above lie the surrogates
    table[after_f0, 0x90:0xC0] = two_more
    table[after_f4, 0x80:0x90] = two_more  # above, no code points
    return Dfa(np.arange(_BYTES, dtype=np.int32), table, np.arange(9) == boundary, boundary)


def by_characters(dfa: Dfa, guard: ResourceGuard) -> CharDfa:
    """The valid UTF-8 texts whose bytes `dfa` accepts.

    `dfa` reads 256 symbols; the result is minimal, over classes of characters.

    Raises LimitExceeded over `dfa_states_max`, `table_bytes_max` (of the distinct functions) or `compile_s_max`.
    """
    # Bytes that are no UTF-8 must not make two states differ.
    valid = intersection([dfa, _utf8_dfa()], guard)
    over_bytes = valid.next_state[:, valid.symbol_class]  # [S, 256]
    live = live_states(valid)
    # a live state lies between characters where the text may end or a character may begin
    begins = live[over_bytes]
    begins[:, _CONTINUATION] = False
    boundary = np.flatnonzero(~live | valid.accepting | begins.any(axis=1))
    # Code points with one function on the states between characters are one class.
    functions, cell = _functions(over_bytes, boundary, guard)
    parts, used = _minterms(cell)
    index = np.zeros(valid.states, dtype=np.int32)
    index[boundary] = np.arange(len(boundary))
    # [B, M]: where each class leads from each state between characters.
    table = index[functions[used]].T
    start = int(index[valid.start])
    smallest = minimize(Dfa(np.arange(parts.count, dtype=np.int32), table, valid.accepting[boundary], start), guard)
    return CharDfa(smallest, parts)


def _functions(over_bytes: np.ndarray, boundary: np.ndarray, guard: ResourceGuard) -> tuple[np.ndarray, np.ndarray]:
    """The distinct functions of code points, and each code point's function.

    Functions on the states `boundary`: int32 [F, B]; by code point: int64 [0x110000].

    The numbers of surrogates mean nothing.
    """
    after = over_bytes[boundary]  # [B, 256]
    pieces, numbers, offset = [after[:, _ASCII].T], [np.arange(_ASCII.stop)], _ASCII.stop
    # The functions after one byte are composed with each continuation byte in turn; equal functions are merged after
    # every byte.
    for leads, more, first in ((_LEADS_2, 1, 0), (_LEADS_3, 2, _FIRST_3), (_LEADS_4, 3, _FIRST_4)):
        rows, number = _distinct_rows(after[:, leads].T)
        for _ in range(more):
            rows, following = _read_continuation(rows, over_bytes, guard)
            number = following[number]
        # The code points under these leads, in order. What comes before `first` is overlong.
        flat = number.reshape(-1)[first:]
        pieces.append(rows)
        numbers.append(flat + offset)
        offset += len(rows)
    functions, index = _distinct_rows(np.concatenate(pieces))
    return functions, index[np.concatenate(numbers)[:CODE_POINTS]]


def _distinct_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows, and the number of each row among them."""
    first, which = unique_rows(rows)
    return rows[first], which


def _read_continuation(rows: np.ndarray, over_bytes: np.ndarray, guard: ResourceGuard) -> tuple[np.ndarray, np.ndarray]:
    """The distinct functions after one more byte 80..BF.

    Functions: int32 [F, B]; their index for each row and byte: int64 [X, 64].

    rows  int32 [X, B], distinct functions
    """
    columns, column_of = _distinct_rows(over_bytes[:, _CONTINUATION].T)  # [C, S]
    step = columns.T  # [S, C]
    # Continuation bytes that act alike are read once, and the candidates in blocks of bounded size.
    block = max(1, _CELLS // max(1, rows.shape[1] * len(columns)))
    pieces, numbers, total = [], [], 0
    for low in range(0, len(rows), block):
        candidates = step[rows[low : low + block]].transpose(0, 2, 1)  # [x, C, B]
        block_rows, index_of_row = _distinct_rows(candidates.reshape(-1, rows.shape[1]))
        pieces.append(block_rows)
        numbers.append(index_of_row.reshape(-1, len(columns)) + total)
        total += len(block_rows)
        guard.check("table_bytes_max", total * rows.shape[1] * _CELL_BYTES)
        guard.check_time()
    distinct, index = _distinct_rows(np.concatenate(pieces))
    return distinct, index[np.concatenate(numbers)][:, column_of]


def _minterms(cell: np.ndarray) -> tuple[Minterms, np.ndarray]:
    """The classes of code points by function, and each class's function. The latter is int64 [M]."""
    changes = np.flatnonzero(cell[1:] != cell[:-1]) + 1
    cuts = np.unique(np.concatenate([[0], changes, SURROGATES]))
    real = (cuts < SURROGATES[0]) | (cuts >= SURROGATES[1])
    cuts, real = cuts[real | (cuts == SURROGATES[0])], real[real | (cuts == SURROGATES[0])]
    values = cell[cuts[real]]
    first, number = unique_rows(values.reshape(-1, 1))
    numbered = np.full(len(cuts), NO_MINTERM, dtype=np.int32)
    numbered[real] = number
    return Minterms(cuts.astype(np.int32), numbered, len(first), ()), values[first]
