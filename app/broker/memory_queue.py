"""The parts of the broker in memory. These are a job, its events, and the waiting and running jobs of one queue."""

from __future__ import annotations

import asyncio
import bisect
import itertools
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Literal, NamedTuple

from app.broker.base import DROPPABLE_BYTES_MAX, EVENTS_MAX, JOB_BYTES, Backlog, JobEvent, JobStatus, SubmitOptions
from app.broker.throughput import ThroughputEstimator, work_of
from app.messages import Priority

_NUMBERS = itertools.count()  # of all jobs, in the order of their submission
_PRIORITIES: tuple[Priority, ...] = ("interactive", "batch")


class _StoredEvent(NamedTuple):
    """A stored event. `number` counts all events of the job from 1, including dropped ones."""

    number: int
    data: bytes
    droppable: bool


class Events:
    """The stored events of one job, in order. An event's id is its number."""

    def __init__(self) -> None:
        self._stored: list[_StoredEvent] = []  # sorted by number, which `after` relies on
        self._count = 0
        self._durable_count = 0
        self._droppable_bytes = 0
        self.size = 0

    def add(self, data: bytes, droppable: bool) -> bool:
        """Store an event and drop the oldest droppable ones over the limit. False if the event is ignored."""
        if not droppable and self._durable_count == EVENTS_MAX:
            return False
        self._count += 1
        self._durable_count += not droppable
        self._droppable_bytes += len(data) if droppable else 0
        self.size += len(data)
        self._stored.append(_StoredEvent(self._count, data, droppable))
        while droppable and self._droppable_bytes > DROPPABLE_BYTES_MAX and self._droppable_bytes > len(data):
            oldest = next(index for index, event in enumerate(self._stored) if event.droppable)
            gone = len(self._stored.pop(oldest).data)
            self._droppable_bytes -= gone
            self.size -= gone
        return True

    def number_of(self, event_id: str) -> int:
        """The number of an event. 0 if the text is no event's id."""
        # Ids come from callers, and int() raises ValueError for too many digits, so only short ones are parsed.
        number = int(event_id) if event_id.isascii() and event_id.isdigit() and len(event_id) < 16 else 0
        return number if number <= self._count else 0

    def after(self, number: int) -> tuple[int, JobEvent] | None:
        """The number and content of the first stored event after this number."""
        index = bisect.bisect_right(self._stored, number, key=lambda event: event.number)
        if index == len(self._stored):
            return None
        event = self._stored[index]
        return event.number, JobEvent(str(event.number), event.data)


class QueuedJob:
    """One job from submit to the end of its time.

    The times are of the broker's clock.

    queued  time at which it entered its queue, None while it waits for another job
    paced   whether taking it counted for the throughput of its queue
    came    time of submission
    taken   time at which a worker last took it
    ends    the owner's deadline, None without one and for a job that other callers may share
    """

    def __init__(self, queue: str, key: str, body: bytes, options: SubmitOptions, now: float) -> None:
        self.came = self.taken = now
        self.ends = None if options.deadline_in_s is None or not options.kind else now + options.deadline_in_s
        self.id, self.number = secrets.token_hex(16), next(_NUMBERS)
        self.queue, self.key, self.body, self.options = queue, key, body, options
        self.submitted, self.made = time.time(), time.monotonic()  # the second survives a changed clock
        self.queued: float | None = None
        self.subscribers = 0
        self.detached = False
        self.attempt = 0
        self.running = self.paced = False
        self.key_ends = 0.0
        self.followers: list[QueuedJob] = []
        self.events = Events()
        self.changed = asyncio.Event()
        self.cancel_requested = asyncio.Event()
        self.done = asyncio.Event()
        self.result: bytes | None = None

    @property
    def work(self) -> int:
        """The job's work in the estimate of the throughput."""
        return work_of(self.options.weight)

    @property
    def size(self) -> int:
        """Bytes of a finished job, whose body is dropped."""
        return JOB_BYTES + len(self.result or b"") + self.events.size

    def notify(self) -> None:
        """Wake all tasks that wait for a change of this job."""
        # A new event, because a task that wakes late must not find it cleared.
        waiting, self.changed = self.changed, asyncio.Event()
        waiting.set()

    def subscribe(self, detached: bool) -> None:
        """Add a subscriber. A detached submission keeps the job running without one."""
        self.detached |= detached  # stays set, even if other callers unsubscribe
        self.subscribers += not detached

    def state(self, ahead: int) -> JobStatus:
        """The job's state; `ahead` is the number of jobs delivered before it."""
        state: Literal["waiting", "running", "done", "cancelled"] = "running" if self.running else "waiting"
        if self.cancel_requested.is_set() and self.result is None:
            state = "cancelled"
        elif self.done.is_set():
            state = "done"
        return JobStatus(
            state, self.options.owner, self.queue, self.submitted, self.attempt, ahead if state == "waiting" else 0,
            self.options.kind,
        )


