"""The contract of every broker: jobs, results, events and workers. Terms are in test_contract_terms.py."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from app.broker import HEARTBEAT_TTL_S, Broker, SubmitOptions, WorkerStatus
from app.broker.memory import MemoryBroker
from app.errors import JobCancelled, JobUnknown, QueueFull
from tests.app.broker.brokers import JOBS_MAX, RESULT_BYTES_MAX, RESULT_TTL_S, Time, all_events, running_job, take


async def test_a_job_is_delivered_and_its_result_is_stored(broker: Broker, time: Time) -> None:
    job_id = await broker.submit("q", "k", b"body")
    await time.advance(2.5)
    delivery = await broker.take("q")
    assert (delivery.job_id, delivery.body, delivery.attempt) == (job_id, b"body", 1)
    assert time.to_scenario(delivery.waited_s) >= 2.4
    await broker.finish(job_id, b"answer")
    assert await broker.result(job_id) == b"answer"
    assert await broker.result(job_id) == b"answer"


async def test_jobs_are_taken_oldest_first_per_queue(broker: Broker) -> None:
    for key in "ab":
        await broker.submit("q", key, key.encode())
    await broker.submit("other", "c", b"c")
    assert [(await take(broker, queue))[1] for queue in ("q", "other", "q")] == [b"a", b"c", b"b"]


async def test_a_waiting_worker_is_woken_by_a_submit(broker: Broker) -> None:
    takers = [asyncio.create_task(take(broker)) for _ in range(2)]
    await asyncio.sleep(0)
    for key in "ab":
        await broker.submit("q", key, key.encode())
    assert {(await taker)[1] for taker in takers} == {b"a", b"b"}


async def test_a_key_that_is_waiting_or_running_is_joined(broker: Broker) -> None:
    first = await broker.submit("q", "k", b"1")
    assert await broker.submit("q", "k", b"2") == first
    await take(broker)
    assert await broker.submit("q", "k", b"3") == first
    results = [asyncio.create_task(broker.result(first)) for _ in range(500)]
    await broker.finish(first, b"done")
    assert await asyncio.gather(*results) == [b"done"] * 500


async def test_a_key_runs_again_once_it_is_finished(broker: Broker) -> None:
    first = await broker.submit("q", "k", b"1")
    await take(broker)
    await broker.finish(first, b"old")
    second = await broker.submit("q", "k", b"2")
    assert second != first
    await take(broker)
    await broker.finish(second, b"new")
    assert (await broker.result(first), await broker.result(second)) == (b"old", b"new")


async def test_a_full_queue_refuses_jobs_until_one_is_taken(broker: Broker) -> None:
    for key in "abc":
        await broker.submit("q", key, b"")
    with pytest.raises(QueueFull) as refused:
        await broker.submit("q", "d", b"")
    assert (refused.value.limit, refused.value.cap) == ("queue_jobs_max", JOBS_MAX)
    assert refused.value.retry_after_s > 0
    await broker.submit("q", "a", b"")  # joins its job, takes no place in the queue
    await broker.submit("other", "d", b"")
    await take(broker)
    await broker.submit("q", "d", b"")


async def test_events_start_at_the_first_and_end_with_the_job(broker: Broker) -> None:
    job_id = await running_job(broker)
    await broker.publish(job_id, b"1")
    early = asyncio.create_task(all_events(broker, job_id))
    await asyncio.sleep(0)
    await broker.publish(job_id, b"2")
    await broker.finish(job_id, b"")
    await broker.publish(job_id, b"too late")
    assert await early == await all_events(broker, job_id) == [b"1", b"2"]


async def test_a_cancelled_waiting_job_never_runs(broker: Broker) -> None:
    gone = await broker.submit("q", "a", b"a")
    await broker.submit("q", "b", b"b")
    await broker.cancel(gone)
    await broker.cancel(gone)
    assert (await take(broker))[1] == b"b"
    with pytest.raises(JobCancelled):
        await broker.result(gone)


async def test_cancelling_a_running_job_ends_it_and_notifies_its_worker(broker: Broker) -> None:
    job_id = await running_job(broker)
    cancellation = asyncio.create_task(broker.cancelled(job_id))
    await asyncio.sleep(0)
    assert not cancellation.done()
    await broker.cancel(job_id)
    assert (await broker.state(job_id)).state == "cancelled"
    await cancellation
    assert await broker.submit("q", "k", b"again") != job_id
    await broker.finish(job_id, b"half an answer")
    assert (await broker.state(job_id)).state == "cancelled"
    with pytest.raises(JobCancelled):
        await broker.result(job_id)


async def test_a_finished_job_keeps_its_first_result(broker: Broker) -> None:
    job_id = await running_job(broker)
    await broker.finish(job_id, b"first")
    await broker.finish(job_id, b"second")
    await broker.cancel(job_id)
    assert await broker.result(job_id) == b"first"


async def test_an_unknown_or_expired_job_is_reported(broker: Broker, time: Time) -> None:
    with pytest.raises(JobUnknown):
        await broker.result("never")
    await broker.cancel("never")
    job_id = await running_job(broker)
    await broker.finish(job_id, b"")
    assert await broker.result(job_id) == b""
    await time.advance(RESULT_TTL_S + 1)
    await broker.submit("q", "other", b"")
    with pytest.raises(JobUnknown):
        await broker.result(job_id)


async def test_workers_are_listed_while_they_send_heartbeats(broker: Broker, time: Time) -> None:
    assert await broker.workers("q") == ()
    await broker.heartbeat("q", WorkerStatus("w1", "loading"))
    await broker.heartbeat("q", WorkerStatus("w1", ""))
    await broker.heartbeat("q", WorkerStatus("w2", ""))
    assert set(await broker.workers("q")) == {WorkerStatus("w1", ""), WorkerStatus("w2", "")}
    assert await broker.workers("other") == ()
    await time.advance(HEARTBEAT_TTL_S / 2)
    await broker.heartbeat("q", WorkerStatus("w2", ""))
    await time.advance(HEARTBEAT_TTL_S / 2 + 0.1)
    assert await broker.workers("q") == (WorkerStatus("w2", ""),)


async def test_a_job_is_cancelled_when_its_last_subscriber_leaves(broker: Broker) -> None:
    job_id = await broker.submit("q", "k", b"")
    assert await broker.submit("q", "k", b"") == job_id
    await take(broker)
    cancellation = asyncio.create_task(broker.cancelled(job_id))
    await broker.unsubscribe(job_id)
    await asyncio.sleep(0)
    assert not cancellation.done()
    await broker.unsubscribe(job_id)
    await cancellation
    await broker.unsubscribe(job_id)
    await broker.unsubscribe("never")


async def finished(broker: Broker, key: str, result: bytes, left: bool) -> str:
    job_id = await broker.submit("q", key, b"")
    await take(broker)
    await broker.finish(job_id, result)
    if left:
        await broker.unsubscribe(job_id)
    return job_id


async def test_the_oldest_unshared_results_are_evicted_first(broker: Broker) -> None:
    shared = await finished(broker, "shared", bytes(RESULT_BYTES_MAX // 2), left=False)
    old = await finished(broker, "old", bytes(RESULT_BYTES_MAX // 3), left=True)
    new = await finished(broker, "new", bytes(RESULT_BYTES_MAX // 3), left=True)
    with pytest.raises(JobUnknown):
        await broker.result(old)
    assert len(await broker.result(shared)) == RESULT_BYTES_MAX // 2
    assert len(await broker.result(new)) == RESULT_BYTES_MAX // 3


async def test_results_are_evicted_in_order_of_completion(broker: Broker) -> None:
    third, ended = bytes(RESULT_BYTES_MAX // 3), []
    for number in range(4):
        terms = SubmitOptions(detached=True, key_ttl_s=0.0 if number in (1, 3) else 600.0)
        ended.append(await broker.submit("q", str(number), b"", terms))
        await take(broker)
        await broker.finish(ended[-1], third)
        assert await broker.result(ended[-1]) == third
    for gone in ended[:2]:
        with pytest.raises(JobUnknown):
            await broker.result(gone)
    for kept in ended[2:]:
        assert await broker.result(kept) == third


async def test_the_latest_result_is_never_evicted(broker: Broker) -> None:
    huge = bytes(RESULT_BYTES_MAX + 1)
    for key in "ab":
        job_id = await finished(broker, key, huge, left=True)
        assert await broker.result(job_id) == huge
        await broker.submit("other", key, b"")
        assert await broker.result(job_id) == huge
    small = await finished(broker, "c", b"small", left=True)
    assert await broker.result(small) == b"small"
    with pytest.raises(JobUnknown):
        await broker.result(job_id)


async def test_the_number_of_stored_events_is_bounded(broker: Broker) -> None:
    job_id = await running_job(broker)
    for _ in range(2_000):
        await broker.publish(job_id, b"event")
    await broker.finish(job_id, b"")
    assert 100 < len(await all_events(broker, job_id)) < 1_500


async def test_the_memory_broker_frees_bodies_of_ended_jobs() -> None:
    broker = MemoryBroker(300)
    tracemalloc.start()
    for number in range(100):
        job_id = await broker.submit("q", str(number), bytes(100_000))
        if number % 2:
            await take(broker)
            await broker.finish(job_id, b"refused")
        else:
            await broker.cancel(job_id)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 2_000_000


async def test_a_fast_reader_receives_every_droppable_event(broker: Broker) -> None:
    job_id = await running_job(broker)
    reader = broker.events(job_id)
    for number in range(1_000):
        await broker.publish(job_id, b"%d" % number * 700, droppable=True)
        assert (await anext(reader)).data == b"%d" % number * 700


async def test_a_slow_reader_misses_only_older_droppable_events(broker: Broker) -> None:
    job_id = await running_job(broker)
    for number in range(900):
        await broker.publish(job_id, b"passing %d" % number + bytes(6_000), droppable=True)
        if number % 300 == 0:
            await broker.publish(job_id, b"lasting %d" % number)
    await broker.finish(job_id, b"done")
    seen = [event.rstrip(b"\0") for event in await all_events(broker, job_id)]
    passing = [event for event in seen if event.startswith(b"passing")]
    lasting = [event for event in seen if event.startswith(b"lasting")]
    assert lasting == [b"lasting 0", b"lasting 300", b"lasting 600"]
    assert 1 < len(passing) < 300
    assert passing == [b"passing %d" % number for number in range(900 - len(passing), 900)]


async def test_the_newest_droppable_event_is_always_kept(broker: Broker) -> None:
    job_id = await running_job(broker)
    for letter in (b"a", b"b"):
        await broker.publish(job_id, letter * 3_000_000, droppable=True)
    await broker.finish(job_id, b"done")
    assert [event[:1] for event in await all_events(broker, job_id)] == [b"b"]


async def test_droppable_events_have_bounded_memory(broker: Broker) -> None:
    job_id = await running_job(broker)
    tracemalloc.start()
    for _ in range(500):
        await broker.publish(job_id, bytes(100_000), droppable=True)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 3_000_000
