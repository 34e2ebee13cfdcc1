"""The contract of every broker: admission by the queue's pace."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from time import monotonic

import pytest

from app.broker import Broker, SubmitOptions
from app.errors import DeadlineExceeded, DeadlineUnreachable, QueueFull
from app.messages import failure_of, load
from tests.app.broker.brokers import Time, take

WEIGHT, EACH_S = 9, 0.5  # weight and duration of the jobs that keep a queue moving, in the scenario's time
PACE = (WEIGHT + 1) / EACH_S
LONG_S = 5_000.0
keys: Iterator[str] = map(str, itertools.count())


async def submit(broker: Broker, time: Time, deadline_in_s: float | None, terms: SubmitOptions | None = None) -> str:
    """A job with a deadline in seconds of the scenario."""
    terms = terms or SubmitOptions(weight=WEIGHT)
    deadline_in_s = None if deadline_in_s is None else time.to_real(deadline_in_s)
    return await broker.submit("q", next(keys), b"", dataclasses.replace(terms, deadline_in_s=deadline_in_s))


async def move(broker: Broker, time: Time, jobs: int = 30) -> None:
    """One job after another is run, while two wait."""
    for _ in range(2):
        await submit(broker, time, None)
    for _ in range(jobs):
        await submit(broker, time, None)
        job_id, _ = await take(broker)
        await time.advance(EACH_S)
        await broker.finish(job_id, b"")


async def empty(broker: Broker) -> None:
    while (await broker.backlog("q")).interactive + (await broker.backlog("q")).batch:
        await broker.finish((await take(broker))[0], b"")


async def test_a_job_with_an_unreachable_deadline_gets_a_retry_time(broker: Broker, time: Time) -> None:
    await move(broker, time)
    with pytest.raises(DeadlineUnreachable) as refused:
        await submit(broker, time, 0.5)
    fastest_s = 3 * (WEIGHT + 1) / PACE  # two and its own
    assert 0.9 * fastest_s <= time.to_scenario(refused.value.wait_s) + 0.5 <= 30 * fastest_s
    assert refused.value.timeout_s == pytest.approx(time.to_real(0.5), abs=0.1)
    assert 1 <= refused.value.retry_after_s <= 60 and f"{refused.value.retry_after_s} s" in str(refused.value)
    await submit(broker, time, LONG_S)  # who has time may wait, and who does not say, too
    await empty(broker)
    await submit(broker, time, None)


async def test_a_job_that_starts_at_once_is_admitted(broker: Broker, time: Time) -> None:
    await move(broker, time)
    await empty(broker)
    await submit(broker, time, 0.01)
    await take(broker)
    await submit(broker, time, 0.01)


async def test_every_job_is_admitted_while_throughput_is_unknown(broker: Broker, time: Time) -> None:
    for _ in range(2):
        await submit(broker, time, 0.01)
    await time.advance(8)  # nothing was ever taken
    await submit(broker, time, 0.01)


async def test_a_queue_without_waiting_jobs_has_no_throughput_estimate(broker: Broker, time: Time) -> None:
    for _ in range(10):
        await submit(broker, time, None)
        job_id, _ = await take(broker)
        await time.advance(1)
        await broker.finish(job_id, b"")
    for _ in range(3):
        await submit(broker, time, 0.01)


async def test_time_without_workers_does_not_lower_the_throughput(broker: Broker, time: Time) -> None:
    await move(broker, time)
    await time.advance(60)
    await submit(broker, time, 20 * 3 * (WEIGHT + 1) / PACE)


async def test_a_job_is_admitted_if_no_more_wait_than_run(broker: Broker, time: Time) -> None:
    await move(broker, time)
    await take(broker)  # one runs, and one waits
    await submit(broker, time, 0.01)
    with pytest.raises(DeadlineUnreachable):
        await submit(broker, time, 0.01)


async def test_idle_time_does_not_lower_the_throughput(broker: Broker, time: Time) -> None:
    await move(broker, time)
    await empty(broker)
    await time.advance(20)
    for _ in range(3):
        await submit(broker, time, 20 * 3 * (WEIGHT + 1) / PACE)


async def test_the_wait_estimate_counts_only_jobs_ahead(broker: Broker, time: Time) -> None:
    await move(broker, time)
    await empty(broker)
    batch = SubmitOptions(weight=WEIGHT, priority="batch")
    await submit(broker, time, None, batch)
    with pytest.raises(DeadlineUnreachable):
        await submit(broker, time, 0.5, batch)
    await submit(broker, time, 0.01)  # goes before it
    with pytest.raises(DeadlineUnreachable):
        await submit(broker, time, 0.01)


async def test_the_wait_estimate_counts_running_jobs(broker: Broker, time: Time) -> None:
    await move(broker, time)
    waits = []
    for _ in range(2):
        with pytest.raises(DeadlineUnreachable) as refused:
            await submit(broker, time, 0.5)
        waits.append(refused.value.wait_s)
        await broker.take("q")
        await submit(broker, time, None)
    assert waits[1] > 1.1 * waits[0]


async def test_jobs_that_depend_on_one_job_count_as_ahead(broker: Broker, time: Time) -> None:
    await move(broker, time)
    await empty(broker)
    outside = SubmitOptions(weight=WEIGHT, after=await broker.submit("compile", next(keys), b""))
    for _ in range(2):
        await submit(broker, time, None, outside)
    with pytest.raises(DeadlineUnreachable):
        await submit(broker, time, 0.5, outside)
    await submit(broker, time, 0.5)  # it does not wait for that job, and is taken at once


async def test_joining_a_job_is_not_refused_by_its_deadline(broker: Broker, time: Time) -> None:
    await move(broker, time)
    job_id = await broker.submit("q", "known", b"", SubmitOptions(deadline_in_s=time.to_real(LONG_S)))
    assert await broker.submit("q", "known", b"", SubmitOptions(deadline_in_s=time.to_real(0.01))) == job_id


async def test_a_full_queue_derives_retry_after_from_its_throughput(broker: Broker, time: Time) -> None:
    await move(broker, time)
    await submit(broker, time, None)
    with pytest.raises(QueueFull) as refused:
        await submit(broker, time, None)
    assert 1 <= refused.value.retry_after_s <= 60


async def test_a_late_job_is_not_run_while_others_wait(broker: Broker, time: Time) -> None:
    own = SubmitOptions(weight=WEIGHT, kind="generate")
    for _ in range(5):
        await submit(broker, time, None)
        job_id, _ = await take(broker)
        await time.advance(20)
        await broker.finish(job_id, b"")
    late, shared = await submit(broker, time, 12, own), await submit(broker, time, 12)
    await time.advance(8)
    waiting = await submit(broker, time, 12, own)
    assert (await take(broker))[0] == shared, "others may have more time than the first caller"
    assert load(await broker.result(late)) == failure_of(DeadlineExceeded())
    assert (await broker.state(late)).state == "done"
    await time.advance(8)
    assert (await take(broker))[0] == waiting, "no other request would get its slot"


async def test_throughput_counts_all_jobs_of_a_batch(broker: Broker, time: Time) -> None:
    jobs = []
    for _ in range(3):
        await submit(broker, time, None)
        jobs.append((await take(broker))[0])
    began = monotonic()
    for _ in range(2):
        await submit(broker, time, None)
    await time.advance(8)
    for job_id in jobs[:2]:
        await broker.finish(job_id, b"")
    with pytest.raises(DeadlineUnreachable) as refused:
        await submit(broker, time, 0.1)
    passed_s = max(8.0, time.to_scenario(monotonic() - began))
    assert time.to_scenario(refused.value.wait_s) <= 2.5 * passed_s, "four jobs after three starts: not one alone"


async def test_queue_totals_stay_correct_however_jobs_end(broker: Broker, time: Time) -> None:
    await move(broker, time)
    await empty(broker)

    async def wait_s() -> float:
        for priority in ("interactive", "batch"):
            await submit(broker, time, None, SubmitOptions(priority=priority))  # type: ignore[arg-type]
        with pytest.raises(DeadlineUnreachable) as refused:
            await submit(broker, time, 0.001, SubmitOptions(weight=10_000 - 3, priority="batch"))
        await empty(broker)
        return refused.value.wait_s

    before = await wait_s()
    heavy = SubmitOptions(weight=90)
    for ending in ("finish", "cancel", "leave", "give_back", "cancel while it runs"):
        for terms in (heavy, dataclasses.replace(heavy, priority="batch")):
            job_id = await submit(broker, time, None, terms)
            if ending in ("cancel", "leave"):
                await (broker.cancel if ending == "cancel" else broker.unsubscribe)(job_id)
                continue
            assert (await take(broker))[0] == job_id
            if ending == "give_back":
                await broker.requeue(job_id)
                assert (await take(broker))[0] == job_id
            elif ending == "cancel while it runs":
                await broker.cancel(job_id)
            await broker.finish(job_id, b"")
    assert await wait_s() == pytest.approx(before, rel=0.25)
