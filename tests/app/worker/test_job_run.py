"""The events that a worker publishes while its jobs run."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from app.broker.memory import MemoryBroker
from app.messages import GenerateJob, Progress, RestartMessage, StepMessage, dump, load
from app.settings import Settings
from app.store.memory import MemoryStore
from app.worker.handlers.base import Context
from app.worker.job_run import JobRun, WorkerContext
from tests.app import fake_handlers
from tests.app.worker.test_loop import S_MAX, job, worker


async def test_progress_faster_than_its_readers_is_dropped() -> None:
    def work(job: GenerateJob, context: Context) -> None:
        for step in range(1, 2_001):
            context.progress(Progress("decode", step, 2_000))
    async with worker(fake_handlers.open_after(work)) as (broker, _):
        job_id = await broker.submit("q", "a", dump(job()))
        events = [load(event.data) async for event in broker.events(job_id)]
        assert events[0] == Progress("decode", 1, 2_000)
        assert len(events) < 200


async def test_a_fast_reader_receives_every_step() -> None:
    received = threading.Semaphore(0)

    def work(job: GenerateJob, context: Context) -> None:
        for number in range(1, 301):
            context.publish(fake_handlers.step(number))
            assert received.acquire(timeout=S_MAX)
    async with worker(fake_handlers.open_after(work)) as (broker, _):
        numbers = []
        async for event in broker.events(await broker.submit("q", "a", dump(job()))):
            step = load(event.data)
            assert isinstance(step, StepMessage)
            numbers.append(step.step)
            received.release()
        assert numbers == list(range(1, 301))


async def test_a_lagging_event_loop_receives_few_steps() -> None:
    def work(job: GenerateJob, context: Context) -> None:
        for number in range(1, 20_001):
            context.publish(fake_handlers.step(number))
    async with worker(fake_handlers.open_after(work)) as (broker, _):
        job_id = await broker.submit("q", "a", dump(job()))
        await broker.result(job_id)
        steps = [load(event.data) async for event in broker.events(job_id)]
        numbers = [step.step for step in steps if isinstance(step, StepMessage)]
        assert numbers == sorted(set(numbers))
        assert 1 < len(numbers) < 20_000


async def test_a_requeued_attempt_publishes_nothing() -> None:
    """The worker stops before it publishes the last event.

    The handler sends that event while the event loop is busy.
    """
    first_event_sent, go_on, last_event_sent = threading.Event(), threading.Event(), threading.Event()

    def work(job: GenerateJob, context: Context) -> None:
        context.publish(fake_handlers.step(1))
        first_event_sent.set()
        assert go_on.wait(S_MAX)
        context.publish(fake_handlers.step(2))
        last_event_sent.set()
    broker, handler = MemoryBroker(16), fake_handlers.open_after(work)(Settings())
    job_id = await broker.submit("q", "a", dump(job()))
    with ThreadPoolExecutor(1) as threads:
        worker_context = WorkerContext(handler, threads, broker, MemoryStore(1000), "q", "w", 1.0, 2**20)
        attempt = asyncio.create_task(JobRun(worker_context, await broker.take("q")).run())
        assert await asyncio.to_thread(first_event_sent.wait, S_MAX)
        go_on.set()
        assert last_event_sent.wait(S_MAX)  # this blocks the loop, so it publishes nothing meanwhile
        attempt.cancel()
        await asyncio.wait({attempt})
    await broker.finish((await broker.take("q")).job_id, b"done")
    messages = [load(event.data) async for event in broker.events(job_id)]
    steps = [message.step if isinstance(message, StepMessage) else message for message in messages]
    assert steps == [1, RestartMessage(1)]
