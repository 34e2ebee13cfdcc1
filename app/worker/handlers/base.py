"""The interface between worker and handlers, with helpers of several handlers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from app.automaton_cache import summary
from app.errors import AutomatonMissing, MessageInvalid, ModelChanged
from app.messages import (
    CaptureBody,
    CompileJobResult,
    Job,
    NotReadyCode,
    OwnedJob,
    Progress,
    Result,
    StepMessage,
    TimingsBody,
    WordBody,
    automaton_key,
)
from app.settings import Settings
from compiler.artifact import CompiledConstraint
from compiler.errors import ArtefactInvalid
from compiler.text import TextCheck, WrittenText


class Context(Protocol):
    """The calls that a handler may make for a running job. It makes them from its own thread."""

    @property
    def waited_s(self) -> float:
        """Seconds that the job waited in its queue."""

    @property
    def compilation(self) -> CompileJobResult | None:
        """The result of the compilation that the job waited for. None if the automaton was stored before."""

    def progress(self, event: Progress) -> None:
        """Publish the job's progress. The call is cheap: events that are too frequent are dropped."""

    def publish(self, message: StepMessage | CompileJobResult) -> None:
        """Publish the sizes of the job's constraint, or a step. Steps are dropped if the event loop falls behind."""

    def cancelled(self) -> bool:
        """True once the job is cancelled or its deadline has passed."""

    def load(self, key: str, renew_s: float = 0.0) -> bytes | None:
        """A value of the store. It is then kept for at least `renew_s` seconds."""

    def save(self, key: str, value: bytes, ttl_s: float, owner: str = "") -> None:
        """Put a value into the store, in the owner's share of it."""

    def discard(self, key: str, value: bytes) -> None:
        """Remove a faulty value from the store."""


Handle = Callable[[Job, Context], Result]


@dataclass(frozen=True, slots=True)
class Handler:
    """The functions by which a worker runs jobs, in its own threads.

    handle          returns a job's result; blocks
    slots           number of jobs at once, each in its own thread
    close           frees the handler's resources; called once, after the last job
    health_problem  why the handler cannot work, empty if it can; called every second, so it must not block
    """

    handle: Handle
    slots: int = 1
    close: Callable[[], None] = lambda: None
    health_problem: Callable[[], str] = lambda: ""


OpenHandler = Callable[[Settings], Handler]


def dispatcher(
    queue: str, handles: Mapping[type[Job], Callable[[Any, Context], Result]], models: Collection[str] = ()
) -> Handle:
    """A function that runs each kind of job by its function.

    It raises MessageInvalid for other kinds, and ModelChanged for jobs of other models than `models`.
    """

    def handle(job: Job, context: Context) -> Result:
        if job.model and job.model not in models:
            raise ModelChanged(
                f"the job is of the model {job.model!r}, and this worker has {', '.join(map(repr, models))}: give all "
                "processes the same ABS_MODEL and ABS_ADAPTERS"
            )
        if type(job) not in handles:
            raise MessageInvalid(f"the {queue} queue takes no job of kind {job.kind!r}")
        return handles[type(job)](job, context)

    return handle


def load_constraint(
    automaton: str, decode: Callable[[str, bytes], CompiledConstraint], context: Context, ttl_s: float
) -> CompiledConstraint:
    """The stored constraint, kept for `ttl_s` more. Raises AutomatonMissing without one. A damaged one is removed."""
    key = automaton_key(automaton)
    data = context.load(key, ttl_s)
    if data is None:
        raise AutomatonMissing("the automaton is no longer stored; send the constraint again")
    try:
        return decode(automaton, data)
    except ArtefactInvalid as error:
        context.discard(key, data)
        raise AutomatonMissing("the stored automaton was damaged; send the constraint again") from error


def stall_reason(problem: str, seconds: float, seconds_max: float) -> str:
    """The health problem of a handler without progress for `seconds`. It is empty within `seconds_max`."""
    if seconds <= seconds_max:
        return ""
    # Infinite seconds mean that the thread has ended, so no duration is named.
    return NotReadyCode.STALLED.reason(problem + (f" for {seconds:.0f} s" if math.isfinite(seconds) else " any more"))


def sizes_of(automaton: str, constraint: CompiledConstraint, context: Context) -> CompileJobResult:
    """The constraint's sizes. They include the compile time if the job waited for a compilation."""
    result = context.compilation
    return summary(automaton, constraint, result is None or result.cached, 0.0 if result is None else result.compile_ms)


def timings_of(job: OwnedJob, sizes: CompileJobResult, waited_s: float, decode_s: float) -> TimingsBody:
    """The durations of a job and of the compilation before it."""
    total_ms = max(0.0, time.time() - job.arrived) * 1000
    return TimingsBody(sizes.compile_ms, waited_s * 1000, decode_s * 1000, total_ms, sizes.cached)


def captured(constraint: CompiledConstraint, text: str, written: WrittenText) -> tuple[CaptureBody, ...] | None:
    """The captures in a text that satisfies, ready to send. None without a sequence that captures."""
    captures = constraint.captured(written) if constraint.captures else None
    if captures is None:
        return None
    return tuple(
        CaptureBody(each.name, text[each.start : each.end], each.start, each.end, *(each.tokens or ()))
        for each in captures
    )


def word_trace(check: TextCheck) -> tuple[WordBody, ...]:
    """The word trace of a checked text, ready to send."""
    return tuple(WordBody(step.text, step.letters, step.state) for step in check.words)
