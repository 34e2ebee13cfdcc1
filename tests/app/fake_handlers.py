"""Fake handlers, for tests of the code around handlers."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

import pytest

from app import wiring
from app.automaton_cache import automaton_secret, summary
from app.errors import JobCancelled
from app.messages import (
    ChoiceBody,
    CompileJob,
    CompileJobResult,
    GenerateJob,
    GenerateJobResult,
    Job,
    Progress,
    Result,
    StepMessage,
    StepRowBody,
    TimingsBody,
    UsageBody,
    automaton_key,
)
from app.models import open_model_files
from app.settings import Settings
from app.worker.handlers.base import Context, Handler, OpenHandler
from compiler.codec import encode
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json

SLOTS = 3
start_event, stop_event, close_event = threading.Event(), threading.Event(), threading.Event()
running_jobs: list[str] = []  # ids of the jobs that the blocking handler runs
go_on = threading.Event()
progress_kinds: list[str] = []  # `progress` of the three-step handler's jobs
steps_published = 0
NO_TIME = TimingsBody(0.0, 0.0, 0.0, 0.0, cached=True)


def reset() -> None:
    """Clear the records of all handlers."""
    for event in (start_event, stop_event, close_event, go_on):
        event.clear()
    running_jobs.clear()
    progress_kinds.clear()


def install(monkeypatch: pytest.MonkeyPatch, **openers: str) -> None:
    """Let functions of this module handle the jobs of these queues."""
    for queue, opener in openers.items():
        monkeypatch.setitem(wiring.HANDLERS, queue, f"{__name__}:{opener}")
    reset()


def open_blocking(settings: Settings) -> Handler:
    """Runs until the job is cancelled, and sets `stop_event`."""

    def handle(job: Job, context: Context) -> Result:
        name = job.id if isinstance(job, GenerateJob) else job.kind
        running_jobs.append(name)
        start_event.set()
        context.progress(Progress("decode", 1, 2))
        while not context.cancelled():
            time.sleep(0.005)
        running_jobs.remove(name)
        stop_event.set()
        raise JobCancelled("called off")

    return Handler(handle, SLOTS, close_event.set)


def open_endless_steps(settings: Settings) -> Handler:
    """Sends steps until the job is cancelled.

    The prompt "long" makes their texts long.
    """
    blocking = open_blocking(settings)

    def handle(job: Job, context: Context) -> Result:
        global steps_published
        assert isinstance(job, GenerateJob)
        text = "dog" * 2_000 if job.prompt == "long" else "dog"
        for number in itertools.count(1):
            if context.cancelled():
                return blocking.handle(job, context)
            context.publish(step(number, text))
            steps_published = number
            time.sleep(0.001)
        raise AssertionError

    return Handler(handle, SLOTS, close_event.set)


def open_three_steps(settings: Settings) -> Handler:
    """Sends one step, waits for `go_on`, then sends two more.

    The prompt "fail" makes it fail.
    """

    def handle(job: Job, context: Context) -> Result:
        assert isinstance(job, GenerateJob)
        progress_kinds.append(job.progress)
        for number in (1, 2, 3):
            if job.progress == "steps":
                context.publish(step(number))
            if number == 1 and not go_on.wait(90):
                raise TimeoutError
        if job.prompt == "fail":
            raise ZeroDivisionError("MARKER")
        return _fixed_result(job, context)

    return Handler(handle)


def step(number: int, text: str = "dog") -> StepMessage:
    """A step of one row."""
    return StepMessage(number, 8 - number, (StepRowBody(text, 0, 1, 2, 0.5, -1.0, -2.0, False),))


def _fixed_result(job: Job, context: Context) -> Result:
    assert isinstance(job, GenerateJob)
    choice = ChoiceBody("dog", "eos", -1.0, -1.0, True, (), None)
    return GenerateJobResult(job.automaton, (choice,), None, UsageBody(1, 2, 1), NO_TIME, (2,), model=job.model)


def sizes(automaton: str) -> CompileJobResult:
    """The result of a compilation."""
    return CompileJobResult(automaton, 1, 1, 1, 1, 1, True, 0.0)


def open_compiling(settings: Settings) -> Handler:
    """Compiles in its own thread, without a sandbox.

    It is ready at once.
    """
    vocabulary = open_model_files(settings.inference.model[0]).vocabulary

    def handle(job: Job, context: Context) -> Result:
        assert isinstance(job, CompileJob)
        compiled = compile_spec(spec_from_json(dict(job.spec)), vocabulary, settings.limits)
        secret = automaton_secret(settings.auth.secret, job.automaton)
        context.save(automaton_key(job.automaton), encode(compiled, secret), 600, job.owner)
        return summary(job.automaton, compiled, cached=False, compile_ms=1.0)

    return Handler(handle)


def open_quick(settings: Settings) -> Handler:
    """Answers at once."""
    return Handler(_fixed_result)


def open_after(work: Callable[[GenerateJob, Context], None]) -> OpenHandler:
    """Runs `work` first and then answers at once."""

    def handle(job: Job, context: Context) -> Result:
        assert isinstance(job, GenerateJob)
        work(job, context)
        return _fixed_result(job, context)

    return lambda settings: Handler(handle)


def open_broken(settings: Settings) -> Handler:
    """Fails with an unexpected error."""

    def handle(job: Job, context: Context) -> Result:
        raise ZeroDivisionError("MARKER of the prompt")

    return Handler(handle)


def open_never(settings: Settings) -> Handler:
    """Cannot be opened."""
    raise RuntimeError("no such device")
