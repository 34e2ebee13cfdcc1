"""The Redis broker beyond the contract."""

from __future__ import annotations

import asyncio
import shutil
import time
from unittest.mock import ANY

import pytest
from redis.asyncio import Redis

from app.broker import SubmitOptions, WorkerStatus
from app.broker.base import Backlog
from app.broker.redis.broker import RedisBroker
from app.broker.redis.scripts import PUSHED_RESULT_MAX
from app.errors import JobUnknown, SettingsInvalid
from app.messages import Signatures
from app.settings import Settings
from tests.app.broker.brokers import LEASE_S, SLOTS, all_events, connected_broker, take
from tests.servers.redis_server import RedisServer
from tests.servers.redis_worker import settings

CALLERS = 500
NOTIFIED_S_MAX = 10.0
LEASES = "{abs}:queue:q:v7:leases"
FOR_EVER = {b"{abs}:counters", b"{abs}:queues", b"{abs}:seen", b"{abs}:queue:q:v7", LEASES.encode()}


async def answer_forever(worker: RedisBroker, pause_s: float = 0.0) -> None:
    while True:
        delivery = await worker.take("q")
        await asyncio.sleep(pause_s)
        await worker.finish(delivery.job_id, b"answer to " + delivery.body)


async def test_500_callers_of_one_key_share_job_and_connections(
    api: RedisBroker, worker: RedisBroker, redis: Redis
) -> None:
    jobs = await asyncio.gather(*(api.submit("q", "k", b"%d" % number) for number in range(CALLERS)))
    assert len(set(jobs)) == 1
    waiting = [asyncio.create_task(api.result(job_id)) for job_id in jobs]
    readers = [asyncio.create_task(all_events(api, job_id)) for job_id in jobs[:100]]
    await asyncio.sleep(1)
    assert len(await redis.client_list()) < 25
    await take(worker)
    await worker.publish(jobs[0], b"event")
    await worker.finish(jobs[0], b"answer")
    assert set(await asyncio.gather(*waiting)) == {b"answer"}
    assert await asyncio.gather(*readers) == [[b"event"]] * 100


async def test_a_job_round_trip_takes_few_commands(api: RedisBroker, worker: RedisBroker, redis: Redis) -> None:
    answering = asyncio.create_task(answer_forever(worker))
    counts = []
    for number in range(11):
        job_id = await api.submit("q", str(number), b"body")
        await api.result(job_id)
        counts.append((await redis.info("stats"))["total_commands_processed"])
    answering.cancel()
    assert counts[-1] - counts[0] < 10 * 100, "about 78 each, most of them in scripts"


async def lives_for_ever(redis: Redis) -> set[bytes]:
    keys = [key async for key in redis.scan_iter()]
    return {key for key in keys if await redis.ttl(key) == -1}


async def test_ended_jobs_leave_no_keys_on_the_server(redis_server: RedisServer, redis: Redis) -> None:
    url, given = redis_server.url, settings(LEASE_S).changed(result_ttl_s=1.0)
    async with connected_broker(url, given) as api, connected_broker(url, given) as worker:
        for number in range(4):
            first = await api.submit("q", f"first {number}", b"", SubmitOptions(detached=True))
            then = await api.submit("q", f"then {number}", b"", SubmitOptions(after=first, weight=3, key_ttl_s=1))
            await take(worker)
            await worker.publish(first, b"event")
            await worker.publish(first, b"event", droppable=True)
            await worker.finish(first, b"")
            if number % 2:
                await take(worker)
                await worker.finish(then, b"")
                await api.unsubscribe(then)
            else:
                await api.unsubscribe(then)
        back = await api.submit("q", "back", b"")
        await take(worker)
        await worker.requeue(back)
        await worker.finish((await take(worker))[0], b"")
        await asyncio.sleep(2 * LEASE_S)  # queues are swept
        assert await lives_for_ever(redis) <= FOR_EVER
        held = await redis.hgetall("{abs}:queue:q:v7")
        del held[b"pace"]
        assert held == dict.fromkeys((b"waiting_weight", b"outside_weight", b"running_weight"), b"0")
        assert await redis.hgetall("{abs}:counters") == {b"place": ANY, b"last": ANY, b"clock": ANY, b"bytes": b"0"}
        assert await redis.xlen(LEASES) == 0


