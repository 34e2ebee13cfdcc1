"""Least costs to acceptance over stacks, looked up in what saturation found.

A node of a stack has a vector: the least further cost from each pending that its top symbol may be left with. Whatever
a token does in a control state, its cost to acceptance is then the least of a few sums, however high the stack is.
Which sums these are depends on the control state alone, and few tokens differ in them: a `CostRow` keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.automata import grown
from compiler.pushdown.cost_groups import LeastSums
from compiler.pushdown.machine import BOTTOM, StackNodes
from compiler.pushdown.saturation import ExitDistances, arrival_costs
from compiler.pushdown.tables import ACCEPTED_PENDING, PushdownTables

_INFINITE = 1 << 29  # in tokens; twice this fits int32
_ROW_BYTES_MAX = 1 << 23  # of the rows that are kept
_SLOT_COSTS_MAX = 1 << 18  # that are kept for the slots of all states
_CELLS_MAX = 1 << 20  # that are kept for the classes in all rows of edges


@dataclass(frozen=True, slots=True, eq=False)
class CostRow:
    """What the tokens of one control state lead to.

    slot      int32 [C]  by class: a place in `arrivals`, 0 where it cannot be read
    arrivals  int32 [n]  arrival 0, which has no items, then those of the base's slots; both again for the state itself
    sums      the costs of the arrivals, in one or two parts
    """

    slot: np.ndarray
    arrivals: np.ndarray
    sums: tuple[LeastSums, ...]


class ExitCosts:
    """The finite costs of `ExitDistances`, by what they begin with.

    landings  from each landing until all its symbols and its component are left with a pending; the first landings are
              the control states
    arrivals  the same from each arrival; the token that led there is not counted
    infinite  more than any cost

    All generations share it. What is looked up again and again is kept, up to a limit.
    """

    def __init__(self, tables: PushdownTables, distances: ExitDistances) -> None:
        self.infinite = _INFINITE if distances.within.dtype == np.int32 else np.inf
        self.dtype, self.tables = distances.within.dtype, tables
        self.landings = distances.by_landing(tables)
        self.arrivals = arrival_costs(tables, self.landings)
        self._entries = np.searchsorted(tables.entry_symbol, np.arange(tables.symbols + 1))
        self._filled = self.arrivals.filled(self.infinite)
        self._behind = self._filled.chosen(tables.entry_arrival)
        # Arrival 0 and those of its slots, for each state. Unless there are too many, their costs stand together.
        self._slots = np.insert(tables.slot_arrival, tables.slot_first[:-1], 0)
        few = int(np.diff(self._filled.first)[self._slots].sum()) <= _SLOT_COSTS_MAX
        self._slot_costs = self._filled.chosen(self._slots) if few else None
        self._classes, rows = tables.classes, len(tables.row_first) - 1
        self._slot_of_class: np.ndarray | None = None  # in each row of edges, if there are not too many
        if rows * self._classes <= _CELLS_MAX:
            self._slot_of_class = np.zeros((rows, self._classes), dtype=np.int32)
            self._slot_of_class[tables.row_of_edge, tables.edge_class] = 1 + tables.edge_slot
        self._rows: dict[int, CostRow] = {}
        self._rows_max = max(1, _ROW_BYTES_MAX // (4 * self._classes))
        self._symbols: dict[int, tuple[np.ndarray, LeastSums]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the costs and of what may be kept of them."""
        rows = min(_ROW_BYTES_MAX, 4 * self.tables.states * self._classes)
        costs = self.landings, self.arrivals, self._filled, self._behind, self._slot_costs
        arrays = self._entries, self._slots, self._slot_of_class
        return sum(int(each.nbytes) for each in (*costs, *arrays) if each is not None) + rows

    @property
    def entries(self) -> int:
        """How many costs the pendings behind all symbols have."""
        return int(np.diff(self.arrivals.first)[self.tables.entry_arrival].sum())

    def row(self, control: int) -> CostRow:
        """What the tokens of a control state lead to."""
        row = self._rows.get(control)
        if row is None:
            if len(self._rows) >= self._rows_max:
                self._rows.clear()
            row = self._rows[control] = self._row(control)
        return row

    def behind(self, symbol: int) -> tuple[np.ndarray, LeastSums]:
        """The pendings that a symbol may be left with, with their costs."""
        found = self._symbols.get(symbol)
        if found is None:
            entries = slice(self._entries.item(symbol), self._entries.item(symbol + 1))
            found = self._symbols[symbol] = self.tables.entry_pending[entries], self._behind.sums(entries)
        return found

    def _row(self, control: int) -> CostRow:
        tables, base = self.tables, self.tables.base.item(control)
        states = (control,) if base == control else (base, control)
        first = tables.slot_first
        parts = [slice(first.item(state) + state, first.item(state + 1) + state + 1) for state in states]
        slot = self._slot(tables.row.item(control))
        if base != control:  # its own edges overrule those of its base
            slot = np.where(slot, slot + (parts[0].stop - parts[0].start), self._slot(tables.row.item(base)))
        return CostRow(slot, _joined([self._slots[part] for part in parts]), tuple(map(self._sums, parts)))

    def _slot(self, row: int) -> np.ndarray:
        """The slot of each class in a row, from 1: int32 [C]. It is 0 where the class cannot be read."""
        if self._slot_of_class is not None:
            return np.asarray(self._slot_of_class[row])
        found, tables = np.zeros(self._classes, dtype=np.int32), self.tables
        edges = slice(tables.row_first.item(row), tables.row_first.item(row + 1))
        found[tables.edge_class[edges]] = 1 + tables.edge_slot[edges]
        return found

    def _sums(self, slots: slice) -> LeastSums:
        """The costs of adjacent slots."""
        if self._slot_costs is not None:
            return self._slot_costs.sums(slots)
        count = slots.stop - slots.start
        return self._filled.chosen(self._slots[slots]).sums(slice(0, count))


