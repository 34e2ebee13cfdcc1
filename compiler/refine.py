"""Partition refinement and backward search over transition tables. Knows no automaton type."""

from __future__ import annotations

import numpy as np

from compiler.limits import Meter
from compiler.rows import unique_rows


class _Predecessors:
    """The edges of a table [S, K], by where they lead."""

    def __init__(self, table: np.ndarray) -> None:
        states, columns = table.shape
        order = np.argsort(table, axis=None, kind="stable")
        self._source = order // max(columns, 1)
        self._first = np.searchsorted(table.reshape(-1)[order], np.arange(states + 1))

    def of(self, states: np.ndarray) -> np.ndarray:
        """The states with an edge into any of `states`, each once."""
        begin = self._first[states]
        counts = self._first[states + 1] - begin
        edges = np.arange(counts.sum()) + np.repeat(begin - (np.cumsum(counts) - counts), counts)
        return np.unique(self._source[edges])


def steps_to(table: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The fewest transitions from each state into `targets` (bool [S]): int64 [S], S where there is no way."""
    predecessors = _Predecessors(table)
    steps = np.where(targets, 0, len(table))
    frontier, distance = np.flatnonzero(targets), 0
    while frontier.size:
        distance += 1
        found = predecessors.of(frontier)
        frontier = found[steps[found] == len(table)]
        steps[frontier] = distance
    return steps


def refine(table: np.ndarray, block: np.ndarray, meter: Meter | None = None) -> np.ndarray:
    """The coarsest stable partition below `block` (int [S], numbers from 0): int64 [S], equal for equal states.

    A round reads again only the states that lead to one whose number has changed, and when a block splits, the part
    that was not read (or else its largest part) keeps the number: a long chain takes many rounds, but small ones.
    Raises LimitExceeded over `compile_s_max`.
    """
    predecessors = _Predecessors(table)
    block = block.copy()
    touched = np.arange(len(table))
    while touched.size:
        if meter:
            meter.tick()
        size = np.bincount(block)
        first, part = unique_rows(np.column_stack([block[touched], block[table[touched]]]))
        owner, weight = block[touched[first]], np.bincount(part)
        read = np.bincount(owner, weights=weight, minlength=len(size))
        by_owner = np.lexsort((-weight, owner))
        leads = np.ones(len(owner), dtype=bool)
        leads[1:] = owner[by_owner][1:] != owner[by_owner][:-1]
        stays = np.zeros(len(owner), dtype=bool)
        stays[by_owner[leads]] = (read == size)[owner[by_owner[leads]]]
        number = owner.copy()
        number[~stays] = len(size) + np.arange(np.count_nonzero(~stays))
        block[touched] = number[part]
        touched = predecessors.of(touched[~stays[part]])
    return np.unique(block, return_inverse=True)[1].reshape(-1)
