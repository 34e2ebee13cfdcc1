"""Least costs to acceptance over stacks, looked up in what saturation found.

A node of a stack has a vector: the least further cost from each pending that its top symbol may be left with. Whatever
a token does in a control state, its cost to acceptance is then the least of a few sums, however high the stack is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.automata import spread
from compiler.pushdown.machine import BOTTOM, StackNodes
from compiler.pushdown.saturation import ExitDistances
from compiler.pushdown.tables import ACCEPTED_PENDING, PushdownTables

_INFINITE = 1 << 29  # in tokens; twice this fits int32


@dataclass(frozen=True, slots=True, eq=False)
class CostGroups:
    """Costs by pending, for each of G groups.

    first    int64 [G+1]  the costs of group g are first[g] .. first[g + 1] - 1
    pending  int32 [N]    ascending in each group
    cost     [N]
    """

    first: np.ndarray
    pending: np.ndarray
    cost: np.ndarray

    @classmethod
    def least(cls, group: np.ndarray, pending: np.ndarray, cost: np.ndarray, *, groups: int) -> CostGroups:
        """From costs in any order. Of several for one pending of a group the least counts."""
        order = np.lexsort((cost, pending, group))
        group, pending, cost = group[order], pending[order], cost[order]
        kept = np.flatnonzero((np.diff(group, prepend=-1) != 0) | (np.diff(pending, prepend=-1) != 0))
        return cls(np.searchsorted(group[kept], np.arange(groups + 1)), pending[kept], cost[kept])

    @property
    def nbytes(self) -> int:
        return int(self.first.nbytes + self.pending.nbytes + self.cost.nbytes)

    def of(self, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The places of some groups' costs, and how many each has."""
        return spread(self.first[groups], self.first[groups + 1])


class ExitCosts:
    """The finite costs of `ExitDistances`, by what they begin with.

    states    from each control state until its component is left with a pending
    landings  the same from each landing, until all its symbols are left, too
    arrivals  the same from each arrival; the token that led there is not counted
    symbols   by symbol * X + pending: what the pending costs behind the symbol
    infinite  more than any cost

    All generations share it.
    """

    def __init__(self, tables: PushdownTables, distances: ExitDistances) -> None:
        self.infinite = _INFINITE if distances.within.dtype == np.int32 else np.inf
        self.dtype, self.pendings = distances.within.dtype, tables.pendings
        self.states = CostGroups.least(distances.state, distances.pending, distances.within, groups=tables.states)
        entered = distances.symbol.astype(np.int64) * tables.pendings + distances.entered
        self.symbols = CostGroups.least(
            entered, distances.left, distances.behind, groups=tables.symbols * tables.pendings
        )
        self.landings = self._of_landings(tables)
        self.arrivals = self._of_arrivals(tables)

    @property
    def nbytes(self) -> int:
        return sum(group.nbytes for group in (self.states, self.symbols, self.landings, self.arrivals))

    def _of_landings(self, tables: PushdownTables) -> CostGroups:
        landings = len(tables.landing_state)
        group = np.repeat(np.arange(tables.states), np.diff(self.states.first))
        found = CostGroups.least(group, self.states.pending, self.states.cost, groups=landings)
        level = np.arange(tables.states)
        # One symbol more at a time: the landing without its deepest symbol comes first.
        while len(level := np.flatnonzero(np.isin(tables.landing_below, level))):
            above, counts = found.of(tables.landing_below[level])
            landing = np.repeat(level, counts)
            behind, further = self.symbols.of(
                tables.landing_symbol[landing].astype(np.int64) * self.pendings + found.pending[above]
            )
            cost = np.repeat(found.cost[above], further) + self.symbols.cost[behind]
            group = np.repeat(np.arange(landings), np.diff(found.first))
            found = CostGroups.least(
                np.concatenate([group, np.repeat(landing, further)]),
                np.concatenate([found.pending, self.symbols.pending[behind]]),
                np.concatenate([found.cost, cost]), groups=landings,
            )  # fmt: skip
        return found

    def _of_arrivals(self, tables: PushdownTables) -> CostGroups:
        arrivals = len(tables.item_first) - 1
        arrival, item = np.repeat(np.arange(arrivals), np.diff(tables.item_first)), tables.item
        lands = item >= 0
        place, counts = self.landings.of(item[lands])
        return CostGroups.least(
            np.concatenate([arrival[~lands], np.repeat(arrival[lands], counts)]),
            np.concatenate([~item[~lands], self.landings.pending[place]]),
            np.concatenate([np.zeros(np.count_nonzero(~lands), dtype=self.dtype), self.landings.cost[place]]),
            groups=arrivals,
        )


class StackVectors:
    """The vectors of the nodes of some stacks. `update` adds those of new nodes."""

    def __init__(self, costs: ExitCosts, stacks: StackNodes) -> None:
        self.costs, self._stacks = costs, stacks
        self._values = np.full((64, costs.pendings), costs.infinite, dtype=costs.dtype)  # [nodes, X], with room
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
            grown = np.full((2 * self._count, self.costs.pendings), self.costs.infinite, dtype=self.costs.dtype)
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
        size, groups = self.costs.pendings, self.costs.symbols
        pair = (symbol[:, None] * size + np.arange(size)).reshape(-1)
        self._values[node] = self.least(groups, pair, np.repeat(below, size)).reshape(len(node), size)

    def least(self, groups: CostGroups, which: np.ndarray, node: np.ndarray) -> np.ndarray:
        """The least cost to acceptance from groups, each over a node: [n]."""
        place, counts = groups.of(which)
        above = np.repeat(node * self.costs.pendings, counts) + groups.pending[place]
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
