"""The keys of an object as one table: declared names from some place in their order on, and undeclared keys.

The states are shared by all places: after enough characters to know which name it is, the place is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.json_schema.fragments import DEAD, START, Fragment
from compiler.limits import ResourceGuard


class Keys:
    """Contents of keys. N names, S states, M symbols.

    names  the symbols of every declared name; an undeclared key is none of them
    free   the undeclared keys, labelled; None where there are none
    table  int32 [S, M] and label int32 [S], after `finish`: 1 + i for name i, N + the label of `free` else
    Raises LimitExceeded over `dfa_states_max`.
    """

    def __init__(self, names: Sequence[Sequence[int]], free: Fragment | None, width: int, guard: ResourceGuard) -> None:
        self._free, self._width, self._guard, self._count = free, width, guard, len(names)
        self._wide = np.zeros((START, width), dtype=np.int32) if free is None else free.wide
        self._children: list[dict[int, int]] = [{}]
        self._name_at: dict[int, int] = {}
        self._below: list[set[int]] = [set(range(len(names)))]
        for number, word in enumerate(names):
            at = 0
            for symbol in word:
                if symbol not in self._children[at]:
                    self._children[at][symbol] = len(self._children)
                    self._children.append({})
                    self._below.append(set())
                at = self._children[at][symbol]
                self._below[at].add(number)
            self._name_at[at] = number
        self._free_at = self._free_states()
        self._size = free.states if free is not None else START
        self._index: dict[tuple[int, frozenset[int], bool], int] = {}
        self._order: list[tuple[int, frozenset[int], bool]] = []

    def _free_states(self) -> list[int]:
        """The state of `free` at each node of the names' trie."""
        states = [DEAD] * len(self._children)
        if self._free is not None:
            states[0] = START
            for node, children in enumerate(self._children):
                for symbol, child in children.items():
                    states[child] = int(self._wide[states[node], symbol])
        return states

    def entry(self, candidates: Sequence[int], free: bool) -> int:
        """The state before a key that is one of the candidates, or an undeclared one if `free`."""
        return self._state(0, frozenset(candidates), free and self._free is not None)

    def _state(self, node: int, candidates: frozenset[int], free: bool) -> int:
        inside = candidates & self._below[node] if len(candidates) > 1 else candidates
        key = (node, inside, free and self._free_at[node] != DEAD)
        if key not in self._index:
            self._index[key] = self._size + len(self._order)
            self._order.append(key)
            self._guard.check_time()
            self._guard.check("dfa_states_max", self._size + len(self._order))
        return self._index[key]

    def finish(self) -> tuple[np.ndarray, np.ndarray]:
        """The table and the labels, for all entries asked for before."""
        rows, labels = [], []
        for node, candidates, free in self._order:  # grows while it is walked
            row = np.zeros(self._width, dtype=np.int32)
            if free:
                row[:] = self._wide[self._free_at[node]]
            for symbol, child in self._children[node].items():
                alive = free and self._free_at[child] != DEAD
                leads = alive or bool(candidates & self._below[child])
                row[symbol] = self._state(child, candidates & self._below[child], free) if leads else DEAD
            rows.append(row)
            labels.append(self._label(node, candidates, free))
        free_labels = self._free.label if self._free is not None else np.zeros(START, dtype=np.int32)
        free_labels = np.where(free_labels != 0, free_labels + self._count, 0)
        return np.concatenate([self._wide, *(row[None] for row in rows)]), np.concatenate([free_labels, labels]).astype(
            int
        )

    def _label(self, node: int, candidates: frozenset[int], free: bool) -> int:
        if node in self._name_at:
            name = self._name_at[node]
            return 1 + name if name in candidates else 0
        if not free or self._free is None:
            return 0
        label = int(self._free.label[self._free_at[node]])
        return self._count + label if label else 0
