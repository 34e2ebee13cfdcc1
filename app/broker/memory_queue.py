"""What a broker in memory is made of: a job, its events, and the jobs of one queue that wait, or run."""

from __future__ import annotations

import asyncio
import bisect
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from app.broker.base import Backlog, JobEvent, JobStatus, SubmitOptions
from app.broker.throughput import ThroughputEstimator, work_of
from app.messages import Priority

EVENTS_MAX = 1_024  # that last, of a job
PASSING_BYTES_MAX = 2**20  # that pass, of a job; one is kept whatever its size
JOB_BYTES = 4_096  # what a job takes beside its result and events
_PRIORITIES: tuple[Priority, ...] = ("interactive", "batch")


class _Kept(NamedTuple):
    """An event with its number in the order of all, from 1."""

    number: int
    data: bytes
    passing: bool


class Events:
    """The events of one job that are kept, in order. An event's id is its number."""

    def __init__(self) -> None:
        self._kept: list[_Kept] = []
        self._count = 0
        self._lasting = 0
        self._passing_bytes = 0
        self.size = 0

    def add(self, data: bytes, passing: bool) -> bool:
        """Keep an event, in place of the oldest passing ones where they are too many. False where it is ignored."""
        if not passing and self._lasting == EVENTS_MAX:
            return False
        self._count += 1
        self._lasting += not passing
        self._passing_bytes += len(data) if passing else 0
        self.size += len(data)
        self._kept.append(_Kept(self._count, data, passing))
        while passing and self._passing_bytes > PASSING_BYTES_MAX and self._passing_bytes > len(data):
            oldest = next(place for place, event in enumerate(self._kept) if event.passing)
            gone = len(self._kept.pop(oldest).data)
            self._passing_bytes -= gone
            self.size -= gone
        return True

    def place(self, event_id: str) -> int:
        """The number of an event; 0 for what is no event's id."""
        number = int(event_id) if event_id.isascii() and event_id.isdigit() and len(event_id) < 16 else 0
        return number if number <= self._count else 0

    def after(self, number: int) -> tuple[int, JobEvent] | None:
        """The first event that is kept of those after this number, and its own."""
        place = bisect.bisect_right(self._kept, number, key=lambda event: event.number)
        if place == len(self._kept):
            return None
        event = self._kept[place]
        return event.number, JobEvent(str(event.number), event.data)


class QueuedJob:
    """One job from submit to the end of its time.

    queued  when it came into its queue, by the broker's clock; None while it waits for another job
    paced   whether taking it counted for the throughput of its queue
    came    when it was submitted, by the broker's clock
    taken   when a worker last took it, by the same clock
    ends    its owner's deadline; None without one, and for a job that others may join
    """

    def __init__(self, queue: str, key: str, body: bytes, terms: SubmitOptions, now: float) -> None:
        self.came = self.taken = now
        self.ends = None if terms.deadline_in_s is None or not terms.kind else now + terms.deadline_in_s
        self.id = secrets.token_hex(16)
        self.queue, self.key, self.body, self.terms = queue, key, body, terms
        self.submitted, self.made = time.time(), time.monotonic()
        self.queued: float | None = None
        self.shares = 0
        self.detached = False
        self.attempt = 0
        self.running = self.paced = False
        self.key_ends = 0.0
        self.followers: list[QueuedJob] = []
        self.events = Events()
        self.changed = asyncio.Event()
        self.called_off = asyncio.Event()
        self.done = asyncio.Event()
        self.result: bytes | None = None

    @property
    def work(self) -> int:
        """What the job counts for in its queue's pace."""
        return work_of(self.terms.weight)

    @property
    def size(self) -> int:
        """Bytes that the job takes once its body is gone."""
        return JOB_BYTES + len(self.result or b"") + self.events.size

    def tell(self) -> None:
        """Wake everyone who waits for news of this job."""
        waiting, self.changed = self.changed, asyncio.Event()
        waiting.set()

    def share(self, detached: bool) -> None:
        """One more has asked for the job."""
        self.detached |= detached
        self.shares += not detached

    def state(self, ahead: int) -> JobStatus:
        """The job's state, with `ahead` jobs before it."""
        terms = self.terms
        if self.called_off.is_set() and self.result is None:
            state = JobStatus("cancelled", terms.owner, self.queue, self.submitted, self.attempt, kind=terms.kind)
        elif self.done.is_set():
            state = JobStatus("done", terms.owner, self.queue, self.submitted, self.attempt, kind=terms.kind)
        elif self.running:
            state = JobStatus("running", terms.owner, self.queue, self.submitted, self.attempt, kind=terms.kind)
        else:
            state = JobStatus("waiting", terms.owner, self.queue, self.submitted, self.attempt, ahead, terms.kind)
        return state


