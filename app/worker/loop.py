"""The one worker loop: take a job, run its handler in a thread, give back the result. Knows no handler by name.

A worker takes as many jobs at once as its handler has slots, and leaves all others to the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import secrets
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from app.broker import PRESENCE_TTL_S, Broker, Delivery, WorkerStatus
from app.errors import ModelChanged
from app.messages import NotReadyCode, is_expected_error
from app.observability import metrics
from app.settings import Settings
from app.store import Store
from app.worker.handlers.base import Handler, OpenHandler
from app.worker.job_run import JobRun, WorkerContext
from app.worker.opening import HandlerLoader

BEAT_S = PRESENCE_TTL_S / 3
SIGN_S = 1.0  # between two signs that the event loop goes on
TELL_S_MAX = 1.0  # how long a worker waits for the broker to take its status
log = logging.getLogger(__name__)


async def serve(
    queue: str, open_handler: OpenHandler, broker: Broker, store: Store, settings: Settings,
    stopping: asyncio.Event | None = None,
) -> None:
    """Serve a queue until `stopping` is set or the task is cancelled.

    stopping  once it is set the worker takes no further job, and has `shutdown_grace_s` for its running jobs. It does
              not wait for a handler that is still being opened

    Jobs that are not done then, or at a cancellation, are given back. The worker waits for its threads. If the handler
    cannot be opened, the worker keeps running and reports the reason to readiness checks.
    """
    stop = stopping or asyncio.Event()
    beat = _Beat(queue, f"{queue}-{secrets.token_hex(4)}", broker)
    try:
        async with _beating(beat):
            handler = await _opened(queue, HandlerLoader(queue, open_handler, settings), beat, stop)
            if handler is None:
                await stop.wait()
                return
            await beat.now(handler)
            async with _threads(queue, handler) as threads:
                bench = WorkerContext(
                    handler, threads, broker, store, queue, beat.worker, settings.redis_wait_s,
                    settings.answer_bytes_max,
                )
                await _Worker(bench, beat, settings).run(stop)
    finally:
        metrics.BEATS.drop(beat.worker)


class _Beat:
    """A worker's status, reported at regular intervals."""

    def __init__(self, queue: str, worker: str, broker: Broker) -> None:
        self.worker, self.reason = worker, str(NotReadyCode.LOADING)
        self._queue, self._broker = queue, broker
        self._handler: Handler | None = None
        self._draining = False

    async def now(self, handler: Handler) -> None:
        """Say from now on what the handler says."""
        self._handler = handler
        await self.tell()

    async def fail(self, reason: str) -> None:
        """Say from now on that the worker cannot start."""
        self.reason = reason
        await self.tell()

    async def drain(self) -> None:
        """Say from now on that the worker is about to stop."""
        self._draining = True
        await self.tell()

    async def tell(self) -> None:
        """Tell it now, unless the server is away: nothing that the worker does waits for that."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TELL_S_MAX):
                await self._tell()

    async def _tell(self) -> None:
        if self._handler is not None:
            self.reason = str(NotReadyCode.DRAINING) if self._draining else self._handler.trouble()
        metrics.BEATS.put(self.worker, self.reason)
        await self._broker.heartbeat(self._queue, WorkerStatus(self.worker, self.reason))

    async def forever(self) -> None:
        """Tell it over and over; a server that is away is waited for."""
        while True:
            await self._tell()
            await asyncio.sleep(BEAT_S)

    async def live(self) -> None:
        """Show over and over that the event loop goes on, wherever the server is."""
        while True:
            metrics.BEATS.sign(self.worker, self._handler.trouble() if self._handler else "")
            await asyncio.sleep(SIGN_S)


@contextlib.asynccontextmanager
async def _beating(beat: _Beat) -> AsyncIterator[None]:
    await beat.tell()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in (beat.forever(), beat.live())]
        yield
        for task in tasks:
            task.cancel()


async def _opened(queue: str, opening: HandlerLoader, beat: _Beat, stop: asyncio.Event) -> Handler | None:
    """The handler, or None if it cannot be opened.

    A failure is logged and reported in the worker's status. The result is also None if the worker stops first.
    """
    try:
        return await opening.handler(stop)
    except Exception as error:
        log.exception("the %s worker cannot start", queue)
        code = NotReadyCode.MODEL_CHANGED if isinstance(error, ModelChanged) else NotReadyCode.FAILED
        await beat.fail(code.reason(str(error) if is_expected_error(error) else type(error).__name__))
        return None


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


@dataclasses.dataclass
class _Worker:
    """Takes jobs while it may, and sees those that it took to their end."""

    bench: WorkerContext
    beat: _Beat
    settings: Settings

    async def run(self, stop: asyncio.Event) -> None:
        stopped = asyncio.create_task(stop.wait())
        running: set[asyncio.Task[None]] = set()
        try:
            await self._take_until(stopped, running)
            await self.beat.drain()
            if running:
                await asyncio.wait(running, timeout=self.settings.shutdown_grace_s)
        finally:
            stopped.cancel()
            for task in running:
                task.cancel()  # it gives its job back
            await asyncio.gather(*running, return_exceptions=True)

    async def _take_until(self, stopped: asyncio.Task[bool], running: set[asyncio.Task[None]]) -> None:
        """Take a job whenever a slot is free, until the worker stops."""
        while not stopped.done():
            if len(running) == self.bench.handler.slots:
                await asyncio.wait({stopped, *running}, return_when=asyncio.FIRST_COMPLETED)
            elif self.beat.reason:  # in trouble: others shall have the jobs
                await asyncio.wait({stopped}, timeout=BEAT_S)
            else:
                delivery = await self._taken(stopped)
                if delivery is not None:
                    running.add(asyncio.create_task(JobRun(self.bench, delivery).run()))
            for task in [task for task in running if task.done()]:
                running.discard(task)
                task.result()

    async def _taken(self, stopped: asyncio.Task[bool]) -> Delivery | None:
        """The next job; None if the worker stops first."""
        broker = self.bench.broker
        taking = asyncio.create_task(broker.take(self.bench.queue, self.bench.handler.slots))
        try:
            await asyncio.wait({stopped, taking}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            taking.cancel()
            with contextlib.suppress(asyncio.CancelledError, TimeoutError):
                async with asyncio.timeout(self.bench.requeue_s_max):
                    await broker.requeue((await taking).job_id)  # it came at the last moment
            raise
        taking.cancel()  # of one that is done this does nothing
        with contextlib.suppress(asyncio.CancelledError):
            return await taking
        return None
