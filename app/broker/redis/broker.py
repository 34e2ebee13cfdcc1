"""A broker on a Redis server, for several processes. All state of a job is on the server."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator

from app.broker.base import (
    DEFAULT_SUBMIT,
    HEARTBEAT_TTL_S,
    Backlog,
    Delivery,
    JobEvent,
    JobStatus,
    SubmitOptions,
    WorkerStatus,
)
from app.broker.redis.consumer import Lease, QueueConsumer
from app.broker.redis.notifications import JobNotifications, wait_for_change
from app.broker.redis.records import Records
from app.broker.redis.signatures import Signatures
from app.errors import JobCancelled, JobUnknown
from app.redis.connection import Connection
from app.settings import Settings

_UNKNOWN = "no such job, or its result is too old"


class RedisBroker:
    """Implements app.broker.base.Broker. It is used from one event loop."""

    durable = True

    def __init__(self, url: str, settings: Settings, heartbeat_ttl_s: float = HEARTBEAT_TTL_S) -> None:
        self._link = Connection(url, replicas_min=settings.storage.redis_replicas_min)
        self._heartbeat_ttl_s = heartbeat_ttl_s
        self._close_s = settings.storage.redis_wait_s
        self._records = Records(
            link=self._link,
            process=secrets.token_hex(8),
            secret=settings.auth.secret,
            signatures=Signatures(settings.auth.secret),
            queue_jobs_max=settings.queue.queue_jobs_max,
            queue_weight_max=settings.queue.queue_weight_max,
            result_ttl_s=settings.retention.result_ttl_s,
            result_bytes_max=settings.retention.result_bytes_max,
            wait_s=settings.storage.redis_wait_s,
            lease_s=settings.queue.job_lease_s,
            attempts_max=settings.queue.job_attempts_max,
        )
        self._notifications = JobNotifications(self._link, self._records.process, self._records.peek)
        self._consumers: dict[str, QueueConsumer] = {}

    @classmethod
    def from_url(cls, url: str, settings: Settings) -> RedisBroker:
        """The broker of a `redis://`, `rediss://` or `unix://` URL. It connects when it is used."""
        return cls(url, settings)

    async def submit(self, queue: str, key: str, body: bytes, options: SubmitOptions = DEFAULT_SUBMIT) -> str:
        return await self._records.submit(secrets.token_hex(16), queue, key, body, options)

    async def subscribe(self, job_id: str) -> None:
        if not await self._records.add_subscribers(job_id, 1):
            raise JobUnknown(_UNKNOWN)

    async def state(self, job_id: str) -> JobStatus:
        return await self._records.state(job_id)

    async def events(self, job_id: str, after: str = "") -> AsyncIterator[JobEvent]:
        with self._notifications.news(job_id) as news:
            while True:
                over, events = await self._records.read(job_id, after)
                for event in events:
                    after = event.id
                    yield event
                if over and not events:  # a finished job may still have events that were not read yet
                    return
                if not events:
                    await wait_for_change(news)

    async def result(self, job_id: str) -> bytes:
        with self._notifications.news(job_id) as news:
            while True:
                job = await self._records.look(job_id)
                if job is None:
                    raise JobUnknown(_UNKNOWN)
                if job.state == "done":
                    return job.result
                if job.state == "cancelled":
                    raise JobCancelled("the job was cancelled before it was done")
                await wait_for_change(news)

    async def cancel(self, job_id: str) -> None:
        await self._records.cancel(job_id)

    async def unsubscribe(self, job_id: str) -> None:
        await self._records.add_subscribers(job_id, -1)

    async def take(self, queue: str) -> Delivery:
        consumer = self._consumers.get(queue)
        if consumer is None:
            consumer = self._consumers[queue] = QueueConsumer(queue, self._records, self._notifications)
        return await consumer.take()

    async def requeue(self, job_id: str) -> None:
        for consumer in self._consumers.values():
            await consumer.requeue(job_id)

    async def publish(self, job_id: str, event: bytes, droppable: bool = False) -> None:
        leased = self._leased(job_id)
        if leased is None:
            return
        _, lease = leased
        async with lease.writing:  # events get their numbers in the order in which they are written
            if lease.over.is_set() or lease.lost.is_set():
                return
            lease.events += 1
            if not await self._records.publish(job_id, lease.fence, lease.events, event, droppable):
                lease.lost.set()

    async def finish(self, job_id: str, result: bytes, cacheable: bool = True) -> None:
        leased = self._leased(job_id)
        if leased is None:
            return
        consumer, lease = leased
        async with lease.writing:
            if not lease.over.is_set():
                await self._records.finish(job_id, lease.fence, result, cacheable, time.monotonic() - lease.began)
        consumer.end(lease)

    async def cancelled(self, job_id: str) -> None:
        leased = self._leased(job_id)
        lost = asyncio.create_task(leased[1].lost.wait()) if leased else None
        cancelled = asyncio.create_task(self._until_cancelled(job_id))
        tasks = [task for task in (lost, cancelled) if task is not None]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def heartbeat(self, queue: str, status: WorkerStatus) -> None:
        await self._records.heartbeat(queue, status, self._heartbeat_ttl_s)

    async def workers(self, queue: str) -> tuple[WorkerStatus, ...]:
        return await self._records.workers(queue)

    async def backlog(self, queue: str) -> Backlog:
        return await self._records.backlog(queue)

    async def close(self) -> None:
        await asyncio.gather(*(consumer.close(self._close_s) for consumer in self._consumers.values()))
        self._link.stop_waiting()
        await self._notifications.close()
        await self._link.close()

    async def _until_cancelled(self, job_id: str) -> None:
        """Return once the job is cancelled or its record is gone. Either way its result is no longer needed."""
        with self._notifications.news(job_id) as news:
            while True:
                job = await self._records.look(job_id, worker=True)
                if job is None or job.cancel_requested:
                    return
                await wait_for_change(news)

    def _leased(self, job_id: str) -> tuple[QueueConsumer, Lease] | None:
        """The lease of a job in this process, with its consumer."""
        for consumer in self._consumers.values():
            lease = consumer.lease(job_id)
            if lease is not None:
                return consumer, lease
        return None