class Queue:
    """The jobs of one queue that wait, in the order in which they are taken, that wait for others, and that run."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._waiting: dict[Priority, deque[QueuedJob]] = {priority: deque() for priority in _PRIORITIES}
        self._outside: dict[str, QueuedJob] = {}
        self._running: dict[str, QueuedJob] = {}
        self.weight = 0
        self.pace = ThroughputEstimator(now)
        self.arrival = asyncio.Event()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values())) + len(self._outside)

    def hold(self, job: QueuedJob) -> None:
        """Let a job wait outside."""
        self._outside[job.id] = job
        self.weight += job.terms.weight

    def add(self, job: QueuedJob, first: bool = False) -> None:
        """Let a job wait to be taken: after all of its priority, or before."""
        self.time_passes()
        if not self._waits:
            self.pace.begins(self.running)
        line = self._waiting[job.terms.priority]
        line.appendleft(job) if first else line.append(job)
        self.weight += job.terms.weight
        self.arrival.set()

    def next(self) -> QueuedJob | None:
        """Take the first job out."""
        job = next(iter(self._in_order()), None)
        if job is not None:
            self.remove(job)
        return job

    def hopeless(self, job: QueuedJob, now: float) -> bool:
        """Whether a job that was just taken out would not be done in its time, while others wait."""
        return job.ends is not None and self._waits and self.pace.hopeless(job.work, job.ends - now, now - job.came)

    def run(self, job: QueuedJob, now: float) -> None:
        """A job that was taken out runs."""
        self._running[job.id] = job
        job.taken, job.paced = now, self._waits
        if job.paced:
            self.pace.taken(job.work)

    def give_back(self, job: QueuedJob) -> None:
        """Let a job that ran wait again, before all of its priority."""
        self.ended(job)
        self.add(job, first=True)
        if job.paced:
            self.pace.given_back(job.work)

    def ended(self, job: QueuedJob, now: float | None = None) -> None:
        """A job runs no more, if it ran; where it was done, it was done now."""
        self.time_passes()
        if self._running.pop(job.id, None) is not None and now is not None:
            self.pace.ran(now - job.taken, job.work)

    def remove(self, job: QueuedJob) -> bool:
        """Take a job out, wherever it waits. False where it does not."""
        if self._outside.pop(job.id, None) is None:
            line = self._waiting[job.terms.priority]
            if job not in line:
                return False
            self.time_passes()
            line.remove(job)
        self.weight -= job.terms.weight
        return True

    def ahead(self, job: QueuedJob) -> int:
        """How many jobs go before this one; of one that waits outside, as if it came in now."""
        if job.id in self._outside:
            lines = self._waiting
            return len(lines["interactive"]) + (len(lines["batch"]) if job.terms.priority == "batch" else 0)
        return next((place for place, waiting in enumerate(self._in_order()) if waiting is job), 0)

    def before(self, terms: SubmitOptions, outside: bool) -> list[QueuedJob]:
        """The jobs that go before one that comes now: those that run are not among them."""
        found = [*self._in_order(), *(self._outside.values() if outside else ())]
        return [job for job in found if terms.priority == "batch" or job.terms.priority == "interactive"]

    @property
    def running(self) -> int:
        """The work of the jobs that run."""
        return sum(job.work for job in self._running.values())

    def seconds(self, work: float) -> float | None:
        """How long the queue takes over so much work, at its pace up to now; None where that is not known."""
        self.time_passes()
        return self.pace.seconds(work)

    def backlog(self) -> Backlog:
        """What waits to be taken."""
        lines = self._waiting
        weight = sum(job.terms.weight for job in self._in_order())
        return Backlog(len(lines["interactive"]), len(lines["batch"]), weight)

    def time_passes(self) -> None:
        """Count the time up to now, before anything changes. Where nothing runs it says nothing: who would run it?"""
        self.pace.passed(self._waits and bool(self._running))

    @property
    def runs(self) -> int:
        """How many jobs run."""
        return len(self._running)

    @property
    def _waits(self) -> bool:
        return any(self._waiting.values())

    def _in_order(self) -> Iterator[QueuedJob]:
        for line in self._waiting.values():
            yield from line
