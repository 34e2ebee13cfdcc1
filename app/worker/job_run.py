"""One attempt at a delivered job. It runs the handler in a thread and reports the outcome to the broker.

The attempt is recorded in the log, as a span and in the metrics.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

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
from app.formats import STOP_PATH, STOPPED_PATH, contradiction_with_stops
from app.messages import (
    CompileJob,
    CompileJobResult,
    DecodeJob,
    Failure,
    GenerateJob,
    GenerateJobResult,
    Job,
    OwnedJob,
    RestartMessage,
    Result,
    dump,
    failure_of,
    is_expected_error,
    load,
    place_of,
)
from app.observability import logs, metrics, tracing
from app.requests import unsatisfiable_beside_tools
from app.store import Store
from app.tasks import cancel_tasks
from app.worker.handlers.base import Handler
from app.worker.job_context import JobContext
from compiler.errors import ErrorFacts, SpecUnsatisfiable

FORMS = (
    "labels", "ltlf", "regex", "keywords", "infill", "json_schema", "choice", "grammar", "dfa", "all", "any", "not",
)  # fmt: skip
log = logging.getLogger("app.worker.loop")  # the name that operators filter by


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """The parts of a worker that its jobs share.

    worker            the worker's name
    requeue_s_max     time limit for requeueing a job
    answer_bytes_max  largest result in bytes
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
    """Runs one delivered job to its result. A failing job never stops the worker."""

    def __init__(self, worker_context: WorkerContext, delivery: Delivery) -> None:
        self._worker, self._delivery, self._broker = worker_context, delivery, worker_context.broker

    async def run(self) -> None:
        """Run the job and finish it. If this task is cancelled, stop the handler and requeue the job."""
        job_id = self._delivery.job_id
        try:
            job = _job(self._delivery.body)
        except MessageInvalid as error:
            await self._broker.finish(job_id, dump(failure_of(error)), cacheable=False)
            return
        context = JobContext(self._broker, self._worker.store, self._delivery, job)
        watcher = asyncio.create_task(self._watch(context))
        try:
            if self._delivery.attempt > 1:  # subscribers discard the events of the attempt before
                await self._broker.publish(job_id, dump(RestartMessage(self._delivery.attempt)))
            loop, worker, handle = asyncio.get_running_loop(), self._worker, partial(self._handle, job, context)
            result = await loop.run_in_executor(
                worker.threads, record_attempt, job, self._delivery, worker.queue, worker.worker, handle
            )
            await context.flush()
        except asyncio.CancelledError:
            await self._requeue(context)
            raise
        finally:
            context.cancel()  # a thread cannot be interrupted: it ends when it next looks
            await cancel_tasks(watcher)
        # A result is cached if the same request would have it again.
        cacheable = not (isinstance(result, Failure) and result.facts.retryable)
        await self._broker.finish(job_id, dump(result), cacheable=cacheable)

    async def _watch(self, context: JobContext) -> None:
        with contextlib.suppress(JobUnknown):  # a job without a record counts as cancelled
            await self._broker.cancelled(self._delivery.job_id)
        context.cancel()

    async def _requeue(self, context: JobContext) -> None:
        """Return the job to the queue.

        If the attempt has published events, a restart is published first. If the server is unreachable for too long,
        another worker takes the job over when its lease ends.
        """
        context.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._worker.requeue_s_max):
                if context.published_any:
                    await self._broker.publish(self._delivery.job_id, dump(RestartMessage(self._delivery.attempt)))
                await self._broker.requeue(self._delivery.job_id)

    def _handle(self, job: Job, context: JobContext) -> Result:
        """The job's result; runs in the handler's thread."""
        try:
            return _within_limit(_outcome(self._worker.handler, job, context), self._worker.answer_bytes_max)
        except Exception as error:  # of the broker; errors of the handler are results already
            log.error("a %s job failed: %s", job.kind, without_message(error))
            return failure_of(error)


def _within_limit(result: Result, bytes_max: int) -> Result:
    """The result. If it is longer than brokers store, it is the failure AnswerTooLarge."""
    return result if len(dump(result)) <= bytes_max else failure_of(AnswerTooLarge(bytes_max))


def _job(body: bytes) -> Job:
    message = load(body)
    if not isinstance(message, Job):
        raise MessageInvalid(f"a message of kind {message.kind!r} is not a job")
    return message


def _outcome(handler: Handler, job: Job, context: JobContext) -> Result:
    """The handler's result. A failed compilation that the job waited for is its result instead.

    If the store has lost the automaton, it is compiled again and the handler runs a second time.
    """
    if isinstance(job, OwnedJob) and job.compile_job is not None:
        compilation = context.compilation_result(job.compile_job)
        if isinstance(compilation, Failure):
            return _with_request_path(compilation, job)
        context.compilation = compilation
    result = _call_handler(handler, job, context)
    if not (_lacks_automaton(result) and isinstance(job, GenerateJob | DecodeJob) and job.spec is not None):
        return result
    recompiled = context.recompile(
        CompileJob(
            job.automaton, job.spec, time.time() + context.left_s(), owner=job.owner, vocabulary=job.vocabulary
        )
    )
    if isinstance(recompiled, Failure):
        return recompiled
    context.compilation = recompiled
    result = _call_handler(handler, job, context)
    # A store that loses a value at once is broken, and a third attempt would not help.
    return failure_of(StorageDown()) if _lacks_automaton(result) else result


