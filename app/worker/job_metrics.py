"""Records one attempt at a job: its log line, its span and its metrics."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator

from app.messages import CompileJob, CompileJobResult, DecodeJob, Failure, GenerateJob, GenerateJobResult, Job, Result
from app.observability import logs, metrics, tracing
from compiler.errors import ErrorFacts

KINDS = ("labels", "ltlf", "regex", "keywords", "infill", "json_schema", "choice", "dfa", "all", "any", "not")
log = logging.getLogger("app.worker.loop")  # the name that operators filter by


class AttemptResult:
    """The result of an attempt, None while it runs and if the worker was stopped."""

    def __init__(self) -> None:
        self.result: Result | None = None


@contextlib.contextmanager
def record_attempt(
    job: Job, job_id: str, queue: str, worker: str, waited_s: float, attempt: int
) -> Iterator[AttemptResult]:
    """Bind the log's fields, open a span and count the outcome of the body, which calls the handler."""
    metrics.QUEUE_SECONDS.labels(queue).observe(waited_s)
    metrics.ATTEMPTS.labels(job.kind).inc()
    if attempt > 1:
        metrics.REDELIVERED.labels(job.kind).inc()
    started, attempt_result = time.perf_counter(), AttemptResult()
    with (
        logs.bound(request_id=job.request_id, job_id=job_id, worker=worker),
        tracing.span(job.kind, job.traceparent, "CONSUMER", job_id=job_id, attempt=attempt) as span,
        metrics.RUNNING.labels(queue).track_inprogress(),
    ):
        yield attempt_result
        outcome = outcome_of(attempt_result.result)
        span.note(outcome=outcome)
        if isinstance(attempt_result.result, Failure):
            span.fail(attempt_result.result.error)
        spent_s = time.perf_counter() - started
        _count(job, attempt_result.result, outcome, waited_s + spent_s)
        sizes = _sizes(attempt_result.result)
        logs.event(
            log, logging.INFO, "job_done", kind=job.kind, outcome=outcome, attempt=attempt, waited_ms=waited_s * 1000,
            ms=spent_s * 1000, **sizes,
        )


def outcome_of(result: Result | None) -> str:
    """The outcome label of a job: ok, unsat, infeasible, limit, timeout, cancelled, refused or error."""
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


def _count(job: Job, result: Result | None, outcome: str, total_s: float) -> None:
    """Add a job to the metrics of its kind."""
    match job:
        case CompileJob():
            # A job whose automaton was stored meanwhile compiled nothing.
            if not (isinstance(result, CompileJobResult) and result.cached):
                metrics.COMPILED.labels(kind_of(job), outcome).inc()
        case GenerateJob() | DecodeJob():
            metrics.GENERATED.labels(outcome).inc()
            metrics.E2E_SECONDS.labels(outcome).observe(total_s)
    match result:
        case CompileJobResult(cached=False):
            assert isinstance(job, CompileJob)
            metrics.COMPILE_SECONDS.labels(kind_of(job)).observe(result.compile_ms / 1000)
            metrics.STATES.observe(result.token_states)
        case GenerateJobResult():
            metrics.PROMPT_TOKENS.inc(result.usage.prompt_tokens)
            metrics.GENERATED_TOKENS.inc(result.usage.completion_tokens)
        case Failure(facts=ErrorFacts(code="replay_rejected")):  # our bug, which has an alert of its own
            metrics.VIOLATIONS.inc()


def _sizes(result: Result | None) -> dict[str, object]:
    """The log's fields for a result: its sizes, or the name of a failure; never texts of a caller."""
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
