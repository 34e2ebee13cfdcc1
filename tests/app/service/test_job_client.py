"""A finished answer reaches the caller even if Redis dies before the caller leaves the job."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.broker import DEFAULT_SUBMIT, SubmitOptions, WorkerStatus
from app.broker.memory import MemoryBroker
from app.errors import JobFailed, StorageDown
from app.messages import CheckJob, CheckJobResult, Failure, dump, failure_of
from app.models import open_model_files
from app.service import Service, SubmissionContext, SubmittedJob
from app.service.job_client import JobClient
from app.settings import Settings
from app.store.memory import MemoryStore
from compiler.errors import LimitExceeded

S_MAX = 90.0
JOB = dump(CheckJob({"regex": "a"}, "a", 4e9))
FAILURE = failure_of(LimitExceeded("dfa_states_max", 20, 21))


class Dying(MemoryBroker):
    """One whose server dies when somebody leaves: the call waits for it, in vain."""

    def __init__(self) -> None:
        super().__init__(16)
        self.left = 0

    async def unsubscribe(self, job_id: str) -> None:
        self.left += 1
        await asyncio.sleep(0.1)
        raise StorageDown

    async def submit(self, queue: str, key: str, body: bytes, terms: SubmitOptions = DEFAULT_SUBMIT) -> str:
        await asyncio.sleep(0.01)
        return await super().submit(queue, key, body, terms)

    async def answer(self, result: CheckJobResult | Failure) -> None:
        """Take a job, and finish it so."""
        await self.heartbeat("compile", WorkerStatus("w", ""))
        await self.finish((await self.take("compile")).job_id, dump(result))


@contextlib.contextmanager
def unheard() -> Iterator[list[dict[str, Any]]]:
    """What the event loop complains of in the end."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, submission: complaints.append(submission))
    yield complaints
    gc.collect()


RESULT = CheckJobResult(True, (), None)


@pytest.mark.parametrize("result", [RESULT, FAILURE])
def test_an_answer_is_returned_before_the_unsubscribe(result: CheckJobResult | Failure, captions_dir: Path) -> None:
    async def scenario() -> None:
        broker, settings = Dying(), Settings(model=str(captions_dir))
        service = Service(settings, broker, MemoryStore(1000), open_model_files(settings.model))
        with unheard() as complaints:
            job_id = await broker.submit("compile", "k", JOB)
            submission = SubmittedJob(job_id, math.inf, math.inf, SubmissionContext())
            answering = asyncio.create_task(broker.answer(result))
            with pytest.raises(JobFailed) if result is FAILURE else contextlib.nullcontext():
                assert await service.answer(submission) == result
            assert broker.left == 0, "the answer did not wait"
            await answering
            await asyncio.sleep(0.2)
        assert broker.left == 1 and not complaints

    asyncio.run(asyncio.wait_for(scenario(), S_MAX))


def test_an_internal_job_is_answered_before_the_unsubscribe() -> None:
    async def scenario() -> None:
        broker = Dying()
        desk = JobClient(Settings(), broker)
        await broker.heartbeat("compile", WorkerStatus("w", ""))
        with unheard() as complaints:
            answering = asyncio.create_task(broker.answer(RESULT))
            job = CheckJob({"regex": "a"}, "a", 4e9)
            assert await desk.run("compile", "k", job, CheckJobResult) == RESULT
            await answering
            await asyncio.sleep(0.2)
        assert broker.left == 1 and not complaints

    asyncio.run(asyncio.wait_for(scenario(), S_MAX))


def test_a_submit_cancelled_in_flight_logs_no_error() -> None:
    async def scenario() -> None:
        broker = Dying()
        desk = JobClient(Settings(), broker)
        await broker.heartbeat("compile", WorkerStatus("w", ""))
        with unheard() as complaints:
            submission = asyncio.create_task(desk.submit("compile", "k", CheckJob({"regex": "a"}, "a", 4e9)))
            await asyncio.sleep(0.005)
            submission.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await submission
            await asyncio.sleep(0.3)
        assert broker.left == 1 and not complaints

    asyncio.run(asyncio.wait_for(scenario(), S_MAX))
