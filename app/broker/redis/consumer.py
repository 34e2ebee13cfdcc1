"""The jobs of one queue that this process has in hand, and those who wait for one. Obeys `ConsumerCallbacks`."""

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
from app.broker.redis.notifications import JobNotifications, heard, queue_news
from app.broker.redis.records import Records
from app.broker.redis.streaq_worker import Claimed, StreaqWorker
from app.redis.connection import is_away

PAUSE_S, PAUSE_S_MAX = 0.25, 5.0  # before a failed engine is restarted; doubled after each failure
CANCEL_AGAIN_S = 1.0
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
    """One for each queue that this process takes jobs of."""

    def __init__(self, queue: str, slots: int, records: Records, ears: JobNotifications) -> None:
        self.queue, self.slots = queue, slots
        self._records, self._ears = records, ears
        self._poll_s = min(1.0, records.lease_s / 3)
        self._takers: deque[asyncio.Future[Delivery]] = deque()
        self._coming: set[str] = set()
        self._stirred = asyncio.Event()
        self._ahead_ms: float | None = None  # the server's clock minus our monotonic clock, which is never set
        self.leases: dict[str, Lease] = {}
        self._tasks = [asyncio.create_task(work) for work in (self._run_forever(), self._hear(), self._sweep_forever())]
        self._giving_back: set[asyncio.Task[None]] = set()

    async def take(self) -> Delivery:
        """The next job."""
        taker: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        self._takers.append(taker)
        self._stirred.set()
        try:
            return await taker
        except asyncio.CancelledError:
            if taker.done() and not taker.cancelled():  # a job was delivered to a cancelled taker
                self._give_back_soon(taker.result().job_id)
            raise
        finally:
            with contextlib.suppress(ValueError):
                self._takers.remove(taker)

    async def wanted(self) -> int:
        await heard(self._stirred, self._poll_s)
        return len(self._takers) - len(self._coming)

    def coming(self, messages: Iterable[str]) -> None:
        self._coming.update(messages)

    def arrived(self, message: str) -> None:
        self._coming.discard(message)
        self._stirred.set()

    async def deliver(self, job_id: str, message: str) -> None:
        lease = self.leases.get(job_id)
        if lease is not None:  # delivered to us a second time: what is in hand goes on; what was lost must end first
            lost = lease.lost.is_set()
            await lease.over.wait()
            if not lost:
                return
        taken = await self._records.take(job_id, secrets.token_hex(8))
        if taken is None:  # over, or called off
            return
        delivery, fence = taken
        lease = self.leases[job_id] = Lease(job_id, message, fence)
        self.arrived(message)
        taker = next((taker for taker in self._takers if not taker.done()), None)
        if taker is None:
            self._give_back_soon(job_id)
        else:
            self._takers.remove(taker)
            taker.set_result(delivery)
        await lease.over.wait()

    async def refuse(self, job_id: str, priority: str, message: str) -> None:
        await self._records.refuse(job_id, self.queue, priority, message)

    async def claim(self, consumer: str, count: int, idle_ms: int) -> Claimed:
        asked_ms = time.monotonic() * 1000
        expected_ms = None if self._ahead_ms is None else round(asked_ms + self._ahead_ms)
        now_ms, claimed = await self._records.claim(self.queue, consumer, count, idle_ms, expected_ms)
        self._ahead_ms = now_ms - asked_ms  # at the most: who was stopped meanwhile shall not think it put on
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
        """Nothing more is done about this job here."""
        lease.over.set()
        if self.leases.get(lease.job_id) is lease:
            del self.leases[lease.job_id]

    async def give_back(self, job_id: str) -> None:
        """Hand a job back that is in hand."""
        lease = self.leases.get(job_id)
        if lease is None:
            return
        async with lease.writing:
            await self._records.give_back(job_id, lease.fence)
        self.end(lease)

    async def hand_back(self, within_s: float) -> None:
        """Give all leased jobs back, within at most `within_s` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await asyncio.gather(*(self.give_back(job_id) for job_id in list(self.leases)), *self._giving_back)
        for lease in list(self.leases.values()):
            self.end(lease)  # a consumer that finds the message idle takes the job

    async def close(self) -> None:
        """Stop all tasks.

        A breaking connection may swallow the cancellation of its task, so the cancellation is repeated.
        """
        tasks = {*self._tasks, *self._giving_back}
        while left := {task for task in tasks if not task.done()}:
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=CANCEL_AGAIN_S)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _give_back_soon(self, job_id: str) -> None:
        task = asyncio.create_task(self.give_back(job_id))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def _run_forever(self) -> None:
        """Run streaQ's worker. Should it end, for a fault that is not the server's absence, another goes on."""
        pause = PAUSE_S
        while True:
            began, away = time.monotonic(), False
            self._coming.clear()  # a consumer claims the failed engine's messages once they are idle
            try:
                await self._engine().run_async()
            except Exception as error:
                away = is_away(error)
                level = logging.DEBUG if away else logging.WARNING
                log.log(level, "the queue %s is taken up again after %s", self.queue, _names(error))
            ran_well = time.monotonic() - began > 2 * PAUSE_S_MAX
            pause = PAUSE_S if away or ran_well else min(2 * pause, PAUSE_S_MAX)
            await asyncio.sleep(pause)

    def _engine(self) -> StreaqWorker:
        records = self._records
        return StreaqWorker(records.url, self.queue, self.slots, records.lease_s, records.secret, self)

    async def _hear(self) -> None:
        with self._ears.news(queue_news(self.queue)) as news:
            while True:
                await news.wait()
                news.clear()
                self._stirred.set()

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(self._records.lease_s)
            again = await self._records.sweep(self.queue)
            if again:
                log.warning("%d jobs of %s had dropped out of the queue and were put back", again, self.queue)


def _names(error: BaseException) -> str:
    """The classes of an error, and of those in a group; the message only of a right that we lack."""
    if isinstance(error, BaseExceptionGroup):
        return ", ".join(_names(one) for one in error.exceptions)
    return str(error) if isinstance(error, AuthorizationError) else type(error).__name__
