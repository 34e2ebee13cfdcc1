from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest

from app.broker.memory import MemoryBroker
from app.errors import AutomatonMissing, DeadlineExceeded, JobFailed, NotReady, QueueFull, UnknownAutomaton
from app.messages import (
    GenerateJob,
    GenerateJobResult,
    GenerationOptions,
    Progress,
    automaton_hash,
    automaton_key,
    failure_of,
)
from app.models import open_model_files
from app.requests import GenerateParams
from app.service import Service, SubmissionContext
from app.service.service import CONTEXT_DEFAULT
from app.settings import Settings
from app.store.memory import MemoryStore
from app.worker.handlers.base import Context, Handler, OpenHandler
from app.worker.loop import serve
from compiler.errors import BudgetTooSmall, LimitExceeded
from compiler.spec import KeywordsSpec, LtlfSpec, RegexSpec, Spec
from tests.app import fake_handlers
from tests.app.worker.shared_compiler import SECRET, open_shared_compiler

SPEC = KeywordsSpec((("dog", "dogs"), ("ball",)))
COMPILE: dict[str, OpenHandler] = {"compile": open_shared_compiler}


def order(spec: Spec | None = SPEC, automaton: str | None = None, timeout_s: float | None = None) -> GenerateParams:
    options = GenerationOptions(max_tokens=8, beams=4)
    return GenerateParams(prompt="a", spec=spec, automaton=automaton, options=options, timeout_s=timeout_s)


async def generate(
    service: Service, order: GenerateParams, context: SubmissionContext = CONTEXT_DEFAULT
) -> GenerateJobResult:
    """The answer to someone who waits for it."""
    result = await service.answer(await service.begin(order, context))
    assert isinstance(result, GenerateJobResult)
    return result


@contextlib.asynccontextmanager
async def running_service(
    workers: Mapping[str, OpenHandler], queue_jobs_max: int = 256
) -> AsyncIterator[tuple[Service, MemoryStore]]:
    settings = Settings.of(secret=SECRET)
    broker, store = MemoryBroker(queue_jobs_max), MemoryStore(settings.retention.store_bytes_max)
    service = Service(settings, broker, store, open_model_files(settings.inference.model[0]))
    async with asyncio.timeout(180), asyncio.TaskGroup() as group:
        tasks = [group.create_task(serve(queue, opener, broker, store, settings)) for queue, opener in workers.items()]
        while workers and await service.jobs.reasons_not_ready(tuple(workers)):
            await asyncio.sleep(0.005)
        yield service, store
        for task in tasks:
            task.cancel()


