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

import math
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from compiler.limits import ResourceGuard
from compiler.pushdown.machine import check_range
from compiler.pushdown.tables import PushdownTables

STEPS_MAX = 1 << 24  # in tokens: no budget is larger; the distances of a grammar may be exponential in its rules
_BEYOND = math.nextafter(STEPS_MAX, math.inf)
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
    Values over STEPS_MAX are left out. Raises LimitExceeded over `exit_distances_max` or `compile_s_max`.
    """
    equations = _Equations(tables, np.ones(len(tables.edge_class), dtype=np.int32) if cost is None else cost)
    solution = _Solution(equations)
    solution.run(guard)
    dtype = np.int32 if cost is None else np.float64
    within = enumerate(solution.values[: tables.states])
    inner = sorted((state, x, value) for state, values in within for x, value in values.items())
    behind = zip(equations.pairs, solution.values[len(equations.readers) :], strict=True)
    outer = sorted((*pair, x, value) for pair, values in behind for x, value in values.items())
    state, pending, steps = zip(*inner, strict=True) if inner else ((), (), ())
    symbol, entered, left, through = zip(*outer, strict=True) if outer else ((), (), (), ())
    index = (np.array(values, dtype=np.int32) for values in (state, pending, symbol, entered, left))
    names = ("state", "pending", "symbol", "entered", "left")
    costs = {"within": np.array(steps, dtype=dtype), "behind": np.array(through, dtype=dtype)}
    return ExitDistances(**dict(zip(names, index, strict=True)), **costs)


class _Equations:
    """The equations by what they depend on.

    The unknowns are numbered: F of each landing, then `behind` of each entry, a symbol and a pending.

    entry    the unknown of each symbol and pending
    readers  for each landing, the control states with a token to it, and the cost
    openers  for each landing, the entries with it among their items
    above    for each landing, (s, landing): the one with s beneath all its symbols
    """

    def __init__(self, tables: PushdownTables, cost: np.ndarray) -> None:
        self._tables = tables
        landings = len(tables.landing_state)
        self.readers: list[list[tuple[int, float]]] = [[] for _ in range(landings)]
        self.openers: list[list[int]] = [[] for _ in range(landings)]
        self.above: list[list[tuple[int, int]]] = [[] for _ in range(landings)]
        self.exits: list[tuple[float, int, int]] = []  # known at once: cost, unknown, pending
        for state, arrival, least in self._distinct_edges(cost):
            for item in tables.items(arrival).tolist():
                if item >= 0:
                    self.readers[item].append((state, least))
                else:
                    self.exits.append((least, state, ~item))
        self.pairs = list(zip(tables.entry_symbol.tolist(), tables.entry_pending.tolist(), strict=True))
        self.entry = {pair: unknown for unknown, pair in enumerate(self.pairs, landings)}
        self.unknowns = landings + len(self.pairs)
        for unknown, arrival in enumerate(tables.entry_arrival.tolist(), landings):
            for item in tables.items(arrival).tolist():
                if item >= 0:
                    self.openers[item].append(unknown)
                else:
                    self.exits.append((0, unknown, ~item))
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

    values  of each unknown, by pending; those of the first landings are `within`
    """

    def __init__(self, equations: _Equations) -> None:
        self._equations = equations
        self.values: list[dict[int, float]] = [{} for _ in range(equations.unknowns)]
        # Sums that wait for `behind` of an entry (s, y): a landing with s deepest, and F at y of the one without s.
        self._sums: list[list[tuple[int, float]]] = [[] for _ in range(equations.unknowns)]
        # Few values differ, as tokens are counted: those that wait are kept by value, and a heap has the values.
        self._waiting: dict[float, list[tuple[int, int]]] = {}
        self._levels: list[float] = []
        for value, unknown, pending in equations.exits:
            self._propose(value, unknown, pending)

    def _propose(self, value: float, unknown: int, pending: int) -> None:
        known = self.values[unknown]
        if value < known.get(pending, _BEYOND):
            known[pending] = value
            if value in self._waiting:
                self._waiting[value].append((unknown, pending))
            else:
                self._waiting[value] = [(unknown, pending)]
                heappush(self._levels, value)

    def run(self, guard: ResourceGuard | None) -> None:
        """Settle all values."""
        count, settled, landings = 0, 0, len(self._equations.readers)
        while self._levels:
            value = self._levels[0]
            waiting = self._waiting[value]
            while waiting:  # what costs nothing adds to it
                unknown, pending = waiting.pop()
                count += 1
                if guard and count % _TICK_EVERY == 0:
                    guard.check_time()
                    guard.check("exit_distances_max", settled)
                if self.values[unknown][pending] < value:
                    continue
                settled += 1
                if unknown < landings:
                    self._use_landing(unknown, pending, value)
                else:
                    for landing, before in self._sums[unknown]:
                        self._propose(before + value, landing, pending)
            del self._waiting[heappop(self._levels)]
        if guard:
            guard.check("exit_distances_max", settled)

    def _use_landing(self, landing: int, pending: int, value: float) -> None:
        """Propose what follows from F of a landing."""
        for state, cost in self._equations.readers[landing]:
            self._propose(value + cost, state, pending)
        for entry in self._equations.openers[landing]:
            self._propose(value, entry, pending)
        for symbol, above in self._equations.above[landing]:
            entry = self._equations.entry.get((symbol, pending), -1)
            if entry >= 0:  # else the pending is dead behind the symbol
                self._sums[entry].append((above, value))
                for left, further in self.values[entry].items():
                    if further <= value:  # the others are not settled
                        self._propose(value + further, above, left)
