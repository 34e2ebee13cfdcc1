"""A generate worker without a model, for tests of what becomes of jobs: python -m tests.servers.fake_worker [misread]

Everything of `abs worker generate` is there but the handler. What that does, the first words of a prompt say:

    steps N PAUSE   tells N steps, one each PAUSE seconds, and answers
    die             ends the process
    anything else   answers at once

The answer is "dog"; constraints that it satisfies are the tests' affair. One that is to misread cannot make out what
the server says of the jobs it is delivered, as if the server's other clients were of another version.
"""

from __future__ import annotations

import os
import sys
import time

from app import wiring
from app.broker.redis.records import Records
from app.cli.worker_process import run_worker
from app.errors import JobCancelled
from app.messages import (
    ChoiceBody,
    CompileJobResult,
    GenerateJob,
    GenerateJobResult,
    Job,
    Result,
    StepMessage,
    StepRow,
    TimingsBody,
    UsageBody,
)
from app.settings import Settings, read_settings
from app.worker.handlers.base import Context, Handler

SLOTS = 4


def open_scripted(settings: Settings) -> Handler:
    """The handler of this module's worker."""
    return Handler(_handle, SLOTS)


def _handle(job: Job, context: Context) -> Result:
    assert isinstance(job, GenerateJob)
    word, *rest = job.prompt.split()
    if word == "die":
        os._exit(1)
    if word == "steps":
        count, pause = int(rest[0]), float(rest[1])
        for number in range(1, count + 1):
            if context.cancelled():
                raise JobCancelled("called off")
            context.tell(StepMessage(number, count - number, (StepRow("dog", 0, 1, 2, 0.5, -1.0, -2.0, False),)))
            time.sleep(pause)
    choice = ChoiceBody("dog", "eos", -1.0, -1.0, True, (), None)
    compiled = CompileJobResult(job.automaton, 1, 1, 1, 1, 1, True, 0.0)
    timings = TimingsBody(0.0, context.waited_s * 1000, 0.0, 0.0, cached=True)
    return GenerateJobResult(compiled.automaton, (choice,), None, UsageBody(1, 2, 1), timings, (2,))


async def _misread(*_: object) -> None:
    raise ValueError("the reply of another version")


if __name__ == "__main__":
    if sys.argv[1:] == ["misread"]:
        Records.take = _misread  # type: ignore[assignment, method-assign]
    wiring.HANDLERS["generate"] = "tests.servers.fake_worker:open_scripted"
    run_worker("generate", read_settings())
