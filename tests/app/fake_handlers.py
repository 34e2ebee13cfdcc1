"""Handlers for the tests of everything around them."""

from __future__ import annotations

import threading
import time

from app.errors import JobCancelled
from app.handlers.base import Context, Handler
from app.jobs import Choice, GenerateResult, Job, Progress, Result
from app.settings import Settings

started, stopped = threading.Event(), threading.Event()


def reset() -> None:
    """Forget what the patient handler did so far."""
    started.clear()
    stopped.clear()


def open_patient(settings: Settings) -> Handler:
    """Works until it is called off, and says so."""

    def handle(job: Job, context: Context) -> Result:
        started.set()
        context.progress(Progress("decode", 1, 2))
        while not context.cancelled():
            time.sleep(0.005)
        stopped.set()
        raise JobCancelled("called off")

    return handle


def open_quick(settings: Settings) -> Handler:
    """Answers at once."""

    def handle(job: Job, context: Context) -> Result:
        choice = Choice("dog", "eos", -1.0, -1.0, True, (), 2, None)
        return GenerateResult((choice,), 1, context.waited_s * 1000, 0.0)

    return handle


def open_broken(settings: Settings) -> Handler:
    """Fails in a way nobody foresaw."""

    def handle(job: Job, context: Context) -> Result:
        raise ZeroDivisionError("MARKER of the prompt")

    return handle


def open_never(settings: Settings) -> Handler:
    """Cannot be opened."""
    raise RuntimeError("no such device")
