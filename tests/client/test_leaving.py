"""A client that leaves cancels its own jobs only."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator

import pytest

from abs_client import AsyncClient, Client, F, Step
from tests.app import fake_handlers
from tests.app.fake_service import fake_service
from tests.servers.processes import until

S_MAX = 90.0
GRACE_S = 1000.0  # without a cancellation, jobs would outlast the test


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A service whose generations send steps until they are cancelled."""
    fake_handlers.steps_published = 0
    with fake_service(monkeypatch, "open_endless_steps", stream_grace_s=GRACE_S) as service_url:
        yield service_url


def was_cancelled() -> bool:
    return fake_handlers.stop_event.wait(S_MAX)


def test_closing_a_stream_cancels_its_generation(url: str) -> None:
    with Client(url) as client, client.stream("p", F("dog")) as stream:
        assert isinstance(next(event for event in stream if isinstance(event, Step)), Step)
        assert not fake_handlers.stop_event.is_set()
        stream.close()
        assert was_cancelled() and stream.result is None
        with pytest.raises(RuntimeError):
            stream.until_done()


def test_dropping_a_stream_cancels_its_generation(url: str) -> None:
    with Client(url) as client:
        for event in client.stream("p", F("dog")):
            if isinstance(event, Step):
                break
        assert was_cancelled()


async def test_leaving_an_async_stream_cancels_its_generation(url: str) -> None:
    async with AsyncClient(url) as client, client.stream("p", F("dog")) as stream:
        async for event in stream:
            if isinstance(event, Step):
                break
    assert was_cancelled()


async def test_cancelling_a_streaming_task_cancels_its_generation(url: str) -> None:
    async with AsyncClient(url) as client:
        task = asyncio.create_task(client.stream("p", F("dog")).until_done())
        await asyncio.to_thread(until, lambda: fake_handlers.steps_published > 0)
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert was_cancelled()


async def test_cancelling_a_task_cancels_its_keyed_request(url: str) -> None:
    async with AsyncClient(url) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await client.generate("p", F("dog"))
    assert fake_handlers.steps_published > 0 and was_cancelled()


def test_an_interrupt_cancels_the_generation(url: str) -> None:
    def interrupt() -> None:
        until(lambda: fake_handlers.steps_published > 0)
        signal.pthread_kill(main, signal.SIGINT)

    main = threading.main_thread().ident
    assert main is not None and threading.get_ident() == main
    thread = threading.Thread(target=interrupt)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell may ignore SIGINT
    try:
        with Client(url) as client:
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                client.generate("p", F("dog"))
            thread.join()
            assert was_cancelled()
    finally:
        signal.signal(signal.SIGINT, handler)


def test_submitted_and_keyed_jobs_survive_a_closed_stream(url: str) -> None:
    with Client(url) as client:
        job = client.submit("p", F("dog"))
        with job.events() as events:
            assert isinstance(next(event for event in events if isinstance(event, Step)), Step)
        with client.stream("q", F("dog"), idempotency_key="mine") as stream:
            assert isinstance(next(event for event in stream if isinstance(event, Step)), Step)
        assert not fake_handlers.stop_event.wait(0.5)
        assert job.state().state == "running" and stream.job_id is not None
        assert client.job(stream.job_id).cancel().id == stream.job_id
        job.cancel()
        with pytest.raises(Exception, match="cancelled"):
            job.result(timeout_s=S_MAX)
        until(lambda: job.state().over)
