"""The Redis broker beyond the contract: few connections, no leftovers, no forged jobs."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import time
from collections.abc import Awaitable, Callable

import pytest
from coredis import PureToken, Redis
from streaq import constants

from app.broker import DEFAULT_SUBMIT, SubmitOptions, WorkerStatus
from app.broker.base import Backlog
from app.broker.redis import notifications as ears
from app.broker.redis.broker import RedisBroker
from app.errors import JobUnknown, SettingsInvalid
from app.messages import Failure, load
from app.settings import Settings
from tests.app.broker.brokers import SLOTS, all_events, take
from tests.servers.redis_server import RedisServer
from tests.servers.redis_worker import settings

LEASE_S = 2.0
CALLERS = 500
Client = Redis[bytes]
FOR_EVER = {  # what may be left of jobs that are long over; all else has a time to live
    b"abs:place", b"abs:finished:bytes", b"abs:queue:q",
    b"streaq:abs:q:queues:interactive", b"streaq:abs:q:queues:batch",
}


def run(
    url: str, scenario: Callable[[RedisBroker, RedisBroker, Client], Awaitable[None]], given: Settings | None = None
) -> None:
    """Runs a scenario with the brokers of an API and a worker, and a client that reads the server."""

    async def whole() -> None:
        api, worker = (RedisBroker.from_url(url, given or settings(LEASE_S)) for _ in range(2))
        try:
            async with asyncio.timeout(120), Redis.from_url(url) as client:
                await scenario(api, worker, client)
        finally:
            await api.close()
            await worker.close()

    asyncio.run(whole())


async def answer_forever(worker: RedisBroker, pause_s: float = 0.0) -> None:
    while True:
        delivery = await worker.take("q", SLOTS)
        await asyncio.sleep(pause_s)
        await worker.finish(delivery.job_id, b"answer to " + delivery.body)


def test_500_callers_of_one_key_share_job_and_connections(redis_server: RedisServer) -> None:
    async def scenario(api: RedisBroker, worker: RedisBroker, client: Client) -> None:
        jobs = await asyncio.gather(*(api.submit("q", "k", b"%d" % number) for number in range(CALLERS)))
        assert len(set(jobs)) == 1
        waiting = [asyncio.create_task(api.result(job_id)) for job_id in jobs]
        readers = [asyncio.create_task(all_events(api, job_id)) for job_id in jobs[:100]]
        await asyncio.sleep(1)
        assert len(await client.client_list()) < 25
        await take(worker)
        await worker.publish(jobs[0], b"event")
        await worker.finish(jobs[0], b"answer")
        assert set(await asyncio.gather(*waiting)) == {b"answer"}
        assert await asyncio.gather(*readers) == [[b"event"]] * 100

    run(redis_server.url, scenario)


def test_a_job_round_trip_through_the_queue_is_fast(redis_server: RedisServer) -> None:
    async def scenario(api: RedisBroker, worker: RedisBroker, client: Client) -> None:
        answering = asyncio.create_task(answer_forever(worker))
        took = []
        for number in range(60):
            began = time.perf_counter()
            job_id = await api.submit("q", str(number), b"body")
            await api.result(job_id)
            took.append(time.perf_counter() - began)
        answering.cancel()
        print(f"\nsubmit to result: p50 {statistics.median(took) * 1e3:.1f} ms, best {min(took) * 1e3:.1f} ms")
        assert min(took) < 0.025
        assert statistics.median(took) < 0.25  # 25 ms on a machine that has nothing else to do

    run(redis_server.url, scenario)


async def lives_for_ever(client: Client) -> set[bytes]:
    keys = [key async for key in client.scan_iter()]
    return {key for key in keys if await client.ttl(key) == -1}


def test_ended_jobs_leave_no_keys_on_the_server(redis_server: RedisServer) -> None:
    async def scenario(api: RedisBroker, worker: RedisBroker, client: Client) -> None:
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
        await asyncio.sleep(1.5)
        last = await api.submit("q", "last", b"")  # an expired job leaves when another comes
        await api.cancel(last)
        mine = {f"abs:job:{last}".encode(), b"abs:finished", b"abs:finished:order", b"abs:finished:sizes"}
        assert await lives_for_ever(client) <= FOR_EVER | mine
        held = await client.hgetall("abs:queue:q")
        sums = {name: number for name, number in held.items() if not name.startswith(b"pace_")}
        assert sums == dict.fromkeys((b"weight", b"outside_weight", b"running_weight"), b"0")
        assert await client.xlen("streaq:abs:q:queues:interactive") == 0

    given = Settings(secret=b"the secret of these tests", result_ttl_s=1.0, job_lease_s=LEASE_S)
    run(redis_server.url, scenario, given)


def test_a_job_with_an_invalid_signature_is_not_run(redis_server: RedisServer) -> None:
    async def scenario(api: RedisBroker, worker: RedisBroker, client: Client) -> None:
        forged, copied = await api.submit("q", "a", b"evil"), await api.submit("q", "b", b"evil")
        good = await api.submit("q", "c", b"good")
        ticket = await client.get(f"streaq:abs:q:task:data:{forged}")
        assert ticket is not None
        await client.set(f"streaq:abs:q:task:data:{forged}", ticket[:-1] + bytes([ticket[-1] ^ 1]))
        await client.set(f"streaq:abs:q:task:data:{copied}", ticket)
        answering = asyncio.create_task(answer_forever(worker))
        assert await api.result(good) == b"answer to good"
        for job_id in (forged, copied):
            failure = load(await api.result(job_id))
            assert isinstance(failure, Failure)
            assert failure.error == "MessageInvalid"
        answering.cancel()

    run(redis_server.url, scenario)


def test_a_repeated_submit_does_not_rerun_an_ended_job(redis_server: RedisServer) -> None:
    async def scenario(api: RedisBroker, worker: RedisBroker, client: Client) -> None:
        job_id = await api.submit("q", "k", b"body")
        ticket = await client.get(f"streaq:abs:q:task:data:{job_id}")
        assert ticket is not None
        await take(worker)
        await worker.finish(job_id, b"answer")
        again = await api._records.submit(job_id, "q", "k", b"body", DEFAULT_SUBMIT, ticket)
        assert again == job_id
        assert await api.backlog("q") == Backlog(0, 0, 0)
        assert await api.result(job_id) == b"answer"

    run(redis_server.url, scenario)


def test_lost_and_forged_jobs_are_not_cached(redis_server: RedisServer) -> None:
    async def scenario(api: RedisBroker, worker: RedisBroker, client: Client) -> None:
        terms = SubmitOptions(key_ttl_s=60)
        lost, forged = await api.submit("q", "a", b"", terms), await api.submit("other", "b", b"", terms)
        await client.hset(f"abs:job:{lost}", {"attempt": "3"})  # as many as may be
        await client.set(f"streaq:abs:other:task:data:{forged}", b"not ours")
        for queue, key, job_id, error in (("q", "a", lost, "WorkerLost"), ("other", "b", forged, "MessageInvalid")):
            taker = asyncio.create_task(take(worker, queue))
            failure = load(await api.result(job_id))
            assert isinstance(failure, Failure)
            assert failure.error == error
            again = await api.submit(queue, key, b"", terms)
            assert again != job_id
            assert (await taker)[0] == again

    run(redis_server.url, scenario)


def test_a_job_missing_from_the_queue_is_requeued(redis_server: RedisServer) -> None:
    async def scenario(api: RedisBroker, worker: RedisBroker, client: Client) -> None:
        lost = await api.submit("q", "k", b"lost")
        await client.delete([f"streaq:abs:q:task:data:{lost}"])
        await client.xtrim("streaq:abs:q:queues:interactive", trim_strategy=PureToken.MAXLEN, threshold=0)
        answering = asyncio.create_task(answer_forever(worker))
        assert await api.result(lost) == b"answer to lost"
        answering.cancel()

    run(redis_server.url, scenario)


def test_workers_with_different_secrets_cannot_share_a_server(redis_server: RedisServer) -> None:
    async def scenario(api: RedisBroker, worker: RedisBroker, client: Client) -> None:
        await worker.heartbeat("q", WorkerStatus("w", ""))
        await worker.heartbeat("q", WorkerStatus("w", ""))
        stranger = RedisBroker.from_url(redis_server.url, Settings(secret=b"another secret of 16"))
        with pytest.raises(SettingsInvalid, match="ABS_SECRET"):
            await stranger.heartbeat("q", WorkerStatus("s", ""))
        await stranger.close()
        assert await api.workers("q") == (WorkerStatus("w", ""),)

    run(redis_server.url, scenario)


def test_a_worker_with_an_expired_lease_loses_its_job(redis_server: RedisServer) -> None:
    async def scenario(api: RedisBroker, worker: RedisBroker, client: Client) -> None:
        for number in range(SLOTS - 1):  # earlier ones, in good hands
            await api.submit("q", str(number), b"")
            await take(worker)
        job_id = await api.submit("q", "k", b"")
        await take(worker)
        cancellation = asyncio.create_task(worker.cancelled(job_id))
        stream = "streaq:abs:q:queues:interactive"
        message = (await client.xrange(stream))[-1].identifier
        # as a worker does that finds the message idle
        await client.xclaim(stream, constants.REDIS_GROUP, "other", 0, [message], idle=3_600_000, justid=True)
        delivery = await api.take("q", SLOTS)
        assert (delivery.job_id, delivery.attempt) == (job_id, 2)
        await cancellation
        await worker.publish(job_id, b"from the first")
        await worker.finish(job_id, b"from the first")
        await api.publish(job_id, b"from the second")
        await api.finish(job_id, b"from the second")
        assert await api.result(job_id) == b"from the second"
        assert await all_events(api, job_id) == [b"from the second"]

    run(redis_server.url, scenario)


def test_a_live_worker_keeps_its_long_job(redis_server: RedisServer) -> None:
    async def scenario(api: RedisBroker, worker: RedisBroker, client: Client) -> None:
        answering = [asyncio.create_task(answer_forever(broker, 3 * LEASE_S)) for broker in (api, worker)]
        job_id = await api.submit("q", "k", b"x")
        assert await api.result(job_id) == b"answer to x"
        assert (await api.state(job_id)).attempt == 1
        for one in answering:
            one.cancel()

    run(redis_server.url, scenario)


def test_a_closing_broker_requeues_its_jobs(redis_server: RedisServer) -> None:
    async def scenario(api: RedisBroker, worker: RedisBroker, client: Client) -> None:
        closing = RedisBroker.from_url(redis_server.url, settings(30.0))
        job_id = await api.submit("q", "k", b"")
        await take(closing)
        began = time.monotonic()
        await closing.close()
        assert (await take(worker))[0] == job_id
        assert time.monotonic() - began < 15  # long before the lease ends

    run(redis_server.url, scenario)


def test_missed_notifications_are_found_by_polling(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ears, "POLL_S", 0.5)

    async def scenario(api: RedisBroker, worker: RedisBroker, client: Client) -> None:
        job_id = await api.submit("q", "k", b"")
        await take(worker)
        result = asyncio.create_task(api.result(job_id))
        await asyncio.sleep(0.3)
        await client.delete([f"abs:job:{job_id}:ears"])  # no event is sent
        await worker.finish(job_id, b"answer")
        assert await result == b"answer"

    run(redis_server.url, scenario)


def test_droppable_events_have_bounded_memory_on_the_server(redis_server: RedisServer) -> None:
    async def scenario(api: RedisBroker, worker: RedisBroker, client: Client) -> None:
        job_id = await api.submit("q", "k", b"")
        await take(worker)
        for _ in range(100):
            await worker.publish(job_id, bytes(100_000), droppable=True)
        assert await client.memory_usage(f"abs:job:{job_id}:events", samples=0) < 3_000_000
        for _ in range(1_100):
            await worker.publish(job_id, b"lasting")
        assert await client.xlen(f"abs:job:{job_id}:events") < 1_100

    run(redis_server.url, scenario)


def test_a_server_that_lost_its_data_serves_again(own_redis_server: RedisServer) -> None:
    async def scenario(api: RedisBroker, worker: RedisBroker, client: Client) -> None:
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

    run(own_redis_server.url, scenario)


def test_our_scripts_call_things_as_streaq_does() -> None:
    assert (constants.REDIS_PREFIX, constants.REDIS_GROUP) == ("streaq:", "workers")
    assert (constants.REDIS_STREAM, constants.REDIS_TASK) == (":queues:", ":task:data:")
    assert (constants.REDIS_RETRY, constants.REDIS_RUNNING_SET) == (":task:retry:", ":index:running")

