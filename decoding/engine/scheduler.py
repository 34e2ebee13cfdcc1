"""Admission control: which generations wait, which run, and which may begin.

Generations begin in their order of arrival, each once the memory that it may come to hold is free. Several threads of
an engine change this state, so all of it is under one lock. Checks of answers are scheduled here too, since they need
memory beside the generations.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from decoding.engine.memory import MemoryBudget
from decoding.engine.request import EngineRequest
from decoding.errors import Cancelled

POLL_S = 0.1  # seconds between two looks at the queue while no generation may begin


class Scheduler:
    """The generations of one engine. Those that run are in the order in which they began."""

    def __init__(self, room: MemoryBudget) -> None:
        self._room = room
        self._changed = threading.Condition()
        self._waiting: deque[EngineRequest] = deque()
        self._running: list[EngineRequest] = []
        self._open = True
        # A check is running; a check found no memory, so no generation may begin.
        self._checking = self._check_waits = False

    def __len__(self) -> int:
        """How many run or wait."""
        with self._changed:
            return len(self._running) + len(self._waiting)

    @property
    def running(self) -> list[EngineRequest]:
        with self._changed:
            return list(self._running)

    @property
    def everybody(self) -> list[EngineRequest]:
        with self._changed:
            return [*self._running, *self._waiting]

    def join(self, ticket: EngineRequest) -> None:
        """Raises Cancelled once the crowd is closed."""
        with self._changed:
            if not self._open:
                raise Cancelled("the engine is closed")
            self._waiting.append(ticket)
            self._changed.notify_all()

    def close(self) -> None:
        """Refuse further generations, and make `wait_for_work` return False."""
        with self._changed:
            self._open = False
            self._changed.notify_all()

    def wait_for_work(self) -> bool:
        """Wait until the engine has something to do; False once the scheduler is closed.

        Where only waiting generations are left and the first may not begin, it returns after POLL_S at the latest, so
        that cancelled ones are found.
        """
        with self._changed:
            while self._open and not (self._running or self._waiting):
                self._changed.wait()
            if self._open and not self._running and not self._may_begin(self._waiting[0]):
                self._changed.wait(POLL_S)
            return self._open

    def admit(self) -> list[EngineRequest]:
        """The generations that begin now, in their order of arrival.

        No generation overtakes another, so none waits for ever.
        """
        admitted = []
        with self._changed:
            while self._waiting and self._may_begin(self._waiting[0]):
                admitted.append(self._waiting.popleft())
                self._running.append(admitted[-1])
        return admitted

    def put_back(self, ticket: EngineRequest) -> bool:
        """Have it wait again, in its old place, since it ran out of memory; False where it had all to itself."""
        with self._changed:
            others = [other.bytes_held for other in self._running if other is not ticket]
            if not others and not self._checking:
                return False
            if others:
                self._room.crowd_failed(sum(others))
            ticket.put_back += 1
            self._running.remove(ticket)
            self._waiting = deque(sorted((ticket, *self._waiting), key=lambda one: one.asked))
            self._changed.notify_all()
            return True

    def leave(self, ticket: EngineRequest) -> None:
        with self._changed:
            if ticket in self._running:
                self._running.remove(ticket)
            else:
                self._waiting.remove(ticket)
            self._changed.notify_all()

    def begin_check(self) -> bool:
        """Start a check, or try it again.

        Returns True where it has found no memory before and no generation runs beside it now.
        """
        with self._changed:
            self._checking = True
            return self._check_waits and not self._running

    def wait_for_room(self, cancelled: Callable[[], bool] | None) -> None:
        """A check found no memory: wait until a generation ends; none begins before the check has. Raises Cancelled."""
        with self._changed:
            self._checking, self._check_waits = False, True
            running = len(self._running)
            while running and len(self._running) >= running:
                if not self._open or (cancelled is not None and cancelled()):
                    raise Cancelled("the generation was cancelled")
                self._changed.wait(POLL_S)

    def end_check(self) -> None:
        with self._changed:
            self._checking = self._check_waits = False
            self._changed.notify_all()

    def _may_begin(self, ticket: EngineRequest) -> bool:
        """Whether the first of those that wait may go on, by what the others may come to hold."""
        if self._check_waits:
            return False
        if not self._running:
            return not (ticket.alone and self._checking)
        if ticket.alone or any(other.alone for other in self._running):
            return False
        return ticket.bytes_held <= self._room.memory_bytes - sum(other.bytes_held for other in self._running)
