"""A generate worker for tests, a process of its own: as many steps as `max_tokens`, 30 ms each, or 200."""

from __future__ import annotations

import time

from app import wiring
from app.cli.worker_process import run_worker
from app.errors import JobCancelled
from app.messages import GenerateJob, Job, Result
from app.settings import Settings, read_settings
from app.worker.handlers.base import Context, Handler
from tests.app import fake_handlers

STEP_S, LONG_STEP_S = 0.03, 0.2


def open_slow(settings: Settings) -> Handler:
    """Tells each step, and answers after the last."""

    def handle(job: Job, context: Context) -> Result:
        assert isinstance(job, GenerateJob)
        for number in range(1, job.options.max_tokens + 1):
            time.sleep(LONG_STEP_S if job.prompt == "long" else STEP_S)
            if context.cancelled():
                raise JobCancelled("called off")
            context.tell(fake_handlers.step(number))
        return fake_handlers.open_quick(settings)(job, context)

    return Handler(handle, 4)


if __name__ == "__main__":
    wiring.HANDLERS["generate"] = "tests.app.slow_worker:open_slow"
    run_worker("generate", read_settings())
