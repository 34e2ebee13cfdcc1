"""Leases the jobs of one queue for this process. Hands each to a task that waits for one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from redis.exceptions import NoPermissionError

from app.broker.base import Delivery
from app.broker.redis.notifications import JobNotifications, queue_news, wait_for_change
from app.broker.redis.records import ClaimedJob, Records
from app.errors import DeadlineExceeded, MessageInvalid, WorkerLost, without_message
from app.messages import dump, failure_of
from app.redis.connection import PAUSE_S, PAUSE_S_MAX, cancel_tasks, is_away

log = logging.getLogger(__name__)


class Lease:
    """A leased job; its writes count while `fence` is the job's newest.

    began    when the job was claimed, by the monotonic clock
    writing  lock that keeps the job's writes in order
    lost     set once another worker has the job
    over     set once this process does nothing more for the job
    """

    def __init__(self, job: ClaimedJob) -> None:
        self.job_id, self.message, self.fence = job.job_id, job.message, job.fence
        self.events, self.began = 0, time.monotonic()
        self.writing = asyncio.Lock()
        self.lost = asyncio.Event()
        self.over = asyncio.Event()


class QueueConsumer:
    """A consumer of the queue's stream of leases. It claims a job only for a task that waits for one."""

    def __init__(self, queue: str, records: Records, notifications: JobNotifications) -> None:
        self._name, self._queue = secrets.token_hex(8), queue
        self._records, self._notifications = records, notifications
        self._poll_s = min(1.0, records.lease_s / 3)
        self._takers: deque[asyncio.Future[Delivery]] = deque()
        self._wakeup = asyncio.Event()
        self._ahead_ms: float | None = None  # the server's clock minus our monotonic clock, which is never set
        self._claims_from = 0.0  # until then, no jobs are taken over from silent workers
        self._leases: set[Lease] = set()  # all, also of jobs whose earlier attempt has not ended here
        self._current: dict[str, Lease] = {}  # the leases of running jobs
        self._unreadable: set[str] = set()  # messages whose lease is not renewed, so that another worker tries
        self._tasks: set[asyncio.Task[None]] = set()
        self._give_others_time(0.5)
        for loop in (self._claim_forever, self._renew_forever, self._sweep_forever):
            self._start(self._restart_forever(loop))

    def lease(self, job_id: str) -> Lease | None:
        """The lease of a job that runs in this process."""
        return self._current.get(job_id)

    async def take(self) -> Delivery:
        """The next job."""
        taker: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        self._takers.append(taker)
        self._wakeup.set()
        try:
            return await taker
        except asyncio.CancelledError:
            if taker.done() and not taker.cancelled():  # a job was delivered to a cancelled taker
                self._start(self.requeue(taker.result().job_id))
            raise
        finally:
            with contextlib.suppress(ValueError):
                self._takers.remove(taker)

    def end(self, lease: Lease) -> None:
        """Ends the lease in this process."""
        lease.over.set()
        self._leases.discard(lease)
        if self._current.get(lease.job_id) is lease:
            del self._current[lease.job_id]

    async def requeue(self, job_id: str) -> None:
        """Requeues a leased job."""
        lease = self._current.get(job_id)
        if lease is None:
            return
        async with lease.writing:
            await self._records.requeue(job_id, lease.fence)
        self.end(lease)

    async def close(self, deadline_in_s: float) -> None:
        """Requeue all leased jobs and stop all tasks. Takes at most `deadline_in_s` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline_in_s):
                await asyncio.gather(*(self.requeue(job_id) for job_id in list(self._current)))
        for lease in list(self._leases):
            self.end(lease)  # another worker takes the job once its lease has ended
        await cancel_tasks(list(self._tasks))

    async def _claim_forever(self) -> None:
        with self._notifications.news(queue_news(self._queue), self._wakeup):
            while True:
                await wait_for_change(self._wakeup, self._poll_s)
                while (demand := len(self._takers) - len(self._leases - set(self._current.values()))) > 0:
                    jobs = await self._claim(demand)
                    if not jobs:
                        break
                    for job in jobs:
                        self._start(self._deliver(job))
                    await asyncio.sleep(0)  # the deliveries begin

    async def _claim(self, count: int) -> list[ClaimedJob]:
        sent_ms = time.monotonic() * 1000
        expected_ms = None if self._ahead_ms is None else round(sent_ms + self._ahead_ms)
        ended_leases = time.monotonic() >= self._claims_from
        if ended_leases:
            self._unreadable.clear()
        messages = [*self._held_messages(), *self._unreadable]
        now_ms, jobs = await self._records.claim(self._queue, self._name, count, ended_leases, expected_ms, messages)
        self._ahead_ms = now_ms - sent_ms  # an upper bound, so that a suspended process does not assume a changed clock
        if self._claims_from == math.inf:  # the server is back
            self._give_others_time(0.5)
        return jobs

    async def _deliver(self, job: ClaimedJob) -> None:
        """Give a job to a task that waits for one."""
        lease = Lease(job)
        self._leases.add(lease)
        earlier = self._current.get(job.job_id)
        if earlier is not None:  # an attempt whose lease is lost must end here before the next begins
            await earlier.over.wait()
        self._current[job.job_id] = lease
        try:
            body = self._body(job)
        except (WorkerLost, DeadlineExceeded, MessageInvalid) as error:
            await self._records.finish(job.job_id, lease.fence, dump(failure_of(error)), False, None)
            self.end(lease)
        except Exception as error:
            log.error("job %s of %s cannot be taken here: %s", job.job_id, self._queue, without_message(error))
            self._unreadable.add(lease.message)
            self._give_others_time(2)
            self.end(lease)
        else:
            taker = next((taker for taker in self._takers if not taker.done()), None)
            if taker is None:
                return await self.requeue(job.job_id)
            self._takers.remove(taker)
            taker.set_result(Delivery(job.job_id, body, job.waited_s, job.attempt, job.age_s))

    def _body(self, job: ClaimedJob) -> bytes:
        """The verified body. Raises the failure of a job that is not to be run."""
        if job.verdict == "lost":
            raise WorkerLost(self._records.attempts_max)
        if job.verdict == "late":
            raise DeadlineExceeded()
        return self._records.signatures.open_body(self._queue, job.job_id, job.body)

    async def _renew_forever(self) -> None:
        while True:
            messages = self._held_messages()
            lost = await self._records.renew(self._queue, self._name, messages) if messages else set()
            for lease in self._leases:
                if lease.message in lost and not lease.lost.is_set():
                    log.warning("job %s was taken over by another worker", lease.job_id)
                    lease.lost.set()
            await asyncio.sleep(self._records.lease_s / 3)  # a busy machine is late

    def _held_messages(self) -> list[str]:
        return sorted(lease.message for lease in self._leases if not lease.lost.is_set())

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(self._records.lease_s)
            await self._records.sweep(self._queue)

    def _give_others_time(self, leases: float) -> None:
        """Take over no jobs for so long. After an outage of the server, workers first renew their leases."""
        self._claims_from = time.monotonic() + leases * self._records.lease_s

    async def _restart_forever(self, loop: Callable[[], Awaitable[None]]) -> None:
        """Runs a loop again after each error, such as an unreachable server."""
        pause = PAUSE_S
        while True:
            began = time.monotonic()
            try:
                await loop()
            except Exception as error:
                away = is_away(error)
                level = logging.DEBUG if away else logging.WARNING
                cause = error if isinstance(error, NoPermissionError) else type(error).__name__
                log.log(level, "queue %s: %s continues after %s", self._queue, loop.__name__, cause)
                self._claims_from = math.inf  # until the server has answered a claim
            pause = PAUSE_S if time.monotonic() - began > 2 * PAUSE_S_MAX else min(2 * pause, PAUSE_S_MAX)
            await asyncio.sleep(pause)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
