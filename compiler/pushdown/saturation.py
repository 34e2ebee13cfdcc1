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
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain, pairwise
from typing import Any

import numpy as np

from compiler.automata import distinct, spread, stable_order
from compiler.limits import ResourceGuard
from compiler.pushdown.cost_groups import CostGroups
from compiler.pushdown.machine import check_range
from compiler.pushdown.tables import PushdownTables

STEPS_MAX = 1 << 24  # in tokens: no budget is larger; the distances of a grammar may be exponential in its rules
_BEYOND = math.nextafter(STEPS_MAX, math.inf)
_TICK_EVERY = 1 << 12  # values settled between two looks at the time
_BLOCK = 1 << 20  # readers that are looked at together


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ExitDistances:
    """The finite values of F. Those of the first landings are `within`, those of arrivals give `behind`.

    landing, pending  int32 [N]  ascending
    within            [N]        the least cost, int32 in tokens or float64

    Raises ValueError where an index, an order or a cost is off.
    """

    landing: np.ndarray
    pending: np.ndarray
    within: np.ndarray

    def by_landing(self, tables: PushdownTables) -> CostGroups:
        """The values of each landing."""
        first = np.searchsorted(self.landing, np.arange(len(tables.landing_state) + 1))
        return CostGroups(first, self.pending, self.within)

    def check(self, tables: PushdownTables) -> None:
        """Raise ValueError unless the distances fit the tables."""
        if not self.landing.shape == self.pending.shape == self.within.shape:
            raise ValueError("landing, pending and within are [N]")
        if not ((self.within > 0) & (self.within <= STEPS_MAX)).all():
            raise ValueError("a token costs something")
        check_range("landing", self.landing, 0, len(tables.landing_state))
        check_range("pending", self.pending, 0, tables.pendings)
        if (np.diff(self.landing.astype(np.int64) * tables.pendings + self.pending) <= 0).any():
            raise ValueError("the places of costs ascend")


def saturate(tables: PushdownTables, guard: ResourceGuard | None, cost: np.ndarray | None = None) -> ExitDistances:
    """The least solution of the equations above.

    guard  None: its time is not limited; the number of finite values, which another guard limited, bounds it
    cost   float64 [C]  what a token of each class costs, above 0; without it, one token each
    Values over STEPS_MAX are left out. Raises LimitExceeded over `exit_distances_max`, `table_bytes_max` or
    `compile_s_max`.
    """
    equations = _Equations(tables, cost)
    solution = _Solution(equations, unit=cost is None)
    solution.run(guard)
    found = _of_members(solution, equations.group, np.dtype(np.int32 if cost is None else np.float64), guard)
    landing = np.repeat(np.arange(solution.landings, dtype=np.int32), np.diff(found.first))
    return ExitDistances(landing=landing, pending=found.pending, within=found.cost)


def _of_members(
    solution: _Solution, group: np.ndarray, dtype: np.dtype[Any], guard: ResourceGuard | None
) -> CostGroups:
    """F of each landing and pending. All pendings of a group have the same."""
    rows = solution.values[: solution.landings]
    count = [len(row) for row in rows]
    number = np.fromiter((each for row in rows for each in row), dtype=np.int64, count=sum(count))
    cost = np.fromiter((value for row in rows for value in row.values()), dtype=dtype, count=sum(count))
    order = stable_order(group)
    first = np.searchsorted(group[order], np.arange(int(group.max()) + 2))
    if guard:
        guard.check("table_bytes_max", dtype.itemsize * int((first[number + 1] - first[number]).sum()))
    member, counts = spread(first[number], first[number + 1])
    landing = np.repeat(np.repeat(np.arange(len(rows)), count), counts)
    return CostGroups.least(landing, order[member].astype(np.int32), np.repeat(cost, counts), groups=len(rows))


def arrival_costs(tables: PushdownTables, landings: CostGroups) -> CostGroups:
    """The costs from each arrival, from those of landings."""
    exits = np.flatnonzero(tables.item < 0)
    pending = np.append(landings.pending, ~tables.item[exits])
    cost = np.append(landings.cost, np.zeros(len(exits), dtype=landings.cost.dtype))
    # The costs of an item stand together: those of its landing, or the one of an exit behind all these.
    item = np.maximum(tables.item, 0)
    first, end = landings.first[item], landings.first[item + 1]
    first[exits] = len(landings.pending) + np.arange(len(exits))
    end[exits] = first[exits] + 1
    place, counts = spread(first, end)
    arrival = np.repeat(np.repeat(np.arange(len(tables.item_first) - 1), np.diff(tables.item_first)), counts)
    return CostGroups.least(arrival, pending[place], cost[place], groups=len(tables.item_first) - 1)


