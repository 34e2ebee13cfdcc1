"""The one worker loop: take a job, run its handler in a thread, give back the result. Knows no handler by name.

A worker takes as many jobs at once as its handler has slots, and leaves all others to the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor

from app.broker.base import PRESENCE_TTL_S, Broker, Delivery, Presence
from app.errors import DeadlineExceeded, JobCancelled, MessageInvalid, without_message
from app.handlers.base import Handler, OpenHandler
from app.jobs import Job, Progress, Step, dump, failure_of, is_own, load
from app.settings import Settings
from app.store.base import Store

LOADING = "loading"
PROGRESS_S = 0.1
STEPS_ON_THE_WAY_MAX = 16  # to an event loop that is busy
log = logging.getLogger(__name__)


class _Context:
    """Obeys app.handlers.base.Context: carries the calls of a handler's thread to the event loop."""

    def __init__(self, broker: Broker, store: Store, delivery: Delivery, deadline: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._broker, self._store, self._job_id = broker, store, delivery.job_id
        self._deadline = deadline
        self.called_off = threading.Event()
        self.waited_s = delivery.waited_s
        self._stage, self._told = "", 0.0
        self._on_the_way: deque[Future[None]] = deque()

    def progress(self, event: Progress) -> None:
        """Tell the first event of each stage, and of the rest one every `PROGRESS_S` seconds: a step takes less."""
        now = time.monotonic()
        if event.stage == self._stage and now - self._told < PROGRESS_S:
            return
        self._stage, self._told = event.stage, now
        asyncio.run_coroutine_threadsafe(self._broker.publish(self._job_id, dump(event)), self._loop)

    def tell(self, step: Step) -> None:
        """A loop that falls behind misses steps; it is not given more than it can take."""
        while self._on_the_way and self._on_the_way[0].done():
            self._on_the_way.popleft()
        if len(self._on_the_way) < STEPS_ON_THE_WAY_MAX:
            told = self._broker.publish(self._job_id, dump(step), passing=True)
            self._on_the_way.append(asyncio.run_coroutine_threadsafe(told, self._loop))

    def cancelled(self) -> bool:
        return self.called_off.is_set() or time.time() >= self._deadline

    def load(self, key: str) -> bytes | None:
        return asyncio.run_coroutine_threadsafe(self._store.get(key), self._loop).result()

    def save(self, key: str, value: bytes, ttl_s: float) -> None:
        saved: Future[None] = asyncio.run_coroutine_threadsafe(self._store.put(key, value, ttl_s), self._loop)
        saved.result()

    def discard(self, key: str, value: bytes) -> None:
        asyncio.run_coroutine_threadsafe(self._store.delete(key, value), self._loop).result()


async def serve(queue: str, open_handler: OpenHandler, broker: Broker, store: Store, settings: Settings) -> None:
    """Serve a queue until cancelled; then call off what runs, and wait for its threads to end.

    A handler that cannot be opened is the operator's trouble: the worker stays, and says so to who asks whether
    the service is ready.
    """
    worker = f"{queue}-{secrets.token_hex(4)}"
    await broker.announce(queue, Presence(worker, LOADING))
    async with asyncio.TaskGroup() as group:
        beat = group.create_task(_announce_forever(queue, broker, Presence(worker, LOADING)))
        try:
            handler = await asyncio.to_thread(open_handler, settings)
        except Exception as error:
            log.exception("the %s worker cannot start", queue)
            reason = str(error) if is_own(error) else f"cannot start ({type(error).__name__})"
            beat.cancel()
            await _announce_forever(queue, broker, Presence(worker, reason))
        beat.cancel()
        await broker.announce(queue, Presence(worker, ""))
        group.create_task(_announce_forever(queue, broker, Presence(worker, "")))
        async with _threads(queue, handler) as threads:
            await _take_forever(queue, handler, threads, broker, store)


async def _take_forever(
    queue: str, handler: Handler, threads: ThreadPoolExecutor, broker: Broker, store: Store
) -> None:
    """Take a job whenever a slot is free."""
    free = asyncio.Semaphore(handler.slots)
    async with asyncio.TaskGroup() as running:
        while True:
            await free.acquire()
            delivery = await broker.take(queue)
            task = running.create_task(_run(delivery, handler, threads, broker, store))
            task.add_done_callback(lambda _: free.release())


@contextlib.asynccontextmanager
async def _threads(queue: str, handler: Handler) -> AsyncIterator[ThreadPoolExecutor]:
    """A thread for each slot: those that the event loop has for everybody are few. Waited for at the end."""
    threads = ThreadPoolExecutor(handler.slots, thread_name_prefix=queue)
    try:
        yield threads
    finally:
        await asyncio.to_thread(_end, threads, handler)


def _end(threads: ThreadPoolExecutor, handler: Handler) -> None:
    threads.shutdown()
    handler.close()


async def _announce_forever(queue: str, broker: Broker, presence: Presence) -> None:
    while True:
        await broker.announce(queue, presence)
        await asyncio.sleep(PRESENCE_TTL_S / 3)


async def _run(
    delivery: Delivery, handler: Handler, threads: ThreadPoolExecutor, broker: Broker, store: Store
) -> None:
    """Run one job to its result. Whatever the job does, the worker goes on."""
    try:
        job = _job(delivery.body)
    except MessageInvalid as error:
        await broker.finish(delivery.job_id, dump(failure_of(error)))
        return
    context = _Context(broker, store, delivery, job.deadline)
    watcher = asyncio.create_task(_watch(broker, delivery.job_id, context.called_off))
    try:
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(threads, _handle, handler, job, context)
    finally:
        context.called_off.set()  # where the worker itself is cancelled, the thread must not run on
        watcher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watcher
    await broker.finish(delivery.job_id, result)


def _job(body: bytes) -> Job:
    message = load(body)
    if not isinstance(message, Job):
        raise MessageInvalid(f"a message of kind {message.kind!r} is not a job")
    return message


async def _watch(broker: Broker, job_id: str, called_off: threading.Event) -> None:
    await broker.cancelled(job_id)
    called_off.set()


def _handle(handler: Handler, job: Job, context: _Context) -> bytes:
    """The bytes of the job's result, or of the failure that it ended in."""
    try:
        if context.cancelled():
            raise JobCancelled("the job was over before it began")
        return dump(handler(job, context))
    except Exception as error:
        if context.cancelled() and not context.called_off.is_set():
            return dump(failure_of(DeadlineExceeded()))
        if not is_own(error):
            log.error("a %s job failed: %s", job.kind, without_message(error))
        return dump(failure_of(error))
