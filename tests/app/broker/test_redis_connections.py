"""Jobs while the connection to Redis breaks, and unreadable deliveries."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from app.broker import SubmitOptions
from app.broker.redis import notifications as ears
from app.broker.redis.broker import RedisBroker
from app.errors import JobCancelled
from app.messages import Signatures
from app.redis.connection import CONNECTIONS_MAX
from tests.app.broker.brokers import SCENARIO_S_MAX, all_events, connected_broker, first_events
from tests.app.redis.test_connection import open_connection
from tests.servers.cluster import FULL
from tests.servers.flaky_proxy import FlakyProxy
from tests.servers.redis_server import RedisServer
from tests.servers.redis_worker import SLOTS, settings, workers

LEASE_S = 3.0
ONE = "#!lua\nreturn 1"
DETACHED = SubmitOptions(detached=True)
JOBS, EVENTS = 60 if FULL else 15, 5


async def test_an_unreliable_connection_loses_no_job_event_or_slot(own_redis_server: RedisServer) -> None:
    async def one(broker: RedisBroker, number: int) -> None:
        job_id = await broker.submit("q", f"job {number}", b"tell %d 0.05" % EVENTS)
        assert await broker.result(job_id) == b"%d 0.05" % EVENTS
        event_numbers = [int(data) for data in await all_events(broker, job_id)]
        tries = (await broker.state(job_id)).attempt
        assert event_numbers[-EVENTS:] == list(range(EVENTS)), "an event was lost, repeated, or out of order"
        assert len(event_numbers) <= tries * EVENTS

    with FlakyProxy(own_redis_server.socket) as line, workers(line.url, 2, LEASE_S):
        async with connected_broker(line.url, settings(LEASE_S, wait_s=60.0)) as broker:
            await asyncio.gather(*(one(broker, number) for number in range(JOBS)))
            line.flaky = False
            held = [await broker.submit("q", f"held {number}", b"hold x") for number in range(2 * SLOTS)]
            while {(await broker.state(job_id)).state for job_id in held} != {"running"}:  # no slot was lost
                await asyncio.sleep(0.05)
    hows = ("request lost", "reply cut", "reply lost")
    assert (all if FULL else any)(line.broken[how] for how in hows), line.broken


async def test_silent_connections_are_replaced(redis_server: RedisServer) -> None:
    """A command without a reply must not affect the next command."""
    many, given = 20, settings(30.0, wait_s=SCENARIO_S_MAX)
    with FlakyProxy(redis_server.socket, flaky=False) as line:
        async with connected_broker(line.url, given) as caller, connected_broker(line.url, given) as worker:
            job_ids = [await caller.submit("q", f"job {number}", b"") for number in range(many)]
            answers = [asyncio.create_task(caller.result(job_id)) for job_id in job_ids]
            taken = [(await worker.take("q")).job_id for _ in range(many)]
            line.stop_replies()
            await asyncio.gather(*(worker.finish(job_id, job_id.encode()) for job_id in taken))
            assert await asyncio.gather(*answers) == [job_id.encode() for job_id in job_ids]


async def test_silent_connections_are_not_tried_one_after_another(redis_server: RedisServer) -> None:
    with FlakyProxy(redis_server.socket, flaky=False) as line:
        async with open_connection(line.url) as link:
            await asyncio.gather(*(link.client.ping() for _ in range(50)))
            await link.run("test", ONE, (), (), SCENARIO_S_MAX)
            line.stop_replies()
            assert await link.run("test", ONE, (), (), SCENARIO_S_MAX) == 1


async def test_missed_notifications_are_found_by_looking(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, look_s = 50, 0.5

    async def deaf(self: ears.JobNotifications) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("app.broker.redis.broker.POLL_S", look_s)
    monkeypatch.setattr("app.broker.redis.consumer.POLL_S", look_s)
    monkeypatch.setattr(ears.JobNotifications, "_listen_forever", deaf)
    given = settings(30.0)
    async with connected_broker(redis_server.url, given) as caller, connected_broker(redis_server.url, given) as worker:
        job_ids = [await caller.submit("q", f"job {number}", b"") for number in range(many)]
        answers = [asyncio.create_task(caller.result(job_id)) for job_id in job_ids]
        taken = {(await worker.take("q")).job_id for _ in range(many)}
        assert taken == set(job_ids)
        event_numbers, off = asyncio.create_task(first_events(caller, job_ids[0], 1)), job_ids[1]
        called_off = asyncio.create_task(worker.cancelled(off))
        await asyncio.sleep(2 * look_s)
        await worker.publish(job_ids[0], b"event")
        assert [event.data for event in await event_numbers] == [b"event"]
        await caller.cancel(off)
        await called_off
        await asyncio.gather(*(worker.finish(job_id, b"done") for job_id in job_ids))
        ends = await asyncio.gather(*answers, return_exceptions=True)
        assert ends.pop(1).__class__ is JobCancelled and set(ends) == {b"done"}


async def test_broken_subscriptions_do_not_exhaust_the_connection_pool(redis_server: RedisServer) -> None:
    """Subscriptions are always in use. Each that broke once took a place among the connections with it, for good."""
    async with connected_broker(redis_server.url, settings(LEASE_S, wait_s=5.0)) as broker:
        job_id = await broker.submit("q", "key", b"", DETACHED)
        waiting = asyncio.create_task(broker.result(job_id))
        for _ in range(CONNECTIONS_MAX + 2):
            while redis_server.ask("CLIENT", "KILL", "TYPE", "pubsub") == ":0":
                await asyncio.sleep(0.02)
            assert (await broker.state(job_id)).state == "waiting"
        waiting.cancel()


async def test_a_job_that_one_worker_cannot_take_goes_to_another(
    own_redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such a worker found the job again before any other worker."""
    right = Signatures.open_body

    def open_body(self: Signatures, *arguments: Any) -> bytes:
        body = right(self, *arguments)
        if self is broken._signatures:
            raise ValueError("the body of another version")
        return body

    monkeypatch.setattr(Signatures, "open_body", open_body)
    caplog.set_level(logging.ERROR, "app.broker.redis.consumer")
    url, given = own_redis_server.url, settings(2.0)
    async with connected_broker(url, given) as broken, connected_broker(url, given) as sound:
        job_id = await broken.submit("q", "key", b"", DETACHED)
        taking = asyncio.create_task(broken.take("q"))
        while not caplog.records:
            await asyncio.sleep(0.02)
        delivery = await sound.take("q")
        assert (delivery.job_id, delivery.attempt) == (job_id, 2)
        await sound.finish(job_id, b"done")
        assert await sound.result(job_id) == b"done"
        taking.cancel()
    assert "cannot run here: ValueError" in caplog.text
