"""The contract of every broker: terms, states and event ids of jobs."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from app.broker import Broker, JobStatus, SubmitOptions
from app.broker.base import Backlog
from app.errors import JobCancelled, JobUnknown, KeyReused, QueueFull
from tests.app.broker.brokers import RESULT_TTL_S, WEIGHT_MAX, Time, all_events, first_events, never, running_job, take

BATCH = SubmitOptions(priority="batch")
DETACHED = SubmitOptions(detached=True)


async def test_interactive_jobs_precede_earlier_batch_jobs(broker: Broker) -> None:
    await broker.submit("q", "a", b"batch", BATCH)
    await broker.submit("q", "b", b"first")
    await broker.submit("q", "c", b"second")
    assert await broker.backlog("q") == Backlog(2, 1, 0)
    assert [(await take(broker))[1] for _ in range(3)] == [b"first", b"second", b"batch"]
    assert await broker.backlog("q") == Backlog(0, 0, 0)


async def test_the_weight_of_waiting_jobs_is_bounded(broker: Broker) -> None:
    heavy = await broker.submit("q", "heavy", b"", SubmitOptions(weight=2 * WEIGHT_MAX))  # alone, it may
    with pytest.raises(QueueFull) as refused:
        await broker.submit("q", "light", b"", SubmitOptions(weight=1))
    assert (refused.value.limit, refused.value.cap) == ("queue_weight_max", WEIGHT_MAX)
    await broker.submit("q", "weightless", b"")
    assert await broker.submit("q", "heavy", b"", SubmitOptions(weight=2 * WEIGHT_MAX)) == heavy
    assert (await broker.backlog("q")).weight == 2 * WEIGHT_MAX
    assert (await take(broker))[0] == heavy
    await broker.submit("q", "light", b"", SubmitOptions(weight=WEIGHT_MAX))
    assert (await broker.backlog("q")).weight == WEIGHT_MAX


async def test_a_cancelled_job_releases_its_weight(broker: Broker) -> None:
    first = await broker.submit("other", "first", b"")
    for key, terms in (("a", SubmitOptions(weight=WEIGHT_MAX)), ("b", SubmitOptions(weight=WEIGHT_MAX, after=first))):
        gone = await broker.submit("q", key, b"", terms)
        with pytest.raises(QueueFull):
            await broker.submit("q", "c", b"", SubmitOptions(weight=1))
        await broker.cancel(gone)
    await broker.submit("q", "c", b"", SubmitOptions(weight=1))


@pytest.mark.parametrize("ending", ["finish", "cancel"])
async def test_a_dependent_job_is_taken_when_its_dependency_ends(broker: Broker, ending: str) -> None:
    first = await broker.submit("compile", "first", b"")
    second = await broker.submit("q", "second", b"second", SubmitOptions(after=first, weight=7))
    assert (await broker.state(second)).state == "waiting"
    assert await broker.backlog("q") == Backlog(0, 0, 0)
    taker = asyncio.create_task(take(broker))
    await take(broker, "compile")
    assert await never(taker)
    if ending == "finish":
        await broker.finish(first, b"")
    else:
        await broker.cancel(first)
        await broker.finish(first, b"")
    assert await taker == (second, b"second")


async def test_a_job_does_not_wait_for_ended_or_unknown_jobs(broker: Broker) -> None:
    over = await broker.submit("compile", "first", b"")
    await take(broker, "compile")
    await broker.finish(over, b"")
    for key, after in (("a", over), ("b", "never")):
        await broker.submit("q", key, key.encode(), SubmitOptions(after=after))
    assert [(await take(broker))[1] for _ in range(2)] == [b"a", b"b"]


async def test_dependent_jobs_count_toward_the_queue_limit(broker: Broker) -> None:
    first = await broker.submit("compile", "first", b"")
    for key in "ab":
        await broker.submit("q", key, b"", SubmitOptions(after=first))
    await broker.submit("q", "c", b"")
    with pytest.raises(QueueFull):
        await broker.submit("q", "d", b"")


async def test_a_dependent_job_can_be_cancelled(broker: Broker) -> None:
    first = await broker.submit("compile", "first", b"")
    second = await broker.submit("q", "second", b"", SubmitOptions(after=first))
    await broker.unsubscribe(second)
    with pytest.raises(JobCancelled):
        await broker.result(second)
    await take(broker, "compile")
    await broker.finish(first, b"")
    await broker.submit("q", "third", b"third")
    assert (await take(broker))[1] == b"third"


async def test_a_detached_job_runs_without_subscribers(broker: Broker) -> None:
    job_id = await broker.submit("q", "k", b"body", DETACHED)
    await broker.unsubscribe(job_id)
    await broker.subscribe(job_id)
    await broker.unsubscribe(job_id)
    assert await take(broker) == (job_id, b"body")


async def test_a_detached_submit_keeps_a_joined_job_alive(broker: Broker) -> None:
    job_id = await broker.submit("q", "k", b"body")
    assert await broker.submit("q", "k", b"", DETACHED) == job_id
    await broker.unsubscribe(job_id)
    assert await take(broker) == (job_id, b"body")


async def test_joining_a_job_adds_a_subscriber(broker: Broker) -> None:
    job_id = await broker.submit("q", "k", b"")
    await broker.subscribe(job_id)
    await broker.unsubscribe(job_id)
    assert (await broker.state(job_id)).state == "waiting"
    await broker.unsubscribe(job_id)
    assert (await broker.state(job_id)).state == "cancelled"
    with pytest.raises(JobUnknown):
        await broker.subscribe("never")


async def test_a_reused_key_is_refused_and_keeps_its_job(broker: Broker) -> None:
    job_id = await broker.submit("q", "k", b"", SubmitOptions(digest="one", key_ttl_s=60))
    for _ in range(2):  # while it waits, and once it is remembered
        with pytest.raises(KeyReused):
            await broker.submit("q", "k", b"", SubmitOptions(digest="two"))
        if (await broker.state(job_id)).state == "waiting":
            await take(broker)
            await broker.finish(job_id, b"answer")
    assert await broker.submit("q", "k", b"", SubmitOptions(digest="one")) == job_id
    assert await broker.result(job_id) == b"answer"


async def test_a_finished_job_is_found_by_key_until_its_ttl(broker: Broker, time: Time) -> None:
    remembered = SubmitOptions(key_ttl_s=time.to_real(2 * RESULT_TTL_S))
    job_id = await broker.submit("q", "k", b"", remembered)
    await take(broker)
    await broker.finish(job_id, b"answer")
    await time.advance(RESULT_TTL_S + 2)
    assert await broker.submit("q", "k", b"", remembered) == job_id
    assert await broker.result(job_id) == b"answer"
    await time.advance(RESULT_TTL_S)
    assert await broker.submit("q", "k", b"", remembered) != job_id
    with pytest.raises(JobUnknown):
        await broker.result(job_id)


async def test_an_uncacheable_result_is_found_by_id_only(broker: Broker) -> None:
    remembered = SubmitOptions(key_ttl_s=60)
    first = await broker.submit("q", "k", b"", remembered)
    assert await broker.submit("q", "k", b"", remembered) == first
    await take(broker)
    await broker.finish(first, b"our fault", cacheable=False)
    second = await broker.submit("q", "k", b"", remembered)
    assert second != first
    await take(broker)
    await broker.finish(second, b"answer")
    assert await broker.submit("q", "k", b"", remembered) == second
    assert (await broker.result(first), await broker.result(second)) == (b"our fault", b"answer")


async def test_a_cancelled_job_is_not_found_by_its_key(broker: Broker) -> None:
    job_id = await broker.submit("q", "k", b"", SubmitOptions(key_ttl_s=60))
    await broker.cancel(job_id)
    assert await broker.submit("q", "k", b"", SubmitOptions(key_ttl_s=60)) != job_id


async def test_a_job_keeps_the_name_of_its_queue(broker: Broker) -> None:
    for queue in ("generate/stories", "generate/some/model:v9"):
        job_id = await broker.submit(queue, queue, b"")
        assert (await broker.state(job_id)).queue == queue


async def test_a_job_reports_its_state_and_position(broker: Broker) -> None:
    with pytest.raises(JobUnknown):
        await broker.state("never")
    await broker.submit("q", "a", b"")
    await broker.submit("q", "b", b"", BATCH)
    job_id = await broker.submit("q", "c", b"", SubmitOptions(owner="me", priority="batch", kind="generate"))

    async def state() -> JobStatus:
        return await broker.state(job_id)

    submitted = (await state()).submitted
    assert submitted > 1_700_000_000
    assert await state() == JobStatus("waiting", "me", "q", submitted, 0, 2, "generate")
    for _ in range(2):
        await take(broker)
    assert (await state()).ahead == 0
    await take(broker)
    assert await state() == JobStatus("running", "me", "q", submitted, 1, 0, "generate")
    await broker.finish(job_id, b"")
    assert await state() == JobStatus("done", "me", "q", submitted, 1, 0, "generate")


async def test_events_resume_after_the_last_read_id(broker: Broker) -> None:
    job_id = await running_job(broker)
    for number in range(5):
        await broker.publish(job_id, b"%d" % number)
    first = await first_events(broker, job_id, 2)
    assert [event.data for event in first] == [b"0", b"1"]
    assert len({event.id for event in await first_events(broker, job_id, 5)}) == 5
    await broker.finish(job_id, b"")
    assert await all_events(broker, job_id, first[-1].id) == [b"2", b"3", b"4"]
    for nonsense in ("x", "-1", "99999", "99999-1", "1-99999", "\u0663", "1" * 40):
        assert len(await all_events(broker, job_id, nonsense)) == 5, nonsense


async def test_a_requeued_job_is_taken_next_as_the_same_attempt(broker: Broker) -> None:
    first = await broker.submit("q", "a", b"a")
    await broker.submit("q", "b", b"b")
    for _ in range(5):
        delivery = await broker.take("q")
        assert (delivery.job_id, delivery.body, delivery.attempt) == (first, b"a", 1)
        await broker.requeue(first)
        assert (await broker.state(first)).state == "waiting"
        assert (await broker.state(first)).ahead == 0
    assert (await take(broker))[0] == first
    assert (await take(broker))[1] == b"b"
    await broker.finish(first, b"answer")
    assert await broker.result(first) == b"answer"


async def test_the_age_of_a_job_counts_from_its_submission(broker: Broker) -> None:
    first = await broker.submit("compile", "first", b"")
    second = await broker.submit("q", "second", b"", SubmitOptions(after=first))
    await asyncio.sleep(0.6)
    await take(broker, "compile")
    await broker.finish(first, b"")
    for _ in range(2):
        delivery = await broker.take("q")
        assert delivery.age_s >= 0.5
        await broker.requeue(second)


async def test_repeated_requeues_count_once(broker: Broker) -> None:
    job_id = await running_job(broker)
    await broker.requeue(job_id)
    await broker.requeue(job_id)
    await broker.requeue("never")
    assert await broker.submit("q", "k", b"") == job_id
    assert await broker.backlog("q") == Backlog(1, 0, 0)
    await take(broker)


async def test_a_cancelled_job_ends_when_it_is_requeued(broker: Broker) -> None:
    job_id = await running_job(broker)
    await broker.cancel(job_id)
    await broker.requeue(job_id)
    with pytest.raises(JobCancelled):
        await broker.result(job_id)


async def test_a_cancelled_take_loses_no_job(broker: Broker) -> None:
    for number in range(10):
        taker = asyncio.create_task(take(broker))
        await asyncio.sleep(0.002 * number)
        job_id = await broker.submit("q", str(number), b"")
        await asyncio.sleep(0.002 * number)
        taker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            assert (await taker)[0] == job_id
            await broker.finish(job_id, b"")
            continue
        assert (await take(broker))[0] == job_id
        await broker.finish(job_id, b"")


async def test_a_dependent_job_keeps_the_place_of_its_submission(broker: Broker) -> None:
    first = await broker.submit("compile", "first", b"")
    await broker.submit("q", "dependent", b"dependent", SubmitOptions(after=first))
    later = await broker.submit("q", "later", b"later")
    assert (await broker.state(later)).ahead == 0
    await take(broker, "compile")
    await broker.finish(first, b"")
    await broker.submit("q", "last", b"last")
    assert (await broker.state(later)).ahead == 1
    assert [(await take(broker))[1] for _ in range(3)] == [b"dependent", b"later", b"last"]
