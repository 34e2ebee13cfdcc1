"""Notifies waiting tasks of changes to jobs and queues.

Each process has one subscription, shared by all waiting tasks. The server neither stores nor repeats its messages, so
they only shorten the wait: after a while each task looks for itself.
"""

from __future__ import annotations

import asyncio
import logging
import random
from weakref import WeakValueDictionary

from redis.asyncio.client import PubSub

from app.messages import KEY_PREFIX
from app.redis.connection import PAUSE_S_MAX, Connection
from app.tasks import cancel_tasks

Change = asyncio.Future[bytes]  # has a value after the change: of a job with a short result its lease and the result
PING_S = 2.0  # a silent subscription is tested after this time
log = logging.getLogger(__name__)


class JobNotifications:
    """Wakes tasks that wait for a job, its events or a queue. The subject is its id, `events:<id>` or the name."""

    def __init__(self, link: Connection, process: str) -> None:
        self._link = link
        self._channels = (f"{KEY_PREFIX}news:{process}", f"{KEY_PREFIX}arrivals")
        self._changes: WeakValueDictionary[str, Change] = WeakValueDictionary()  # that tasks wait for
        self._listener: asyncio.Task[None] | None = None

    def next_change(self, subject: str) -> Change:
        """The next change. A task calls this before it looks, so that it misses none."""
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen_forever())
        return self._changes.setdefault(subject, asyncio.get_running_loop().create_future())

    def wake(self, subject: str, result: bytes = b"") -> None:
        """Wake the tasks that wait for this subject. A change of a job may also end its events."""
        for woken in (subject, f"events:{subject}"):
            if change := self._changes.pop(woken, None):
                change.set_result(result)

    async def close(self) -> None:
        """End the subscription."""
        await cancel_tasks(self._listener)

    async def _listen_forever(self) -> None:
        while True:
            try:
                async with self._link.client.pubsub() as subscription:
                    await subscription.subscribe(*self._channels)
                    await self._forward(subscription)
            except Exception as error:
                log.debug("the subscription broke: %s", type(error).__name__)
                self._wake_all()  # so that they find out whether the server is away
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
                subject, _, result = message["data"].partition(b" ")
                self.wake(subject.decode(), result)
            silent = message is None

    def _wake_all(self) -> None:
        for subject in list(self._changes):
            self.wake(subject)


async def wait_for_change(change: Change, poll_s: float) -> bytes:
    """Return at a change, or after `poll_s` at the latest. Tasks return at different times, not all at once."""
    await asyncio.wait((change,), timeout=poll_s * random.uniform(0.5, 1.0))
    return change.result() if change.done() else b""
