"""Notifies waiting tasks of changes to jobs and queues.

Each process has one subscription and one polling task, shared by all waiting tasks. The server neither stores nor
repeats its messages, and a connection may lose them without failing. So messages only shorten the wait: every `POLL_S`
one query finds the jobs that have changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence

from app.redis.connection import PAUSE_S_MAX, Connection

POLL_S = 2.0
POLL_JOBS_MAX = 500  # jobs in one script, during which the server runs no other command
PING_S = 5.0  # a silent subscription is tested after this time
RETRY_S = 0.1
ARRIVALS = "abs:arrivals"  # a message names the queue
_QUEUE = "queue "
log = logging.getLogger(__name__)


def queue_news(queue: str) -> str:
    """The subject of a queue's notifications; that of a job is its id."""
    return _QUEUE + queue


class JobNotifications:
    """Wakes tasks that wait for a job or a queue.

    A change to a job always wakes its tasks; a change to a queue does so unless its message is lost.

    peek  returns a value for each job, which differs after every change to the job
    """

    def __init__(
        self, link: Connection, process: str, peek: Callable[[Sequence[str]], Awaitable[Sequence[bytes]]]
    ) -> None:
        self._link = link
        self._process = process
        self._peek = peek
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._listener: asyncio.Task[None] | None = None
        self._poller: asyncio.Task[None] | None = None
        self._closed = False

    @contextlib.contextmanager
    def news(self, subject: str) -> Iterator[asyncio.Event]:
        """An event set at each change to a job or a queue. The waiting task clears it."""
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen_forever())
            self._poller = asyncio.create_task(self._poll_forever())
        event = asyncio.Event()
        self._waiting[subject].add(event)
        try:
            yield event
        finally:
            self._waiting[subject].discard(event)
            if not self._waiting[subject]:
                del self._waiting[subject]

    async def close(self) -> None:
        """End the subscription and the polling.

        A breaking subscription may swallow its cancellation, so the cancellation is repeated.
        """
        self._closed = True
        if self._poller is not None:
            self._poller.cancel()
        while self._listener is not None and not self._listener.done():
            self._listener.cancel()
            await asyncio.wait({self._listener}, timeout=RETRY_S)

    async def _listen_forever(self) -> None:
        while not self._closed:
            try:
                await self._listen()
            except Exception as error:
                log.debug("the subscription broke: %s", type(error).__name__)
            await asyncio.sleep(PAUSE_S_MAX / 4)

    async def _listen(self) -> None:
        client = await self._link.client()
        channel = f"abs:news:{self._process}"
        async with client.pubsub(
            channels=[channel, ARRIVALS], retry_policy=None, subscription_timeout=5, max_idle_seconds=PING_S
        ) as subscription:
            async for message in subscription:
                if message["type"] != "message":
                    self._wake_all()  # subscribed: earlier messages were missed
                    continue
                text = _text(message["data"])
                self._wake(text if _text(message["channel"]) == channel else queue_news(text))

    async def _poll_forever(self) -> None:
        """Poll the server for changed jobs.

        If the server is unreachable, all tasks are woken, so that their own queries report a lasting failure.
        """
        previous: dict[str, bytes] = {}
        while True:
            await asyncio.sleep(POLL_S)
            jobs = [subject for subject in self._waiting if not subject.startswith(_QUEUE)]
            current: dict[str, bytes] = {}
            try:
                for first in range(0, len(jobs), POLL_JOBS_MAX):
                    batch = jobs[first : first + POLL_JOBS_MAX]
                    current.update(zip(batch, await self._peek(batch), strict=True))
            except Exception as error:
                log.debug("cannot poll the awaited jobs: %s", type(error).__name__)
                self._wake_all()
            for job, version in current.items():
                if previous.get(job) != version:
                    self._wake(job)
            previous = current

    def _wake(self, subject: str) -> None:
        for event in self._waiting.get(subject, ()):
            event.set()

    def _wake_all(self) -> None:
        for subject in list(self._waiting):
            self._wake(subject)


async def wait_for_change(event: asyncio.Event, deadline_in_s: float | None = None) -> None:
    """Return at the next change, or after `deadline_in_s` seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(deadline_in_s):
            await event.wait()
    event.clear()


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
