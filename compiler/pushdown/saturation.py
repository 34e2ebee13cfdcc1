"""Fewest tokens through parts of the stack, by weighted saturation.

    within[q, x]      from control state q, at the end of a token, until its component is left with pending x
    behind[s, y, x]   from pending y above symbol s until s is left with pending x; the token under way is not counted
    F[sigma.q, x]     `within`, with the symbols sigma above:
                      F[sigma.s.q, x] = min over y of F[sigma.q, y] + behind[s, y, x], s the deepest symbol

    within[q, x] = min over the items of each token: its cost + F of a landing, or + 0 for an exit with x
    behind[s, y, x] = min over the items of y behind s: F of a landing, or 0 for an exit with x

The least solution is that of pre* saturation of a pushdown system with min-plus weights (Bouajjani, Esparza and Maler
1997; Reps et al. 2005). Sums of costs never shrink, so values are settled in ascending order, each once, as in Knuth's
generalisation of Dijkstra's algorithm (1977).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeAlias

import numpy as np

from compiler.limits import ResourceGuard
from compiler.pushdown.machine import check_range
from compiler.pushdown.tables import PushdownTables

_Entry: TypeAlias = tuple[int, int]  # a symbol and a pending

STEPS_MAX = 1 << 24  # in tokens: no budget is larger; the distances of a grammar may be exponential in its rules
_TICK_EVERY = 1 << 12  # values settled between two looks at the time


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ExitDistances:
    """The finite values of `within` and `behind`. Each group of arrays ascends by all but its last one.

    state, pending, within         [N]  control state, pending and least cost
    symbol, entered, left, behind  [M]  stack symbol, pendings and least cost

    Costs are int32 in tokens, or float64. Raises ValueError where an index, an order or a cost is off.
    """

    state: np.ndarray
    pending: np.ndarray
    within: np.ndarray
    symbol: np.ndarray
    entered: np.ndarray
    left: np.ndarray
    behind: np.ndarray

    def check(self, tables: PushdownTables) -> None:
        """Raise ValueError unless the distances fit the tables."""
        for keys, costs in (
            ((self.state, self.pending), self.within),
            ((self.symbol, self.entered, self.left), self.behind),
        ):
            bounded = (costs >= 0) & (costs <= STEPS_MAX)
            if any(key.shape != costs.shape for key in keys) or not bounded.all():
                raise ValueError("costs are not negative, one for each place")
            order = np.lexsort(keys[::-1])
            same = np.logical_and.reduce([key[1:] == key[:-1] for key in keys])
            if (order != np.arange(len(order))).any() or same.any():
                raise ValueError("the places of costs ascend")
        if not (self.within > 0).all():
            raise ValueError("a token costs something")
        check_range("state", self.state, 0, tables.states)
        check_range("symbol", self.symbol, 0, tables.symbols)
        for name in ("pending", "entered", "left"):
            check_range(name, getattr(self, name), 0, tables.pendings)


def saturate(tables: PushdownTables, guard: ResourceGuard | None, cost: np.ndarray | None = None) -> ExitDistances:
    """The least solution of the equations above.

    guard  None: its time is not limited; the number of finite values, which another guard limited, bounds it
    cost   float64 [E]  what each edge of `tables` costs, above 0; without it, one token each
    Values over STEPS_MAX are left out. Raises LimitExceeded over `compile_s_max`.
    """
    equations = _Equations(tables, np.ones(len(tables.edge_class), dtype=np.int32) if cost is None else cost)
    solution = _Solution(equations)
    solution.run(guard)
    dtype = np.int32 if cost is None else np.float64
    within = enumerate(solution.through[: tables.states])
    inner = sorted((state, x, value) for state, values in within for x, value in values.items())
    outer = sorted((*key, x, value) for key, values in solution.behind.items() for x, value in values.items())
    state, pending, steps = zip(*inner, strict=True) if inner else ((), (), ())
    symbol, entered, left, through = zip(*outer, strict=True) if outer else ((), (), (), ())
    index = (np.array(values, dtype=np.int32) for values in (state, pending, symbol, entered, left))
    names = ("state", "pending", "symbol", "entered", "left")
    costs = {"within": np.array(steps, dtype=dtype), "behind": np.array(through, dtype=dtype)}
    return ExitDistances(**dict(zip(names, index, strict=True)), **costs)


class _Equations:
    """The equations by what they depend on. A landing is an unknown F; an entry (symbol, pending) is one of `behind`.

    readers  for each landing, the control states with a token to it, and the cost
    openers  for each landing, the entries with it among their items
    above    for each landing, (s, landing): the one with s beneath all its symbols
    """

    def __init__(self, tables: PushdownTables, cost: np.ndarray) -> None:
        self._tables = tables
        landings = len(tables.landing_state)
        self.readers: list[list[tuple[int, float]]] = [[] for _ in range(landings)]
        self.openers: list[list[tuple[int, int]]] = [[] for _ in range(landings)]
        self.above: list[list[tuple[int, int]]] = [[] for _ in range(landings)]
        # Known at once: (cost, landing or entry, pending).
        self.exits: list[tuple[float, int | _Entry, int]] = []
        for state, arrival, least in self._distinct_edges(cost):
            for item in tables.items(arrival).tolist():
                if item >= 0:
                    self.readers[item].append((state, least))
                else:
                    self.exits.append((least, state, ~item))
        entries = (array.tolist() for array in (tables.entry_symbol, tables.entry_pending, tables.entry_arrival))
        for symbol, pending, arrival in zip(*entries, strict=True):
            for item in tables.items(arrival).tolist():
                if item >= 0:
                    self.openers[item].append((symbol, pending))
                else:
                    self.exits.append((0, (symbol, pending), ~item))
        for landing in range(tables.states, landings):
            self.above[tables.landing_below[landing]].append((int(tables.landing_symbol[landing]), landing))

    def _distinct_edges(self, cost: np.ndarray) -> list[tuple[int, int, float]]:
        """The pairs of state and arrival, with the least cost between."""
        tables = self._tables
        source = np.repeat(np.arange(tables.states), np.diff(tables.edge_first))
        key = source * len(tables.item_first) + tables.edge_arrival
        order = np.argsort(key, kind="stable")
        first = np.flatnonzero(np.diff(key[order], prepend=-1))
        least = np.minimum.reduceat(cost[order], first) if len(first) else cost[:0]
        chosen = order[first]
        return list(zip(source[chosen].tolist(), tables.edge_arrival[chosen].tolist(), least.tolist(), strict=True))


class _Solution:
    """Settles the unknowns of the equations in ascending order.

    through  F of each landing, by pending; that of the first ones is `within`
    behind   `behind` of each entry, by pending
    """

    def __init__(self, equations: _Equations) -> None:
        self._equations = equations
        self.through: list[dict[int, float]] = [{} for _ in equations.readers]
        self.behind = defaultdict[_Entry, dict[int, float]](dict)
        # Sums that wait for `behind` of an entry (s, y): a landing with s deepest, and F at y of the one without s.
        self._sums = defaultdict[_Entry, list[tuple[int, float]]](list)
        self._heap: list[tuple[float, int, int | _Entry, int]] = []
        self._count = 0
        for value, unknown, pending in equations.exits:
            self._propose(value, unknown, pending)

    def _propose(self, value: float, unknown: int | _Entry, pending: int) -> None:
        known = self.through[unknown] if isinstance(unknown, int) else self.behind[unknown]
        if pending not in known and value <= STEPS_MAX:
            self._count += 1  # equal values are settled in the order of their proposals
            heappush(self._heap, (value, self._count, unknown, pending))

    def run(self, guard: ResourceGuard | None) -> None:
        """Settle all values. Raises LimitExceeded over `compile_s_max`."""
        while self._heap:
            value, count, unknown, pending = heappop(self._heap)
            if guard and count % _TICK_EVERY == 0:
                guard.check_time()
            known = self.through[unknown] if isinstance(unknown, int) else self.behind[unknown]
            if pending not in known:
                known[pending] = value
                if isinstance(unknown, int):
                    self._use_landing(unknown, pending, value)
                else:
                    for landing, before in self._sums[unknown]:
                        self._propose(before + value, landing, pending)

    def _use_landing(self, landing: int, pending: int, value: float) -> None:
        """Propose what follows from F of a landing."""
        for state, cost in self._equations.readers[landing]:
            self._propose(value + cost, state, pending)
        for entry in self._equations.openers[landing]:
            self._propose(value, entry, pending)
        for symbol, above in self._equations.above[landing]:
            self._sums[symbol, pending].append((above, value))
            for left, further in self.behind[symbol, pending].items():
                self._propose(value + further, above, left)
