"""The scripts while a real server's clock steps by an hour."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator

import pytest

from app.auth.counters import Admission
from app.auth.redis_counters import SharedCounters
from app.broker import SubmitOptions, WorkerStatus
from app.broker.redis.broker import RedisBroker
from app.redis.connection import Connection
from tests.app.broker.brokers import LEASE_S, connected_broker
from tests.servers.clocks import Clocks, clocks
from tests.servers.cluster import clocked_server as server_of
from tests.servers.redis_server import RedisServer
from tests.servers.redis_worker import settings

HOUR = 3_600
PRESENCE_S = 1.0
Step = Callable[[int], Awaitable[None]]


@pytest.fixture(scope="module")
def clocked_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RedisServer, Clocks]]:
    with clocks(tmp_path_factory.mktemp("clocks")) as times, server_of(times) as server:
        yield server, times


@pytest.fixture
def redis_server(clocked_server: tuple[RedisServer, Clocks]) -> RedisServer:
    """The clocked server, empty."""
    clocked_server[0].flush()
    return clocked_server[0]


@pytest.fixture
def step(clocked_server: tuple[RedisServer, Clocks]) -> Iterator[Step]:
    """Steps the server's clock."""
    server, times = clocked_server

    def time_s() -> int:
        return int(re.findall(r"\d+", server.ask("TIME"))[2])

    async def step(seconds: int) -> None:
        before = time_s()
        times.step(seconds, "server")
        while abs(time_s() - before) < abs(seconds) / 2:
            await asyncio.sleep(0.02)

    yield step
    times.set_right()


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
async def test_a_clock_step_does_not_change_the_throughput(
    api: RedisBroker, worker: RedisBroker, step: Step, seconds: int
) -> None:
    for number in range(12):
        await api.submit("q", str(number), b"", SubmitOptions(deadline_in_s=60.0))
    held = [(await worker.take("q")).job_id]
    for _ in range(4):
        await asyncio.sleep(0.3)  # so long that the pace is known
        held.append((await worker.take("q")).job_id)
    await step(seconds)
    for job_id in held:
        await worker.finish(job_id, b"")
    await worker.take("q")
    await api.submit("q", "new", b"", SubmitOptions(deadline_in_s=60.0))  # else: the queue is too slow for that


async def test_a_clock_step_does_not_change_a_jobs_age(api: RedisBroker, worker: RedisBroker, step: Step) -> None:
    first = await api.submit("q", "first", b"")
    then = await api.submit("q", "then", b"", SubmitOptions(after=first))
    last = await api.submit("q", "last", b"", SubmitOptions(priority="batch"))
    assert (await worker.take("q")).job_id == first
    await step(HOUR)
    asked = asyncio.create_task(worker.take("q"))
    assert (await asked).job_id == last
    await worker.finish(first, b"")
    delivery = await worker.take("q")
    assert delivery.job_id == then and 0 <= delivery.age_s < 60 and 0 <= delivery.waited_s < 60
    await api.submit("q", "before", b"")
    await step(-HOUR)
    await api.submit("q", "after", b"")  # before a worker has seen the clock
    for _ in range(2):
        delivery = await worker.take("q")
        assert 0 <= delivery.age_s < 60 and 0 <= delivery.waited_s < 60


async def test_a_clock_step_is_corrected_once(
    api: RedisBroker, worker: RedisBroker, redis_server: RedisServer, step: Step
) -> None:
    asked = [asyncio.create_task(one.take("q")) for one in (api, worker)]  # both look all the time
    await asyncio.sleep(LEASE_S)
    for times, seconds in ((1, HOUR), (2, HOUR), (1, -HOUR)):
        await step(seconds)
        await asyncio.sleep(LEASE_S)
        jump_ms = float(redis_server.ask("HGET", "{abs}:counters", "clock_jump").split()[-1])
        assert abs(jump_ms - times * HOUR * 1000) < LEASE_S * 1000
    for one in asked:
        one.cancel()


async def test_a_clock_step_does_not_keep_a_dead_worker_alive(redis_server: RedisServer, step: Step) -> None:
    async with connected_broker(redis_server.url, settings(LEASE_S), PRESENCE_S) as worker:
        await worker.heartbeat("q", WorkerStatus("gone", ""))
        await step(-HOUR)
        await worker.heartbeat("q", WorkerStatus("alive", ""))
        await asyncio.sleep(0.6 * PRESENCE_S)
        await worker.heartbeat("q", WorkerStatus("alive", ""))
        await asyncio.sleep(0.6 * PRESENCE_S)
        assert await worker.workers("q") == (WorkerStatus("alive", ""),)


async def test_a_clock_put_back_does_not_block_concurrency_slots(
    redis_server: RedisServer, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.auth.counters.LEASE_S", 1.0)
    counters = SharedCounters(Connection(redis_server.url))

    async def enter(member: str) -> str:
        return (await counters.acquire(Admission("anna", member, "requests", 2, 2))).missing

    assert [await enter(member) for member in ("died", "too", "third")] == ["", "", "requests"]
    await step(-HOUR)
    assert await enter("third") == "slots"
    await asyncio.sleep(1.2)
    assert [await enter(member) for member in ("third", "fourth", "fifth")] == ["", "", "requests"]
    await counters.close()
