"""The worker loop. It takes jobs and runs each by the worker's handler in a thread.

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

from app.broker import HEARTBEAT_TTL_S, Broker, Delivery, WorkerStatus
from app.errors import ModelChanged
from app.messages import NotReadyCode, is_expected_error
from app.observability import metrics
from app.settings import Settings
from app.store import Store
from app.worker.handler_loader import load_handler
from app.worker.handlers.base import Handler, OpenHandler
from app.worker.job_run import JobRun, WorkerContext

HEARTBEAT_S = HEARTBEAT_TTL_S / 3  # two heartbeats may be lost before the worker counts as gone
LOOP_ALIVE_S = 1.0  # between two records that the event loop runs
REPORT_S_MAX = 1.0  # time that a worker waits for the broker to store a changed status
log = logging.getLogger(__name__)


async def serve(
    queue: str, open_handler: OpenHandler, broker: Broker, store: Store, settings: Settings,
    stopping: asyncio.Event | None = None,
) -> None:
    """Serve a queue until `stopping` is set or the task is cancelled.

    stopping  once it is set the worker takes no further job, and has `shutdown_grace_s` for its running jobs. It does
              not wait for a handler that is still being opened

    Jobs that are not done then, or at a cancellation, are requeued. The worker waits for its threads. If the handler
    cannot be opened, the worker keeps running and reports the reason to readiness checks.
    """
    stop = stopping or asyncio.Event()
    heartbeat = Heartbeat(queue, f"{queue}-{secrets.token_hex(4)}", broker)
    try:
        async with _reporting(heartbeat):
            handler = await _load_or_report(queue, open_handler, settings, heartbeat, stop)
            if handler is None:
                await stop.wait()
                return
            await heartbeat.start(handler)
            async with _threads(queue, handler) as threads:
                context = WorkerContext(
                    handler, threads, broker, store, queue, heartbeat.worker, settings.storage.redis_wait_s,
                    settings.retention.answer_bytes_max,
                )
                await _Worker(context, heartbeat, settings).run(stop)
    finally:
        metrics.BEATS.drop(heartbeat.worker)


class Heartbeat:
    """A worker's status, reported at regular intervals."""

    def __init__(self, queue: str, worker: str, broker: Broker) -> None:
        self.worker, self.reason = worker, str(NotReadyCode.LOADING)
        self._queue, self._broker = queue, broker
        self._handler: Handler | None = None
        self._draining = False

    async def start(self, handler: Handler) -> None:
        """Report the health of this handler from now on."""
        self._handler = handler
        await self.report()

    async def fail(self, reason: str) -> None:
        """Report from now on that the worker cannot start."""
        self.reason = reason
        await self.report()

    async def drain(self) -> None:
        """Report from now on that the worker is stopping."""
        self._draining = True
        await self.report()

    async def report(self) -> None:
        """Report the status now. An unreachable server delays the worker by at most `REPORT_S_MAX`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REPORT_S_MAX):
                await self._send_status()

    async def _send_status(self) -> None:
        if self._handler is not None:
            self.reason = str(NotReadyCode.DRAINING) if self._draining else self._handler.health_problem()
        metrics.BEATS.record_heartbeat(self.worker, self.reason)  # before the call, which may wait for the server
        await self._broker.heartbeat(self._queue, WorkerStatus(self.worker, self.reason))

    async def report_forever(self) -> None:
        """Report the status at intervals. Each report waits for an unreachable server."""
        while True:
            await self._send_status()
            await asyncio.sleep(HEARTBEAT_S)

    async def report_loop_alive(self) -> None:
        """Record at intervals that the event loop runs."""
        # A separate task, because a report may wait for the server, and a restart would not help against that.
        while True:
            metrics.BEATS.record_loop_alive(self.worker, self._handler.health_problem() if self._handler else "")
            await asyncio.sleep(LOOP_ALIVE_S)


@contextlib.asynccontextmanager
async def _reporting(heartbeat: Heartbeat) -> AsyncIterator[None]:
    await heartbeat.report()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in (heartbeat.report_forever(), heartbeat.report_loop_alive())]
        yield
        for task in tasks:
            task.cancel()


async def _load_or_report(
    queue: str, open_handler: OpenHandler, settings: Settings, heartbeat: Heartbeat, stop: asyncio.Event
) -> Handler | None:
    """The handler, or None if it cannot be opened.

    A failure is logged and reported in the worker's status. The result is also None if the worker stops first.
    """
    try:
        return await load_handler(queue, open_handler, settings, stop)
    except Exception as error:
        log.exception("the %s worker cannot start", queue)
        code = NotReadyCode.MODEL_CHANGED if isinstance(error, ModelChanged) else NotReadyCode.FAILED
        await heartbeat.fail(code.reason(str(error) if is_expected_error(error) else type(error).__name__))
        return None


@contextlib.asynccontextmanager
async def _threads(queue: str, handler: Handler) -> AsyncIterator[ThreadPoolExecutor]:
    """A thread for each slot. At the end the threads are joined and the handler is closed."""
    # The default executor of the event loop has a thread count that depends on the machine, not on the slots.
    threads = ThreadPoolExecutor(handler.slots, thread_name_prefix=queue)
    try:
        yield threads
    finally:
        await asyncio.to_thread(_shut_down, threads, handler)  # the loop goes on meanwhile and answers its threads


def _shut_down(threads: ThreadPoolExecutor, handler: Handler) -> None:
    threads.shutdown()
    handler.close()


@dataclasses.dataclass
class _Worker:
    """Takes jobs until the worker stops, and waits for the running ones."""

    context: WorkerContext
    heartbeat: Heartbeat
    settings: Settings

    async def run(self, stop: asyncio.Event) -> None:
        stopped = asyncio.create_task(stop.wait())
        running: set[asyncio.Task[None]] = set()
        try:
            await self._take_until(stopped, running)
            await self.heartbeat.drain()
            if running:
                await asyncio.wait(running, timeout=self.settings.process.shutdown_grace_s)
        finally:
            stopped.cancel()
            for task in running:
                task.cancel()  # requeues its job
            await asyncio.gather(*running, return_exceptions=True)

    async def _take_until(self, stopped: asyncio.Task[bool], running: set[asyncio.Task[None]]) -> None:
        """Take a job whenever a slot is free, until the worker stops."""
        while not stopped.done():
            if len(running) == self.context.handler.slots:
                await asyncio.wait({stopped, *running}, return_when=asyncio.FIRST_COMPLETED)
            elif self.heartbeat.reason:  # this worker cannot run jobs, and others can
                await asyncio.wait({stopped}, timeout=HEARTBEAT_S)
            else:
                delivery = await self._take(stopped)
                if delivery is not None:
                    running.add(asyncio.create_task(JobRun(self.context, delivery).run()))
            for task in [task for task in running if task.done()]:
                running.discard(task)
                task.result()  # raises errors of the worker itself

    async def _take(self, stopped: asyncio.Task[bool]) -> Delivery | None:
        """The next job; None if the worker stops first."""
        broker = self.context.broker
        taking = asyncio.create_task(broker.take(self.context.queue))
        try:
            await asyncio.wait({stopped, taking}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            taking.cancel()
            with contextlib.suppress(asyncio.CancelledError, TimeoutError):
                async with asyncio.timeout(self.context.requeue_s_max):
                    await broker.requeue((await taking).job_id)  # delivered just before the cancellation
            raise
        taking.cancel()  # has no effect on a finished task
        with contextlib.suppress(asyncio.CancelledError):
            return await taking
        return None
