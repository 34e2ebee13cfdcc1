"""streaQ's worker, made to outlive its server's absences and to claim no more than somebody waits for.

What is streaQ's own: streams by priority, the group of workers whose messages are theirs until they end, signed
tickets, the consumers. What is ours: when it reads (somebody must be waiting) and what (claim.lua), what it does while
the server is away (wait), and how a job begins and ends: our scripts end it together with its message, in one step.
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
GIVEN_BACK_MS = 43_200_000  # what was idle for so long was given back (give_back.lua), whatever clocks were put on by
_NOT_TEXT = b"\xff"  # begins every ticket, so that no client takes its signature for text
T = TypeVar("T")
log = logging.getLogger(__name__)


Claimed = dict[str, list[tuple[str, str, str]]]  # message, job and time of enqueuing in ms, by stream


class ConsumerCallbacks(Protocol):
    """Who has the jobs of a queue delivered."""

    async def wanted(self) -> int:
        """Waits until a job is wanted that is not on its way, or for a while. How many are."""

    def coming(self, messages: Iterable[str]) -> None:
        """These are on their way."""

    def arrived(self, message: str) -> None:
        """This one is so no more."""

    async def deliver(self, job_id: str, message: str) -> None:
        """Have the job run, and return when it is over here."""

    async def refuse(self, job_id: str, priority: str, message: str) -> None:
        """Do away with a message that streaQ cannot make out."""

    async def claim(self, consumer: str, count: int, idle_ms: int) -> Claimed:
        """Up to `count` messages by stream: those idle for `idle_ms`, and new ones."""

    async def ticket(self, stream: str, consumer: str, message: str, job_id: str) -> bytes | None:
        """The ticket of a job, empty where it is gone; None where its message is another consumer's by now."""

    async def renew(self, stream: str, consumer: str, messages: list[str]) -> None:
        """Say that these messages are still in hand."""


def signing_key(secret: bytes) -> str:
    """What tickets are signed with: not the secret itself, which signs automata."""
    return hmac.digest(secret, b"abs tickets", "sha256").hex()


def pack(data: Any) -> bytes:
    """A ticket's bytes."""
    return _NOT_TEXT + json.dumps(data, default=str).encode()


def unpack(data: bytes) -> Any:
    """What `pack` packed."""
    return json.loads(data[len(_NOT_TEXT) :])


class TicketSigner:
    """Writes what streaQ's workers read of a job: its id, signed."""

    def __init__(self, secret: bytes) -> None:
        self._worker: Worker[None] = Worker(serializer=pack, deserializer=unpack, signing_secret=signing_key(secret))

    async def write(self, job_id: str) -> bytes:
        """The signed ticket of a job."""
        ticket = await self._worker.enqueue_unsafe(TASK, job_id).serialize(int(time.time() * 1000))
        assert isinstance(ticket, bytes)
        return ticket


class StreaqWorker(Worker[None]):
    """The worker of one queue in this process. `run_async` runs until it is cancelled and nothing is in hand."""

    def __init__(
        self, url: str, queue: str, slots: int, lease_s: float, secret: bytes, desk: ConsumerCallbacks
    ) -> None:
        super().__init__(
            redis_pool=open_pool(url, CONNECTIONS_MAX, decode_responses=True),
            redis_kwargs={"retry_policy": NoRetryPolicy()}, concurrency=slots, queue_name=f"abs:{queue}",
            priorities=list(reversed(PRIORITIES)), serializer=pack, deserializer=unpack,
            signing_secret=signing_key(secret), idle_timeout=lease_s,
        )
        self.prefetch = slots  # its own least is twice that
        self._lease_s = lease_s
        self._desk = desk
        self._claims_from = time.monotonic() + lease_s / 2  # until then nothing is taken from workers that seem dead

    async def run_task(self, msg: StreamMessage) -> None:
        """Ends when the job is over here, whatever became of it."""
        try:
            await self._patiently(lambda: self._run(msg))
        except Exception as error:  # of which streaQ would say nothing
            log.error("job %s of %s cannot be taken here: %s", msg.task_id, self.queue_name, without_message(error))
            self._claims_from = time.monotonic() + 2 * self._lease_s  # another shall have it, who may fare better
        finally:
            self._desk.arrived(msg.message_id)

    async def _run(self, msg: StreamMessage) -> None:
        """In place of streaQ's way, which writes before each run what a full server has no room for."""
        ticket = await self._desk.ticket(self.stream_key + msg.priority, self.id, msg.message_id, msg.task_id)
        if ticket is None:
            return
        if await self._job_of(ticket) != msg.task_id:  # it is gone, not signed by us, or was signed for another job
            return await self._desk.refuse(msg.task_id, msg.priority, msg.message_id)
        running = self._running_tasks[msg.priority]
        running.add(msg.message_id)
        try:
            with CancelScope(shield=True):  # an engine that breaks ends when what it has in hand has ended
                await self._desk.deliver(msg.task_id, msg.message_id)
        finally:
            running.discard(msg.message_id)

    async def _job_of(self, ticket: bytes) -> object:
        """The id in a ticket, None where it is none of ours."""
        try:
            told = await self.deserialize(ticket)
            return told["a"][0] if told["f"] == TASK else None
        except (StreaqError, LookupError, TypeError):
            return None

    async def run_consumers(self, receive: Any, *args: Any, **kwargs: Any) -> None:
        """As it is, but that its end of the line is closed after it."""
        with receive:
            await super().run_consumers(receive, *args, **kwargs)

    async def renew_idle_timeouts(self, scope: Any) -> None:
        """Three times in a lease, not once shortly before its end: a busy machine is late."""
        with scope:
            while True:
                await self._patiently(self._renew)
                await asyncio.sleep(self._lease_s / 3)

    async def _read_streams_legacy(self, count: int, block: bool = False) -> Entries:
        """Read as many as somebody waits for, and only when somebody does."""
        if not block:
            return None
        while True:
            wanted = min(count, await self._desk.wanted())
            if wanted <= 0:
                continue
            entries = await self._patiently(partial(self._claim, wanted))
            if entries:
                self._desk.coming(str(entry.identifier) for found in entries.values() for entry in found)
                return entries

    async def _claim(self, count: int) -> Entries:
        lease_ms = self.idle_timeout if time.monotonic() >= self._claims_from else GIVEN_BACK_MS
        claimed = await self._desk.claim(self.id, count, lease_ms)
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
                await self._desk.renew(self.stream_key + priority, self.id, sorted(messages))

    async def schedule_delayed_tasks(self) -> None:
        """Nothing is delayed, periodic or aborted by way of streaQ."""

    async def signal_handler(self, scope: Any) -> None:
        """Signals are the process's own affair."""

    async def _check_xreadgroup_compatibility(self) -> None:
        """One way to read, whatever the server can do: the one that is tested."""

    async def _patiently(self, step: Callable[[], Awaitable[T]]) -> T:
        """The outcome of a step, which is done again while the server is away.

        Once it is back, those who hold jobs get time to say so before anyone takes their jobs for a dead worker's.
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
