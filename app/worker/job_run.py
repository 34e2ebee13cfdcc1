"""One try at a job: its handler in a thread, with a door to the world, and what is to be said of it to the broker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from app.broker import Broker, Delivery
from app.errors import (
    AnswerTooLarge,
    AutomatonMissing,
    DeadlineExceeded,
    JobCancelled,
    JobUnknown,
    MessageInvalid,
    StorageDown,
    without_message,
)
from app.messages import (
    CompileJob,
    CompileJobResult,
    DecodeJob,
    Failure,
    GenerateJob,
    Job,
    OwnedJob,
    Progress,
    RestartMessage,
    Result,
    StepMessage,
    compile_job_key,
    dump,
    failure_of,
    is_expected_error,
    load,
)
from app.store import Store
from app.worker import job_metrics as tally
from app.worker.handlers.base import Handler

PROGRESS_S = 0.1
STEPS_ON_THE_WAY_MAX = 16  # to an event loop that is busy
STORAGE_POLL_S = 0.5
SAVE_S_MAX = 10.0  # how long a result waits for a store that takes nothing
T = TypeVar("T")
log = logging.getLogger("app.worker.loop")


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What a worker works with.

    worker       its name
    requeue_s_max  how long it may take to hand a job back
    answer_bytes_max
                 how long a result may be
    """

    handler: Handler
    threads: ThreadPoolExecutor
    broker: Broker
    store: Store
    queue: str
    worker: str
    requeue_s_max: float
    answer_bytes_max: int


class JobRun:
    """One delivered job, run to its result. Whatever the job does, the worker goes on."""

    def __init__(self, bench: WorkerContext, delivery: Delivery) -> None:
        self._bench, self._delivery, self._broker = bench, delivery, bench.broker

    async def run(self) -> None:
        """Run the job and finish it. Cancelled, it calls the handler off and gives the job back."""
        job_id = self._delivery.job_id
        try:
            job = _job(self._delivery.body)
        except MessageInvalid as error:
            await self._broker.finish(job_id, dump(failure_of(error)), cacheable=False)
            return
        context = JobContext(self._bench, self._delivery, job)
        watcher = asyncio.create_task(self._watch(context))
        try:
            if self._delivery.attempt > 1:
                await self._broker.publish(job_id, dump(RestartMessage(self._delivery.attempt)))
            loop = asyncio.get_running_loop()
            result = await loop.run_in_executor(self._bench.threads, self._handle, job, context)
            await context.sent()
        except asyncio.CancelledError:
            await self._give_back(context)
            raise
        finally:
            context.call_off()  # whatever ended this, the thread must not run on
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher
        await self._broker.finish(job_id, dump(result), cacheable=_lasts(result))

    async def _watch(self, context: JobContext) -> None:
        with contextlib.suppress(JobUnknown):  # a job without a record counts as cancelled
            await self._broker.cancelled(self._delivery.job_id)
        context.call_off()

    async def _give_back(self, context: JobContext) -> None:
        """Give the job back to the queue.

        If the attempt has published events, a restart is published first. If the server is unreachable for too long,
        another worker takes the job over when its lease ends.
        """
        context.call_off()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._bench.requeue_s_max):
                if context.told:
                    await self._broker.publish(self._delivery.job_id, dump(RestartMessage(self._delivery.attempt)))
                await self._broker.requeue(self._delivery.job_id)

    def _handle(self, job: Job, context: JobContext) -> Result:
        """In the handler's thread: what comes of the job."""
        bench, delivery = self._bench, self._delivery
        with tally.trying(
            job, delivery.job_id, bench.queue, bench.worker, delivery.waited_s, delivery.attempt
        ) as tried:
            try:
                tried.result = _kept(_outcome(bench.handler, job, context), bench.answer_bytes_max)
            except Exception as error:  # of the broker, in the middle of a job
                log.error("a %s job failed: %s", job.kind, without_message(error))
                tried.result = failure_of(error)
        return tried.result