async def test_simultaneous_callers_load_a_stored_constraint_once(
    compiles: list[Spec], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_service(COMPILE) as (service, store):
        await service.constraints.compile(SPEC)
        keys: list[str] = []
        read = store.get

        async def counted(key: str, renew_s: float = 0.0) -> bytes | None:
            keys.append(key)
            return await read(key, renew_s)

        monkeypatch.setattr(store, "get", counted)
        answers = await asyncio.gather(*(service.constraints.compile(SPEC) for _ in range(200)))
        assert all(answer.cached for answer in answers)
        assert keys == [automaton_key(answers[0].automaton)]


async def test_a_cancelled_caller_does_not_cancel_a_shared_compilation(compiles: list[Spec]) -> None:
    async with running_service(COMPILE) as (service, _):
        leaving_caller, staying_caller = (asyncio.create_task(service.constraints.compile(SPEC)) for _ in range(2))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        leaving_caller.cancel()
        assert (await staying_caller).min_tokens == 3
        with pytest.raises(asyncio.CancelledError):
            await leaving_caller
    assert compiles == [SPEC]


def test_equal_constraints_have_one_hash() -> None:
    one, other_order = (("a",), ("b", "c")), (("C", "b"), ("a",))
    hashes = {automaton_hash(KeywordsSpec(one), "v"), automaton_hash(KeywordsSpec(other_order, ordered=False), "v")}
    assert len(hashes) == 1
    assert automaton_hash(KeywordsSpec(one, ordered=True), "v") not in hashes
    assert automaton_hash(KeywordsSpec(one), "another vocabulary") not in hashes


@pytest.mark.parametrize("damage", [b"", b"junk", bytes(100)])
async def test_a_damaged_automaton_is_recompiled(compiles: list[Spec], damage: bytes) -> None:
    async with running_service(COMPILE) as (service, store):
        first = await service.constraints.compile(SPEC)
        await store.put(automaton_key(first.automaton), damage, 100)
        with pytest.raises(UnknownAutomaton):
            await service.constraints.automaton(first.automaton)
        await store.put(automaton_key(first.automaton), damage, 100)
        second = await service.constraints.compile(SPEC)
        assert (second.automaton, second.cached) == (first.automaton, False)
        await service.constraints.automaton(first.automaton)
    assert compiles == [SPEC, SPEC]


def open_after_eviction(settings: Settings) -> Handler:
    """Finds the automaton missing the first time, as after an eviction."""
    calls = []

    def evict_once(job: GenerateJob, context: Context) -> None:
        calls.append(job)
        if len(calls) == 1:
            data = context.load(automaton_key(job.automaton))
            assert data is not None
            context.discard(automaton_key(job.automaton), data)
            raise AutomatonMissing("gone")

    return fake_handlers.open_after(evict_once)(settings)


async def test_an_evicted_automaton_referenced_by_hash_is_unknown() -> None:
    async with running_service(COMPILE | {"generate": open_after_eviction}) as (service, _):
        automaton = (await service.constraints.compile(SPEC)).automaton
        with pytest.raises(JobFailed) as failure:
            await generate(service, order(None, automaton))
        assert failure.value.error == "AutomatonMissing"


async def test_a_request_past_its_deadline_cancels_its_job() -> None:
    async with running_service(COMPILE | {"generate": fake_handlers.open_blocking}) as (service, _):
        automaton = (await service.constraints.compile(SPEC)).automaton
        with pytest.raises(DeadlineExceeded):
            await generate(service, order(None, automaton, timeout_s=2))
        assert await asyncio.to_thread(fake_handlers.stop_event.wait, 20)


async def test_a_full_queue_refuses_at_once() -> None:
    async with running_service(COMPILE | {"generate": fake_handlers.open_blocking}, queue_jobs_max=2) as (service, _):
        automaton = (await service.constraints.compile(SPEC)).automaton
        callers = fake_handlers.SLOTS + 4  # two too many: as many run as there are slots, and two may wait
        callers_tasks = [asyncio.create_task(generate(service, order(None, automaton))) for _ in range(callers)]
        done_tasks, pending_tasks = await asyncio.wait(callers_tasks, return_when=asyncio.FIRST_COMPLETED)
        assert all(isinstance(task.exception(), QueueFull) for task in done_tasks)
        assert pending_tasks
        for task in pending_tasks:
            task.cancel()


async def test_without_workers_every_request_names_the_missing_one() -> None:
    calls: list[Callable[[Service], Awaitable[object]]] = [
        lambda service: service.constraints.compile(SPEC),
        lambda service: service.check(RegexSpec("a"), "a"),
        lambda service: generate(service, order()),
    ]
    async with running_service({}) as (service, _):
        for call in calls:
            with pytest.raises(NotReady) as refusal:
                await call(service)
            assert "worker is alive" in str(refusal.value.reasons[0])


async def test_an_observer_receives_progress() -> None:
    def report_progress(job: GenerateJob, context: Context) -> None:
        context.progress(Progress("decode", 1, 8))
    progress_list: list[Progress] = []
    async with running_service(COMPILE | {"generate": fake_handlers.open_after(report_progress)}) as (service, _):
        service.jobs.observer = progress_list.append
        assert (await generate(service, order())).automaton
        assert Progress("compile") in progress_list
        assert Progress("decode", 1, 8) in progress_list


@pytest.mark.parametrize(
    "spec", [LtlfSpec("a" * 100_000), RegexSpec("a" * 100_000), KeywordsSpec((("a",),) * 100_000)],
    ids=lambda spec: type(spec).__name__,
)
async def test_a_constraint_over_a_limit_is_refused_without_a_worker(spec: Spec) -> None:
    calls: list[Callable[[Service], Awaitable[object]]] = [
        lambda service: service.constraints.compile(spec),
        lambda service: service.check(spec, "a"),
        lambda service: generate(service, order(spec)),
    ]
    async with running_service({}) as (service, _):  # no worker is alive, and none is needed
        for call in calls:
            with pytest.raises(LimitExceeded):
                await call(service)


async def test_a_compilation_without_subscribers_is_cancelled() -> None:
    async with running_service({"compile": fake_handlers.open_blocking}) as (service, _):
        await service.constraints.resolve(SPEC)  # its hash takes a thread, in which the last might be left behind
        first, last = (asyncio.create_task(service.constraints.compile(SPEC)) for _ in range(2))
        assert await asyncio.to_thread(fake_handlers.start_event.wait, 20)
        first.cancel()
        assert not await asyncio.to_thread(fake_handlers.stop_event.wait, 0.1)
        last.cancel()
        assert await asyncio.to_thread(fake_handlers.stop_event.wait, 20)


async def test_a_too_small_budget_is_refused_while_others_run() -> None:
    async with running_service(COMPILE | {"generate": fake_handlers.open_blocking}) as (service, _):
        running_one = asyncio.create_task(generate(service, order()))
        assert await asyncio.to_thread(fake_handlers.start_event.wait, 20)
        with pytest.raises(BudgetTooSmall) as refusal:
            await asyncio.wait_for(
                generate(service, dataclasses.replace(order(), options=GenerationOptions(max_tokens=2))), 10
            )
        running_one.cancel()
        by_the_search = failure_of(BudgetTooSmall(3, 2))
        assert failure_of(refusal.value) == by_the_search
