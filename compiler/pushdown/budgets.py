"""Counts the tokens of components with a budget.

A control state q of such a component with the budget n becomes the states (q, k), from which k more tokens may write
the text: q itself is (q, n), in which a prompt may end, and (q, n - 1) follows the token that enters the component. A
token that writes at least one byte of the text counts; it may end before the text or behind it. Where the last token
ends inside, SPENT_BYTE is read: the component may only be left then.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from compiler.limits import ResourceGuard
from compiler.pushdown.edge_rows import EdgeRows, edge_rows
from compiler.pushdown.machine import NO_ACTION, SPENT_BYTE, PushdownMachine
from compiler.pushdown.tables import NO_LANDING, PushdownTables

_DEAD = -1  # in place of a state


def counting_states(machine: PushdownMachine) -> np.ndarray:
    """How many states each state becomes beside itself: int64 [Q]."""
    if not machine.budgets:
        return np.zeros(machine.states, dtype=np.int64)
    return np.asarray(np.maximum(_budget(machine) - 1, 0))


def _budget(machine: PushdownMachine) -> np.ndarray:
    """The budget of each state's component: int64 [Q]. It is 0 for none, and where it is spent."""
    return np.where(_is_spent(machine), 0, np.array(machine.budgets, dtype=np.int64)[machine.code])


def _spent(machine: PushdownMachine) -> np.ndarray:
    """The state behind SPENT_BYTE, or _DEAD: int64 [Q]."""
    action = machine.action[:, machine.byte_class[SPENT_BYTE]].astype(np.int64)
    return np.where((action == NO_ACTION) | (action > machine.states), _DEAD, action - 1)


def _is_spent(machine: PushdownMachine) -> np.ndarray:
    """The states behind SPENT_BYTE: bool [Q]."""
    found = np.zeros(machine.states, dtype=bool)
    spent = _spent(machine)
    found[spent[spent != _DEAD]] = True
    return found


def with_budgets(tables: PushdownTables, machine: PushdownMachine, guard: ResourceGuard) -> PushdownTables:
    """The tables that count tokens where the machine has budgets. Raises LimitExceeded over `dfa_states_max`."""
    if not machine.budgets:
        return tables
    return _Counting(tables, machine, guard).tables()


