"""streaQ's worker, changed to wait for an unreachable server. It claims no more jobs than there are free slots.

streaQ provides streams by priority, a consumer group whose members own their messages until they finish them, signed
tickets, and the consumers. We decide when it reads (only with a free slot), what it reads (claim.lua), that it waits
while the server is unreachable, and how a job starts and ends: our scripts end a job and its message atomically.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Protocol, TypeVar

from anyio import CancelScope
from coredis.response.types import StreamEntry
from coredis.retry import NoRetryPolicy
from streaq import StreaqError, Worker
from streaq.types import Entries, StreamMessage

from app.errors import without_message
from app.redis.connection import PAUSE_S, PAUSE_S_MAX, is_away, open_pool

PRIORITIES = ("interactive", "batch")  # from the highest
TASK = "job"
CONNECTIONS_MAX = 4
REQUEUED_MS = 43_200_000  # idle time of a requeued message (give_back.lua), longer than any clock change
_NOT_TEXT = b"\xff"  # prefix of every ticket, so that clients do not decode its signature as text
T = TypeVar("T")
log = logging.getLogger(__name__)


Claimed = dict[str, list[tuple[str, str, str]]]  # message, job and time of enqueuing in ms, by stream


class ConsumerCallbacks(Protocol):
    """The receiver of a queue's jobs."""

    async def demand(self) -> int:
        """Waits for a free slot, or for a while. Returns the number of free slots without a message in flight."""

    def add_in_flight(self, messages: Iterable[str]) -> None:
        """Adds messages to those in flight."""

    def remove_in_flight(self, message: str) -> None:
        """Removes a message from those in flight."""

    async def deliver(self, job_id: str, message: str) -> None:
        """Runs the job, and returns when it has ended in this process."""

    async def refuse(self, job_id: str, priority: str, message: str) -> None:
        """Removes a message that streaQ cannot read."""

    async def claim(self, consumer: str, count: int, idle_ms: int) -> Claimed:
        """Up to `count` messages by stream: those idle for `idle_ms`, and new ones."""

    async def ticket(self, stream: str, consumer: str, message: str, job_id: str) -> bytes | None:
        """The ticket of a job, empty if it is gone; None if another consumer has its message."""

    async def renew(self, stream: str, consumer: str, messages: list[str]) -> None:
        """Renews the leases of these messages."""


def signing_key(secret: bytes) -> str:
    """The key that signs tickets; derived from the secret, which signs automata."""
    return hmac.digest(secret, b"abs tickets", "sha256").hex()


def pack(data: Any) -> bytes:
    """Serializes a ticket."""
    return _NOT_TEXT + json.dumps(data, default=str).encode()


def unpack(data: bytes) -> Any:
    """Deserializes a ticket."""
    return json.loads(data[len(_NOT_TEXT) :])


class TicketSigner:
    """Signs the ids of jobs for streaQ's workers."""

    def __init__(self, secret: bytes) -> None:
        self._worker: Worker[None] = Worker(serializer=pack, deserializer=unpack, signing_secret=signing_key(secret))

    async def write(self, job_id: str) -> bytes:
        """The signed ticket of a job."""
        ticket = await self._worker.enqueue_unsafe(TASK, job_id).serialize(int(time.time() * 1000))
        assert isinstance(ticket, bytes)
        return ticket


