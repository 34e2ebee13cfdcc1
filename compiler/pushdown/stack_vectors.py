"""Least costs to acceptance over stacks, looked up in what saturation found.

A node of a stack has a vector: the least further cost from each pending that its top symbol may be left with. Whatever
a token does in a control state, its cost to acceptance is then the least of a few sums, however high the stack is.
"""

from __future__ import annotations

import numpy as np

from compiler.automata import spread
from compiler.pushdown.cost_groups import CostGroups
from compiler.pushdown.machine import BOTTOM, StackNodes
from compiler.pushdown.saturation import ExitDistances, arrival_costs
from compiler.pushdown.tables import ACCEPTED_PENDING, PushdownTables

_INFINITE = 1 << 29  # in tokens; twice this fits int32


class ExitCosts:
    """The finite costs of `ExitDistances`, by what they begin with.

    landings  from each landing until all its symbols and its component are left with a pending; the first landings are
              the control states
    arrivals  the same from each arrival; the token that led there is not counted
    entries   the entries of symbol s are entries[s] .. entries[s + 1] - 1
    infinite  more than any cost

    All generations share it.
    """

    def __init__(self, tables: PushdownTables, distances: ExitDistances) -> None:
        self.infinite = _INFINITE if distances.within.dtype == np.int32 else np.inf
        self.dtype, self.tables = distances.within.dtype, tables
        self.landings = distances.by_landing(tables)
        self.arrivals = arrival_costs(tables, self.landings)
        self.entries = np.searchsorted(tables.entry_symbol, np.arange(tables.symbols + 1))

    @property
    def nbytes(self) -> int:
        return self.landings.nbytes + self.arrivals.nbytes + int(self.entries.nbytes)


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
        if first == self._count:
            return
        if self._count > len(self._values):
            grown = np.full((2 * self._count, self.costs.tables.pendings), self.costs.infinite, dtype=self.costs.dtype)
            grown[:first] = self._values[:first]
            self._values = grown
        symbol, below = np.array(self._stacks.symbol[first:]), np.array(self._stacks.below[first:])
        # A node needs the vector of the one below it, which may be new, too.
        done = np.zeros(len(below), dtype=bool)
        while not done.all():
            ready = np.flatnonzero(~done & ((below < first) | done[np.maximum(below - first, 0)]))
            self._compute(ready + first, symbol[ready], below[ready])
            done[ready] = True

    def _compute(self, node: np.ndarray, symbol: np.ndarray, below: np.ndarray) -> None:
        entry, counts = spread(self.costs.entries[symbol], self.costs.entries[symbol + 1])
        least = self.least(self.costs.arrivals, self.costs.tables.entry_arrival[entry], np.repeat(below, counts))
        self._values[np.repeat(node, counts), self.costs.tables.entry_pending[entry]] = least

    def least(self, groups: CostGroups, which: np.ndarray, node: np.ndarray) -> np.ndarray:
        """The least cost to acceptance from groups, each over a node: [n]."""
        place, counts = groups.of(which)
        above = np.repeat(node * self.costs.tables.pendings, counts) + groups.pending[place]
        sums = groups.cost[place] + self._values.take(above)
        found = np.full(len(which), self.costs.infinite, dtype=self.costs.dtype)
        filled = np.flatnonzero(counts)
        if len(filled):
            first = (np.cumsum(counts) - counts)[filled]
            found[filled] = np.minimum(np.minimum.reduceat(sums, first), self.costs.infinite)
        return found

    def value(self, node: int, pending: int) -> float:
        """The least cost to acceptance from one pending above a node."""
        return float(self._values.item(node, pending))
