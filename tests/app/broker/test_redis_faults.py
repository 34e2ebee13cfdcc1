"""Jobs while real workers and the server are killed and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from app.api.errors import refusal
from app.broker import SubmitOptions
from app.broker.redis.broker import RedisBroker
from app.errors import StorageDown
from app.service.job_client import JobClient
from tests.app.broker.brokers import all_events, connected_broker
from tests.servers.processes import until
from tests.servers.redis_server import RedisServer
from tests.servers.redis_worker import WorkerProcess, settings, workers

LEASE_S = 3.0
DETACHED = SubmitOptions(detached=True)
# Waits until all writes are on the disk: if it is slow, a kill loses acknowledged events. Redis 7.0 has no WAITAOF.
WRITTEN = (("SET", "written", ""), ("WAITAOF", "1", "0", "10000"))


@pytest.fixture
def wait_s() -> float:
    """How long the broker of an API waits for its server."""
    return 20.0


@pytest.fixture
async def broker(own_redis_server: RedisServer, wait_s: float) -> AsyncIterator[RedisBroker]:
    """The broker of an API."""
    async with connected_broker(own_redis_server.url, settings(LEASE_S, wait_s)) as broker:
        yield broker


impatient = pytest.mark.parametrize("wait_s", [1.0])


def holder(processes: list[WorkerProcess], job_id: str, attempt: int = 1) -> WorkerProcess | None:
    return next((process for process in processes if (job_id, attempt) in process.took), None)


async def taken(processes: list[WorkerProcess], job_id: str, attempt: int = 1) -> WorkerProcess:
    """The process that has taken a job."""
    what = f"a worker takes the job, attempt {attempt}"
    found = await asyncio.to_thread(until, lambda: holder(processes, job_id, attempt), what)
    assert isinstance(found, WorkerProcess)
    return found


async def test_a_resumed_worker_cannot_publish_for_its_lost_job(
    broker: RedisBroker, own_redis_server: RedisServer
) -> None:
    with workers(own_redis_server.url, 2, LEASE_S) as processes:
        job_id = await broker.submit("q", "k", b"lie 2")
        zombie = await taken(processes, job_id)
        zombie.signal(signal.SIGSTOP)
        assert await broker.result(job_id) == b"second"
        zombie.signal(signal.SIGCONT)
        await asyncio.sleep(3)
        assert await broker.result(job_id) == b"second"
        assert await all_events(broker, job_id) == [b"second"]
        for process in processes:
            if process is not zombie:
                process.end()
        after = await broker.submit("q", "after", b"answer yes")
        assert await broker.result(after) == b"yes"
        assert await taken(processes, after) is zombie


async def test_a_restarted_server_loses_no_event_of_a_stream(
    broker: RedisBroker, own_redis_server: RedisServer
) -> None:
    with workers(own_redis_server.url, 1, LEASE_S):
        job_id = await broker.submit("q", "k", b"tell 60 0.05")
        waiting = [await broker.submit("q", str(number), b"answer %d" % number) for number in range(20)]
        seen: list[bytes] = []
        async for event in broker.events(job_id):
            seen.append(event.data)
            if len(seen) == 20:
                own_redis_server.ask_all(*WRITTEN)
                own_redis_server.kill()
                await asyncio.sleep(1)
                own_redis_server.start()
        assert seen == [b"%d" % number for number in range(60)]
        assert (await broker.state(job_id)).attempt == 1
        assert [await broker.result(one) for one in waiting] == [b"%d" % number for number in range(20)]


async def test_a_caller_of_a_lost_job_gets_503_to_retry(
    broker: RedisBroker, own_redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server killed while its disk is slow loses its last writes."""
    monkeypatch.setattr("app.broker.redis.broker.POLL_S", 2.0)
    job_id = await broker.submit("q", "k", b"hold answer")
    waiting = asyncio.create_task(JobClient(settings(LEASE_S), broker).result(job_id))
    await asyncio.sleep(0.5)
    assert not waiting.done()
    own_redis_server.flush()
    with pytest.raises(StorageDown, match="has lost the job") as error:
        await waiting
    problem = refusal(error.value, "request")
    assert (problem.status_code, b"has lost the job" in problem.body) == (503, True)
    assert {name.lower(): value for name, value in problem.headers.items()}["retry-after"] == "5"


@contextlib.contextmanager
def absent(server: RedisServer) -> Iterator[None]:
    """A server that is away for as long as this lasts."""
    server.kill()
    try:
        yield
    finally:
        server.start()


@impatient
async def test_workers_keep_running_jobs_while_the_server_is_away(
    broker: RedisBroker, own_redis_server: RedisServer
) -> None:
    with workers(own_redis_server.url, 2, LEASE_S) as processes:
        job_id = await broker.submit("q", "k", b"tell 10 0.2")
        process = await taken(processes, job_id)
        own_redis_server.ask_all(*WRITTEN)
        with absent(own_redis_server):
            began = time.monotonic()
            with pytest.raises(StorageDown):
                await broker.submit("q", "other", b"answer")
            assert time.monotonic() - began > 0.5
            await asyncio.sleep(1.5 * LEASE_S)
        assert process.alive
        later = await broker.submit("q", "later", b"answer later")
        assert await broker.result(later) == b"later"
        assert await all_events(broker, job_id) == [b"%d" % number for number in range(10)]
        assert (await broker.state(job_id)).attempt == 1  # it was running here all the time


@impatient
async def test_a_hanging_server_is_reported_as_unreachable(broker: RedisBroker, own_redis_server: RedisServer) -> None:
    job_id = await broker.submit("q", "k", b"answer yes", DETACHED)
    own_redis_server.pause()
    with pytest.raises(StorageDown):
        await broker.state(job_id)
    own_redis_server.resume()
    assert (await broker.state(job_id)).state == "waiting"


@impatient
async def test_a_broker_closes_without_its_server(broker: RedisBroker, own_redis_server: RedisServer) -> None:
    await broker.submit("q", "k", b"", DETACHED)
    waiting = asyncio.create_task(broker.result(await broker.submit("q", "other", b"")))
    await broker.take("q")
    taker = asyncio.create_task(broker.take("r"))
    await asyncio.sleep(0.5)
    own_redis_server.kill()
    with pytest.raises(StorageDown):
        await broker.state("any")
    for task in (waiting, taker):
        task.cancel()
    await broker.close()


async def test_a_full_server_refuses_new_jobs_and_loses_none(
    broker: RedisBroker, own_redis_server: RedisServer
) -> None:
    with workers(own_redis_server.url, 2, LEASE_S) as processes:
        held = await broker.submit("q", "held", b"hold answer", DETACHED)
        first = await taken(processes, held)
        accepted = [await broker.submit("q", str(number), b"answer %d" % number) for number in range(5)]
        own_redis_server.ask("SET", "ballast", "x" * 2_000_000)
        own_redis_server.ask("CONFIG", "SET", "maxmemory", "1mb")
        with pytest.raises(StorageDown, match="is full"):
            await broker.submit("q", "more", b"answer")
        first.signal(signal.SIGKILL)
        own_redis_server.ask("CONFIG", "SET", "maxmemory", "0")
        assert [await broker.result(one) for one in accepted] == [b"%d" % number for number in range(5)]
        assert await broker.result(held) == b"answer"
