"""Exact distances to acceptance, in tokens, over a factored automaton (paper, section 3.1)."""

from __future__ import annotations

import numpy as np

UNREACHABLE = int(np.iinfo(np.int32).max)  # a dead state's distance: compared, never computed with


def distances(
    source: np.ndarray,
    edge: np.ndarray,
    edge_target: np.ndarray,
    edge_function: np.ndarray,
    function: np.ndarray,
    accepting: np.ndarray,
) -> np.ndarray:
    """Fewest tokens from each state (l, q) to an accepting one: int32 [L, Q], UNREACHABLE where there is none.

    source, edge   int [N]       the (labeller state, edge) pairs of the table, in any order, without the dead edge
    edge_target    int32 [P]     labeller state an edge leads to
    edge_function  int32 [P]     what the edge does to the letter state
    function       int32 [F, Q]  letter state after that
    accepting      bool  [L, Q]

    Breadth first, backwards, one round per distance: a round looks only at the edges into states that the
    round before has settled, and treats the Q letter states of a labeller state as one packed bit set.
    """
    labeller_states, letter_states = accepting.shape
    distance = np.full((labeller_states, letter_states), UNREACHABLE, dtype=np.int32)
    distance[accepting] = 0
    settled = accepting.copy()
    fresh: np.ndarray = accepting
    by_edge = _order(edge)
    edge_sorted, source_sorted = edge[by_edge], source[by_edge]
    used = np.unique(edge)
    starts = np.searchsorted(edge_sorted, used)
    ends = np.searchsorted(edge_sorted, used, side="right")
    target, effect = edge_target[used], edge_function[used]
    plain = (function == np.arange(letter_states)).all(axis=1)[effect]  # these edges leave the letter state as it is
    round_number = 0
    while fresh.any():
        round_number += 1
        hit = np.logical_or.reduce(fresh, axis=1)[target]
        silent, loud = np.flatnonzero(hit & plain), np.flatnonzero(hit & ~plain)
        # [A, Q] as bits: the letter states from which an edge leads to a fresh pair
        before = np.concatenate(
            [
                np.packbits(fresh, axis=1)[target[silent]],
                np.packbits(fresh[target[loud, None], function[effect[loud]]], axis=1),
            ]
        )
        active = np.concatenate([silent, loud])
        some = np.flatnonzero(before.any(axis=1))
        active, before = active[some], before[some]
        reached = np.zeros((labeller_states, before.shape[1]), dtype=np.uint8)
        if active.size:
            counts = ends[active] - starts[active]
            row = np.repeat(np.arange(len(active)), counts)
            position = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + starts[active][row]
            _or_rows(reached, source_sorted[position], before, row)
        fresh = np.unpackbits(reached, axis=1, count=letter_states).astype(bool) & ~settled
        distance[fresh] = round_number
        settled |= fresh
    return distance


def _or_rows(out: np.ndarray, index: np.ndarray, rows: np.ndarray, row: np.ndarray) -> None:
    """out[index[i]] |= rows[row[i]] for every i, with repeated indices."""
    order = _order(index)
    index, row = index[order], row[order]
    first = np.flatnonzero(np.concatenate([[True], index[1:] != index[:-1]]))
    out[index[first]] = np.bitwise_or.reduceat(rows[row], first, axis=0)


def _order(keys: np.ndarray) -> np.ndarray:
    """A stable sorting order; numpy sorts 16-bit keys by radix, many times faster than wider ones."""
    narrow = keys.astype(np.uint16) if keys.size and keys.max() < 1 << 16 else keys
    return np.argsort(narrow, kind="stable")
