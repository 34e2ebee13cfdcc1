"""Notifies waiting tasks of changes to jobs and queues.

Each process has one subscription, shared by all waiting tasks. The server neither stores nor repeats its messages, and
a connection may lose them without failing. So messages only shorten the wait: every `POLL_S` all tasks look for
themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Iterator

from redis.asyncio.client import PubSub

from app.messages import KEY_PREFIX
from app.redis.connection import PAUSE_S_MAX, Connection, cancel_tasks

POLL_S = 2.0
PING_S = 5.0  # a silent subscription is tested after this time
log = logging.getLogger(__name__)


class JobNotifications:
    """Wakes tasks that wait for a job or a queue. The subject of a notification is the job's id or the queue's name."""

    def __init__(self, link: Connection, process: str) -> None:
        self._link = link
        self._channels = (f"{KEY_PREFIX}news:{process}", f"{KEY_PREFIX}arrivals")
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._tasks: list[asyncio.Task[None]] = []

    @contextlib.contextmanager
    def news(self, subject: str) -> Iterator[asyncio.Event]:
        """An event set at each change and every `POLL_S`. The waiting task clears it."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(loop()) for loop in (self._listen_forever, self._poll_forever)]
        event = asyncio.Event()
        self._waiting[subject].add(event)
        try:
            yield event
        finally:
            self._waiting[subject].discard(event)
            if not self._waiting[subject]:
                del self._waiting[subject]

    def wake(self, subject: str) -> None:
        """Wake the tasks that wait for a job or a queue."""
        for event in self._waiting.get(subject, ()):
            event.set()

    async def close(self) -> None:
        """End the subscription and the polling."""
        await cancel_tasks(self._tasks)

    async def _listen_forever(self) -> None:
        while True:
            try:
                async with self._link.client.pubsub() as subscription:
                    await subscription.subscribe(*self._channels)
                    await self._forward(subscription)
            except Exception as error:
                log.debug("the subscription broke: %s", type(error).__name__)
            await asyncio.sleep(PAUSE_S_MAX / 4)

    async def _forward(self, subscription: PubSub) -> None:
        silent = False
        while True:
            message = await subscription.get_message(timeout=PING_S)
            if message is None:  # a silent connection is tested, and given up if it stays silent
                if silent:
                    raise TimeoutError("the subscription is silent")
                await subscription.ping()
            elif message["type"] == "subscribe":  # earlier messages were missed
                self._wake_all()
            elif message["type"] == "message":
                self.wake(message["data"].decode())
            silent = message is None

    async def _poll_forever(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            self._wake_all()

    def _wake_all(self) -> None:
        for subject in self._waiting:
            self.wake(subject)


async def wait_for_change(event: asyncio.Event) -> None:
    """Return at the next change."""
    await event.wait()
    event.clear()