class Queue:
    """The jobs of one queue. Some wait in the order of delivery, some wait for another job, and some run."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._waiting: dict[Priority, deque[QueuedJob]] = {priority: deque() for priority in _PRIORITIES}
        self._outside: dict[str, QueuedJob] = {}  # jobs that wait for another job, by id
        self._running: dict[str, QueuedJob] = {}
        self.weight = 0
        self.pace = ThroughputEstimator(now)
        self.arrival = asyncio.Event()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values())) + len(self._outside)

    def hold(self, job: QueuedJob) -> None:
        """Add a job that waits for another job."""
        self._outside[job.id] = job
        self.weight += job.options.weight

    def add(self, job: QueuedJob) -> None:
        """Add a job among those of its priority, by order of submission."""
        self.count_time()
        if not self._waits:
            self.pace.on_first_waiting(self.running)
        bisect.insort(self._waiting[job.options.priority], job, key=attrgetter("number"))
        self.weight += job.options.weight
        self.arrival.set()

    def next(self) -> QueuedJob | None:
        """Remove and return the first job."""
        job = next(iter(self._in_order()), None)
        if job is not None:
            self.remove(job)
        return job

    def cannot_meet_deadline(self, job: QueuedJob, now: float) -> bool:
        """Whether a job from `next` would miss its deadline while others wait."""
        if job.ends is None or not self._waits:
            return False
        return self.pace.cannot_meet_deadline(job.work, job.ends - now, now - job.came)

    def run(self, job: QueuedJob, now: float) -> None:
        """Record that a job from `next` runs."""
        self._running[job.id] = job
        job.taken, job.paced = now, self._waits  # without a waiting job the throughput could have been higher
        if job.paced:
            self.pace.record_taken(job.work)

    def requeue(self, job: QueuedJob) -> None:
        """Return a running job to its place among the waiting ones."""
        self.ended(job)
        self.add(job)
        if job.paced:
            self.pace.record_requeued(job.work)

    def ended(self, job: QueuedJob, now: float | None = None) -> None:
        """Remove a job from the running ones. `now` is given if it finished, so that its run time counts."""
        self.count_time()
        if self._running.pop(job.id, None) is not None and now is not None:
            self.pace.record_run(now - job.taken, job.work)

    def remove(self, job: QueuedJob) -> bool:
        """Remove a waiting job. False if it does not wait."""
        if self._outside.pop(job.id, None) is None:
            line = self._waiting[job.options.priority]
            if job not in line:
                return False
            self.count_time()
            line.remove(job)
        self.weight -= job.options.weight
        return True

    def ahead(self, job: QueuedJob) -> int:
        """The number of waiting jobs that are delivered before this one."""
        order = (_PRIORITIES.index(job.options.priority), job.number)
        return sum((_PRIORITIES.index(other.options.priority), other.number) < order for other in self._in_order())

    def before(self, options: SubmitOptions, outside: bool) -> list[QueuedJob]:
        """The waiting jobs that are delivered before one that enters now."""
        jobs = [*self._in_order(), *(self._outside.values() if outside else ())]
        return [job for job in jobs if options.priority == "batch" or job.options.priority == "interactive"]

    @property
    def running(self) -> int:
        """The work of the running jobs."""
        return sum(job.work for job in self._running.values())

    def seconds(self, work: float) -> float | None:
        """Seconds that the queue needs for `work`. None if the throughput is unknown."""
        self.count_time()
        return self.pace.seconds(work)

    def backlog(self) -> Backlog:
        """The jobs that wait for a worker."""
        lines = self._waiting
        weight = sum(job.options.weight for job in self._in_order())
        return Backlog(len(lines["interactive"]), len(lines["batch"]), weight)

    def count_time(self) -> None:
        """Count the time up to now; called before every change. Without running jobs the queue is not moving."""
        self.pace.advance(self._waits and bool(self._running))

    @property
    def runs(self) -> int:
        """The number of running jobs."""
        return len(self._running)

    @property
    def _waits(self) -> bool:
        return any(self._waiting.values())

    def _in_order(self) -> Iterator[QueuedJob]:
        for line in self._waiting.values():
            yield from line
