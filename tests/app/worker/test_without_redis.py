"""Workers stop on a signal while Redis is down."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from app.broker import SubmitOptions, WorkerStatus
from app.broker.memory import MemoryBroker
from app.messages import GenerateJob, GenerationOptions, dump
from app.observability import metrics
from app.settings import Settings
from app.store.memory import MemoryStore
from app.worker.handlers.base import Handler
from app.worker.loop import serve
from tests.app import fake_handlers
from tests.app.broker.brokers import connected_broker
from tests.servers.cluster import COMMON, SCRIPTED, Part
from tests.servers.processes import until
from tests.servers.redis_server import RedisServer, running_server

S_MAX = 20.0
DRAIN_S, WAIT_S = 0.5, 1.0


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with running_server() as server:
        yield server


@contextlib.contextmanager
def scripted(server: RedisServer, folder: Path) -> Iterator[Part]:
    """A generate worker that takes jobs."""
    timeouts = {"ABS_SHUTDOWN_GRACE_S": str(DRAIN_S), "ABS_REDIS_WAIT_S": str(WAIT_S)}
    part = Part("worker", SCRIPTED, {"ABS_BROKER": server.url, "ABS_STORE": server.url, **timeouts}, folder)
    part.start()
    try:
        part.wait_until("/ready")
        yield part
    finally:
        part.end()


async def submit(server: RedisServer, prompt: str) -> None:
    job = GenerateJob("abs-1", "0" * 64, prompt, GenerationOptions(max_tokens=8), time.time() + 600, progress="steps")
    async with connected_broker(server.url, Settings.of(secret=COMMON["ABS_SECRET"].encode())) as broker:
        await broker.submit("generate", prompt, dump(job), SubmitOptions(detached=True))


@pytest.mark.parametrize("prompt", ["", "steps 5000 0.05"])
async def test_a_worker_stops_in_time_without_its_server(prompt: str, server: RedisServer, tmp_path: Path) -> None:
    with scripted(server, tmp_path) as part:
        if prompt:
            await submit(server, prompt)
            until(lambda: part.metric("abs_running_requests", queue="generate") == 1, "the job runs")
        server.kill()
        try:
            part.wait_until("/live")
            assert part.stop() == 0, part.log()
        finally:
            server.start()


class SilentBroker(MemoryBroker):
    """A broker whose server never answers."""

    async def heartbeat(self, queue: str, status: WorkerStatus) -> None:
        await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def serverless_worker(
    beats: metrics.HeartbeatRegistry, monkeypatch: pytest.MonkeyPatch, handler: Handler
) -> AsyncIterator[None]:
    """A worker without its server, after its first heartbeats."""
    monkeypatch.setattr(metrics, "BEATS", beats)
    for name, seconds in (("LOOP_ALIVE_S", 0.02), ("REPORT_S_MAX", 0.02)):
        monkeypatch.setattr(f"app.worker.loop.{name}", seconds)
    async with asyncio.timeout(S_MAX):
        task = asyncio.create_task(serve("q", lambda _: handler, SilentBroker(16), MemoryStore(1000), Settings()))
        await asyncio.sleep(0.3)
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_worker_without_its_server_is_live_but_unready(monkeypatch: pytest.MonkeyPatch) -> None:
    beats = metrics.HeartbeatRegistry()
    async with serverless_worker(beats, monkeypatch, fake_handlers.open_quick(Settings())):
        monkeypatch.setattr(metrics, "SILENT_S_MAX", 0.1)
        monkeypatch.setattr(metrics, "HUNG_S_MAX", 2.0)
        await asyncio.sleep(0.2)
        assert "no sign of life" in beats.reasons()[0] and beats.hung() == ()


async def test_a_stalled_handler_or_event_loop_is_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    beats, problems = metrics.HeartbeatRegistry(), ["stuck: no step"]
    handler = dataclasses.replace(fake_handlers.open_quick(Settings()), health_problem=lambda: "".join(problems))
    async with serverless_worker(beats, monkeypatch, handler):
        assert beats.hung()[0].endswith(": stuck: no step")
        problems.clear()
        await asyncio.sleep(0.1)
        assert beats.hung() == ()
        monkeypatch.setattr(metrics, "HUNG_S_MAX", 0.3)
        time.sleep(0.5)  # blocks the event loop
        assert "no sign" in beats.hung()[0]
    assert beats.hung() == (), "a worker that has ended does not hang"