def _kept(result: Result, bytes_max: int) -> Result:
    """The result, or the failure that it is longer than anybody keeps."""
    return result if len(dump(result)) <= bytes_max else failure_of(AnswerTooLarge(bytes_max))


def _lasts(result: Result) -> bool:
    """Whether the same request would end in this result again."""
    return not isinstance(result, Failure) or not result.facts.retryable


def _job(body: bytes) -> Job:
    message = load(body)
    if not isinstance(message, Job):
        raise MessageInvalid(f"a message of kind {message.kind!r} is not a job")
    return message


def _outcome(handler: Handler, job: Job, context: JobContext) -> Result:
    """The failure of the compilation that the job waited for, else what its handler says.

    Where the store has lost the automaton meanwhile, it is compiled once more, and the handler has a second try.
    """
    if isinstance(job, OwnedJob) and job.compile_job is not None:
        before = context.compiled_before(job.compile_job)
        if isinstance(before, Failure):
            return before
        context.compiling = before
    result = _called(handler, job, context)
    if not (_lacks_automaton(result) and isinstance(job, GenerateJob | DecodeJob) and job.spec is not None):
        return result
    compilation = CompileJob(job.automaton, job.spec, time.time() + context.left_s(), owner=job.owner)
    again = context.compiled_again(compilation)
    if isinstance(again, Failure):
        return again
    context.compiling = again
    result = _called(handler, job, context)
    return failure_of(StorageDown()) if _lacks_automaton(result) else result  # it takes what it is given, and loses it


def _lacks_automaton(result: Result) -> bool:
    return isinstance(result, Failure) and result.facts == AutomatonMissing.facts


def _called(handler: Handler, job: Job, context: JobContext) -> Result:
    """The job's result, or the failure that it ended in."""
    try:
        if context.cancelled():
            raise JobCancelled("the job was over before it began")
        return handler(job, context)
    except Exception as error:
        if context.late():
            return failure_of(DeadlineExceeded(context.timeout_s))
        if not is_expected_error(error):
            log.error("a %s job failed: %s", job.kind, without_message(error))
        return failure_of(error)


