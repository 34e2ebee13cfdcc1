"""What bytes do from a control state, for every stack below.

Read from a control state, bytes lead to a set of items, an arrival. Where they leave the state's component, the rest of
them is pending: what it does depends on the state in which the caller resumes, so a pending is a row of arrivals, one
for each such state. Equal arrivals and equal rows are one, so that pendings are few whatever the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from compiler.automata import distinct, grown
from compiler.lifting import DEAD_EFFECT, UNSEEN
from compiler.limits import ResourceGuard
from compiler.pushdown.machine import NO_ACTION, NOWHERE, PushdownMachine

BASE = 0  # the pending of no bytes
_FURTHER = 1_024  # arrivals that a table has room for, at least


@dataclass(frozen=True, slots=True)
class Landing:
    """The stack below is untouched. `pushed` lies on it, the top first, and the machine is in `state`."""

    pushed: tuple[int, ...]
    state: int


@dataclass(frozen=True, slots=True)
class Exit:
    """The component was left with a code. `pending` is what the bytes read since then do."""

    code: int
    pending: int


@dataclass(frozen=True, slots=True)
class Unread:
    """No byte was read yet, and the caller is in `state`. Only pendings hold it."""

    state: int


@dataclass(frozen=True, slots=True)
class Passed:
    """The caller was left, too, before any of the bytes was read.

    Only pendings hold it. The same pending applies one symbol further down. Without this marker a pending would
    contain itself.
    """

    code: int


Item: TypeAlias = Landing | Exit | Unread | Passed


class Arrivals:
    """The arrivals of a machine, numbered as they are found. Arrival 0 is the empty one.

    Arrival 1 + q is that of no bytes from state q. It is a `ByteEffects`, so the vocabulary's trie is walked as for
    byte transducers. Raises LimitExceeded over `table_bytes_max` or `compile_s_max`.
    """

    def __init__(self, machine: PushdownMachine, guard: ResourceGuard) -> None:
        self._machine = machine
        self._guard = guard
        self._columns = machine.action.shape[1]
        self._first = 1 + machine.states  # the arrival of `_items[0]`
        self._items: list[frozenset[Item]] = []
        self._numbers: dict[frozenset[Item], int] = {}
        self._after = np.full((self._first, self._columns), UNSEEN, dtype=np.int32)
        self._unread = (machine.action == NO_ACTION) & ~machine.pop  # [Q, K]: the bytes that a state cannot read
        self._after[DEAD_EFFECT] = DEAD_EFFECT
        self._fill_simple()
        resumed = np.unique(machine.resume[machine.resume != NOWHERE])
        self._place = {state: place for place, state in enumerate(resumed.tolist())}
        # By code, the places in a pending's row of the states that symbols resume in.
        self._places = [
            sorted({self._place[state] for state in column[column != NOWHERE].tolist()}) for column in machine.resume.T
        ]
        self._rows: list[np.ndarray] = []
        self._row_numbers: dict[bytes, int] = {}
        self._pending_after: dict[tuple[int, int], int] = {}
        self._viable: dict[tuple[int, int], bool] = {}
        self._intern_row(np.array([self._intern([self._initial_item(state)]) for state in self._place], dtype=np.int32))

    def _fill_simple(self) -> None:
        """Fill in the moves that stay within a component. They are most of them, and need no items."""
        machine = self._machine
        inner = machine.inner()
        # The action 1 + q and the arrival 1 + q have one number.
        self._after[1:][inner] = machine.action[inner]
        self._after[1:][self._unread] = DEAD_EFFECT

    def _initial_item(self, state: int) -> Item:
        """The item of a pending of no bytes."""
        machine = self._machine
        return Passed(int(machine.code[state])) if machine.eager[state] else Unread(state)

    def _intern(self, items: Iterable[Item]) -> int:
        key = frozenset(items)
        one = next(iter(key)) if len(key) == 1 else None
        if isinstance(one, Landing) and not one.pushed:
            return 1 + one.state
        if not key:
            return DEAD_EFFECT
        number = self._numbers.setdefault(key, len(self))
        if number == len(self):
            self._items.append(key)
            if len(self) > len(self._after):
                self._guard.check_time()
                # Those of no bytes may be many more than the others.
                capacity = len(self) + (len(self) - self._first) // 2 + _FURTHER
                self._guard.check("table_bytes_max", capacity * self._after[:1].nbytes)
                self._after = grown(self._after, capacity, UNSEEN)
            if isinstance(one, Landing | Unread):  # most bytes cannot be read
                self._after[number, self._unread[one.state]] = DEAD_EFFECT
        return number

    def _intern_row(self, row: np.ndarray) -> int:
        key = row.tobytes()
        number = self._row_numbers.setdefault(key, len(self._rows))
        if number == len(self._rows):
            self._guard.check("table_bytes_max", (number + 1) * row.nbytes)
            self._rows.append(row)
        return number

    def __len__(self) -> int:
        return self._first + len(self._items)

    def items(self, arrival: int) -> frozenset[Item]:
        if arrival >= self._first:
            return self._items[arrival - self._first]
        return frozenset() if arrival == DEAD_EFFECT else frozenset([Landing((), arrival - 1)])

    def entries(self, exit_: Exit) -> dict[int, list[Item]]:
        """The items of a pending behind each symbol that takes the exit. They are landings and exits."""
        found = dict[int, list[Item]]()
        resume = self._machine.resume[:, exit_.code]
        for symbol in np.flatnonzero(resume != NOWHERE).tolist():
            items = self.items(int(self._rows[exit_.pending][self._place[int(resume[symbol])]]))
            found[symbol] = [item for item in map(lambda each: self._resumed(each, exit_.pending), items) if item]
        return found

    def _resumed(self, item: Item, pending: int) -> Item | None:
        """An item of a pending's row, as the pending's bytes end there."""
        if isinstance(item, Unread):
            return Landing((), item.state)
        if isinstance(item, Passed):
            return Exit(item.code, pending) if self._is_viable(item.code, pending) else None
        return item

    def after(self, effect: np.ndarray, column: np.ndarray) -> np.ndarray:
        """The arrivals after one more byte, as in `ByteEffects`."""
        position = effect.astype(np.intp) * self._columns + column
        arrivals = self._after.reshape(-1).take(position)
        if arrivals.size and arrivals.min() == UNSEEN:
            for place in distinct(position[arrivals == UNSEEN]).tolist():
                before, read = divmod(place, self._columns)
                number = self._intern(self._moved(self.items(before), read))
                self._after[before, read] = number
            arrivals = self._after.reshape(-1).take(position)
        return np.asarray(arrivals)

    def _moved(self, items: frozenset[Item], column: int) -> set[Item]:
        """The items after one more byte."""
        reached = set[Item]()
        for item in items:
            if isinstance(item, Landing):
                self._read(item, column, reached, after_bytes=True)
            elif isinstance(item, Unread):
                self._read(Landing((), item.state), column, reached, after_bytes=False)
            elif isinstance(item, Passed):
                reached.add(item)
            else:
                self._leave(item.code, self._moved_pending(item.pending, column), reached)
        return reached

    def _read(self, at: Landing, column: int, reached: set[Item], *, after_bytes: bool) -> None:
        """Add the items after a byte. `after_bytes` tells whether bytes were read before, in the item's pending."""
        machine = self._machine
        for symbols, state in machine.actions(at.state, column):
            self._settle(Landing((*symbols[::-1], *at.pushed), state), reached)
        if not machine.pop[at.state, column]:
            return
        code = int(machine.code[at.state])
        if at.pushed:
            state = int(machine.resume[at.pushed[0], code])
            if state != NOWHERE:
                self._read(Landing(at.pushed[1:], state), column, reached, after_bytes=True)
        elif after_bytes:
            self._leave(code, self._moved_pending(BASE, column), reached)
        else:
            reached.add(Passed(code))

    def _settle(self, at: Landing, reached: set[Item]) -> None:
        """Add a landing after leaving the components that are over."""
        machine = self._machine
        while machine.eager[at.state]:
            code = int(machine.code[at.state])
            if not at.pushed:
                reached.add(Exit(code, BASE))
                return
            state = int(machine.resume[at.pushed[0], code])
            if state == NOWHERE:
                return
            at = Landing(at.pushed[1:], state)
        reached.add(at)

    def _leave(self, code: int, pending: int, reached: set[Item]) -> None:
        if self._is_viable(code, pending):
            reached.add(Exit(code, pending))

    def _moved_pending(self, pending: int, column: int) -> int:
        """The pending after one more byte."""
        key = pending, column
        if key not in self._pending_after:
            row = self._rows[pending]
            self._pending_after[key] = self._intern_row(self.after(row, np.full(len(row), column)))
        return self._pending_after[key]

    def _is_viable(self, code: int, pending: int) -> bool:
        """Whether some stack takes the bytes of a pending. Dead suffixes would make pendings many."""
        key = code, pending
        if pending == BASE:
            return True
        if key not in self._viable:
            row, met, waiting = self._rows[pending], {code}, [code]
            self._viable[key] = False
            while waiting and not self._viable[key]:
                for place in self._places[waiting.pop()]:
                    for item in self.items(int(row[place])):
                        if not isinstance(item, Passed):
                            self._viable[key] = True
                        elif item.code not in met:
                            met.add(item.code)
                            waiting.append(item.code)
        return self._viable[key]
