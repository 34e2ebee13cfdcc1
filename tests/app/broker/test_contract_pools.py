"""The contract of every broker: pools of jobs with one limit."""

from __future__ import annotations

import pytest

from app.broker import Broker, ConcurrencyGroup, SubmitOptions
from app.errors import QueueFull
from app.service.job_client import JobClient
from app.settings import Settings
from tests.app.broker.brokers import take

ALL, ANNA = ConcurrencyGroup("all", 3, "all_max"), ConcurrencyGroup("anna", 2, "anna_max")
OWN, OTHERS = SubmitOptions(pools=(ALL, ANNA)), SubmitOptions(pools=(ALL, ConcurrencyGroup("ben", 2, "ben_max")))


async def refused(broker: Broker, key: str, terms: SubmitOptions) -> tuple[str, float]:
    """The limit that keeps a job out."""
    with pytest.raises(QueueFull) as caught:
        await broker.submit("q", key, b"", terms)
    return caught.value.limit, caught.value.cap


async def test_a_concurrency_group_bounds_jobs_but_not_joins(broker: Broker) -> None:
    first, _ = [await broker.submit("q", key, b"", OWN) for key in "ab"]
    assert await refused(broker, "c", OWN) == ("anna_max", 2)
    assert await broker.submit("q", "a", b"", OWN) == first
    await broker.submit("q", "a", b"", OTHERS)
    await broker.submit("q", "d", b"", OTHERS)
    await take(broker)  # running jobs count, and the queue itself takes jobs again
    assert await refused(broker, "e", OTHERS) == ("all_max", 3)
    await broker.submit("other", "e", b"")  # in no pool


@pytest.mark.parametrize("ending", ["finish", "cancel", "leave"])
async def test_a_job_counts_in_its_groups_until_it_ends(broker: Broker, ending: str) -> None:
    jobs = [await broker.submit("q", key, b"", OWN) for key in "ab"]
    if ending == "finish":
        assert (await take(broker))[0] == jobs[0]
        assert await refused(broker, "c", OWN) == ("anna_max", 2), "one that runs counts"
        await broker.requeue(jobs[0])
        assert await refused(broker, "c", OWN) == ("anna_max", 2)
        await take(broker)
        await broker.finish(jobs[0], b"")
    else:
        await (broker.cancel if ending == "cancel" else broker.unsubscribe)(jobs[0])
    await broker.submit("q", "c", b"", OWN)
    assert await refused(broker, "d", OWN) == ("anna_max", 2)


async def test_a_job_refused_by_one_group_counts_in_none(broker: Broker) -> None:
    for key in "ab":
        await broker.submit("q", key, b"", OWN)
    for _ in range(3):
        assert await refused(broker, "c", OWN) == ("anna_max", 2)
    await broker.submit("q", "c", b"", OTHERS)


async def test_compilations_are_limited_in_total_and_per_key(broker: Broker) -> None:
    desk = JobClient(Settings.of(pending_compiles_max=3, key_pending_compiles_max=2), broker)
    for key in "ab":
        await broker.submit("q", key, b"", desk.compilation("anna"))
    assert await refused(broker, "c", desk.compilation("anna")) == ("key_pending_compiles_max", 2)
    await broker.submit("q", "c", b"", desk.compilation("ben"))
    await take(broker)
    for owner in ("ben", ""):
        assert await refused(broker, "d", desk.compilation(owner)) == ("pending_compiles_max", 3)
    free = JobClient(Settings.of(key_pending_compiles_max=0), broker)
    assert [pool.limit for pool in free.compilation("anna").pools] == ["pending_compiles_max"]