class StreaqWorker(Worker[None]):
    """The worker of one queue. `run_async` runs until it is cancelled and no job is leased."""

    def __init__(
        self, url: str, queue: str, slots: int, lease_s: float, secret: bytes, callbacks: ConsumerCallbacks
    ) -> None:
        super().__init__(
            redis_pool=open_pool(url, CONNECTIONS_MAX, decode_responses=True),
            redis_kwargs={"retry_policy": NoRetryPolicy()}, concurrency=slots, queue_name=f"abs:{queue}",
            priorities=list(reversed(PRIORITIES)), serializer=pack, deserializer=unpack,
            signing_secret=signing_key(secret), idle_timeout=lease_s,
        )
        self.prefetch = slots  # streaQ's minimum is twice that
        self._lease_s = lease_s
        self._callbacks = callbacks
        self._claims_from = time.monotonic() + lease_s / 2  # until then no messages are claimed from silent workers

    async def run_task(self, msg: StreamMessage) -> None:
        """Returns when the job has ended in this process."""
        try:
            await self._with_retries(lambda: self._run(msg))
        except Exception as error:  # streaQ would not log it
            log.error("job %s of %s cannot be taken here: %s", msg.task_id, self.queue_name, without_message(error))
            self._claims_from = time.monotonic() + 2 * self._lease_s  # another worker shall try it
        finally:
            self._callbacks.remove_in_flight(msg.message_id)

    async def _run(self, msg: StreamMessage) -> None:
        """Replaces streaQ's method, whose write before each run fails on a full server."""
        ticket = await self._callbacks.ticket(self.stream_key + msg.priority, self.id, msg.message_id, msg.task_id)
        if ticket is None:
            return
        if await self._job_of(ticket) != msg.task_id:  # gone, not signed by us, or signed for another job
            return await self._callbacks.refuse(msg.task_id, msg.priority, msg.message_id)
        running = self._running_tasks[msg.priority]
        running.add(msg.message_id)
        try:
            with CancelScope(shield=True):  # a failed worker ends after its leased jobs
                await self._callbacks.deliver(msg.task_id, msg.message_id)
        finally:
            running.discard(msg.message_id)

    async def _job_of(self, ticket: bytes) -> object:
        """The id in a ticket, None if the ticket is invalid."""
        try:
            data = await self.deserialize(ticket)
            return data["a"][0] if data["f"] == TASK else None
        except (StreaqError, LookupError, TypeError):
            return None

    async def run_consumers(self, receive: Any, *args: Any, **kwargs: Any) -> None:
        """As in streaQ, and closes its end of the channel."""
        with receive:
            await super().run_consumers(receive, *args, **kwargs)

    async def renew_idle_timeouts(self, scope: Any) -> None:
        """Renews three times per lease instead of once near its end, because a busy machine is late."""
        with scope:
            while True:
                await self._with_retries(self._renew)
                await asyncio.sleep(self._lease_s / 3)

    async def _read_streams_legacy(self, count: int, block: bool = False) -> Entries:
        """Reads messages only for free slots."""
        if not block:
            return None
        while True:
            demand = min(count, await self._callbacks.demand())
            if demand <= 0:
                continue
            entries = await self._with_retries(partial(self._claim, demand))
            if entries:
                self._callbacks.add_in_flight(
                    str(entry.identifier) for messages in entries.values() for entry in messages
                )
                return entries

    async def _claim(self, count: int) -> Entries:
        lease_ms = self.idle_timeout if time.monotonic() >= self._claims_from else REQUEUED_MS
        claimed = await self._callbacks.claim(self.id, count, lease_ms)
        return {
            stream: tuple(
                StreamEntry(message, OrderedDict(task_id=job_id, enqueue_time=enqueued))
                for message, job_id, enqueued in messages
            )
            for stream, messages in claimed.items()
        }

    async def _renew(self) -> None:
        for priority, messages in list(self._running_tasks.items()):
            if messages:
                await self._callbacks.renew(self.stream_key + priority, self.id, sorted(messages))

    async def schedule_delayed_tasks(self) -> None:
        """Does nothing: there are no delayed or periodic tasks."""

    async def signal_handler(self, scope: Any) -> None:
        """Does nothing: the process handles signals."""

    async def _check_xreadgroup_compatibility(self) -> None:
        """Does nothing: messages are always read by our script."""

    async def _with_retries(self, step: Callable[[], Awaitable[T]]) -> T:
        """The outcome of a step, which is repeated while the server is unreachable.

        Once it is back, workers have time to renew their leases before their messages are claimed.
        """
        pause, away = PAUSE_S, False
        while True:
            try:
                outcome = await step()
            except Exception as error:
                if not is_away(error):
                    raise
                away = True
                log.debug("%s waits for the server: %s", self.queue_name, type(error).__name__)
            else:
                return outcome
            finally:
                if away:
                    self._claims_from = time.monotonic() + self._lease_s / 2
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_S_MAX)
