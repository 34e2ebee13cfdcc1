"""A broker inside this process, on one event loop. Finished jobs are kept for a time, and within a number of bytes."""

from __future__ import annotations

import asyncio
import bisect
import secrets
import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from app.broker.base import PRESENCE_TTL_S, Delivery, Presence
from app.errors import JobCancelled, JobUnknown, QueueFull
from app.settings import Settings

EVENTS_MAX = 1_024  # that last, of a job
PASSING_BYTES_MAX = 2**20  # that pass, of a job; one is kept whatever its size
JOB_BYTES = 4_096  # what a job takes beside its result and events


class _Event(NamedTuple):
    """An event with its number in the order of all, from 1."""

    number: int
    data: bytes
    passing: bool


class _Events:
    """The events of one job that are kept, in order."""

    def __init__(self) -> None:
        self._kept: list[_Event] = []
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
        self._kept.append(_Event(self._count, data, passing))
        while passing and self._passing_bytes > PASSING_BYTES_MAX and self._passing_bytes > len(data):
            oldest = next(place for place, event in enumerate(self._kept) if event.passing)
            gone = len(self._kept.pop(oldest).data)
            self._passing_bytes -= gone
            self.size -= gone
        return True

    def after(self, number: int) -> _Event | None:
        """The first event that is kept of those after this number."""
        place = bisect.bisect_right(self._kept, number, key=lambda event: event.number)
        return self._kept[place] if place < len(self._kept) else None


class _Job:
    """One job from submit to the end of its time."""

    def __init__(self, queue: str, key: str, body: bytes, now: float) -> None:
        self.id = secrets.token_hex(8)
        self.queue, self.key, self.body, self.submitted = queue, key, body, now
        self.shares = 1
        self.events = _Events()
        self.changed = asyncio.Event()
        self.called_off = asyncio.Event()
        self.done = asyncio.Event()
        self.result: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes that the job takes once its body is gone."""
        return JOB_BYTES + len(self.result or b"") + self.events.size

    def tell(self) -> None:
        """Wake everyone who waits for news of this job."""
        waiting, self.changed = self.changed, asyncio.Event()
        waiting.set()


class MemoryBroker:
    """Obeys app.broker.base.Broker. Used from one event loop, so no method needs a lock."""

    def __init__(
        self,
        queue_jobs_max: int,
        result_ttl_s: float = 600.0,
        result_bytes_max: int = 64 * 2**20,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue_jobs_max = queue_jobs_max
        self._result_ttl_s = result_ttl_s
        self._result_bytes_max = result_bytes_max
        self._now = now
        self._jobs: dict[str, _Job] = {}
        self._open: dict[str, _Job] = {}  # by key: waiting or running
        self._waiting: defaultdict[str, deque[_Job]] = defaultdict(deque)
        self._arrival: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._finished: OrderedDict[str, float] = OrderedDict()  # by id, oldest first: when it is forgotten
        self._finished_bytes = 0
        self._presence: defaultdict[str, dict[str, tuple[Presence, float]]] = defaultdict(dict)

    @classmethod
    def from_url(cls, url: str, settings: Settings) -> MemoryBroker:
        """The broker of a `memory://` URL."""
        return cls(settings.queue_jobs_max, settings.result_ttl_s, settings.result_bytes_max)

    async def submit(self, queue: str, key: str, body: bytes) -> str:
        self._forget_old()
        known = self._open.get(key)
        if known is not None:
            known.shares += 1
            return known.id
        if len(self._waiting[queue]) >= self._queue_jobs_max:
            raise QueueFull(self._queue_jobs_max)
        job = _Job(queue, key, body, self._now())
        self._jobs[job.id] = self._open[key] = job
        self._waiting[queue].append(job)
        self._arrival[queue].set()
        return job.id

    async def events(self, job_id: str) -> AsyncIterator[bytes]:
        job, seen = self._job(job_id), 0
        while True:
            while (event := job.events.after(seen)) is not None:
                seen = event.number
                yield event.data
            if job.done.is_set():
                return
            await job.changed.wait()

    async def result(self, job_id: str) -> bytes:
        job = self._job(job_id)
        await job.done.wait()
        if job.result is None:
            raise JobCancelled("the job was called off before it was done")
        return job.result

    async def cancel(self, job_id: str) -> None:
        job = self._jobs.get(job_id)
        if job is None or job.done.is_set():
            return
        job.called_off.set()
        self._open.pop(job.key, None)  # whoever asks for the same from now on gets a job of its own
        if job in self._waiting[job.queue]:
            self._waiting[job.queue].remove(job)
            self._end(job, None)

    async def leave(self, job_id: str) -> None:
        job = self._jobs.get(job_id)
        if job is None or not job.shares:
            return
        job.shares -= 1
        if not job.shares:
            await self.cancel(job_id)
            self._forget_old()

    async def take(self, queue: str) -> Delivery:
        while not self._waiting[queue]:
            self._arrival[queue].clear()
            await self._arrival[queue].wait()
        job = self._waiting[queue].popleft()
        body, job.body = job.body, b""  # it is the worker's now
        return Delivery(job.id, body, self._now() - job.submitted)

    async def publish(self, job_id: str, event: bytes, passing: bool = False) -> None:
        job = self._jobs.get(job_id)
        if job is not None and not job.done.is_set() and job.events.add(event, passing):
            job.tell()

    async def finish(self, job_id: str, result: bytes) -> None:
        job = self._jobs.get(job_id)
        if job is not None and not job.done.is_set():
            self._end(job, None if job.called_off.is_set() else result)

    async def cancelled(self, job_id: str) -> None:
        await self._job(job_id).called_off.wait()

    async def announce(self, queue: str, presence: Presence) -> None:
        self._presence[queue][presence.worker] = (presence, self._now() + PRESENCE_TTL_S)

    async def workers(self, queue: str) -> tuple[Presence, ...]:
        now = self._now()
        return tuple(presence for presence, ends in self._presence[queue].values() if now < ends)

    async def close(self) -> None:
        for job in list(self._open.values()):
            await self.cancel(job.id)

    def _job(self, job_id: str) -> _Job:
        try:
            return self._jobs[job_id]
        except KeyError:
            raise JobUnknown("no such job, or its result is too old") from None

    def _end(self, job: _Job, result: bytes | None) -> None:
        job.result = result
        if self._open.get(job.key) is job:
            del self._open[job.key]
        job.body = b""
        self._finished[job.id] = self._now() + self._result_ttl_s
        self._finished_bytes += job.size
        job.done.set()
        job.tell()
        self._forget_old()

    def _forget_old(self) -> None:
        """Forget what is past its time; then, oldest first, what nobody has a share in, until the rest fits."""
        now = self._now()
        while self._finished and next(iter(self._finished.values())) <= now:
            self._forget(next(iter(self._finished)))
        while self._finished_bytes > self._result_bytes_max:
            oldest = next((job_id for job_id in self._finished if not self._jobs[job_id].shares), None)
            if oldest is None:
                return
            self._forget(oldest)

    def _forget(self, job_id: str) -> None:
        del self._finished[job_id]
        self._finished_bytes -= self._jobs.pop(job_id).size
