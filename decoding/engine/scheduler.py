"""Admission control: which generations wait, which run, and which may begin.

Generations begin in their order of arrival, each once the memory that it may come to hold is free. Small ones may
overtake a larger one that waits, within a share of the memory that no request may take, so that neither waits for ever.
Several threads of an engine change this state, so all of it is under one lock. Checks of answers are scheduled here
too, since they need memory beside the generations.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from decoding.engine.memory import MemoryBudget, small_bytes
from decoding.engine.request import EngineRequest
from decoding.errors import Cancelled

POLL_S = 0.1  # seconds between two looks at the queue while no generation may begin


class Scheduler:
    """The generations of one engine. Running ones are in the order in which they began."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        # One lock for all state; it is notified whenever a waiting thread might go on.
        self._condition = threading.Condition()
        self._waiting: deque[EngineRequest] = deque()
        self._running: list[EngineRequest] = []
        self._open = True
        # A check is running; a check ran out of memory, so no generation is admitted until it has finished.
        self._checking = self._check_waits = False

    def __len__(self) -> int:
        """How many run or wait."""
        with self._condition:
            return len(self._running) + len(self._waiting)

    @property
    def running(self) -> list[EngineRequest]:
        """The running generations. It is a copy, which the engine's thread may go through while requests arrive."""
        with self._condition:
            return list(self._running)

    @property
    def requests(self) -> list[EngineRequest]:
        """The running generations, then the waiting ones: a copy."""
        with self._condition:
            return [*self._running, *self._waiting]

    def add(self, request: EngineRequest) -> None:
        """Queues a request. Raises Cancelled once the scheduler is closed."""
        with self._condition:
            if not self._open:
                raise Cancelled("the engine is closed")
            self._waiting.append(request)
            self._condition.notify_all()

    def close(self) -> None:
        """Refuses further requests, and makes `wait_for_work` return False."""
        with self._condition:
            self._open = False
            self._condition.notify_all()

    def wait_for_work(self) -> bool:
        """Wait until the engine has something to do. False once the scheduler is closed."""
        with self._condition:
            while self._open and not (self._running or self._waiting):
                self._condition.wait()
            # Where the first waiting generation may not begin, the wait has an end, so that cancelled ones are found.
            if self._open and not self._running and not self._may_begin(self._waiting[0]):
                self._condition.wait(POLL_S)
            return self._open

    def admit(self) -> list[EngineRequest]:
        """The generations that begin now, in their order of arrival."""
        admitted = []
        with self._condition:
            # First come, first served: a request waits for all that came before, so that a large one never starves.
            while self._waiting and self._may_begin(self._waiting[0]):
                admitted.append(self._waiting.popleft())
                self._running.append(admitted[-1])
            for request in self._overtaking():
                request.overtook = True
                self._waiting.remove(request)
                self._running.append(request)
                admitted.append(request)
        return admitted

    def _overtaking(self) -> list[EngineRequest]:
        """The small requests that begin before the first waiting one.

        Together they hold at most the share of the memory that the first one may not take. So it begins as soon as
        those that it does not overtake have ended, however many small ones arrive.
        """
        memory_bytes = self._budget.memory_bytes
        share = small_bytes(memory_bytes)
        if not self._waiting or self._check_waits or self._waiting[0].bytes_max > memory_bytes - share:
            return []
        if any(request.exclusive for request in (self._waiting[0], *self._running)):
            return []
        free = memory_bytes - sum(running.bytes_max for running in self._running)
        free = min(free, share - sum(running.bytes_max for running in self._running if running.overtook))
        overtaking = list[EngineRequest]()
        for request in list(self._waiting)[1:]:
            if request.bytes_max > share:
                continue
            if request.bytes_max > free or request.exclusive:  # those behind it wait for it
                break
            free -= request.bytes_max
            overtaking.append(request)
        return overtaking

    def preempt(self, request: EngineRequest) -> bool:
        """Returns a request that ran out of memory to the queue. It regains its old place. False where it ran alone:
        then it is not preempted.
        """
        with self._condition:
            others = [other.bytes_max for other in self._running if other is not request]
            if not others and not self._checking:
                return False
            # The device holds the others, so their bytes are the new limit; a check says nothing about it.
            if others:
                self._budget.on_request_oom(sum(others))
            # Sorted by time of creation, it regains its place before later requests.
            request.preemptions += 1
            request.overtook = False
            self._running.remove(request)
            self._waiting = deque(sorted((request, *self._waiting), key=lambda waiting: waiting.created_s))
            self._condition.notify_all()
            return True

    def remove(self, request: EngineRequest) -> None:
        """Forgets a request that has ended."""
        with self._condition:
            # A cancelled request may end while it still waits.
            if request in self._running:
                self._running.remove(request)
            else:
                self._waiting.remove(request)
            self._condition.notify_all()

    def begin_check(self) -> bool:
        """Starts a check, or a further attempt of it.

        Returns True where it has found no memory before and no generation runs beside it now.
        """
        with self._condition:
            # While a check waits no generation begins, so with none running it has the device to itself.
            self._checking = True
            return self._check_waits and not self._running

    def defer_check(self, cancelled: Callable[[], bool] | None) -> None:
        """Defer a check that ran out of memory until a generation ends. None is admitted before. Raises Cancelled."""
        with self._condition:
            self._checking, self._check_waits = False, True
            # No generation begins meanwhile (`_may_begin` is False), so a smaller number means that one has ended.
            running = len(self._running)
            while running and len(self._running) >= running:
                if not self._open or (cancelled is not None and cancelled()):
                    raise Cancelled("the generation was cancelled")
                self._condition.wait(POLL_S)

    def end_check(self) -> None:
        """A check has ended, whatever its outcome."""
        with self._condition:
            self._checking = self._check_waits = False
            self._condition.notify_all()

    def _may_begin(self, request: EngineRequest) -> bool:
        """Whether the first waiting generation may begin. The bytes that the running ones may come to hold decide."""
        if self._check_waits:
            return False
        # With none running any request may try; an exclusive one also waits for a check, whose memory may be missing.
        if not self._running:
            return not (request.exclusive and self._checking)
        if any(running.exclusive for running in (request, *self._running)):
            return False
        return request.bytes_max <= self._budget.memory_bytes - sum(other.bytes_max for other in self._running)
