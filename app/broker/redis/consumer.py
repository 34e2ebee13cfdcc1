"""The leased jobs of one queue in this process. Also the tasks that wait for one. Obeys `ConsumerCallbacks`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import deque
from collections.abc import Iterable

from coredis.exceptions import AuthorizationError

from app.broker.base import Delivery
from app.broker.redis.notifications import JobNotifications, queue_news, wait_for_change
from app.broker.redis.records import Records
from app.broker.redis.streaq_worker import Claimed, StreaqWorker
from app.redis.connection import is_away

PAUSE_S, PAUSE_S_MAX = 0.25, 5.0  # before a failed engine is restarted; doubled after each failure
CANCEL_RETRY_S = 1.0
log = logging.getLogger(__name__)


class Lease:
    """A leased job; its writes count while `fence` is the job's newest.

    began    when the job was taken, by the monotonic clock
    writing  lock that keeps the job's writes in order
    lost     set once another worker has the job
    over     set once this process does nothing more for the job
    """

    def __init__(self, job_id: str, message: str, fence: str) -> None:
        self.job_id, self.message, self.fence = job_id, message, fence
        self.events, self.began = 0, time.monotonic()
        self.writing = asyncio.Lock()
        self.lost = asyncio.Event()
        self.over = asyncio.Event()


class QueueConsumer:
    """Takes the jobs of one queue for this process."""

    def __init__(self, queue: str, slots: int, records: Records, notifications: JobNotifications) -> None:
        self.queue, self.slots = queue, slots
        self._records, self._notifications = records, notifications
        self._poll_s = min(1.0, records.lease_s / 3)
        self._takers: deque[asyncio.Future[Delivery]] = deque()
        self._in_flight: set[str] = set()
        self._wakeup = asyncio.Event()
        self._ahead_ms: float | None = None  # the server's clock minus our monotonic clock, which is never set
        self.leases: dict[str, Lease] = {}
        loops = (self._run_forever(), self._follow_arrivals(), self._sweep_forever())
        self._tasks = [asyncio.create_task(loop) for loop in loops]
        self._requeues: set[asyncio.Task[None]] = set()

    async def take(self) -> Delivery:
        """The next job."""
        taker: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        self._takers.append(taker)
        self._wakeup.set()
        try:
            return await taker
        except asyncio.CancelledError:
            if taker.done() and not taker.cancelled():  # a job was delivered to a cancelled taker
                self._requeue_soon(taker.result().job_id)
            raise
        finally:
            with contextlib.suppress(ValueError):
                self._takers.remove(taker)

    async def demand(self) -> int:
        await wait_for_change(self._wakeup, self._poll_s)
        return len(self._takers) - len(self._in_flight)

    def add_in_flight(self, messages: Iterable[str]) -> None:
        self._in_flight.update(messages)

    def remove_in_flight(self, message: str) -> None:
        self._in_flight.discard(message)
        self._wakeup.set()

    async def deliver(self, job_id: str, message: str) -> None:
        lease = self.leases.get(job_id)
        if lease is not None:  # a repeated delivery: a held lease continues, a lost one must end first
            lost = lease.lost.is_set()
            await lease.over.wait()
            if not lost:
                return
        taken = await self._records.take(job_id, secrets.token_hex(8))
        if taken is None:  # finished or cancelled
            return
        delivery, fence = taken
        lease = self.leases[job_id] = Lease(job_id, message, fence)
        self.remove_in_flight(message)
        taker = next((taker for taker in self._takers if not taker.done()), None)
        if taker is None:
            self._requeue_soon(job_id)
        else:
            self._takers.remove(taker)
            taker.set_result(delivery)
        await lease.over.wait()

    async def refuse(self, job_id: str, priority: str, message: str) -> None:
        await self._records.refuse(job_id, self.queue, priority, message)

    async def claim(self, consumer: str, count: int, idle_ms: int) -> Claimed:
        sent_ms = time.monotonic() * 1000
        expected_ms = None if self._ahead_ms is None else round(sent_ms + self._ahead_ms)
        now_ms, claimed = await self._records.claim(self.queue, consumer, count, idle_ms, expected_ms)
        self._ahead_ms = now_ms - sent_ms  # an upper bound, so that a suspended process does not assume a changed clock
        return claimed

    async def ticket(self, stream: str, consumer: str, message: str, job_id: str) -> bytes | None:
        return await self._records.ticket(self.queue, stream, consumer, message, job_id)

    async def renew(self, stream: str, consumer: str, messages: list[str]) -> None:
        lost = await self._records.renew(stream, consumer, messages)
        for lease in self.leases.values():
            if lease.message in lost:
                log.warning("job %s was taken over by another worker", lease.job_id)
                lease.lost.set()

    def end(self, lease: Lease) -> None:
        """Ends the lease in this process."""
        lease.over.set()
        if self.leases.get(lease.job_id) is lease:
            del self.leases[lease.job_id]

    async def requeue(self, job_id: str) -> None:
        """Requeues a leased job."""
        lease = self.leases.get(job_id)
        if lease is None:
            return
        async with lease.writing:
            await self._records.requeue(job_id, lease.fence)
        self.end(lease)

    async def requeue_all(self, deadline_in_s: float) -> None:
        """Requeues all leased jobs, within at most `deadline_in_s` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline_in_s):
                await asyncio.gather(*(self.requeue(job_id) for job_id in list(self.leases)), *self._requeues)
        for lease in list(self.leases.values()):
            self.end(lease)  # a consumer that finds the message idle takes the job

    async def close(self) -> None:
        """Stop all tasks.

        A breaking connection may swallow the cancellation of its task, so the cancellation is repeated.
        """
        tasks = {*self._tasks, *self._requeues}
        while pending := {task for task in tasks if not task.done()}:
            for task in pending:
                task.cancel()
            await asyncio.wait(pending, timeout=CANCEL_RETRY_S)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _requeue_soon(self, job_id: str) -> None:
        task = asyncio.create_task(self.requeue(job_id))
        self._requeues.add(task)
        task.add_done_callback(self._requeues.discard)

    async def _run_forever(self) -> None:
        """Runs streaQ's worker, and restarts it if it fails."""
        pause = PAUSE_S
        while True:
            began, away = time.monotonic(), False
            self._in_flight.clear()  # a consumer claims the failed engine's messages once they are idle
            try:
                await self._engine().run_async()
            except Exception as error:
                away = is_away(error)
                level = logging.DEBUG if away else logging.WARNING
                log.log(level, "restarting the worker of queue %s after %s", self.queue, _names(error))
            ran_well = time.monotonic() - began > 2 * PAUSE_S_MAX
            pause = PAUSE_S if away or ran_well else min(2 * pause, PAUSE_S_MAX)
            await asyncio.sleep(pause)

    def _engine(self) -> StreaqWorker:
        records = self._records
        return StreaqWorker(records.url, self.queue, self.slots, records.lease_s, records.secret, self)

    async def _follow_arrivals(self) -> None:
        with self._notifications.news(queue_news(self.queue)) as news:
            while True:
                await news.wait()
                news.clear()
                self._wakeup.set()

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(self._records.lease_s)
            again = await self._records.sweep(self.queue)
            if again:
                log.warning("requeued %d lost jobs of %s", again, self.queue)


def _names(error: BaseException) -> str:
    """The classes of an error and of those in a group; the message only of a missing permission."""
    if isinstance(error, BaseExceptionGroup):
        return ", ".join(_names(inner) for inner in error.exceptions)
    return str(error) if isinstance(error, AuthorizationError) else type(error).__name__
