"""The calls that a handler's thread may make. They concern progress, events, the store, the deadline and a
recompilation.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from app.broker import Broker, Delivery
from app.errors import DeadlineExceeded, JobCancelled, JobUnknown, MessageInvalid, StorageDown
from app.messages import (
    CompileJob,
    CompileJobResult,
    Failure,
    Job,
    OwnedJob,
    Progress,
    StepMessage,
    compile_job_key,
    dump,
    failure_of,
    load,
)
from app.store import Store

PROGRESS_S = 0.1
STEPS_IN_FLIGHT_MAX = 16  # steps that a busy event loop has not sent yet; further ones are dropped
STORAGE_POLL_S = 0.5
SAVE_S_MAX = 10.0  # time that a write waits for an unreachable or full store
T = TypeVar("T")


class JobContext:
    """Implements app.worker.handlers.base.Context: it passes the thread's calls to the event loop.

    published_any  whether this attempt has published an event
    """

    def __init__(self, broker: Broker, store: Store, delivery: Delivery, job: Job) -> None:
        self._loop = asyncio.get_running_loop()
        self._broker, self._store, self._job_id = broker, store, delivery.job_id
        # The deadline is a duration from the submission, because the clocks of API and worker may differ.
        self._ends = time.monotonic() + (job.deadline - job.written) - delivery.age_s
        self.timeout_s = round(job.deadline - job.arrived, 3) if isinstance(job, OwnedJob) else None
        # The same fact twice: one for the handler's thread, one for tasks of the event loop.
        self._cancelled, self._cancelled_in_loop = threading.Event(), asyncio.Event()
        self.waited_s = delivery.waited_s
        self.compilation: CompileJobResult | None = None
        self.published_any = False
        self._stage, self._progress_at = "", 0.0
        self._in_flight: deque[Future[None]] = deque()

    def cancel(self) -> None:
        """Event loop: stop the handler. Nothing is published afterwards."""
        self._cancelled.set()
        self._cancelled_in_loop.set()

    def deadline_passed(self) -> bool:
        """True if the job must end because of its deadline. A cancellation does not count."""
        return self.left_s() == 0 and not self._cancelled.is_set()

    def left_s(self) -> float:
        """Seconds until the job's deadline."""
        return max(0.0, self._ends - time.monotonic())

    def progress(self, event: Progress) -> None:
        """Publish the first event of each stage. Later events are at least `PROGRESS_S` seconds apart."""
        now = time.monotonic()
        if event.stage == self._stage and now - self._progress_at < PROGRESS_S:
            return
        self._stage, self._progress_at = event.stage, now
        self._schedule(event, droppable=False)

    def publish(self, message: StepMessage | CompileJobResult) -> None:
        # Events are sent in order, so the first future is the first to finish.
        while self._in_flight and self._in_flight[0].done():
            self._in_flight.popleft()
        droppable = isinstance(message, StepMessage)
        if not droppable or len(self._in_flight) < STEPS_IN_FLIGHT_MAX:
            self._schedule(message, droppable)

    def _schedule(self, message: Progress | StepMessage | CompileJobResult, droppable: bool) -> None:
        if not self._cancelled.is_set():
            sending = self._send(dump(message), droppable)
            self._in_flight.append(asyncio.run_coroutine_threadsafe(sending, self._loop))

    async def _send(self, event: bytes, droppable: bool) -> None:
        # The loop also requeues jobs: an event scheduled before that belongs to a void attempt.
        if not self._cancelled.is_set():
            self.published_any = True
            await self._broker.publish(self._job_id, event, droppable=droppable)

    async def flush(self) -> None:
        """Event loop: wait until the broker has all events. It ignores those after the result."""
        sending = [asyncio.wrap_future(future) for future in self._in_flight]
        await asyncio.gather(*sending, return_exceptions=True)

    def cancelled(self) -> bool:
        return self._cancelled.is_set() or self.left_s() == 0

    def load(self, key: str, renew_s: float = 0.0) -> bytes | None:
        return self._retry_until_reachable(lambda: self._store.get(key, renew_s))

    def save(self, key: str, value: bytes, ttl_s: float, owner: str = "") -> None:
        self._retry_until_reachable(lambda: self._store.put(key, value, ttl_s, owner), SAVE_S_MAX)

    def discard(self, key: str, value: bytes) -> None:
        self._retry_until_reachable(lambda: self._store.delete(key, value), SAVE_S_MAX)

    def _retry_until_reachable(self, operation: Callable[[], Coroutine[Any, Any, T]], s_max: float = math.inf) -> T:
        """Repeat an operation on store or broker while their server is unreachable.

        Raises StorageDown after `s_max` seconds, or if the job is cancelled meanwhile.
        """
        ends = time.monotonic() + s_max
        while True:
            try:
                return asyncio.run_coroutine_threadsafe(operation(), self._loop).result()
            except StorageDown:
                if self.cancelled() or time.monotonic() >= ends:
                    raise
            time.sleep(STORAGE_POLL_S)

    def compilation_result(self, compile_job: str) -> CompileJobResult | Failure | None:
        """The result of the compilation that the job waited for. None if it was cancelled or is forgotten."""
        try:
            return _read_compilation(self._retry_until_reachable(lambda: self._broker.result(compile_job)))
        except (JobCancelled, JobUnknown):
            return None

    def recompile(self, job: CompileJob) -> CompileJobResult | Failure:
        """Submit a compilation and wait for its result. The job's deadline bounds the wait."""
        # The usual key of the automaton, so that jobs which lack the same automaton share one compilation.
        key, body = compile_job_key(job.automaton), dump(job)
        compile_job = self._retry_until_reachable(lambda: self._broker.submit("compile", key, body))
        return asyncio.run_coroutine_threadsafe(self._await_compilation(compile_job), self._loop).result()

    async def _await_compilation(self, compile_job: str) -> CompileJobResult | Failure:
        compiling = asyncio.create_task(self._result_once_reachable(compile_job))
        cancelled = asyncio.create_task(self._cancelled_in_loop.wait())
        try:
            await asyncio.wait({compiling, cancelled}, timeout=self.left_s(), return_when=asyncio.FIRST_COMPLETED)
            result = _read_compilation(compiling.result()) if compiling.done() else None
        except JobCancelled as error:
            return failure_of(error)
        finally:
            compiling.cancel()
            cancelled.cancel()
            with contextlib.suppress(StorageDown):  # the subscription is lost, and the compilation runs to its end
                await self._broker.unsubscribe(compile_job)
        if result is None:
            late = self.deadline_passed()
            return failure_of(DeadlineExceeded(self.timeout_s) if late else JobCancelled("the job was cancelled"))
        return result

    async def _result_once_reachable(self, compile_job: str) -> bytes:
        """A job's result; an unreachable server is tried again without limit."""
        while True:
            with contextlib.suppress(StorageDown):
                return await self._broker.result(compile_job)
            await asyncio.sleep(STORAGE_POLL_S)


def _read_compilation(data: bytes) -> CompileJobResult | Failure | None:
    """The result of a compilation, None if the bytes are another message."""
    with contextlib.suppress(MessageInvalid):
        message = load(data)
        if isinstance(message, CompileJobResult | Failure):
            return message
    return None