class _Equations:
    """The equations by what they depend on, over groups of pendings.

    The unknowns are numbered: F of each landing, then `behind` of each entry, a symbol and a group.

    states        how many control states there are
    group         the group of each pending: int [X]
    groups        how many there are
    entry         the unknown of each symbol and group
    reader_first  int64 [L+1]  the readers of a landing, which are control states with a token to it, stand at
                  reader_first[l] .. reader_first[l + 1] - 1
    reader        int64 [N]
    reader_cost   [N]  what the token costs
    openers       for some landings, the entries with them among their items
    above         for some landings, (s, landing): the one with s beneath all its symbols
    exits         what is known at once: cost, unknown, group
    """

    def __init__(self, tables: PushdownTables, cost: np.ndarray | None) -> None:
        landings, self.states = len(tables.landing_state), tables.states
        state, item, least = _edges_to_items(tables, cost)
        landed = np.flatnonzero(item >= 0)
        landed = landed[stable_order(item[landed])]
        self.reader_first = np.searchsorted(item[landed], np.arange(landings + 1))
        self.reader, self.reader_cost = state[landed], least[landed]
        left = np.flatnonzero(item < 0)
        exits = CostGroups.least(~item[left], state[left], least[left], groups=tables.pendings)
        columns = (tables.entry_symbol, tables.entry_pending, tables.entry_arrival)
        entries = list(zip(*(column.tolist() for column in columns), strict=True))
        items_of = [tables.items(arrival).tolist() for _, _, arrival in entries]
        self.group = _reached_alike(exits, entries, items_of)
        group, self.groups = self.group.tolist(), int(self.group.max()) + 1
        of_exit = np.repeat(self.group, np.diff(exits.first)).tolist()
        self.exits = dict.fromkeys(zip(exits.cost.tolist(), exits.pending.tolist(), of_exit, strict=True))
        self.entry = dict[tuple[int, int], int]()
        openers = defaultdict[int, dict[int, None]](dict)
        for (symbol, pending, _), items in zip(entries, items_of, strict=True):
            unknown = self.entry.setdefault((symbol, group[pending]), landings + len(self.entry))
            for each in items:
                if each >= 0:
                    openers[each][unknown] = None
                else:
                    self.exits[0, unknown, group[~each]] = None
        self.openers = {landing: list(unknowns) for landing, unknowns in openers.items()}
        self.unknowns = landings + len(self.entry)
        self.above = defaultdict[int, list[tuple[int, int]]](list)
        below, symbols = tables.landing_below[tables.states :].tolist(), tables.landing_symbol[tables.states :].tolist()
        for landing, (inner, symbol) in enumerate(zip(below, symbols, strict=True), tables.states):
            self.above[inner].append((symbol, landing))


