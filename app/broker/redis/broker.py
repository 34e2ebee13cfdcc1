"""A broker on a Redis server, for several processes. All state of a job is on the server."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, fields
from typing import Any, cast

from app.broker import base
from app.broker.redis.consumer import Lease, QueueConsumer
from app.broker.redis.notifications import Change, JobNotifications, wait_for_change
from app.broker.redis.scripts import JobScripts, event_keys, to_ms
from app.broker.throughput import retry_delay_s
from app.errors import DeadlineUnreachable, JobCancelled, JobUnknown, KeyReused, QueueFull, SettingsInvalid, StorageDown
from app.messages import VERSION, Signatures, signing_keys
from app.redis.connection import Connection
from app.settings import Settings

POLL_S = 60.0  # a task that waits for a job looks for itself after this time, since a message may be lost
CANCELLED_S = 0.05  # before a worker looks whether its job is cancelled, because short jobs are done by then
EVENTS_PER_READ = 64
_EVENT_ID = re.compile(r"\d{1,18}-\d{1,18}")
_UNKNOWN = "no such job, or its result is too old"
_COUNTS = {"attempt": 0, "fence": 0, "bytes": 0, "durable": 0, "droppable": 0}  # of a new job


class RedisBroker:
    """Implements app.broker.base.Broker. It is used from one event loop.

    version  the format version of jobs, events and results. It is part of the queues' names on the server, so workers
             of another version leave the jobs alone
    """

    durable = True

    def __init__(
        self, url: str, settings: Settings, heartbeat_ttl_s: float = base.HEARTBEAT_TTL_S, version: int = VERSION
    ) -> None:
        self._limits, self._secret, self._close_s = settings.queue, settings.auth.secret, settings.storage.redis_wait_s
        self._heartbeat_ttl_s, self._version = heartbeat_ttl_s, version
        self._expiry_s_max = settings.requests.timeout_s_max
        self._link = Connection(url, replicas_min=settings.storage.redis_replicas_min)
        self._scripts = JobScripts(self._link, settings)
        self._signatures = Signatures(self._secret, version)
        self._notifications = JobNotifications(self._link, self._scripts.process)
        self._consumers: dict[str, QueueConsumer] = {}
        self._running: dict[str, Lease] = {}  # the leases of jobs that run in this process
        self._submitted: dict[str, Change] = {}  # the ends of new jobs

    async def submit(self, queue: str, key: str, body: bytes, options: base.SubmitOptions = base.DEFAULT_SUBMIT) -> str:
        name, digest = self._name(queue), hashlib.sha256(f"{self._version} {key}".encode()).hexdigest()
        terms = (digest, options.owner, options.kind, options.digest)
        job_id = self._signatures.new_job_id(*terms)
        record = {field.name: value for field in fields(options) if (value := getattr(options, field.name)) is not None}
        record |= _COUNTS | {"queue": name, "key": digest}
        within = options.deadline_in_s if options.kind else None  # without a kind others may join, and wait longer
        signed = self._signatures.sign_body(name, job_id, body, self._expiry_s_max if within is None else within)
        caps = (self._limits.queue_jobs_max, self._limits.queue_weight_max)
        arguments = (job_id, signed, json.dumps(record, default=asdict), *caps, secrets.token_hex(8))
        change = self._notifications.next_change(job_id)
        outcome, *reply = await self._scripts.call("submit", name, *arguments, self._scripts.process)
        if outcome == b"reused":
            raise KeyReused("an earlier request used this key")
        if outcome == b"full":
            limit, cap, retry_ms, total_ms = reply
            total_s = int(total_ms) / 1000
            retry_after_s = retry_delay_s(None if int(retry_ms) < 0 else int(retry_ms) / 1000, total_s)
            if limit:
                raise QueueFull(int(cap), limit.decode(), retry_after_s)
            raise DeadlineUnreachable(total_s, options.deadline_in_s or 0.0, retry_after_s)
        known_id = reply[0].decode()
        self._signatures.check_job_id(known_id, *terms)
        self._scripts.remember_queue(known_id, name)
        if outcome == b"new" and not options.detached:
            self._submitted[job_id] = change
        return cast(str, known_id)

    async def subscribe(self, job_id: str) -> None:
        if not await self._change_subscribers(job_id, 1):
            raise JobUnknown(_UNKNOWN)

    async def state(self, job_id: str) -> base.JobStatus:
        job = await self._scripts.call("look", await self._scripts.queue_of(job_id), job_id, "")
        if job is None:
            raise JobUnknown(_UNKNOWN)
        state, queue, owner, kind, since_ms, attempt, key, digest = (item.decode() for item in (*job[:6], *job[8:10]))
        self._signatures.check_job_id(job_id, key, owner, kind, digest)
        ahead, cancelled = job[6:8]
        shown: Any = "cancelled" if cancelled and state == "running" else "waiting" if state == "outside" else state
        return base.JobStatus(shown, owner, queue.rpartition(":")[0], int(since_ms) / 1000, int(attempt), ahead, kind)

    async def events(self, job_id: str, after: str = "") -> AsyncIterator[base.JobEvent]:
        after = after if _EVENT_ID.fullmatch(after) else ""
        while True:
            change = self._notifications.next_change(f"events:{job_id}")
            arguments = (job_id, self._scripts.process, after, EVENTS_PER_READ)
            reply = await self._scripts.call("read", "", *arguments, keys=event_keys(job_id))
            if reply is None:
                raise JobUnknown(_UNKNOWN)
            over, events = reply
            for event_id, signed in events:
                after = event_id.decode()
                yield base.JobEvent(after, self._signatures.open(signed, "event", job_id, after))
            if over and not events:  # a finished job may still have events that were not read yet
                return
            if not events:
                await wait_for_change(change, POLL_S)

    async def result(self, job_id: str) -> bytes:
        change = self._submitted.pop(job_id, None)
        while True:
            if change is not None and (pushed := await wait_for_change(change, POLL_S)):
                fence, _, signed = pushed.partition(b" ")
                return self._signatures.open(signed, "result", job_id, fence.decode())
            change = self._notifications.next_change(job_id)
            job = await self._scripts.call("look", "", job_id, self._scripts.process)
            if job is None:
                raise JobUnknown(_UNKNOWN)
            state, queue, *_, fence, signed = job
            if not queue.endswith(b":v%d" % self._version):
                raise StorageDown("has this job in the format of another version")
            if state == b"done":
                return self._signatures.open(signed, "result", job_id, fence.decode())
            if state == b"cancelled":
                raise JobCancelled("the job was cancelled before it was done")

    async def cancel(self, job_id: str) -> None:
        await self._scripts.call("cancel", await self._scripts.queue_of(job_id), job_id)

    async def unsubscribe(self, job_id: str) -> None:
        self._submitted.pop(job_id, None)
        await self._change_subscribers(job_id, -1)

    async def take(self, queue: str) -> base.Delivery:
        if queue not in self._consumers:
            parts = (self._name(queue), self._scripts, self._signatures, self._notifications, self._running)
            self._consumers[queue] = QueueConsumer(*parts, self._limits.job_attempts_max)
        return await self._consumers[queue].take()

    async def requeue(self, job_id: str) -> None:
        if lease := self._running.get(job_id):
            await lease.consumer.requeue(lease)

    async def publish(self, job_id: str, event: bytes, droppable: bool = False) -> None:
        if not (lease := self._running.get(job_id)):
            return
        async with lease.writing:  # events get their numbers in the order in which they are written
            if lease.over.is_set() or lease.lost:
                return
            lease.events += 1
            signed = self._signatures.sign(event, "event", job_id, f"{lease.fence}-{lease.events}")
            arguments = (job_id, lease.fence, lease.events, int(droppable), signed)
            stored = await self._scripts.call("publish", "", *arguments, keys=event_keys(job_id), patient=True)
            if stored < 0:
                lease.lost = True
                self._notifications.wake(job_id)

    async def finish(self, job_id: str, result: bytes, cacheable: bool = True) -> None:
        if lease := self._running.get(job_id):
            await lease.consumer.finish(lease, result, cacheable, time.monotonic() - lease.began)

    async def cancelled(self, job_id: str) -> None:
        lease = self._running.get(job_id)
        await asyncio.sleep(CANCELLED_S)
        while lease is None or not lease.lost:
            change = self._notifications.next_change(job_id)
            job = await self._scripts.call("look", "", job_id, "", patient=True)
            if job is None or job[7]:  # its result is no longer needed
                return
            await wait_for_change(change, POLL_S)

    async def heartbeat(self, queue: str, status: base.WorkerStatus) -> None:
        fingerprints = [hmac.digest(key, b"abs secret", "sha256").hex() for key in signing_keys(self._secret)]
        terms = (status.worker, status.reason, to_ms(self._heartbeat_ttl_s))
        if not await self._scripts.call("heartbeat", self._name(queue), *terms, *fingerprints, patient=True):
            raise SettingsInvalid("ABS_SECRET differs from the other workers on this server: set the same for all")

    async def workers(self, queue: str) -> tuple[base.WorkerStatus, ...]:
        reply = await self._scripts.call("workers", self._name(queue), to_ms(self._heartbeat_ttl_s))
        return tuple(base.WorkerStatus(worker.decode(), reason.decode()) for worker, reason in reply)

    async def backlog(self, queue: str) -> base.Backlog:
        return base.Backlog(*map(int, await self._scripts.call("backlog", self._name(queue))))

    async def close(self) -> None:
        await asyncio.gather(*(consumer.close(self._close_s) for consumer in self._consumers.values()))
        await self._notifications.close()
        await self._link.close()

    def _name(self, queue: str) -> str:
        """The name of a queue on the server."""
        return f"{queue}:v{self._version}"

    async def _change_subscribers(self, job_id: str, change: int) -> bool:
        """Add `change` to the subscribers of a job. False if the job is unknown."""
        queue, token = await self._scripts.queue_of(job_id), secrets.token_hex(8)  # a repeated call counts once
        return bool(await self._scripts.call("change_subscribers", queue, job_id, change, token))
