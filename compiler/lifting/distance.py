"""Exact distances to acceptance, in tokens, over a factored automaton (paper, section 3.1)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from compiler.automata import stable_order, steps_along
from compiler.limits import ResourceGuard

UNREACHABLE = int(np.iinfo(np.int32).max)  # a dead state's distance: compared, never computed with
_WORD_BITS, _WORD_BYTES = 64, 8
_BLOCK_CELLS = 1 << 18  # of rows under work, unpacked


def distances(
    source: np.ndarray,
    edge: np.ndarray,
    edge_target: np.ndarray,
    edge_function: np.ndarray,
    function: np.ndarray,
    accepting: np.ndarray,
    guard: ResourceGuard | None = None,
) -> np.ndarray:
    """Fewest tokens from each state (l, q) to an accepting one: int32 [L, Q], UNREACHABLE where there is none.

    source, edge   int [N]       the (labeller state, edge) pairs of the table, in any order, without the dead edge
    edge_target    int32 [P]     labeller state an edge leads to
    edge_function  int32 [P]     what the edge does to the letter state
    function       int32 [F, Q]  letter state after that
    accepting      bool  [L, Q]

    Breadth first, backwards, one round per distance. A round touches only the edges into the labeller states at which
    the round before has settled something. The Q letter states of a labeller state are the bits of a few 64-bit words,
    and the rows that are worked on at a time are few enough for a core's cache.
    Raises LimitExceeded over `compile_s_max`.
    """
    letter_states = accepting.shape[1]
    if letter_states == 1:  # no letters: an edge is where it leads to
        steps = steps_along(source, edge_target[edge], accepting[:, 0], guard)
        return np.where(steps < len(accepting), steps, UNREACHABLE).astype(np.int32).reshape(-1, 1)
    few = max(1, _BLOCK_CELLS // max(1, letter_states))
    distance = np.full(accepting.shape, UNREACHABLE, dtype=np.int32)
    distance[accepting] = 0
    settled = _packed(accepting)
    into, sources = _Index(edge_target, len(accepting)), _Index(edge, len(edge_target))
    plain = (function == np.arange(letter_states)).all(axis=1)[edge_function]  # edges that keep the letter state
    rows = np.flatnonzero(settled.any(axis=1))
    fresh = settled[rows]  # [n, W]: what the round before has settled, by labeller state
    round_number = 0
    while rows.size:
        if guard:
            guard.check_time()
        round_number += 1
        edges, leads_to = into.of(rows)
        before = fresh[leads_to]  # [E, W]: the letter states from which an edge leads to a fresh pair
        loud = np.flatnonzero(~plain[edges])
        for some in np.split(loud, range(few, len(loud), few)):
            first = np.arange(len(some))[:, None] * letter_states
            after = first + function[edge_function[edges[some]]]  # places in the bits below, one flat index
            before[some] = _packed(_unpacked(before[some], letter_states).reshape(-1)[after])
        some = np.flatnonzero(before.any(axis=1))
        pair, by_edge = sources.of(edges[some])
        grown = []
        for into_row, reached in _unions(source[pair], before[some], by_edge, few):
            new = reached & ~settled[into_row]
            grew = np.flatnonzero(new.any(axis=1))
            grown.append((into_row[grew], new[grew]))
            _settle(distance, settled, *grown[-1], round_number)
        rows = np.concatenate([into_row for into_row, _ in grown]) if grown else rows[:0]
        fresh = np.concatenate([new for _, new in grown]) if grown else fresh[:0]
    return distance


def _settle(distance: np.ndarray, settled: np.ndarray, rows: np.ndarray, new: np.ndarray, round_number: int) -> None:
    """Write what a round has found: the letter states `new` [n, W] of the labeller states `rows` [n]."""
    settled[rows] |= new
    found = distance[rows]
    np.copyto(found, round_number, where=_unpacked(new, distance.shape[1]))
    distance[rows] = found


def _packed(bits: np.ndarray) -> np.ndarray:
    """The rows of a Boolean matrix [N, Q] as bits of words: uint64 [N, W]."""
    packed = np.zeros((len(bits), -(-bits.shape[1] // _WORD_BITS) * _WORD_BYTES), dtype=np.uint8)
    packed[:, : -(-bits.shape[1] // 8)] = np.packbits(bits, axis=1)
    return packed.view(np.uint64)


def _unpacked(words: np.ndarray, bits: int) -> np.ndarray:
    """What `_packed` packed: bool [N, bits]."""
    return np.unpackbits(words.view(np.uint8), axis=1, count=bits).view(bool)


class _Index:
    """The places at which each key 0..K-1 stands in an array."""

    def __init__(self, keys: np.ndarray, count: int) -> None:
        self._order = stable_order(keys)
        self._first = np.searchsorted(keys[self._order], np.arange(count + 1))

    def of(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The places of `keys` [n], and for each place which of them stands there: two int64 arrays."""
        begin = self._first[keys]
        counts = self._first[keys + 1] - begin
        which = np.repeat(np.arange(len(keys)), counts)
        return self._order[np.arange(len(which)) + (begin - (np.cumsum(counts) - counts))[which]], which


def _unions(index: np.ndarray, rows: np.ndarray, row: np.ndarray, few: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each distinct index the union of its rows[row[i]]: `few` indices at a time, ascending, and their unions."""
    order = stable_order(index)
    index, row = index[order], row[order]
    first = np.flatnonzero(np.concatenate([[True], index[1:] != index[:-1]])) if index.size else index
    ends = np.append(first, len(index))
    for at in range(0, len(first), few):
        begin, end, some = ends[at], ends[min(at + few, len(first))], first[at : at + few]
        yield index[some], np.bitwise_or.reduceat(rows[row[begin:end]], some - begin, axis=0)
