from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.broker import Delivery
from app.broker.memory import MemoryBroker
from app.errors import JobCancelled, StorageDown
from app.messages import (
    Failure,
    GenerateJob,
    GenerateJobResult,
    GenerationOptions,
    Job,
    NotReadyCode,
    Progress,
    RestartMessage,
    dump,
    load,
)
from app.settings import Settings
from app.store.memory import MemoryStore
from app.worker.handlers.base import Context, Handler, OpenHandler
from app.worker.loop import serve
from tests.app import fake_handlers
from tests.servers.processes import until

S_MAX = 90.0


def job(deadline_in_s: float = 60.0, name: str = "abs-1") -> GenerateJob:
    return GenerateJob(name, "0" * 64, "a", GenerationOptions(max_tokens=8), time.time() + deadline_in_s)


@asynccontextmanager
async def worker(
    open_handler: OpenHandler, broker: MemoryBroker | None = None
) -> AsyncIterator[tuple[MemoryBroker, MemoryStore]]:
    broker, store = broker or MemoryBroker(16), MemoryStore(1000)
    async with asyncio.timeout(S_MAX), asyncio.TaskGroup() as group:
        task = group.create_task(serve("q", open_handler, broker, store, Settings()))
        yield broker, store
        task.cancel()


async def wait_for_reason(broker: MemoryBroker, reason: str) -> None:
    while [presence.reason for presence in await broker.workers("q")] != [reason]:
        await asyncio.sleep(0.005)


async def test_a_failing_handler_fails_its_job_only(caplog: pytest.LogCaptureFixture) -> None:
    async with worker(fake_handlers.open_broken) as (broker, _):
        for key in "ab":
            failure = load(await broker.result(await broker.submit("q", key, dump(job()))))
            assert isinstance(failure, Failure)
            assert failure.error == "InternalError"
            assert "MARKER" not in failure.detail
    assert "ZeroDivisionError" in caplog.text
    assert "MARKER of" not in caplog.text.replace('ZeroDivisionError("MARKER of', "")  # the source line is shown


@pytest.mark.parametrize("body", [b"", b"{}", b"\x80\x04pickle", dump(Progress("decode"))])
async def test_an_invalid_job_body_fails_its_job(body: bytes) -> None:
    async with worker(fake_handlers.open_quick) as (broker, _):
        failure = load(await broker.result(await broker.submit("q", "a", body)))
        assert isinstance(failure, Failure) and failure.error == "MessageInvalid"
        assert isinstance(load(await broker.result(await broker.submit("q", "b", dump(job())))), GenerateJobResult)


async def test_cancelling_a_job_stops_its_handler() -> None:
    async with worker(fake_handlers.open_blocking) as (broker, _):
        job_id = await broker.submit("q", "a", dump(job()))
        await asyncio.to_thread(fake_handlers.start_event.wait, S_MAX)
        await broker.cancel(job_id)
        with pytest.raises(JobCancelled):
            await broker.result(job_id)
        assert fake_handlers.stop_event.is_set()


async def test_stopping_the_worker_stops_the_handler_that_it_runs() -> None:
    async with worker(fake_handlers.open_blocking) as (broker, _):
        await broker.submit("q", "a", dump(job()))
        await asyncio.to_thread(fake_handlers.start_event.wait, S_MAX)
    assert await asyncio.to_thread(fake_handlers.stop_event.wait, S_MAX)


@pytest.mark.parametrize("deadline_in_s", [-1.0, 0.1])
async def test_a_job_past_its_deadline_fails(deadline_in_s: float) -> None:
    async with worker(fake_handlers.open_blocking) as (broker, _):
        failure = load(await broker.result(await broker.submit("q", "a", dump(job(deadline_in_s)))))
        assert isinstance(failure, Failure) and failure.error == "DeadlineExceeded"


async def test_a_handler_that_cannot_open_takes_no_jobs() -> None:
    async with worker(fake_handlers.open_never) as (broker, _):
        await wait_for_reason(broker, "cannot start: RuntimeError")
        job_id = await broker.submit("q", "a", dump(job()))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(broker.result(job_id), 0.05)


