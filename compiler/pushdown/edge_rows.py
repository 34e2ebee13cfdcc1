"""Edges of control states, stored by what states have in common.

A state within a key or a string reads thousands of token classes, but they lead to a dozen arrivals. So its edges are a
row, which says which classes lead to the same arrival, and slots, the arrivals themselves. States of different rules
that read the same have different arrivals and one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from compiler.automata import spread, stable_order, unique_rows
from compiler.lifting import SparseRows, SparseTable
from compiler.limits import ResourceGuard


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class EdgeRows:
    """The edges of Q states, by the names of `PushdownTables`. Slots are numbered as they are met."""

    row: np.ndarray
    row_first: np.ndarray
    edge_class: np.ndarray
    edge_slot: np.ndarray
    slot_first: np.ndarray
    slot_arrival: np.ndarray

    def arrays(self) -> dict[str, Any]:
        """All arrays, by the names of their fields."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def edge_rows(
    state: np.ndarray, edge_class: np.ndarray, arrival: np.ndarray, *, states: int, guard: ResourceGuard
) -> EdgeRows:
    """The rows and slots of edges. These are in the order of their states and classes, int [N] each."""
    arrivals = int(arrival.max(initial=0)) + 1
    pairs, first, number = np.unique(state * np.int64(arrivals) + arrival, return_index=True, return_inverse=True)
    order = np.argsort(first)
    slot = np.empty(len(order), dtype=np.int64)
    slot[order] = np.arange(len(order))
    slot_state, slot_arrival = np.divmod(pairs[order], arrivals)
    bounds = np.arange(states + 1)
    slot_first = np.searchsorted(slot_state, bounds)
    rows = SparseRows(int(edge_class.max(initial=0)) + 1, guard)
    effect = 1 + slot[number] - slot_first[state]  # entries of sparse rows are not 0
    row = rows.add(SparseTable(np.searchsorted(state, bounds), edge_class, effect.astype(np.int32)))
    first, classes, effect = rows.table
    return EdgeRows(
        row=row, row_first=first, edge_class=classes, edge_slot=effect - np.int32(1), slot_first=slot_first,
        slot_arrival=slot_arrival.astype(np.int32),
    )  # fmt: skip


def beside(groups: Sequence[EdgeRows], columns: Sequence[np.ndarray]) -> EdgeRows:
    """The edges of several groups together. In a state no class has edges in two of them.

    columns  for each group, what each class is called there: int [C]
    """
    of_group = np.stack([group.row for group in groups], axis=1)
    example, row = unique_rows(of_group)
    found, offset = [], np.zeros(len(example), dtype=np.int64)
    for group, column, number in zip(groups, columns, of_group[example].T, strict=True):
        place, counts = spread(group.row_first[number], group.row_first[number + 1])
        own, slot = np.repeat(np.arange(len(example)), counts), group.edge_slot[place] + np.repeat(offset, counts)
        # Every class of a column has its edges.
        order = stable_order(column)
        first = np.searchsorted(column[order], np.arange(int(column.max()) + 2))
        at, counts = spread(first[group.edge_class[place]], first[group.edge_class[place] + 1])
        found.append((np.repeat(own, counts), order[at], np.repeat(slot, counts)))
        offset = offset + np.diff(group.slot_first)[example]
    own, classes, slot = map(np.concatenate, zip(*found, strict=True))
    order = np.lexsort((classes, own))
    # The slots of a state stand in the order of the groups.
    state = np.concatenate([np.repeat(np.arange(len(row)), np.diff(group.slot_first)) for group in groups])
    arrival = np.concatenate([group.slot_arrival for group in groups])
    return EdgeRows(
        row=row.astype(np.int32), row_first=np.searchsorted(own[order], np.arange(len(example) + 1)),
        edge_class=classes[order].astype(np.int32), edge_slot=slot[order].astype(np.int32),
        slot_first=np.sum([group.slot_first for group in groups], axis=0), slot_arrival=arrival[stable_order(state)],
    )  # fmt: skip
