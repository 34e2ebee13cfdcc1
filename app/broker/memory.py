"""A broker inside this process, on one event loop. A job that is finished is kept for `result_ttl_s` seconds."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable

from app.broker.base import PRESENCE_TTL_S, Delivery, Presence
from app.errors import JobCancelled, JobUnknown, QueueFull
from app.settings import Settings

EVENTS_MAX = 4_096


class _Job:
    """One job from submit to the end of its time."""

    def __init__(self, queue: str, key: str, body: bytes, now: float) -> None:
        self.id = secrets.token_hex(8)
        self.queue, self.key, self.body, self.submitted = queue, key, body, now
        self.events: list[bytes] = []
        self.changed = asyncio.Event()
        self.called_off = asyncio.Event()
        self.done = asyncio.Event()
        self.result: bytes | None = None

    def tell(self) -> None:
        """Wake everyone who waits for news of this job."""
        waiting, self.changed = self.changed, asyncio.Event()
        waiting.set()


class MemoryBroker:
    """Obeys app.broker.base.Broker. Used from one event loop, so no method needs a lock."""

    def __init__(
        self, queue_jobs_max: int, result_ttl_s: float = 600.0, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._queue_jobs_max = queue_jobs_max
        self._result_ttl_s = result_ttl_s
        self._now = now
        self._jobs: dict[str, _Job] = {}
        self._open: dict[str, _Job] = {}  # by key: waiting or running
        self._waiting: defaultdict[str, deque[_Job]] = defaultdict(deque)
        self._arrival: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._finished: deque[tuple[float, str]] = deque()
        self._presence: defaultdict[str, dict[str, tuple[Presence, float]]] = defaultdict(dict)

    @classmethod
    def from_url(cls, url: str, settings: Settings) -> MemoryBroker:
        """The broker of a `memory://` URL."""
        return cls(settings.queue_jobs_max, settings.result_ttl_s)

    async def submit(self, queue: str, key: str, body: bytes) -> str:
        self._forget_old()
        known = self._open.get(key)
        if known is not None:
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
            while seen < len(job.events):
                yield job.events[seen]
                seen += 1
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

    async def take(self, queue: str) -> Delivery:
        while not self._waiting[queue]:
            self._arrival[queue].clear()
            await self._arrival[queue].wait()
        job = self._waiting[queue].popleft()
        return Delivery(job.id, job.body, self._now() - job.submitted)

    async def publish(self, job_id: str, event: bytes) -> None:
        job = self._jobs.get(job_id)
        if job is not None and not job.done.is_set() and len(job.events) < EVENTS_MAX:
            job.events.append(event)
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
        self._finished.append((self._now() + self._result_ttl_s, job.id))
        job.done.set()
        job.tell()

    def _forget_old(self) -> None:
        while self._finished and self._finished[0][0] <= self._now():
            self._jobs.pop(self._finished.popleft()[1], None)