async def test_a_handler_accesses_the_store_and_reports_progress() -> None:
    def work(job: GenerateJob, context: Context) -> None:
        assert context.load("k") is None
        context.save("k", b"v", 10)
        assert context.load("k") == b"v"
        context.discard("k", b"v")
        assert context.load("k") is None
        context.save("last", b"value", 10)
        context.progress(Progress("compile"))
        context.progress(Progress("decode", 1, 3))
    async with worker(fake_handlers.open_after(work)) as (broker, store):
        job_id = await broker.submit("q", "a", dump(job()))
        events = [load(event.data) async for event in broker.events(job_id)]
        assert events == [Progress("compile"), Progress("decode", 1, 3)]
        assert isinstance(load(await broker.result(job_id)), GenerateJobResult)
        assert await store.get("last") == b"value"


async def test_a_worker_runs_at_most_its_slots_concurrently() -> None:
    async with worker(fake_handlers.open_blocking) as (broker, _):
        names = [f"abs-{number}" for number in range(fake_handlers.SLOTS + 2)]
        ids = [await broker.submit("q", name, dump(job(name=name))) for name in names]
        await asyncio.to_thread(until, lambda: len(fake_handlers.running_jobs) == fake_handlers.SLOTS)
        assert sorted(fake_handlers.running_jobs) == names[: fake_handlers.SLOTS]
        await asyncio.sleep(0.05)  # enough time to take a job too many
        assert len(fake_handlers.running_jobs) == fake_handlers.SLOTS
        await broker.cancel(ids[1])
        await asyncio.to_thread(until, lambda: names[fake_handlers.SLOTS] in fake_handlers.running_jobs)
        assert names[1] not in fake_handlers.running_jobs and names[0] in fake_handlers.running_jobs


async def test_a_stopping_worker_joins_threads_before_closing_its_handler() -> None:
    async with worker(fake_handlers.open_blocking) as (broker, _):
        await start_jobs(broker, "abs-1", "abs-2")
        assert not fake_handlers.close_event.is_set()
    assert fake_handlers.running_jobs == []
    assert fake_handlers.close_event.is_set()


async def start_jobs(broker: MemoryBroker, *names: str) -> list[str]:
    """Submit jobs, wait until the blocking handler runs them, return their ids."""
    ids = [await broker.submit("q", name, dump(job(name=name))) for name in names]
    await asyncio.to_thread(until, lambda: sorted(fake_handlers.running_jobs) == sorted(names))
    return ids


@asynccontextmanager
async def stoppable_worker(
    open_handler: OpenHandler, shutdown_grace_s: float
) -> AsyncIterator[tuple[MemoryBroker, asyncio.Event]]:
    """A worker that stops when the event is set.

    The test fails if it does not end.
    """
    broker, stopping = MemoryBroker(16), asyncio.Event()
    settings = Settings.of(shutdown_grace_s=shutdown_grace_s)
    async with asyncio.timeout(S_MAX), asyncio.TaskGroup() as group:
        group.create_task(serve("q", open_handler, broker, MemoryStore(1000), settings, stopping))
        yield broker, stopping


async def test_a_stopping_worker_finishes_jobs_and_takes_no_more() -> None:
    async with stoppable_worker(fake_handlers.open_three_steps, shutdown_grace_s=S_MAX) as (broker, stopping):
        first = await broker.submit("q", "a", dump(job()))
        await asyncio.to_thread(until, lambda: bool(fake_handlers.progress_kinds))
        second = await broker.submit("q", "b", dump(job()))
        stopping.set()
        await wait_for_reason(broker, NotReadyCode.DRAINING)
        fake_handlers.go_on.set()
        assert isinstance(load(await broker.result(first)), GenerateJobResult)
    assert (await broker.state(second)).state == "waiting"


async def test_jobs_past_the_shutdown_grace_are_requeued(caplog: pytest.LogCaptureFixture) -> None:
    async with stoppable_worker(fake_handlers.open_blocking, shutdown_grace_s=0.05) as (broker, stopping):
        ids = await start_jobs(broker, "abs-1", "abs-2")
        stopping.set()
    assert fake_handlers.running_jobs == [] and fake_handlers.close_event.is_set()
    assert [(await broker.state(job_id)).state for job_id in ids] == ["waiting"] * 2
    delivery = await broker.take("q")
    assert delivery.attempt == 1 and isinstance(load(delivery.body), Job)
    await broker.finish(delivery.job_id, b"done")
    messages = [load(event.data) async for event in broker.events(delivery.job_id)]
    assert messages[-1] == RestartMessage(1)  # earlier events are void
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_cancelled_worker_requeues_its_jobs_at_once() -> None:
    async with worker(fake_handlers.open_blocking) as (broker, _):
        ids = await start_jobs(broker, "abs-1")
    assert (await broker.state(ids[0])).state == "waiting"