class JobContext:
    """Implements app.worker.handlers.base.Context for a handler's thread.

    It passes the thread's calls to the event loop.

    told  whether this attempt has published an event
    """

    def __init__(self, bench: WorkerContext, delivery: Delivery, job: Job) -> None:
        self._loop = asyncio.get_running_loop()
        self._broker, self._store, self._job_id = bench.broker, bench.store, delivery.job_id
        self._ends = time.monotonic() + (job.deadline - job.written) - delivery.age_s  # whatever clocks say meanwhile
        self.timeout_s = round(job.deadline - job.arrived, 3) if isinstance(job, OwnedJob) else None
        self._called_off, self._over = threading.Event(), asyncio.Event()
        self.waited_s = delivery.waited_s
        self.compiling: CompileJobResult | None = None
        self.told = False
        self._stage, self._told = "", 0.0
        self._on_the_way: deque[Future[None]] = deque()

    def call_off(self) -> None:
        """From the event loop: the handler shall stop, and says nothing more."""
        self._called_off.set()
        self._over.set()

    def late(self) -> bool:
        """True where it is for its deadline that the job must end."""
        return self.left_s() == 0 and not self._called_off.is_set()

    def left_s(self) -> float:
        """How much time the job still has."""
        return max(0.0, self._ends - time.monotonic())

    def progress(self, event: Progress) -> None:
        """Tell the first event of each stage, and of the rest one every `PROGRESS_S` seconds: a step takes less."""
        now = time.monotonic()
        if event.stage == self._stage and now - self._told < PROGRESS_S:
            return
        self._stage, self._told = event.stage, now
        self._publish(event, droppable=False)

    def tell(self, news: StepMessage | CompileJobResult) -> None:
        """A loop that falls behind misses steps; it is not given more than it can take."""
        while self._on_the_way and self._on_the_way[0].done():
            self._on_the_way.popleft()
        passing = isinstance(news, StepMessage)
        if not passing or len(self._on_the_way) < STEPS_ON_THE_WAY_MAX:
            self._publish(news, passing)

    def _publish(self, news: Progress | StepMessage | CompileJobResult, passing: bool) -> None:
        if not self._called_off.is_set():
            told = self._send(dump(news), passing)
            self._on_the_way.append(asyncio.run_coroutine_threadsafe(told, self._loop))

    async def _send(self, news: bytes, passing: bool) -> None:
        """In the event loop, where a job is given back, too: what comes to it after that is of a try that is void."""
        if not self._called_off.is_set():
            self.told = True
            await self._broker.publish(self._job_id, news, droppable=passing)

    async def sent(self) -> None:
        """Wait until the broker has all events. It ignores events that come after the result."""
        waiting = [asyncio.wrap_future(told) for told in self._on_the_way]
        await asyncio.gather(*waiting, return_exceptions=True)

    def cancelled(self) -> bool:
        return self._called_off.is_set() or self.left_s() == 0

    def load(self, key: str, renew_s: float = 0.0) -> bytes | None:
        return self._patiently(lambda: self._store.get(key, renew_s), math.inf)

    def save(self, key: str, value: bytes, ttl_s: float, owner: str = "") -> None:
        self._patiently(lambda: self._store.put(key, value, ttl_s, owner), SAVE_S_MAX)

    def discard(self, key: str, value: bytes) -> None:
        self._patiently(lambda: self._store.delete(key, value), SAVE_S_MAX)

    def _patiently(self, operation: Callable[[], Coroutine[Any, Any, T]], s_max: float = math.inf) -> T:
        """What store or broker say; where they cannot be reached, what they say later, while the job lasts."""
        ends = time.monotonic() + s_max
        while True:
            try:
                return asyncio.run_coroutine_threadsafe(operation(), self._loop).result()
            except StorageDown:
                if self.cancelled() or time.monotonic() >= ends:
                    raise
            time.sleep(STORAGE_POLL_S)

    def compiled_before(self, compile_job: str) -> CompileJobResult | Failure | None:
        """What came of the compilation that the job waited for; None where it was called off or is forgotten."""
        try:
            return _compiling(self._patiently(lambda: self._broker.result(compile_job)))
        except (JobCancelled, JobUnknown):
            return None

    def compiled_again(self, job: CompileJob) -> CompileJobResult | Failure:
        """What comes of a compilation that a worker of that queue is asked for now."""
        key, body = compile_job_key(job.automaton), dump(job)
        compile_job = self._patiently(lambda: self._broker.submit("compile", key, body))
        return asyncio.run_coroutine_threadsafe(self._compiled_again(compile_job), self._loop).result()

    async def _compiled_again(self, compile_job: str) -> CompileJobResult | Failure:
        waiting = asyncio.create_task(self._in_the_end(compile_job))
        over = asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait({waiting, over}, timeout=self.left_s(), return_when=asyncio.FIRST_COMPLETED)
            result = _compiling(waiting.result()) if waiting.done() else None
        except JobCancelled as error:
            return failure_of(error)
        finally:
            waiting.cancel()
            over.cancel()
            with contextlib.suppress(StorageDown):  # nothing is lost but a share
                await self._broker.unsubscribe(compile_job)
        if result is None:
            return failure_of(DeadlineExceeded(self.timeout_s) if self.late() else JobCancelled("called off"))
        return result

    async def _in_the_end(self, compile_job: str) -> bytes:
        """A job's result, however often the server is away meanwhile."""
        while True:
            with contextlib.suppress(StorageDown):
                return await self._broker.result(compile_job)
            await asyncio.sleep(STORAGE_POLL_S)


def _compiling(data: bytes) -> CompileJobResult | Failure | None:
    """The result of a compilation in some bytes, None where they are something else."""
    with contextlib.suppress(MessageInvalid):
        message = load(data)
        if isinstance(message, CompileJobResult | Failure):
            return message
    return None
