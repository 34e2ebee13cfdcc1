"""The tables of a pushdown automaton over tokens, without its distances."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.automata import spread
from compiler.pushdown.machine import check_range

ACCEPTED_PENDING = 0  # the whole text was read, END included
NO_LANDING = -1  # in `landing_below`


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PushdownTables:
    """What each token does in each control state, for every stack.

    V ids, Q control states, R rows, S slots, X pendings, A arrivals, L landings.

    token_class     int32 [V]    the class of each id; class 0 is dead in every state
    row             int32 [Q]    the row of each state's edges; many states share one
    row_first       int64 [R+1]  the edges of row r are row_first[r] .. row_first[r + 1] - 1
    edge_class      int32 [E]    token classes, ascending in each row
    edge_slot       int32 [E]    the place of its arrival among the slots of the state
    slot_first      int64 [Q+1]  the slots of each state, in the same way
    slot_arrival    int32 [S]
    base            int32 [Q]    a state that does what this one does on other classes; the state itself for none
    item_first      int64 [A+1]  the items of an arrival, in the same way
    item            int32 [N]    a landing where it is >= 0; else ~x: the component is left with pending x
    landing_state   int32 [L]    control state; landings 0 .. Q-1 are those without pushed symbols
    landing_below   int32 [L]    the landing without the deepest pushed symbol, NO_LANDING for the first Q
    landing_symbol  int32 [L]    that symbol
    entry_symbol    int32 [P]    the pairs of a symbol and a pending, ascending, that do something; others are dead
    entry_pending   int32 [P]
    entry_arrival   int32 [P]    what the pending does behind the symbol
    symbols, pendings  the number of stack symbols, and X
    start           int          control state before the first token, on the empty stack
    eos_ids         the ids that end a text; they share one class

    A class without an edge, in the state or its base, cannot be read. Arrival 0 has no items: where the base reads a
    class that the state cannot, the state has an edge to it.
    Landings with symbols are closed: without the deepest symbol they are landings too. Raises ValueError where an
    index, an order or a shape is off.
    """

    token_class: np.ndarray
    row: np.ndarray
    row_first: np.ndarray
    edge_class: np.ndarray
    edge_slot: np.ndarray
    slot_first: np.ndarray
    slot_arrival: np.ndarray
    base: np.ndarray
    item_first: np.ndarray
    item: np.ndarray
    landing_state: np.ndarray
    landing_below: np.ndarray
    landing_symbol: np.ndarray
    entry_symbol: np.ndarray
    entry_pending: np.ndarray
    entry_arrival: np.ndarray
    symbols: int
    pendings: int
    start: int
    eos_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        states, arrivals, landings = self.states, len(self.item_first) - 1, len(self.landing_state)
        _check_offsets("row", self.row_first, self.edge_class, self.edge_slot)
        _check_offsets("slot", self.slot_first, self.slot_arrival)
        _check_offsets("item", self.item_first, self.item)
        check_range("token_class", self.token_class, 0, self.classes)
        check_range("edge_class", self.edge_class, 1, self.classes)
        check_range("slot_arrival", self.slot_arrival, 0, arrivals)
        check_range("row", self.row, 0, len(self.row_first) - 1)
        check_range("base", self.base, 0, states)
        if len(self.row) != states or (self.edge_slot < 0).any():
            raise ValueError("row is [Q], and slots are counted from 0")
        if (self.slots_of_row[self.row] != np.diff(self.slot_first)).any():
            raise ValueError("the edges of a row name all slots of its states")
        if len(self.base) != states or (self.base[self.base] != self.base).any() or self.item_first[1:2].any():
            raise ValueError("base is [Q], a base has no other one, and arrival 0 has no items")
        check_range("item", self.item, -self.pendings, landings)
        check_range("landing_state", self.landing_state, 0, states)
        check_range("landing_symbol", self.landing_symbol[states:], 0, self.symbols)
        check_range("entry_symbol", self.entry_symbol, 0, self.symbols)
        check_range("entry_pending", self.entry_pending, 0, self.pendings)
        check_range("entry_arrival", self.entry_arrival, 0, arrivals)
        if not len(self.landing_state) == len(self.landing_below) == len(self.landing_symbol) >= states:
            raise ValueError("landing_state, landing_below and landing_symbol are [L]")
        plain = self.landing_state[:states] == np.arange(states)
        if not plain.all() or (self.landing_below[:states] != NO_LANDING).any():
            raise ValueError("the first landings are the control states")
        # Each landing stands behind the one without its deepest symbol: chains end.
        below = self.landing_below[states:]
        if (below < 0).any() or (below >= np.arange(states, landings)).any():
            raise ValueError("landing_below names no earlier landing")
        if not len(self.entry_symbol) == len(self.entry_pending) == len(self.entry_arrival):
            raise ValueError("entry_symbol, entry_pending and entry_arrival are [P]")
        if (np.diff(self.entry_symbol.astype(np.int64) * self.pendings + self.entry_pending) <= 0).any():
            raise ValueError("the entries ascend")
        # Within a row, classes ascend, so that one can be searched.
        if (np.diff(self.row_of_edge * self.classes + self.edge_class) <= 0).any():
            raise ValueError("the edges of a row ascend")
        if not 0 <= self.start < states or self.pendings < 1:
            raise ValueError("start names a state that does not exist, or no pending is the accepted one")
        if not self.eos_ids or not all(0 <= eos < len(self.token_class) for eos in self.eos_ids):
            raise ValueError("eos_ids names ids of the vocabulary, at least one")

    @property
    def states(self) -> int:
        return len(self.slot_first) - 1

    @property
    def classes(self) -> int:
        return int(self.token_class.max(initial=0)) + 1

    @property
    def row_of_edge(self) -> np.ndarray:
        """The row of each edge: int64 [E]."""
        return np.repeat(np.arange(len(self.row_first) - 1), np.diff(self.row_first))

    @property
    def slots_of_row(self) -> np.ndarray:
        """How many slots the edges of each row name: int64 [R]."""
        found = np.zeros(len(self.row_first) - 1, dtype=np.int64)
        np.maximum.at(found, self.row_of_edge, 1 + self.edge_slot)
        return found

    def edges_of(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The edges of some states and of their bases: int64 [N] each.

        Returns the place in `states` of each, its class and its arrival.
        """
        place, edge_class, arrival = self._own_edges(states)
        base = self.base[states]
        near = np.flatnonzero(base != states)
        if not near.size:
            return place, edge_class, arrival
        heir, inherited, behind = self._own_edges(base[near])
        heir = near[heir]
        is_own = np.zeros(len(states) * self.classes, dtype=bool)
        is_own[place * self.classes + edge_class] = True
        kept = ~is_own[heir * self.classes + inherited]
        return np.append(place, heir[kept]), np.append(edge_class, inherited[kept]), np.append(arrival, behind[kept])

    def _own_edges(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        edge, counts = spread(self.row_first[self.row[states]], self.row_first[self.row[states] + 1])
        slot = np.repeat(self.slot_first[states], counts) + self.edge_slot[edge]
        place = np.repeat(np.arange(len(states)), counts)
        return place, self.edge_class[edge].astype(np.int64), self.slot_arrival[slot].astype(np.int64)

    def items(self, arrival: int) -> np.ndarray:
        """The items of an arrival."""
        return self.item[self.item_first[arrival] : self.item_first[arrival + 1]]


def _check_offsets(name: str, first: np.ndarray, *values: np.ndarray) -> None:
    lengths = {len(value) for value in values}
    if len(first) < 1 or first[0] != 0 or (np.diff(first) < 0).any() or lengths != {int(first[-1])}:
        raise ValueError(f"{name}_first does not divide its entries")
