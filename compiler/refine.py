"""Partition refinement and backward search over transition tables. Knows no automaton type."""

from __future__ import annotations

import numpy as np

from compiler.limits import Meter
from compiler.rows import distinct, stable_order, unique_rows

_FEW = 64  # states that are split one by one


class _Predecessors:
    """The edges of a table [S, K], by where they lead."""

    def __init__(self, table: np.ndarray) -> None:
        states, columns = table.shape
        order = stable_order(table.reshape(-1))
        self._source = order // max(columns, 1)
        self._first = np.searchsorted(table.reshape(-1)[order], np.arange(states + 1))

    def of(self, states: np.ndarray) -> np.ndarray:
        """The states with an edge into any of `states`, each once."""
        begin = self._first[states]
        counts = self._first[states + 1] - begin
        edges = np.arange(counts.sum()) + np.repeat(begin - (np.cumsum(counts) - counts), counts)
        return distinct(self._source[edges])


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

    A round reads again only the states that lead to one whose number has changed, and when a block splits, its largest
    part keeps the number: a long chain takes many rounds, but small ones.
    Raises LimitExceeded over `compile_s_max`.
    """
    predecessors = _Predecessors(table)
    partition = _Partition(table, block)
    touched = np.arange(len(table))
    while touched.size:
        if meter:
            meter.tick()
        split = partition.split_few if len(touched) <= _FEW else partition.split
        touched = predecessors.of(split(touched))
    return np.unique(partition.block, return_inverse=True)[1].reshape(-1)


class _Partition:
    """The blocks of a refinement, and how many states each has; block numbers are never used twice."""

    def __init__(self, table: np.ndarray, block: np.ndarray) -> None:
        self._table = table
        self.block = block.copy()
        self._count = int(block.max(initial=-1)) + 1
        self._size = np.bincount(block, minlength=self._count + len(table))

    def split(self, touched: np.ndarray) -> np.ndarray:
        """Split the blocks of the `touched` states by where these lead; the states whose number has changed.

        The states of a block that were not touched lead elsewhere than those that were: they are one part of it.
        """
        block = self.block
        first, part = unique_rows(np.column_stack([block[touched], block[self._table[touched]]]))
        owner, weight = block[touched[first]], np.bincount(part)
        by_owner = np.lexsort((-weight, owner))
        leads = np.ones(len(owner), dtype=bool)
        leads[1:] = owner[by_owner][1:] != owner[by_owner][:-1]
        leader = by_owner[leads]  # the largest touched part of each block, blocks ascending
        owners, rest = (
            owner[leader],
            self._size[owner[leader]] - np.add.reduceat(weight[by_owner], np.flatnonzero(leads)),
        )
        keeps = weight[leader] >= rest
        number = owner.copy()
        renamed = np.ones(len(owner), dtype=bool)
        renamed[leader[keeps]] = False
        number[renamed] = self._new_blocks(weight[renamed], owner[renamed])
        changed = [touched[renamed[part]]]
        left = keeps & (rest > 0)
        if left.any():
            untouched = np.zeros(self._count, dtype=bool)
            untouched[owners[left]] = True
            states = untouched[block]
            states[touched] = False
            changed.append(np.flatnonzero(states))
            name = np.zeros(self._count, dtype=np.int64)
            name[owners[left]] = self._new_blocks(rest[left], owners[left])
            block[changed[1]] = name[block[changed[1]]]
        block[touched] = number[part]
        return np.concatenate(changed)

    def _new_blocks(self, sizes: np.ndarray, owners: np.ndarray) -> np.ndarray:
        """Numbers for blocks of these sizes, split off from their owners."""
        numbers = self._count + np.arange(len(sizes))
        self._count += len(sizes)
        self._size[numbers] = sizes
        np.subtract.at(self._size, owners, sizes)
        return numbers

    def split_few(self, touched: np.ndarray) -> np.ndarray:
        """`split` in plain Python, which is quicker for a few states than some twenty calls of numpy."""
        parts: dict[int, dict[tuple[int, ...], list[int]]] = {}
        leads_to = self.block[self._table[touched]].tolist()
        for state, owner, row in zip(touched.tolist(), self.block[touched].tolist(), leads_to, strict=True):
            parts.setdefault(owner, {}).setdefault(tuple(row), []).append(state)
        changed: list[int] = []
        for owner, by_row in parts.items():
            split = sorted(by_row.values(), key=len)
            read = sum(map(len, split))
            rest = int(self._size[owner]) - read
            if rest <= len(split[-1]):
                split.pop()
                if rest:
                    members = set(np.flatnonzero(self.block == owner).tolist())
                    split.append(sorted(members.difference(*by_row.values())))
            for states in split:
                self.block[states] = self._count
                self._size[self._count] = len(states)
                self._size[owner] -= len(states)
                self._count += 1
                changed += states
        return np.array(changed, dtype=np.int64)