class _Counting:
    """The states (q, k) of one machine.

    budget  int64 [Q]  that of the state's component; 0 for none
    first   int64 [Q]  the number of (q, 1)
    spent   int64 [Q]  (q, 0)
    """

    def __init__(self, tables: PushdownTables, machine: PushdownMachine, guard: ResourceGuard) -> None:
        self._tables = tables
        self._budget, self._spent = _budget(machine), _spent(machine)
        more = counting_states(machine)
        self._first = tables.states + np.cumsum(more) - more
        self._states = tables.states + int(more.sum())
        guard.check("dfa_states_max", self._states)
        self._guard = guard
        # A counted state has the slots of its base, too.
        slots = np.diff(tables.slot_first)
        guard.check("table_bytes_max", 4 * int(((slots + slots[tables.base]) * self._budget).sum()))

    def _at(self, state: np.ndarray, left: np.ndarray) -> np.ndarray:
        """The numbers of (q, k), or _DEAD. Both are int64 [N]."""
        counted = np.where(left == self._budget[state], state, self._first[state] + left - 1)
        return np.where(left == 0, self._spent[state], counted)

    def _entered(self, state: np.ndarray) -> np.ndarray:
        """The states in which tokens end that enter a component, or _DEAD."""
        budget = self._budget[state]
        return np.where(budget > 0, self._at(state, np.maximum(budget - 1, 0)), state)

    def tables(self) -> PushdownTables:
        tables, states = self._tables, self._states
        pushed = slice(tables.states, None)
        added = states - tables.states
        # A landing that pushes stands behind the one below it, which is that of the counted state.
        below = tables.landing_below[pushed].astype(np.int64)
        is_plain = below < tables.states
        moved = np.where(is_plain, self._entered(np.where(is_plain, below, 0)), below + added)
        state = self._entered(tables.landing_state[pushed].astype(np.int64))
        self._is_dead = np.append(self._entered(np.arange(tables.states)) == _DEAD, state == _DEAD)
        plain = np.arange(states)
        landing_state = np.append(plain, np.maximum(state, 0))
        landing_below = np.append(np.full(states, NO_LANDING), np.maximum(moved, 0))
        landing_symbol = np.append(np.zeros(states, dtype=np.int64), tables.landing_symbol[pushed])
        base = np.where(self._budget > 0, plain[: tables.states], tables.base)
        edges, items = self._edges(added)
        lengths = np.concatenate([np.full(len(block), block.shape[1]) for block in items])
        return replace(
            tables, **edges.arrays(),
            base=_int32(np.append(base, plain[tables.states :])),
            item_first=np.concatenate([[0], np.cumsum(lengths)]),
            item=_int32(np.concatenate([block.reshape(-1) for block in items])),
            landing_state=_int32(landing_state), landing_below=_int32(landing_below),
            landing_symbol=_int32(landing_symbol),
        )  # fmt: skip

    def _edges(self, added: int) -> tuple[EdgeRows, list[np.ndarray]]:
        """The edges of the tables, and the items of all arrivals.

        The items are in tables of equal lengths. The states (q, k) of a state have one row. Arrivals without items
        stay, as they may hide those of a base.
        """
        tables, states = self._tables, self._states
        blocks = [
            self._entering(tables.items(each).astype(np.int64), added)[None]
            for each in range(len(tables.item_first) - 1)
        ]
        counted = np.flatnonzero(self._budget > 0)
        place, edge_class, arrival = tables.edges_of(counted)
        order = np.lexsort((edge_class, place))
        whole = edge_rows(
            place[order], edge_class[order], arrival[order], states=len(counted), guard=self._guard
        )
        numbers, count = dict[tuple[int, int], np.ndarray](), len(blocks)  # of an arrival by what is left, for a budget
        state, slots = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        row = np.append(tables.row, np.zeros(added, dtype=np.int32))
        for number, (each, budget) in enumerate(zip(counted.tolist(), self._budget[counted].tolist(), strict=True)):
            at = self._at(np.full(budget, each), 1 + np.arange(budget))
            row[at] = len(tables.row_first) - 1 + whole.row[number]
            for reached in whole.slot_arrival[whole.slot_first[number] : whole.slot_first[number + 1]].tolist():
                if (reached, budget) not in numbers:
                    blocks += self._staying(tables.items(reached).astype(np.int64), budget, added)
                    numbers[reached, budget] = count + np.arange(budget)
                    count += budget
                state.append(at)
                slots.append(numbers[reached, budget])
        others = np.repeat(self._budget == 0, np.diff(tables.slot_first))
        state.insert(0, np.repeat(np.arange(tables.states), np.diff(tables.slot_first))[others])
        slots.insert(0, tables.slot_arrival[others])
        of_slot = np.concatenate(state)
        order = np.argsort(of_slot, kind="stable")
        rows = EdgeRows(
            row=_int32(row), row_first=np.append(tables.row_first[:-1], tables.row_first[-1] + whole.row_first),
            edge_class=np.append(tables.edge_class, whole.edge_class),
            edge_slot=np.append(tables.edge_slot, whole.edge_slot),
            slot_first=np.searchsorted(of_slot[order], np.arange(states + 1)),
            slot_arrival=_int32(np.concatenate(slots)[order]),
        )  # fmt: skip
        return rows, blocks

    def _entering(self, items: np.ndarray, added: int) -> np.ndarray:
        """The items of tokens that do not begin in a counted component."""
        landings = np.maximum(items, 0)
        items = items[(items < 0) | ~self._is_dead[landings]]
        plain = (items >= 0) & (items < self._tables.states)
        moved = np.where(items >= self._tables.states, items + added, items)
        return np.unique(np.where(plain, self._entered(np.where(plain, items, 0)), moved))

    def _staying(self, items: np.ndarray, budget: int, added: int) -> list[np.ndarray]:
        """The items of a token that begins in a counted component.

        Behind it 0, 1, .. budget - 1 more tokens may write the text of the component.
        """
        inside = (items >= 0) & (items < self._tables.states)
        inside[inside] = self._budget[items[inside]] > 0
        states, others = items[inside], self._entering(items[~inside], added)
        spent = self._at(states, np.zeros_like(states))
        last = np.unique(np.append(spent[spent != _DEAD], others))[None]
        left = np.repeat(np.arange(1, budget), len(states))
        stays = self._at(np.tile(states, budget - 1), left).reshape(budget - 1, len(states))
        beside = np.broadcast_to(others, (budget - 1, len(others)))
        return [last, np.sort(np.hstack([stays, beside]), axis=1)]


def _int32(values: np.ndarray) -> np.ndarray:
    return values.astype(np.int32)