async def test_a_job_delivered_to_a_cancelled_worker_is_requeued(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = MemoryBroker(16)

    async def take_and_cancel(queue: str) -> Delivery:
        delivery = await take(queue)
        cancelled.cancel()
        return delivery

    take = broker.take
    monkeypatch.setattr(broker, "take", take_and_cancel)
    cancelled = asyncio.create_task(serve("q", fake_handlers.open_quick, broker, MemoryStore(1000), Settings()))
    job_id = await broker.submit("q", "a", dump(job()))
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    monkeypatch.undo()
    async with worker(fake_handlers.open_quick, broker):
        assert isinstance(load(await broker.result(job_id)), GenerateJobResult)


async def test_a_job_cancelled_during_worker_shutdown_ends() -> None:
    async with stoppable_worker(fake_handlers.open_blocking, shutdown_grace_s=S_MAX) as (broker, stopping):
        ids = await start_jobs(broker, "abs-1")
        stopping.set()
        await wait_for_reason(broker, NotReadyCode.DRAINING)
        await broker.cancel(ids[0])
    assert (await broker.state(ids[0])).state == "cancelled"


async def test_a_second_attempt_publishes_a_restart_event() -> None:
    class RetryingBroker(MemoryBroker):
        async def take(self, queue: str) -> Delivery:
            return dataclasses.replace(await super().take(queue), attempt=2)

    async with worker(fake_handlers.open_quick, RetryingBroker(16)) as (broker, _):
        job_id = await broker.submit("q", "a", dump(job()))
        assert isinstance(load(await broker.result(job_id)), GenerateJobResult)
        assert [load(event.data) async for event in broker.events(job_id)] == [RestartMessage(2)]


async def test_an_unhealthy_worker_takes_no_jobs_until_it_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = ["no step"]
    monkeypatch.setattr("app.worker.loop.HEARTBEAT_S", 0.02)

    def open_unhealthy(settings: Settings) -> Handler:
        return dataclasses.replace(fake_handlers.open_quick(settings), health_problem=lambda: "".join(problems))
    async with worker(open_unhealthy) as (broker, _):
        await wait_for_reason(broker, "no step")
        job_id = await broker.submit("q", "a", dump(job()))
        await asyncio.sleep(0.2)
        assert (await broker.state(job_id)).state == "waiting"
        problems.clear()
        assert isinstance(load(await broker.result(job_id)), GenerateJobResult)
        await wait_for_reason(broker, "")


async def test_a_temporary_storage_outage_fails_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.worker.job_context.STORAGE_POLL_S", 0.01)
    failures = [True] * 5

    async def get(self: MemoryStore, key: str, renew_s: float = 0.0) -> bytes | None:
        if failures:
            failures.pop()
            raise StorageDown
        return b"value"

    monkeypatch.setattr(MemoryStore, "get", get)

    def work(job: GenerateJob, context: Context) -> None:
        assert context.load("k") == b"value"
    async with worker(fake_handlers.open_after(work)) as (broker, _):
        assert isinstance(load(await broker.result(await broker.submit("q", "a", dump(job())))), GenerateJobResult)
        failures.extend([True] * 1_000_000)
        failure = load(await broker.result(await broker.submit("q", "b", dump(job(deadline_in_s=0.3)))))
        assert isinstance(failure, Failure) and failure.error == "DeadlineExceeded"


async def test_deadlines_do_not_depend_on_synchronised_clocks() -> None:
    """The API's clock is an hour ahead of the worker's, or behind."""
    async with worker(fake_handlers.open_quick) as (broker, _):
        for hours in (-1, 1):
            now = time.time() + hours * 3_600
            valid_job = dataclasses.replace(job(), written=now, deadline=now + 60)
            answer = load(await broker.result(await broker.submit("q", f"{now}", dump(valid_job))))
            assert isinstance(answer, GenerateJobResult)
            late_job = dataclasses.replace(valid_job, deadline=now - 1)
            failure = load(await broker.result(await broker.submit("q", f"{now} late", dump(late_job))))
            assert isinstance(failure, Failure) and failure.error == "DeadlineExceeded"
