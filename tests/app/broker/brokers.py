"""The brokers that the contract tests run on. A broker that is added to OPENERS and TIMES is tested too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Protocol

from app.broker import HEARTBEAT_TTL_S, Broker, JobEvent
from app.broker.memory import MemoryBroker
from app.broker.redis.broker import RedisBroker
from app.messages import VERSION
from app.settings import Settings
from tests.app.manual_clock import Clock

JOBS_MAX, WEIGHT_MAX = 3, 100
RESULT_TTL_S = 10.0
RESULT_BYTES_MAX = 100_000
SCENARIO_S_MAX = 180.0
LEASE_S = 2.0  # of the jobs of `api` and `worker`
REAL_S = 0.2  # duration of a scenario's second on a real server, whose clock we cannot set
SLOTS = 16


@asynccontextmanager
async def connected_broker(
    url: str, settings: Settings, heartbeat_ttl_s: float = HEARTBEAT_TTL_S, version: int = VERSION
) -> AsyncIterator[RedisBroker]:
    """A broker that is closed after the body."""
    broker = RedisBroker(url, settings, heartbeat_ttl_s, version)
    try:
        yield broker
    finally:
        await broker.close()


class Time(Protocol):
    """The time of a scenario."""

    async def advance(self, seconds: float) -> None:
        """Waits until these seconds have passed."""

    def to_scenario(self, seconds: float) -> float:
        """The broker's duration in seconds of the scenario."""

    def to_real(self, seconds: float) -> float:
        """A duration of the scenario in real seconds."""


class ManualTime:
    """Time of a clock that the scenario sets."""

    def __init__(self) -> None:
        self.clock = Clock()

    async def advance(self, seconds: float) -> None:
        self.clock.now += seconds

    def to_scenario(self, seconds: float) -> float:
        return seconds

    def to_real(self, seconds: float) -> float:
        return seconds


class RealTime:
    """Real time, shortened."""

    async def advance(self, seconds: float) -> None:
        await asyncio.sleep(seconds * REAL_S)

    def to_scenario(self, seconds: float) -> float:
        return seconds / REAL_S

    def to_real(self, seconds: float) -> float:
        return seconds * REAL_S


def in_memory(url: str, time: ManualTime) -> Broker:
    """The broker that needs no server."""
    return MemoryBroker(JOBS_MAX, RESULT_TTL_S, RESULT_BYTES_MAX, time.clock, WEIGHT_MAX)


def on_redis(url: str, time: RealTime) -> Broker:
    """A broker on a real server."""
    settings = Settings.of(
        secret=b"the secret of the contract", queue_jobs_max=JOBS_MAX, queue_weight_max=WEIGHT_MAX,
        result_ttl_s=RESULT_TTL_S * REAL_S, result_bytes_max=RESULT_BYTES_MAX, redis_wait_s=20.0,
    )
    return RedisBroker(url, settings, HEARTBEAT_TTL_S * REAL_S)


OPENERS: dict[str, Callable[..., Broker]] = {"memory": in_memory, "redis": on_redis}
TIMES: dict[str, Callable[[], Time]] = {"memory": ManualTime, "redis": RealTime}


async def take(broker: Broker, queue: str = "q") -> tuple[str, bytes]:
    """The id and body of the next job."""
    delivery = await broker.take(queue)
    return delivery.job_id, delivery.body


async def running_job(broker: Broker) -> str:
    """The id of a new job that is taken."""
    job_id = await broker.submit("q", "k", b"")
    await take(broker)
    return job_id


async def all_events(broker: Broker, job_id: str, after: str = "") -> list[bytes]:
    """The events of a job until its end."""
    return [event.data async for event in broker.events(job_id, after)]


async def first_events(broker: Broker, job_id: str, count: int, after: str = "") -> list[JobEvent]:
    """The first `count` events."""
    found: list[JobEvent] = []
    async with aclosing(broker.events(job_id, after)) as reader:  # type: ignore[type-var]
        while len(found) < count:
            found.append(await anext(reader))
    return found


async def never(waiting: asyncio.Task[object]) -> bool:
    """Whether a task goes on waiting for a while."""
    await asyncio.wait([waiting], timeout=0.3)
    return not waiting.done()
