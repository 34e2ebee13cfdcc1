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

from app.messages import KEY_PREFIX
from app.redis.connection import PAUSE_S_MAX, Connection, cancel_tasks

POLL_S = 2.0
POLL_JOBS_MAX = 500  # jobs in one script, during which the server runs no other command
PING_S = 5.0  # a silent subscription is tested after this time
ARRIVALS = KEY_PREFIX + "arrivals"  # a message names the queue
ANY_QUEUE = "*"
_QUEUE = "queue "
log = logging.getLogger(__name__)


def queue_news(queue: str) -> str:
    """The subject of a queue's notifications. That of a job is its id."""
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
        self._tasks: list[asyncio.Task[None]] = []

    @contextlib.contextmanager
    def news(self, subject: str, event: asyncio.Event | None = None) -> Iterator[asyncio.Event]:
        """An event set at each change to a job or a queue. The waiting task clears it."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(loop()) for loop in (self._listen_forever, self._poll_forever)]
        event = event or asyncio.Event()
        self._waiting[subject].add(event)
        try:
            yield event
        finally:
            self._waiting[subject].discard(event)
            if not self._waiting[subject]:
                del self._waiting[subject]

    async def close(self) -> None:
        """End the subscription and the polling."""
        await cancel_tasks(self._tasks)

    async def _listen_forever(self) -> None:
        while True:
            try:
                await self._listen()
            except Exception as error:
                log.debug("the subscription broke: %s", type(error).__name__)
            await asyncio.sleep(PAUSE_S_MAX / 4)

    async def _listen(self) -> None:
        channel = f"{KEY_PREFIX}news:{self._process}"
        async with self._link.client.pubsub() as subscription:
            await subscription.subscribe(channel, ARRIVALS)
            silent = False
            while True:
                message = await subscription.get_message(timeout=PING_S)
                if message is None:  # a silent connection is tested, and given up if it stays silent
                    if silent:
                        raise TimeoutError("the subscription is silent")
                    await subscription.ping()
                silent = message is None
                if message is None or message["type"] == "pong":
                    continue
                if message["type"] == "subscribe":  # earlier messages were missed
                    self._wake_all()
                    continue
                text = message["data"].decode()
                if message["channel"].decode() == channel:
                    self._wake(text)
                elif text == ANY_QUEUE:
                    self._wake_all(_QUEUE)
                else:
                    self._wake(queue_news(text))

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

    def _wake_all(self, prefix: str = "") -> None:
        for subject in self._waiting:
            if subject.startswith(prefix):
                self._wake(subject)


async def wait_for_change(event: asyncio.Event, deadline_in_s: float | None = None) -> None:
    """Return at the next change, or after `deadline_in_s` seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(deadline_in_s):
            await event.wait()
    event.clear()
