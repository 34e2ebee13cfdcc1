"""Both brokers admit the same random jobs at the same times.

One computes by Python's formulas, the other by those of the scripts.
"""

from __future__ import annotations

import asyncio
import random
import time

import pytest
from redis.asyncio import Redis

from app.broker import Broker, SubmitOptions
from app.broker.memory import MemoryBroker
from app.broker.redis.broker import RedisBroker
from app.errors import DeadlineUnreachable, QueueFull
from app.settings import Settings
from tests.app.manual_clock import Clock
from tests.servers.redis_server import RedisServer

STEPS, JOBS_MAX, WEIGHT_MAX = 120, 12, 60
FAR_S = 1e6  # longer than the scenario's time: its clock is no clock that jumped
CLOCK = "{abs}:clock"


async def outcome(broker: Broker, key: str, options: SubmitOptions, seed: int) -> tuple[str, float, float]:
    """Why a job is refused, its duration, and the time to retry."""
    random.seed(seed)
    try:
        await broker.submit("q", key, key.encode(), options)
    except DeadlineUnreachable as error:
        return "too late", error.wait_s, error.retry_after_s
    except QueueFull as error:
        return error.limit, 0.0, error.retry_after_s
    return "", 0.0, 0.0


def random_options(dice: random.Random) -> SubmitOptions:
    return SubmitOptions(
        weight=dice.choice((0, 1, 4, 15)), priority=dice.choice(("interactive", "interactive", "batch")),
        kind=dice.choice(("", "generate")), deadline_in_s=dice.choice((None, 1.0, 5.0, 20.0)),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
async def test_both_brokers_decide_alike(redis_server: RedisServer, seed: int) -> None:
    dice, clock, refusals = random.Random(seed), Clock(), 0
    given = Settings.of(secret=b"s" * 16, job_lease_s=FAR_S, queue_jobs_max=JOBS_MAX, queue_weight_max=WEIGHT_MAX)
    memory = MemoryBroker(JOBS_MAX, now=clock, queue_weight_max=WEIGHT_MAX)
    redis = RedisBroker(redis_server.url, given)
    texts = redis._scripts._scripts
    texts |= {name: text.replace("'TIME'", f"'LRANGE', '{CLOCK}', 0, 1") for name, text in texts.items()}
    running: list[tuple[str, str, float]] = []
    async with asyncio.timeout(120), Redis.from_url(redis_server.url) as client:
        for step in range(STEPS):
            clock.now = round(clock.now + dice.choice((0.0, 0.05, 0.4, 1.5, 12.0)), 3)
            await client.delete(CLOCK)
            await client.rpush(CLOCK, int(clock.now), round(clock.now % 1 * 1e6))
            match dice.choice(("submit", "submit", "submit", "take", "finish", "requeue")):
                case "submit":
                    options = random_options(dice)
                    decisions = [await outcome(broker, f"{step}", options, step) for broker in (memory, redis)]
                    assert decisions[0][0] == decisions[1][0]
                    assert decisions[0][1:] == pytest.approx(decisions[1][1:], rel=1e-3, abs=0.11)  # they round
                    refusals += decisions[0][0] != ""
                case "take" if (await memory.backlog("q")).interactive + (await memory.backlog("q")).batch:
                    deliveries = [await broker.take("q") for broker in (memory, redis)]
                    assert deliveries[0].body == deliveries[1].body
                    running.append((deliveries[0].job_id, deliveries[1].job_id, clock.now))
                case "finish" if running:
                    ids = running.pop(dice.randrange(len(running)))
                    redis._running[ids[1]].began = time.monotonic() - (clock.now - ids[2])
                    await memory.finish(ids[0], b"")
                    await redis.finish(ids[1], b"")
                case "requeue" if running:
                    ids = running.pop(dice.randrange(len(running)))
                    await memory.requeue(ids[0])
                    await redis.requeue(ids[1])
            assert await memory.backlog("q") == await redis.backlog("q")
    await redis.close()
    assert refusals > 10
