"""What a job counts for: the line in the log, the span, and the metrics of one try at it. Only workers ask."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator

from app.messages import CompileJob, CompileJobResult, DecodeJob, Failure, GenerateJob, GenerateJobResult, Job, Result
from app.observability import logs, metrics, tracing
from compiler.errors import ErrorFacts

KINDS = ("labels", "ltlf", "regex", "keywords", "infill", "json_schema", "choice", "dfa", "all", "any", "not")
log = logging.getLogger("app.worker.loop")


class AttemptResult:
    """One try at a job. `result` is what came of it, None where the worker itself was stopped."""

    def __init__(self) -> None:
        self.result: Result | None = None


@contextlib.contextmanager
def trying(job: Job, job_id: str, queue: str, worker: str, waited_s: float, attempt: int) -> Iterator[AttemptResult]:
    """Around a handler's call, in its thread: binds the fields of the log, opens the span, counts how it ended."""
    metrics.QUEUE_SECONDS.labels(queue).observe(waited_s)
    metrics.ATTEMPTS.labels(job.kind).inc()
    if attempt > 1:
        metrics.REDELIVERED.labels(job.kind).inc()
    started, tried = time.perf_counter(), AttemptResult()
    with (
        logs.bound(request_id=job.request_id, job_id=job_id, worker=worker),
        tracing.span(job.kind, job.traceparent, "CONSUMER", job_id=job_id, attempt=attempt) as span,
        metrics.RUNNING.labels(queue).track_inprogress(),
    ):
        yield tried
        outcome = outcome_of(tried.result)
        span.note(outcome=outcome)
        if isinstance(tried.result, Failure):
            span.fail(tried.result.error)
        spent_s = time.perf_counter() - started
        _count(job, tried.result, outcome, waited_s + spent_s)
        sizes = _sizes(tried.result)
        logs.event(
            log, logging.INFO, "job_done", kind=job.kind, outcome=outcome, attempt=attempt, waited_ms=waited_s * 1000,
            ms=spent_s * 1000, **sizes,
        )


def outcome_of(result: Result | None) -> str:
    """How a job ended, in a word: ok, unsat, infeasible, limit, timeout, cancelled, refused or error."""
    match result:
        case None:
            return "cancelled"
        case Failure(fields={"limit": "compile_s_max"}):
            return "timeout"
        case Failure():
            return result.facts.outcome
        case _:
            return "ok"


def kind_of(job: CompileJob) -> str:
    """The outermost form of a constraint."""
    return next((kind for kind in KINDS if kind in job.spec), "length")


def _count(job: Job, result: Result | None, outcome: str, whole_s: float) -> None:
    """Add a job to the metrics of its kind. A compilation that was found stored is none."""
    match job:
        case CompileJob():
            if not (isinstance(result, CompileJobResult) and result.cached):
                metrics.COMPILED.labels(kind_of(job), outcome).inc()
        case GenerateJob() | DecodeJob():
            metrics.GENERATED.labels(outcome).inc()
            metrics.E2E_SECONDS.labels(outcome).observe(whole_s)
    match result:
        case CompileJobResult(cached=False):
            assert isinstance(job, CompileJob)
            metrics.COMPILE_SECONDS.labels(kind_of(job)).observe(result.compile_ms / 1000)
            metrics.STATES.observe(result.token_states)
        case GenerateJobResult():
            metrics.PROMPT_TOKENS.inc(result.usage.prompt_tokens)
            metrics.GENERATED_TOKENS.inc(result.usage.completion_tokens)
        case Failure(facts=ErrorFacts(code="replay_rejected")):
            metrics.VIOLATIONS.inc()


def _sizes(result: Result | None) -> dict[str, object]:
    """The log's fields for a result: numbers, or the name of a failure."""
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