def _edges_to_items(tables: PushdownTables, cost: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The items that tokens lead to, with the least costs.

    Returns states, items and costs, [N] each. A pair of a state and an arrival gives the items once.
    """
    arrivals = len(tables.item_first) - 1
    state, arrival, least = _slot_costs(tables, np.ones(tables.classes, dtype=np.int32) if cost is None else cost)
    key = state * arrivals + arrival
    order = np.lexsort((least, key))
    order = order[np.flatnonzero(np.diff(key[order], prepend=-1))]
    state, arrival, least = state[order], arrival[order], least[order]
    place, counts = spread(tables.item_first[arrival], tables.item_first[arrival + 1])
    return np.repeat(state, counts), tables.item[place], np.repeat(least, counts)


def _slot_costs(tables: PushdownTables, cost: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What the tokens to each arrival of a state cost at least.

    Returns states, arrivals and costs, [N] each. The slots of a base count for its heirs, too.
    """
    # The slots of all rows, numbered one after the other, each with its edges in the order of their costs.
    counts, states = tables.slots_of_row, np.arange(tables.states)
    row_slot = np.cumsum(counts) - counts
    of_edge = row_slot[tables.row_of_edge] + tables.edge_slot
    order = np.lexsort((cost[tables.edge_class], of_edge))
    first, edge_class = np.searchsorted(of_edge[order], np.arange(int(counts.sum()) + 1)), tables.edge_class[order]
    near = np.flatnonzero(tables.base != states)
    state, holder = np.append(states, near), np.append(states, tables.base[near])
    place, slots = spread(tables.slot_first[holder], tables.slot_first[holder + 1])
    own = np.repeat(np.arange(len(holder)) < len(states), slots)
    state, holder = np.repeat(state, slots), np.repeat(holder, slots)
    slot = row_slot[tables.row[holder]] + place - tables.slot_first[holder]
    at, end = first[slot], first[slot + 1]
    # A class of the heir's own hides that of the base.
    edge, edges = spread(tables.row_first[tables.row[near]], tables.row_first[tables.row[near] + 1])
    hidden = np.repeat(near, edges) * tables.classes + tables.edge_class[edge]
    hidden = np.append(hidden, tables.states * tables.classes)
    waiting = np.flatnonzero(~own)
    while waiting.size:
        key = state[waiting] * tables.classes + edge_class[at[waiting]]
        waiting = waiting[hidden[np.searchsorted(hidden, key)] == key]
        at[waiting] += 1
        waiting = waiting[at[waiting] < end[waiting]]
    left = np.flatnonzero(at < end)
    return state[left], tables.slot_arrival[place[left]].astype(np.int64), cost[edge_class[at[left]]]


def _reached_alike(
    exits: CostGroups, entries: list[tuple[int, int, int]], items_of: list[list[int]]
) -> np.ndarray:
    """Groups of pendings that are reached alike.

    exits     for each pending, the states with a token to it, and the costs
    items_of  the items of each entry
    The same states reach them at the same costs by tokens, and behind a symbol pendings of one group do.
    F is the same for all pendings of a group: so it is in each round of a fixpoint iteration that begins with infinite
    values. The groups are refined from coarse to fine.
    """
    through = [set[tuple[int, int]]() for _ in exits.first[1:]]
    for (symbol, pending, _), items in zip(entries, items_of, strict=True):
        for item in items:
            if item < 0:
                through[~item].add((symbol, pending))
    group, count = _numbered(
        (exits.pending[begin:end].tobytes(), exits.cost[begin:end].tobytes())
        for begin, end in pairwise(exits.first.tolist())
    ), 0
    while max(group) >= count:
        count = max(group) + 1
        group = _numbered(
            (known, frozenset((symbol, group[pending]) for symbol, pending in ways))
            for known, ways in zip(group, through, strict=True)
        )
    return np.array(group)


def _numbered(values: Iterable[object]) -> list[int]:
    """A number for each value; equal ones have the same."""
    numbers = dict[object, int]()
    return [numbers.setdefault(value, len(numbers)) for value in values]


class _Solution:
    """Settles the unknowns of the equations in ascending order.

    unit    whether every token costs 1
    values  of each unknown, by group of pendings; those of the first landings are `within`
    """

    def __init__(self, equations: _Equations, unit: bool) -> None:
        self._equations, self._unit = equations, unit
        self.landings = len(equations.reader_first) - 1
        self.values: list[dict[int, float]] = [{} for _ in range(equations.unknowns)]
        # Sums that wait for `behind` of an entry (s, y): a landing with s deepest, and F at y of the one without s.
        self._sums: list[list[tuple[int, float]]] = [[] for _ in range(equations.unknowns - self.landings)]
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
        # Most states have one way out.
        count, settled, equations = 0, 0, self._equations
        while self._levels:
            value = self._levels[0]
            waiting, landed = self._waiting[value], list[tuple[int, int]]()
            while waiting:  # what costs nothing adds to it
                unknown, pending = waiting.pop()
                count += 1
                if guard and count % _TICK_EVERY == 0:
                    guard.check_time()
                    guard.check("exit_distances_max", settled - equations.states)
                if self.values[unknown][pending] < value:
                    continue
                settled += 1
                if unknown < self.landings:
                    landed.append((unknown, pending))
                    self._use_landing(unknown, pending, value)
                else:
                    for landing, before in self._sums[unknown - self.landings]:
                        self._propose(before + value, landing, pending)
            if self._unit:
                self._read_once(landed, value, guard)
            else:
                self._read(landed, value)
            del self._waiting[heappop(self._levels)]
        if guard:
            guard.check("exit_distances_max", settled - self._equations.states)

    def _read_once(self, landed: list[tuple[int, int]], value: float, guard: ResourceGuard | None) -> None:
        """Propose one token more for the readers of landings. Each has the value F at its pending."""
        equations, values = self._equations, self.values
        landing, pending = np.fromiter(chain.from_iterable(landed), np.int64, 2 * len(landed)).reshape(-1, 2).T
        first, end = equations.reader_first[landing], equations.reader_first[landing + 1]
        # In blocks, since many landings may have many readers.
        block = np.cumsum(end - first) // _BLOCK
        for number in range(int(block[-1]) + 1 if len(block) else 0):
            if guard:
                guard.check_time()
            chosen = block == number
            place, counts = spread(first[chosen], end[chosen])
            keys = equations.reader[place] * equations.groups + np.repeat(pending[chosen], counts)
            states, pendings = np.divmod(distinct(keys), equations.groups)
            for state, group in zip(states.tolist(), pendings.tolist(), strict=True):
                if group not in values[state]:
                    self._propose(value + 1, state, group)

    def _read(self, landed: list[tuple[int, int]], value: float) -> None:
        """The same where tokens have costs. Values are many then, and landings of one value few."""
        equations = self._equations
        for landing, pending in landed:
            readers = slice(equations.reader_first[landing], equations.reader_first[landing + 1])
            costs = equations.reader_cost[readers].tolist()
            for state, cost in zip(equations.reader[readers].tolist(), costs, strict=True):
                if value + cost < self.values[state].get(pending, _BEYOND):
                    self._propose(value + cost, state, pending)

    def _use_landing(self, landing: int, pending: int, value: float) -> None:
        """Propose what follows from F of a landing, without a token."""
        for entry in self._equations.openers.get(landing, ()):
            self._propose(value, entry, pending)
        for symbol, above in self._equations.above.get(landing, ()):
            entry = self._equations.entry.get((symbol, pending), -1)
            if entry >= 0:  # else the pending is dead behind the symbol
                self._sums[entry - self.landings].append((above, value))
                for left, further in self.values[entry].items():
                    if further <= value:  # the others are not settled
                        self._propose(value + further, above, left)