@pytest.mark.parametrize("size", (0, PUSHED_RESULT_MAX // 2, 2 * PUSHED_RESULT_MAX))
async def test_results_of_any_size_reach_waiting_callers(api: RedisBroker, worker: RedisBroker, size: int) -> None:
    """Short results come along with the notification."""
    for awaited_before in (True, False):
        job_id = await api.submit("q", str(awaited_before), b"")
        waiting = asyncio.create_task(api.result(job_id)) if awaited_before else None
        assert await take(worker) == (job_id, b"")
        await worker.finish(job_id, size * b"a")
        async with asyncio.timeout(NOTIFIED_S_MAX):
            assert await (waiting or api.result(job_id)) == size * b"a"


async def test_a_repeated_submit_does_not_rerun_an_ended_job(
    api: RedisBroker, worker: RedisBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await api.submit("q", "k", b"body")
    await take(worker)
    await worker.finish(job_id, b"answer")
    monkeypatch.setattr(Signatures, "new_job_id", lambda *_: job_id)
    assert await api.submit("q", "k", b"body") == job_id
    assert await api.backlog("q") == Backlog(0, 0, 0)
    assert await api.result(job_id) == b"answer"


async def test_a_claim_whose_reply_was_lost_delivers_its_jobs_again(
    api: RedisBroker, worker: RedisBroker, redis: Redis
) -> None:
    await worker.heartbeat("q", WorkerStatus("w", ""))
    job_id = await api.submit("q", "k", b"body")

    async def claim(*held: bytes) -> list[list[bytes]]:
        arguments = ("consumer", "process", 1, "", "", 1, 1, *held)
        _, waiting, messages, jobs = await worker._scripts.call("claim", "q:v7", *arguments)
        assert not waiting and set(held) <= set(messages)
        return list(jobs)

    [first] = await claim()
    assert first[0] == job_id.encode() and await claim() == [[*first[:4], ANY, ANY, *first[6:]]]
    assert await claim(first[1]) == []
    await api.cancel(job_id)
    await redis.xclaim(LEASES, "workers", "other", 0, [first[1]], idle=3_600_000, justid=True)
    for _ in range(2):  # a cancelled job whose worker died is leased to be finished, also after a lost reply
        [last] = await claim()
        assert (last[3], last[6]) == (b"1", b"lost")
    assert await redis.xlen(LEASES) == 1


async def test_a_job_is_in_one_place_at_a_time(api: RedisBroker, worker: RedisBroker, redis: Redis) -> None:
    async def places() -> tuple[int, int, int]:
        waiting = await redis.zcard("{abs}:queue:q:v7:waiting")
        return await redis.hlen("{abs}:queue:q:v7:outside"), waiting, await redis.xlen(LEASES)

    first = await api.submit("compile", "first", b"")
    job_id = await api.submit("q", "k", b"", SubmitOptions(after=first))
    assert await places() == (1, 0, 0)
    await take(worker, "compile")
    await worker.finish(first, b"")
    assert await api.backlog("q") == Backlog(1, 0, 0)
    assert await places() == (0, 1, 0)
    await take(worker)
    assert await places() == (0, 0, 1)
    await worker.requeue(job_id)
    assert await places() == (0, 1, 0)
    await take(worker)
    await worker.finish(job_id, b"")
    assert await places() == (0, 0, 0)


async def test_workers_with_different_secrets_cannot_share_a_server(
    api: RedisBroker, worker: RedisBroker, redis_server: RedisServer
) -> None:
    await worker.heartbeat("q", WorkerStatus("w", ""))
    await worker.heartbeat("q", WorkerStatus("w", ""))
    async with connected_broker(redis_server.url, Settings.of(secret=b"another secret of 16")) as stranger:
        with pytest.raises(SettingsInvalid, match="ABS_SECRET"):
            await stranger.heartbeat("q", WorkerStatus("s", ""))
    assert await api.workers("q") == (WorkerStatus("w", ""),)


async def test_a_worker_with_an_expired_lease_loses_its_job(
    api: RedisBroker, worker: RedisBroker, redis: Redis
) -> None:
    for number in range(SLOTS - 1):  # earlier ones, in good hands
        await api.submit("q", str(number), b"")
        await take(worker)
    job_id = await api.submit("q", "k", b"")
    await take(worker)
    cancellation = asyncio.create_task(worker.cancelled(job_id))
    message = (await redis.xrange(LEASES))[-1][0]
    # as if the worker had been silent for an hour
    await redis.xclaim(LEASES, "workers", "other", 0, [message], idle=3_600_000, justid=True)
    delivery = await api.take("q")
    assert (delivery.job_id, delivery.attempt) == (job_id, 2)
    await cancellation
    await worker.publish(job_id, b"from the first")
    await worker.finish(job_id, b"from the first")
    await api.publish(job_id, b"from the second")
    await api.finish(job_id, b"from the second")
    assert await api.result(job_id) == b"from the second"
    assert await all_events(api, job_id) == [b"from the second"]


async def test_a_live_worker_keeps_its_long_job(api: RedisBroker, worker: RedisBroker) -> None:
    answering = [asyncio.create_task(answer_forever(broker, 3 * LEASE_S)) for broker in (api, worker)]
    job_id = await api.submit("q", "k", b"x")
    assert await api.result(job_id) == b"answer to x"
    assert (await api.state(job_id)).attempt == 1
    for one in answering:
        one.cancel()


async def test_claims_of_short_jobs_delay_no_renewal(api: RedisBroker, worker: RedisBroker, redis: Redis) -> None:
    await api.submit("q", "long", b"")
    await take(worker)
    began = time.monotonic()
    while time.monotonic() < began + LEASE_S:
        await api.submit("q", "short", b"")
        await worker.finish((await take(worker))[0], b"")
    held_ms = 1000 * (time.monotonic() - began)
    [long, *_] = await redis.xpending_range(LEASES, "workers", "-", "+", 2)
    assert long["time_since_delivered"] < held_ms - 1000 * LEASE_S / 2


async def test_a_closing_broker_requeues_its_jobs(
    api: RedisBroker, worker: RedisBroker, redis_server: RedisServer
) -> None:
    job_id = await api.submit("q", "k", b"")
    async with connected_broker(redis_server.url, settings(600.0)) as closing:  # the lease would outlast the scenario
        await take(closing)
    assert (await take(worker))[0] == job_id


async def test_droppable_events_have_bounded_memory_on_the_server(
    api: RedisBroker, worker: RedisBroker, redis: Redis
) -> None:
    job_id = await api.submit("q", "k", b"")
    await take(worker)
    for _ in range(100):
        await worker.publish(job_id, bytes(100_000), droppable=True)
    assert await redis.memory_usage(f"{{abs}}:events:{job_id}", samples=0) < 3_000_000
    for _ in range(1_100):
        await worker.publish(job_id, b"lasting")
    assert await redis.xlen(f"{{abs}}:events:{job_id}") < 1_100


async def test_a_server_that_lost_its_data_serves_again(own_redis_server: RedisServer) -> None:
    url, given = own_redis_server.url, settings(LEASE_S)
    async with connected_broker(url, given) as api, connected_broker(url, given) as worker:
        answering = asyncio.create_task(answer_forever(worker))
        assert await api.result(await api.submit("q", "a", b"1")) == b"answer to 1"
        lost = await api.submit("other", "k", b"")
        result = asyncio.create_task(api.result(lost))
        own_redis_server.kill()
        shutil.rmtree(own_redis_server.folder / "appendonlydir")
        own_redis_server.start()
        with pytest.raises(JobUnknown):
            await result
        assert await api.result(await api.submit("q", "b", b"2")) == b"answer to 2"
        answering.cancel()
