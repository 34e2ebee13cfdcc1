"""How a request becomes jobs that outlive its process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from app.broker import Broker, WorkerStatus
from app.errors import AutomatonMissing, JobFailed, UnknownJob
from app.messages import (
    DescribeJobResult,
    Failure,
    GenerateJob,
    GenerateJobResult,
    GenerationOptions,
    Result,
    automaton_key,
)
from app.models import open_model_files
from app.requests import GenerateParams
from app.service import Service, SubmissionContext
from app.settings import Settings
from app.store import Store
from app.wiring import open_broker, open_store
from app.worker.handlers.base import Context, OpenHandler
from app.worker.loop import serve
from compiler.errors import BudgetTooSmall
from compiler.spec import AllSpec, KeywordsSpec, RegexSpec, Spec
from tests.app import fake_handlers
from tests.app.worker.shared_compiler import SECRET, open_shared_compiler
from tests.servers.redis_server import RedisServer

SPEC = KeywordsSpec((("dog", "dogs"), ("ball",)))
NEVER = AllSpec((RegexSpec("a"), RegexSpec("b")))
COMPILE: Mapping[str, OpenHandler] = {"compile": open_shared_compiler}
ALONE = SubmissionContext("owner", "/generate", respond_async=True)
S_MAX = 60.0


@dataclass(frozen=True)
class Place:
    """Where jobs and automata are, and who works there."""

    settings: Settings
    broker: Broker
    store: Store
    group: asyncio.TaskGroup

    def service(self) -> Service:
        """An API process more."""
        return Service(self.settings, self.broker, self.store, open_model_files(self.settings.inference.model[0]))

    async def start_workers(self, workers: Mapping[str, OpenHandler]) -> None:
        """Let workers of these queues begin, and wait until they take jobs."""
        for queue, opener in workers.items():
            self.group.create_task(serve(queue, opener, self.broker, self.store, self.settings))
        while await self.service().jobs.reasons_not_ready(tuple(workers)):
            await asyncio.sleep(0.01)

    async def announce_workers(self, *queues: str) -> None:
        """Say that there are workers, who take nothing for now."""
        for queue in queues:
            await self.broker.heartbeat(queue, WorkerStatus("no one", ""))


class _ScenarioEnd(Exception):
    """The scenario has ended."""


@contextlib.asynccontextmanager
async def place(settings: Settings) -> AsyncIterator[Place]:
    broker, store = open_broker(settings), open_store(settings)
    with contextlib.suppress(BaseExceptionGroup):
        async with asyncio.timeout(3 * S_MAX), asyncio.TaskGroup() as group:
            job_failure: BaseException | None = None
            try:
                yield Place(settings, broker, store, group)
            except BaseException as error:
                job_failure = error
            raise _ScenarioEnd
    await broker.close()
    await store.close()
    if job_failure is not None:
        raise job_failure


@pytest.fixture(params=["memory", "redis"])
def settings(request: pytest.FixtureRequest) -> Settings:
    if request.param == "memory":
        return Settings.of(secret=SECRET)
    server: RedisServer = request.getfixturevalue("redis_server")
    return Settings.of(broker=server.url, store=server.url, secret=SECRET)


def order(spec: Spec | None = SPEC, automaton: str | None = None, **options: Any) -> GenerateParams:
    generation = GenerationOptions(**{"max_tokens": 8, "beams": 4, **options})
    return GenerateParams(prompt="a", spec=spec, automaton=automaton, options=generation, timeout_s=None)


async def over(service: Service, job: str, owner: str = "owner") -> Result:
    while True:
        state, result = await service.state(job, owner)
        if result is not None:
            return result
        assert state.state in ("waiting", "running")
        await asyncio.sleep(0.01)


def require_automaton(job: GenerateJob, context: Context) -> None:
    assert context.load(automaton_key(job.automaton)) is not None


WORKERS: Mapping[str, OpenHandler] = {**COMPILE, "generate": fake_handlers.open_after(require_automaton)}


async def test_all_jobs_of_a_request_are_submitted_first(settings: Settings) -> None:
    async with place(settings) as here:
        await here.announce_workers("compile", "generate")
        submission = await here.service().begin(order(), ALONE)
        assert submission.compile_job is not None
        other_service = here.service()  # the first is gone
        state, result = await other_service.state(submission.job_id, "owner")
        assert (state.state, state.kind, state.attempt, result) == ("waiting", "generate", 0, None)
        await here.start_workers(WORKERS)
        answer = await over(other_service, submission.job_id)
        assert isinstance(answer, GenerateJobResult) and answer.choices[0].text == "dog"


async def test_concurrent_requests_share_one_compile_job(settings: Settings, compiles: list[Spec]) -> None:
    rounds = 50 if settings.storage.broker.startswith("memory") else 10  # tests/app/faults: 500 callers
    async with place(settings) as here:
        await here.start_workers(WORKERS)
        services = [here.service() for _ in range(4)]
        compilations = [asyncio.create_task(services[n % 4].constraints.compile(SPEC)) for n in range(6 * rounds)]
        submissions = await asyncio.gather(*(service.begin(order()) for service in services * rounds))
        await asyncio.gather(*compilations, *(services[0].answer(submission) for submission in submissions))
    assert compiles == [SPEC]


async def test_a_failed_compilation_answers_all_waiting_and_later_requests(
    settings: Settings, compiles: list[Spec]
) -> None:
    async with place(settings) as here:
        await here.announce_workers("compile", "generate")
        service = here.service()
        submissions = [await service.begin(order(NEVER), ALONE) for _ in range(3)]
        await here.start_workers(WORKERS)
        failures = [await over(service, submission.job_id) for submission in submissions]
        assert all(isinstance(failure, Failure) for failure in failures) and len(set(map(str, failures))) == 1
        for _ in range(2):
            with pytest.raises(JobFailed) as job_failure:
                await here.service().constraints.compile(NEVER)
            assert (job_failure.value.error, str(job_failure.value)) == ("SpecUnsatisfiable", failures[0].detail)  # type: ignore[union-attr]
    assert len(compiles) == 1


async def test_a_worker_recompiles_an_automaton_missing_from_the_store(
    settings: Settings, compiles: list[Spec]
) -> None:
    async with place(settings) as here:
        await here.start_workers(COMPILE)
        await here.announce_workers("generate")
        service = here.service()
        compilation = await service.constraints.compile(SPEC)
        submission = await service.begin(order(), ALONE)
        key = automaton_key(compilation.automaton)
        data = await here.store.get(key)
        assert data is not None and submission.compile_job is None
        await here.store.delete(key, data)
        await here.start_workers({"generate": fake_handlers.open_after(miss_automaton)})
        answer = await over(here.service(), submission.job_id)
        assert isinstance(answer, GenerateJobResult) and answer.automaton == compilation.automaton
    assert compiles == [SPEC, SPEC]


def miss_automaton(job: GenerateJob, context: Context) -> None:
    """Fail without the automaton, as the real handler."""
    if context.load(automaton_key(job.automaton)) is None:
        raise AutomatonMissing("gone")


async def test_a_too_small_budget_is_refused_after_compilation(settings: Settings) -> None:
    async with place(settings) as here:
        await here.start_workers(COMPILE)
        await here.announce_workers("generate")  # no model runs
        service = here.service()
        for _ in range(2):  # cold, then known
            with pytest.raises(BudgetTooSmall):
                await service.answer(await service.begin(order(max_tokens=2)))


async def test_jobs_of_other_or_no_owners_are_unknown(settings: Settings) -> None:
    async with place(settings) as here:
        await here.announce_workers("compile", "generate")
        service = here.service()
        submission = await service.begin(order(), ALONE)
        assert submission.compile_job is not None
        job_id, compile_job = submission.job_id, submission.compile_job
        for job, owner in ((job_id, "other"), (job_id, ""), (compile_job, "owner"), ("0", "")):
            with pytest.raises(UnknownJob):
                await service.state(job, owner)
            with pytest.raises(UnknownJob):
                await service.cancel(job, owner)
        assert await service.cancel(submission.job_id, "owner")


async def test_two_owners_may_use_the_same_key(settings: Settings) -> None:
    async with place(settings) as here:
        await here.announce_workers("compile", "generate")
        service = here.service()
        ids = [
            (await service.begin(order(), SubmissionContext(owner, route, "key", "digest"))).job_id
            for owner, route in (("a", "/generate"), ("b", "/generate"), ("a", "/x"), ("a", "/generate"))
        ]
        assert ids[0] == ids[3] and len(set(ids)) == 3


async def test_a_disconnect_cancels_the_generation_and_unshared_compilation(settings: Settings) -> None:
    async with place(settings) as here:
        await here.start_workers({"compile": fake_handlers.open_blocking})
        await here.announce_workers("generate")
        service = here.service()
        submissions = [await service.begin(order()) for _ in range(2)]
        answers = [asyncio.create_task(service.answer(submission)) for submission in submissions]
        assert await asyncio.to_thread(fake_handlers.start_event.wait, S_MAX)
        for task, submission in zip(answers, submissions, strict=True):
            assert not fake_handlers.stop_event.is_set()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            assert (await service.state(submission.job_id, ""))[0].state == "cancelled"
        assert await asyncio.to_thread(fake_handlers.stop_event.wait, S_MAX)


async def test_a_description_is_explained_in_the_callers_names(settings: Settings) -> None:
    spec = KeywordsSpec((("wolf", "bear"),))
    async with place(settings) as here:
        await here.start_workers(COMPILE)
        service = here.service()
        context = SubmissionContext("owner", "/compile", "key", "digest")
        first, second = [await service.answer(await service.begin_describe(spec, True, context)) for _ in range(2)]
        assert isinstance(first, DescribeJobResult) and first == second
        assert first.explanation is not None and not first.cached
