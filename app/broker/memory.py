"""A broker inside this process, on one event loop. Finished jobs are kept for a limited time and in limited bytes."""

from __future__ import annotations

import heapq
import itertools
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable

from app.broker.base import (
    DEFAULT_SUBMIT,
    HEARTBEAT_TTL_S,
    Backlog,
    ConcurrencyGroup,
    Delivery,
    JobEvent,
    JobStatus,
    SubmitOptions,
    WorkerStatus,
)
from app.broker.memory_queue import Queue, QueuedJob
from app.broker.throughput import DEADLINE_SHARE, retry_delay_s, work_of
from app.errors import DeadlineExceeded, DeadlineUnreachable, JobCancelled, JobUnknown, KeyReused, QueueFull
from app.messages import dump, failure_of
from app.settings import Settings

_LAST_IN_LINE = SubmitOptions(priority="batch")  # of a job behind all others


class MemoryBroker:
    """Implements app.broker.base.Broker. It is used from one event loop, so no method needs a lock.

    A worker of this process dies only together with the broker, so only requeued jobs are delivered again.
    """

    durable = False

    def __init__(
        self,
        queue_jobs_max: int,
        result_ttl_s: float = 600.0,
        result_bytes_max: int = 64 * 2**20,
        now: Callable[[], float] = time.monotonic,
        queue_weight_max: int = 1_000_000,
    ) -> None:
        self._queue_jobs_max = queue_jobs_max
        self._queue_weight_max = queue_weight_max
        self._result_ttl_s = result_ttl_s
        self._result_bytes_max = result_bytes_max
        self._now = now
        self._jobs: dict[str, QueuedJob] = {}
        self._by_key: dict[str, QueuedJob] = {}  # waiting, running or remembered
        self._queues: defaultdict[str, Queue] = defaultdict(lambda: Queue(now))
        self._pools: dict[str, list[QueuedJob]] = {}  # by group: unfinished at the last look
        self._finished: dict[str, None] = {}  # ids as an ordered set, the first to end first
        self._expiry: list[tuple[float, str]] = []  # a heap of times and ids of finished jobs
        self._finished_bytes = 0
        self._heartbeats: defaultdict[str, dict[str, tuple[WorkerStatus, float]]] = defaultdict(dict)

    @classmethod
    def from_url(cls, url: str, settings: Settings) -> MemoryBroker:
        """The broker of a `memory://` URL."""
        return cls(
            settings.queue.queue_jobs_max, settings.retention.result_ttl_s, settings.retention.result_bytes_max,
            queue_weight_max=settings.queue.queue_weight_max,
        )

    async def submit(self, queue: str, key: str, body: bytes, options: SubmitOptions = DEFAULT_SUBMIT) -> str:
        self._forget_old()
        current = self._by_key.get(key)
        if current is not None and (not current.done.is_set() or self._now() < current.key_ends):
            if current.options.digest != options.digest:
                raise KeyReused("this key came with another request before")
            current.subscribe(options.detached)
            return current.id
        # The limits come before the job is created: a refused job leaves no trace.
        first = self._jobs.get(options.after) if options.after else None
        if first is not None and first.done.is_set():
            first = None
        self._require_room(self._queues[queue], options.weight)
        self._require_time(self._queues[queue], options, outside=first is not None)
        self._require_group_capacity(self._queues[queue], options.pools)
        job = QueuedJob(queue, key, body, options, self._now())
        job.subscribe(options.detached)
        self._jobs[job.id] = self._by_key[key] = job
        for pool in options.pools:
            self._pools[pool.name].append(job)
        if first is None:
            self._enqueue(job)
        else:
            first.followers.append(job)
            self._queues[queue].hold(job)
        return job.id

    async def subscribe(self, job_id: str) -> None:
        self._job(job_id).subscribe(detached=False)

    async def state(self, job_id: str) -> JobStatus:
        job = self._job(job_id)
        return job.state(self._queues[job.queue].ahead(job))

    async def events(self, job_id: str, after: str = "") -> AsyncIterator[JobEvent]:
        job = self._job(job_id)
        seen = job.events.number_of(after)
        while True:
            while (event_entry := job.events.after(seen)) is not None:
                seen, event = event_entry
                yield event
            if job.done.is_set():
                return
            await job.changed.wait()

    async def result(self, job_id: str) -> bytes:
        job = self._job(job_id)
        await job.done.wait()
        if job.result is None:
            raise JobCancelled("the job was cancelled before it was done")
        return job.result

    async def cancel(self, job_id: str) -> None:
        job = self._jobs.get(job_id)
        if job is None or job.done.is_set():
            return
        job.cancel_requested.set()
        self._forget_key(job)  # a later request with the same key starts a new job
        if self._queues[job.queue].remove(job):
            self._end(job, None)

    async def unsubscribe(self, job_id: str) -> None:
        job = self._jobs.get(job_id)
        if job is None or not job.subscribers:
            return
        job.subscribers -= 1
        if not job.subscribers:
            if not job.detached:
                await self.cancel(job_id)
            self._forget_old()

    async def take(self, queue: str) -> Delivery:
        line = self._queues[queue]
        while (job := line.next()) is None or line.cannot_meet_deadline(job, self._now()):
            if job is not None:
                self._end(job, dump(failure_of(DeadlineExceeded())))
                continue
            line.arrival.clear()
            await line.arrival.wait()
        line.run(job, self._now())
        job.running = True
        job.attempt += 1
        assert job.queued is not None  # only `_enqueue` puts jobs into the queue
        age_s = time.monotonic() - job.made
        return Delivery(job.id, job.body, self._now() - job.queued, job.attempt, age_s)

    async def requeue(self, job_id: str) -> None:
        job = self._jobs.get(job_id)
        if job is None or job.done.is_set() or not job.running:
            return
        if job.cancel_requested.is_set():
            self._end(job, None)
            return
        job.running = False
        job.attempt -= 1  # a requeued attempt does not count
        self._queues[job.queue].requeue(job)

    async def publish(self, job_id: str, event: bytes, droppable: bool = False) -> None:
        job = self._jobs.get(job_id)
        if job is not None and not job.done.is_set() and job.events.add(event, droppable):
            job.notify()

    async def finish(self, job_id: str, result: bytes, cacheable: bool = True) -> None:
        job = self._jobs.get(job_id)
        if job is not None and not job.done.is_set():
            self._end(job, None if job.cancel_requested.is_set() else result, cacheable)

    async def cancelled(self, job_id: str) -> None:
        await self._job(job_id).cancel_requested.wait()

    async def heartbeat(self, queue: str, status: WorkerStatus) -> None:
        self._heartbeats[queue][status.worker] = (status, self._now() + HEARTBEAT_TTL_S)

    async def workers(self, queue: str) -> tuple[WorkerStatus, ...]:
        now, seen = self._now(), self._heartbeats[queue]
        for name in [name for name, (_, ends) in seen.items() if now >= ends]:
            del seen[name]
        return tuple(status for status, _ in seen.values())

    async def backlog(self, queue: str) -> Backlog:
        return self._queues[queue].backlog()

    async def close(self) -> None:
        for job in [job for job in self._jobs.values() if not job.done.is_set()]:
            await self.cancel(job.id)

    def _require_room(self, queue: Queue, weight: int) -> None:
        """Raise QueueFull if the queue is full. A job that alone exceeds the weight is admitted to an empty queue."""
        if len(queue) >= self._queue_jobs_max:
            raise QueueFull(self._queue_jobs_max, retry_after_s=_retry_delay_s(queue, 0))
        excess = queue.weight + weight - self._queue_weight_max
        if weight and queue.weight and excess > 0:
            raise QueueFull(self._queue_weight_max, "queue_weight_max", _retry_delay_s(queue, excess))

    def _require_time(self, queue: Queue, options: SubmitOptions, outside: bool) -> None:
        """Raise DeadlineUnreachable if the jobs ahead leave too little time.

        Jobs that would all run at once do not count.
        """
        before = queue.before(options, outside)
        # With as many workers busy as jobs ahead, all of those may start at once, and the estimate would be too high.
        if options.deadline_in_s is None or len(before) <= queue.runs:
            return
        wait_s = queue.seconds(sum(job.work for job in before) + queue.running + work_of(options.weight))
        if wait_s is not None and wait_s > DEADLINE_SHARE * options.deadline_in_s:
            excess_s = wait_s - DEADLINE_SHARE * options.deadline_in_s
            raise DeadlineUnreachable(wait_s, options.deadline_in_s, retry_delay_s(excess_s, wait_s))

    def _require_group_capacity(self, queue: Queue, pools: tuple[ConcurrencyGroup, ...]) -> None:
        """Raise QueueFull if one of the groups is full."""
        for pool in pools:
            self._pools[pool.name] = [job for job in self._pools.get(pool.name, ()) if not job.done.is_set()]
        for pool in pools:
            if len(self._pools[pool.name]) >= pool.cap:
                raise QueueFull(pool.cap, pool.limit, _retry_delay_s(queue, 0))

    def _enqueue(self, job: QueuedJob) -> None:
        job.queued = self._now()
        self._queues[job.queue].add(job)

    def _job(self, job_id: str) -> QueuedJob:
        try:
            return self._jobs[job_id]
        except KeyError:
            raise JobUnknown("no such job, or its result is too old") from None

    def _end(self, job: QueuedJob, result: bytes | None, cacheable: bool = False) -> None:
        job.result, job.running, job.body = result, False, b""
        key_ttl_s = job.options.key_ttl_s if cacheable and result is not None else 0.0
        job.key_ends = self._now() + key_ttl_s
        if not key_ttl_s:
            self._forget_key(job)
        self._queues[job.queue].ended(job, None if result is None else self._now())
        self._finished[job.id] = None
        heapq.heappush(self._expiry, (self._now() + max(self._result_ttl_s, key_ttl_s), job.id))
        self._finished_bytes += job.size
        job.done.set()
        job.notify()
        for follower in job.followers:
            if self._queues[follower.queue].remove(follower):
                self._enqueue(follower)
        job.followers.clear()
        self._forget_old()

    def _forget_old(self) -> None:
        """Forget expired jobs, then jobs without subscribers until the rest fits.

        Those that ended first go first.

        The last job to end stays, whatever its size, so that its result can still be read.
        """
        now = self._now()
        while self._expiry and self._expiry[0][0] <= now:
            self._forget(heapq.heappop(self._expiry)[1])
        while self._finished_bytes > self._result_bytes_max:
            before_last = itertools.islice(self._finished, len(self._finished) - 1)
            oldest = next((job_id for job_id in before_last if not self._jobs[job_id].subscribers), None)
            if oldest is None:
                return
            self._forget(oldest)

    def _forget(self, job_id: str) -> None:
        if job_id in self._finished:  # otherwise it was dropped early to free bytes
            del self._finished[job_id]
            job = self._jobs.pop(job_id)
            self._finished_bytes -= job.size
            self._forget_key(job)

    def _forget_key(self, job: QueuedJob) -> None:
        if self._by_key.get(job.key) is job:
            del self._by_key[job.key]


def _retry_delay_s(queue: Queue, excess: int) -> int:
    """The delay before a retry, until `excess` work has left the queue.

    An excess of 0 stands for one job of average size.
    """
    waiting = [job.work for job in queue.before(_LAST_IN_LINE, outside=True)]
    total = sum(waiting) + queue.running
    return retry_delay_s(queue.seconds(excess or sum(waiting) / max(1, len(waiting))), queue.seconds(total))
