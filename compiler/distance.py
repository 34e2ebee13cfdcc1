"""Exact distances to acceptance, in tokens, over a factored automaton (paper, section 3.1)."""

from __future__ import annotations

import numpy as np

from compiler.limits import Meter

UNREACHABLE = int(np.iinfo(np.int32).max)  # a dead state's distance: compared, never computed with


def distances(
    source: np.ndarray,
    edge: np.ndarray,
    edge_target: np.ndarray,
    edge_function: np.ndarray,
    function: np.ndarray,
    accepting: np.ndarray,
    meter: Meter | None = None,
) -> np.ndarray:
    """Fewest tokens from each state (l, q) to an accepting one: int32 [L, Q], UNREACHABLE where there is none.

    source, edge   int [N]       the (labeller state, edge) pairs of the table, in any order, without the dead edge
    edge_target    int32 [P]     labeller state an edge leads to
    edge_function  int32 [P]     what the edge does to the letter state
    function       int32 [F, Q]  letter state after that
    accepting      bool  [L, Q]

    Breadth first, backwards, one round per distance. A round touches only the edges into the labeller states at which
    the round before has settled something, and treats their Q letter states as one packed bit set.
    Raises LimitExceeded over `compile_s_max`.
    """
    distance = np.full(accepting.shape, UNREACHABLE, dtype=np.int32)
    distance[accepting] = 0
    settled = accepting.copy()
    into, sources = _Index(edge_target, len(accepting)), _Index(edge, len(edge_target))
    plain = (function == np.arange(function.shape[1])).all(axis=1)[edge_function]  # edges that keep the letter state
    rows = np.flatnonzero(accepting.any(axis=1))
    fresh = accepting[rows]  # [n, Q]: what the round before has settled, by labeller state
    round_number = 0
    while rows.size:
        if meter:
            meter.tick()
        round_number += 1
        edges, leads_to = into.of(rows)
        silent, loud = np.flatnonzero(plain[edges]), np.flatnonzero(~plain[edges])
        before = np.concatenate(  # [E, Q] as bits: the letter states from which an edge leads to a fresh pair
            [
                np.packbits(fresh, axis=1)[leads_to[silent]],
                np.packbits(fresh[leads_to[loud, None], function[edge_function[edges[loud]]]], axis=1),
            ]
        )
        edges = edges[np.concatenate([silent, loud])]
        some = np.flatnonzero(before.any(axis=1))
        pair, by_edge = sources.of(edges[some])
        rows, reached = _or_rows(source[pair], before[some], by_edge)
        new = np.unpackbits(reached, axis=1, count=accepting.shape[1]).astype(bool) & ~settled[rows]
        grew = np.flatnonzero(new.any(axis=1))
        rows, fresh = rows[grew], new[grew]
        settled[rows] |= fresh
        distance[rows] = np.where(fresh, round_number, distance[rows])
    return distance


class _Index:
    """The places at which each key 0..K-1 stands in an array."""

    def __init__(self, keys: np.ndarray, count: int) -> None:
        self._order = _order(keys)
        self._first = np.searchsorted(keys[self._order], np.arange(count + 1))

    def of(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The places of `keys` [n], and for each place which of them stands there: two int64 arrays."""
        begin = self._first[keys]
        counts = self._first[keys + 1] - begin
        which = np.repeat(np.arange(len(keys)), counts)
        return self._order[np.arange(len(which)) + (begin - (np.cumsum(counts) - counts))[which]], which


def _or_rows(index: np.ndarray, rows: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each distinct index the union of its rows[row[i]]: the indices, ascending, and the unions."""
    if not index.size:
        return index, rows[row]
    order = _order(index)
    index, row = index[order], row[order]
    first = np.flatnonzero(np.concatenate([[True], index[1:] != index[:-1]]))
    return index[first], np.bitwise_or.reduceat(rows[row], first, axis=0)


def _order(keys: np.ndarray) -> np.ndarray:
    """A stable sorting order; numpy sorts 16-bit keys by radix, many times faster than wider ones."""
    narrow = keys.astype(np.uint16) if keys.size and keys.max() < 1 << 16 else keys
    return np.argsort(narrow, kind="stable")