class StackVectors:
    """The vectors of the nodes of some stacks. `update` adds those of new nodes."""

    def __init__(self, costs: ExitCosts, stacks: StackNodes) -> None:
        self.costs, self._stacks = costs, stacks
        self._values = np.full((64, costs.tables.pendings), costs.infinite, dtype=costs.dtype)  # [nodes, X], with room
        self._values[BOTTOM, ACCEPTED_PENDING] = 0
        self._count = 1

    @property
    def row_bytes(self) -> int:
        """The bytes of one vector."""
        return int(self._values[0].nbytes)

    def update(self) -> None:
        """Compute the vectors of all nodes since the last call."""
        first, self._count = self._count, len(self._stacks)
        if self._count > len(self._values):
            self._values = grown(self._values, 2 * self._count, fill=self.costs.infinite)
        for node in range(first, self._count):  # the node below is an earlier one
            pendings, sums = self.costs.behind(self._stacks.symbol[node])
            least = sums.least(self._values[self._stacks.below[node]])
            self._values[node, pendings] = np.minimum(least, self.costs.infinite)

    def by_class(self, control: int, node: int) -> np.ndarray:
        """The least cost after each class: [C].

        It is `infinite` or more where acceptance cannot be reached.
        """
        row, values = self.costs.row(control), self._values[node]
        return _joined([sums.least(values) for sums in row.sums]).take(row.slot)

    def least(self, which: np.ndarray, node: np.ndarray) -> np.ndarray:
        """The least cost to acceptance from landings, each over a node: [n]."""
        landings = self.costs.landings
        place, counts = landings.of(which)
        above = np.repeat(node * self.costs.tables.pendings, counts) + landings.pending[place]
        sums = landings.cost[place] + self._values.take(above)
        found = np.full(len(which), self.costs.infinite, dtype=self.costs.dtype)
        filled = np.flatnonzero(counts)
        if len(filled):
            first = (np.cumsum(counts) - counts)[filled]
            found[filled] = np.minimum(np.minimum.reduceat(sums, first), self.costs.infinite)
        return found

    def least_of(self, landing: int, node: int) -> float:
        """The same of one landing."""
        landings = self.costs.landings
        costs = slice(landings.first.item(landing), landings.first.item(landing + 1))
        sums = landings.cost[costs] + self._values[node].take(landings.pending[costs])
        return float(sums.min(initial=self.costs.infinite))

    def value(self, node: int, pending: int) -> float:
        """The least cost to acceptance from one pending above a node."""
        return float(self._values.item(node, pending))


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """The parts as one array."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