def _with_request_path(failure: Failure, job: OwnedJob) -> Failure:
    """The failure of a compilation, in terms of the job's request.

    Requests with tools or stop strings share compilations with requests that state the same constraint, so only the
    job has the path.
    """
    if not isinstance(job, GenerateJob):
        return failure
    if job.excludes_stops:
        failure = contradiction_with_stops(failure)
    field = failure.fields.get("field")
    if job.excludes_stops and isinstance(field, str):
        if field.startswith(STOP_PATH):
            return replace(failure, fields=failure.fields | {"field": "stop"})
        failure = replace(failure, fields=failure.fields | {"field": field.removeprefix(STOPPED_PATH)})
    if job.places is None:
        return failure
    if failure.facts == SpecUnsatisfiable.facts:
        return unsatisfiable_beside_tools(failure, job.places)
    field = failure.fields.get("field")
    if not isinstance(field, str):
        return failure
    place = place_of(field, job.places)
    if place is None:  # it is not the caller's
        return replace(failure, fields=failure.fields | {"field": "tools"})
    fields = failure.fields | {"field": place.path_of(field)}
    if place.tool:  # suggestions are of the caller's constraint
        fields |= {"suggestion": None, "replacement": None}
    return replace(failure, detail=place.blame(field) + failure.detail, fields=fields)


def _lacks_automaton(result: Result) -> bool:
    return isinstance(result, Failure) and result.facts == AutomatonMissing.facts


def _call_handler(handler: Handler, job: Job, context: JobContext) -> Result:
    """The job's result, or the failure that it ended in."""
    try:
        if context.cancelled():
            raise JobCancelled("the job ended before it started")
        return handler.handle(job, context)
    except Exception as error:
        # After the deadline handlers fail with whatever the cancellation caused, so the deadline comes first.
        if context.deadline_passed():
            return failure_of(DeadlineExceeded(context.timeout_s))
        if not is_expected_error(error):
            log.error("a %s job failed: %s", job.kind, without_message(error))
        return failure_of(error)


def record_attempt(job: Job, delivery: Delivery, queue: str, worker: str, handle: Callable[[], Result]) -> Result:
    """Record an attempt in log, trace and metrics. `handle` calls the handler; its outcome is counted."""
    job_id, waited_s, attempt = delivery.job_id, delivery.waited_s, delivery.attempt
    metrics.QUEUE_SECONDS.labels(queue).observe(waited_s)
    metrics.ATTEMPTS.labels(job.kind).inc()
    if attempt > 1:
        metrics.REDELIVERED.labels(job.kind).inc()
    started = time.perf_counter()
    with (
        logs.bound(request_id=job.request_id, job_id=job_id, worker=worker),
        tracing.span(job.kind, job.traceparent, tracing.CONSUMER, job_id=job_id, attempt=attempt) as span,
        metrics.RUNNING.labels(queue).track_inprogress(),
    ):
        result = handle()
        outcome = outcome_of(result)
        tracing.note(span, outcome=outcome)
        if isinstance(result, Failure):
            tracing.fail(span, result.error)
        spent_s = time.perf_counter() - started
        _count(job, result, outcome, waited_s + spent_s)
        sizes = {"waited_ms": waited_s * 1000, "ms": spent_s * 1000, **_sizes(result)}
        log.info("job_done", extra={"kind": job.kind, "outcome": outcome, "attempt": attempt, **sizes})
    return result


def outcome_of(result: Result) -> str:
    """The outcome label of a job. It is ok, unsat, infeasible, limit, timeout, cancelled, refused or error."""
    match result:
        case Failure(fields={"limit": "compile_s_max"}):
            return "timeout"
        case Failure():
            return result.facts.outcome
        case _:
            return "ok"


def form_of(job: CompileJob) -> str:
    """The outermost form of a constraint."""
    return next((form for form in FORMS if form in job.spec), "length")


def _count(job: Job, result: Result, outcome: str, total_s: float) -> None:
    """Add a job to the metrics of its kind."""
    match job:
        case CompileJob():
            # A job whose automaton was stored meanwhile compiled nothing.
            if not (isinstance(result, CompileJobResult) and result.cached):
                metrics.COMPILED.labels(form_of(job), outcome).inc()
        case GenerateJob() | DecodeJob():
            metrics.GENERATED.labels(outcome).inc()
            metrics.E2E_SECONDS.labels(outcome).observe(total_s)
    match result:
        case CompileJobResult(cached=False):
            assert isinstance(job, CompileJob)
            metrics.COMPILE_SECONDS.labels(form_of(job)).observe(result.compile_ms / 1000)
            metrics.STATES.observe(result.token_states)
        case GenerateJobResult():
            metrics.PROMPT_TOKENS.inc(result.usage.prompt_tokens)
            metrics.GENERATED_TOKENS.inc(result.usage.completion_tokens)
        case Failure(facts=ErrorFacts(code="replay_rejected")):  # our bug, which has an alert of its own
            metrics.VIOLATIONS.inc()


def _sizes(result: Result) -> dict[str, object]:
    """The log's fields for a result. These are its sizes or the name of a failure, never texts of a caller."""
    match result:
        case CompileJobResult():
            return {"token_states": result.token_states, "cached": result.cached}
        case GenerateJobResult():
            usage, decode_ms = result.usage, result.timings.decode_ms
            return {"prompt_tokens": usage.prompt_tokens, "tokens": usage.completion_tokens, "decode_ms": decode_ms}
        case Failure():
            return {"error": result.error}
        case _:
            return {}
