"""Leases the jobs of one queue for this process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
import time
from collections import deque
from dataclasses import dataclass, field, replace

from redis.exceptions import NoPermissionError

from app.broker.base import Delivery
from app.broker.redis.notifications import Change, JobNotifications, wait_for_change
from app.broker.redis.scripts import SERVICE_KEYS, JobScripts, event_keys, queue_keys, to_ms
from app.errors import DeadlineExceeded, MessageInvalid, WorkerLost, without_message
from app.messages import Signatures, dump, failure_of
from app.observability import metrics
from app.redis.connection import PAUSE_S_MAX, is_away
from app.tasks import cancel_tasks

POLL_S = 2.0  # a worker without jobs looks for ended leases
log = logging.getLogger(__name__)


@dataclass(eq=False)
class Lease:
    """A job that this process has leased. Its writes count while `fence` is the job's newest.

    message  its message in the stream of leases
    verdict  empty, or why the job is not to be run: `lost` after too many attempts or a cancellation, `late`
    events   number of events that were published
    lost     whether another worker has the job
    writing  lock that keeps the job's writes in order
    over     set once this process does nothing more for the job
    """

    delivery: Delivery  # with the signed body
    message: str
    fence: str
    verdict: str
    consumer: QueueConsumer
    events: int = 0
    lost: bool = False
    began: float = field(default_factory=time.monotonic)
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    over: asyncio.Event = field(default_factory=asyncio.Event)


class QueueConsumer:
    """A consumer of the queue's stream of leases. It claims a job only for a task that waits for one.

    running  the leases of the running jobs of all consumers of this process
    """

    def __init__(
        self, queue: str, scripts: JobScripts, signatures: Signatures, notifications: JobNotifications,
        running: dict[str, Lease], attempts_max: int,
    ) -> None:
        self._name, self._queue, self._attempts_max = secrets.token_hex(8), queue, attempts_max
        self._scripts, self._signatures, self._notifications = scripts, signatures, notifications
        self._taking = asyncio.Lock()
        self._claiming = asyncio.Lock()  # a claim must know the leases of those before
        self._clock_ahead: float | None = None  # ms: at most the server's clock minus our monotonic one
        self._takes_over_from, self._renewed = 0.0, 0.0
        self._claimed: deque[Lease] = deque()  # for the next callers
        self._leases: set[Lease] = set()  # all, also of jobs whose earlier attempt has not ended here
        self._arrival: Change | None = None  # None while jobs may wait
        self._running, self._other_versions = running, 0  # jobs of other versions at the last look
        self._give_others_time(0.5)
        self._maintenance = asyncio.create_task(self._maintain_forever())

    async def take(self) -> Delivery:
        """The next job. If the caller is cancelled meanwhile, `_maintain_forever` requeues the job."""
        while True:
            async with self._taking:  # one at a time, because each arrival would wake all tasks for one job
                while not self._claimed:
                    if self._arrival is not None:
                        await wait_for_change(self._arrival, POLL_S)
                    self._arrival = self._notifications.next_change(self._queue)
                    self._claimed.extend(await self._claim(1))
                lease = self._claimed.popleft()
            try:
                body = await self._open(lease)
            except BaseException:
                self._end(lease)
                raise
            if body is not None:
                return replace(lease.delivery, body=body)

    async def requeue(self, lease: Lease) -> None:
        """Requeues a leased job."""
        async with lease.writing:
            await self._scripts.call("requeue", self._queue, lease.delivery.job_id, lease.fence, patient=True)
        self._end(lease)

    async def finish(self, lease: Lease, result: bytes, cacheable: bool, ran_s: float | None) -> None:
        """Stores the result of a leased job. `ran_s` is None for one that did not run."""
        async with lease.writing:
            if not lease.over.is_set():
                signed = self._signatures.sign(result, "result", lease.delivery.job_id, lease.fence)
                ran_ms = -1 if ran_s is None else to_ms(ran_s)
                arguments = (lease.delivery.job_id, lease.fence, signed, int(cacheable), ran_ms)
                await self._scripts.call("finish", self._queue, *arguments, patient=True)
        self._end(lease)

    async def close(self, deadline_in_s: float) -> None:
        """Requeue all leased jobs and stop. Takes at most `deadline_in_s` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline_in_s):
                await self._claim(0)  # also finds jobs of earlier calls
                await asyncio.gather(*map(self.requeue, list(self._leases)))
        for lease in list(self._leases):
            self._end(lease)  # another worker takes the job once its lease has ended
        await cancel_tasks(self._maintenance)

    def _end(self, lease: Lease) -> None:
        lease.over.set()
        self._leases.discard(lease)
        if self._running.get(lease.delivery.job_id) is lease:
            del self._running[lease.delivery.job_id]

    async def _claim(self, count: int) -> list[Lease]:
        """Renew the leases, and lease up to `count` jobs.

        Jobs of earlier calls whose reply was lost come, too.
        """
        while True:
            try:
                async with self._claiming:
                    return await self._claim_once(count)
            except Exception as error:
                level = logging.DEBUG if is_away(error) else logging.WARNING
                cause = error if isinstance(error, NoPermissionError) else type(error).__name__
                log.log(level, "queue %s: claims go on after %s", self._queue, cause)
                self._takes_over_from = math.inf  # until the server has answered a claim
            await asyncio.sleep(PAUSE_S_MAX / 4)

    async def _claim_once(self, count: int) -> list[Lease]:
        sent, ahead = time.monotonic(), self._clock_ahead
        latest = "" if ahead is None else round(1000 * sent + ahead)
        renews = sent >= self._renewed + self._scripts.lease_s / 4
        held = {lease.message: lease for lease in self._leases if not lease.lost}
        now_ms, waiting, messages, claimed = await self._scripts.call(
            "claim", self._queue, self._name, self._scripts.process, count, latest, int(renews),
            int(sent >= self._takes_over_from), *held, once=True,
        )
        self._clock_ahead = now_ms - 1000 * sent
        self._renewed = sent if renews else self._renewed
        if self._takes_over_from == math.inf:  # the server is back
            self._give_others_time(0.5)
        if waiting:
            self._notifications.wake(self._queue)
        for lease in [lease for message, lease in held.items() if message.encode() not in messages]:
            if not lease.over.is_set():
                log.warning("job %s was taken over by another worker", lease.delivery.job_id)
                lease.lost = True
                self._notifications.wake(lease.delivery.job_id)
        jobs = []
        for *items, signed in claimed:
            job_id, message, fence, attempt, waited_ms, age_ms, verdict = map(bytes.decode, items)
            waited_s = int(waited_ms) / 1000 + time.monotonic() - sent
            delivery = Delivery(job_id, signed, waited_s, int(attempt), int(age_ms) / 1000)
            jobs.append(Lease(delivery, message, fence, verdict, self))
        self._leases.update(jobs)
        return jobs

    async def _open(self, lease: Lease) -> bytes | None:
        """The body of a leased job. None for a job that was finished instead, or is left to another worker."""
        if earlier := self._running.get(lease.delivery.job_id):  # an attempt that lost its lease must end here first
            await earlier.over.wait()
        self._running[lease.delivery.job_id] = lease
        try:
            if lease.verdict == "late":
                raise DeadlineExceeded()
            if lease.verdict == "lost":
                raise WorkerLost(self._attempts_max)
            return self._signatures.open_body(self._queue, lease.delivery.job_id, lease.delivery.body)
        except (WorkerLost, DeadlineExceeded, MessageInvalid) as error:
            await self.finish(lease, dump(failure_of(error)), False, None)
        except Exception as error:
            log.error("job %s of %s cannot run here: %s", lease.delivery.job_id, self._queue, without_message(error))
            self._give_others_time(2)
            words = (queue_keys(self._queue)[-1], "workers", "none", 0, lease.message, "IDLE")
            await self._scripts.link.command("renounce", "XCLAIM", *words, to_ms(self._scripts.lease_s), wait_s=None)
            self._end(lease)
        return None

    async def _maintain_forever(self) -> None:
        """Renews leases, deletes old jobs, and reports jobs of other versions."""
        swept = time.monotonic()
        while True:
            try:
                for lease in await self._claim(0):  # jobs that no caller waits for
                    await self.requeue(lease)
                if time.monotonic() >= swept + self._scripts.lease_s:
                    swept = time.monotonic()
                    await self._sweep()
            except Exception as error:
                log.warning("queue %s: maintenance goes on after %s", self._queue, without_message(error))
            await asyncio.sleep(self._scripts.lease_s / 4)

    async def _sweep(self) -> None:
        command, garbage = self._scripts.link.command, SERVICE_KEYS[7]
        await self._scripts.call("sweep", self._queue, patient=True)
        while job_ids := await command("sweep", "SRANDMEMBER", garbage, 100, wait_s=None):
            keys = [key for job_id in job_ids for key in event_keys(job_id.decode())]
            await command("sweep", "DEL", *keys, wait_s=None)
            await command("sweep", "SREM", garbage, *job_ids, wait_s=None)
        queue = self._queue.rpartition(":")[0]
        names = map(bytes.decode, await command("sweep", "SMEMBERS", SERVICE_KEYS[8], wait_s=None))
        others = [name for name in names if name.startswith(queue + ":v") and name != self._queue]
        jobs = sum([await command("sweep", "ZCARD", queue_keys(name)[1], wait_s=None) for name in others])
        if jobs != self._other_versions:
            log.warning("%d jobs wait for workers of another version than this one's %s", jobs, self._queue)
        self._other_versions = jobs
        metrics.OTHER_VERSIONS.labels(queue).set(jobs)

    def _give_others_time(self, leases: float) -> None:
        """Take over no jobs for so long. After an outage of the server, workers first renew their leases."""
        self._takes_over_from = time.monotonic() + leases * self._scripts.lease_s
