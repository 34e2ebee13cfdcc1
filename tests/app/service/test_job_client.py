"""A finished answer survives the death of Redis."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock

import pytest

from app.broker import DEFAULT_SUBMIT, SubmitOptions, WorkerStatus
from app.broker.memory import MemoryBroker
from app.errors import JobFailed, StorageDown, UnknownJob
from app.messages import CheckJob, CheckJobResult, Failure, dump, failure_of
from app.models import open_model_files
from app.service import Service, SubmissionContext, SubmittedJob
from app.service.job_client import JobClient
from app.settings import Settings
from app.store.memory import MemoryStore
from compiler.errors import LimitExceeded

S_MAX = 90.0
JOB = CheckJob({"regex": "a"}, "a", 4e9)
FAILURE = failure_of(LimitExceeded("dfa_states_max", 20, 21))


class Dying(MemoryBroker):
    """A job whose server dies when its caller leaves."""

    def __init__(self) -> None:
        super().__init__(16)
        self.left = 0

    async def unsubscribe(self, job_id: str) -> None:
        self.left += 1
        await asyncio.sleep(0.1)
        raise StorageDown

    async def submit(self, queue: str, key: str, body: bytes, options: SubmitOptions = DEFAULT_SUBMIT) -> str:
        await asyncio.sleep(0.01)
        return await super().submit(queue, key, body, options)

    async def answer(self, result: CheckJobResult | Failure) -> None:
        """Take a job, and finish it so."""
        await self.finish((await self.take("compile")).job_id, dump(result))


@contextlib.asynccontextmanager
async def dying_broker() -> AsyncIterator[Dying]:
    """A broker with a worker, whose job is left once."""
    progress: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: progress.append(context))
    broker = Dying()
    await broker.heartbeat("compile", WorkerStatus("w", ""))
    async with asyncio.timeout(S_MAX):
        yield broker
        await asyncio.sleep(0.3)
    gc.collect()
    assert broker.left == 1 and not progress


RESULT = CheckJobResult(True, (), None)


@pytest.mark.parametrize("result", [RESULT, FAILURE])
async def test_an_answer_is_returned_before_the_unsubscribe(result: CheckJobResult | Failure) -> None:
    async with dying_broker() as broker:
        service = Service(Settings(), broker, MemoryStore(1000), open_model_files(Settings().inference.model[0]))
        job_id = await broker.submit("compile", "k", dump(JOB))
        submission = SubmittedJob(job_id, math.inf, math.inf, SubmissionContext())
        answer_task = asyncio.create_task(broker.answer(result))
        with pytest.raises(JobFailed) if result is FAILURE else contextlib.nullcontext():
            assert await service.answer(submission) == result
        assert broker.left == 0, "the answer did not wait"
        await answer_task


async def test_an_internal_job_is_answered_before_the_unsubscribe() -> None:
    async with dying_broker() as broker:
        answer_task = asyncio.create_task(broker.answer(RESULT))
        assert await JobClient(Settings(), broker).run("compile", "k", JOB, CheckJobResult) == RESULT
        await answer_task


async def test_a_submit_cancelled_in_flight_logs_no_error() -> None:
    async with dying_broker() as broker:
        submission = asyncio.create_task(JobClient(Settings(), broker).submit("compile", "k", JOB))
        await asyncio.sleep(0.005)
        submission.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await submission


async def test_jobs_of_others_take_the_steps_of_unknown_jobs() -> None:
    """So the time of an answer does not reveal them."""
    broker = Mock(wraps=MemoryBroker(16))
    service = Service(Settings(), broker, MemoryStore(1000), open_model_files(Settings().inference.model[0]))
    job_id = await broker.submit("compile", "k", dump(JOB), SubmitOptions(owner="anna", kind="check"))
    shared = await broker.submit("compile", "shared", dump(JOB))  # of no caller, also where callers have no names
    steps = []
    for unknown, caller in ((job_id, "ben"), (shared, ""), ("0" * 32, "ben")):
        broker.reset_mock()
        for ask in (service.state, service.cancel):
            with pytest.raises(UnknownJob):
                await ask(unknown, caller)
        steps.append([name for name, _, _ in broker.method_calls])
    assert steps == 3 * [["state", "state"]]
