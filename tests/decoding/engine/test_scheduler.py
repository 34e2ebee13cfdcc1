"""Admission: small requests overtake large ones, and neither waits for ever."""

from __future__ import annotations

import random

import pytest

from decoding.engine.memory import MemoryBudget, request_bytes_max, small_bytes
from decoding.engine.request import EngineRequest
from decoding.engine.scheduler import Scheduler
from tests.fake_models import HashModel

MEMORY = 800
SMALL, LARGE = small_bytes(MEMORY), request_bytes_max(MEMORY)


class _Nothing:
    """A generation that is never driven."""


def _request(bytes_max: int) -> EngineRequest:
    return EngineRequest(
        model=HashModel(2, (0,)), begin=_Nothing, prompt_ids=(0,), cancelled=None, has_listener=False,  # type: ignore[arg-type]
        bytes_max=bytes_max,
    )


def _scheduler(*sizes: int) -> tuple[Scheduler, list[EngineRequest]]:
    scheduler, requests = Scheduler(MemoryBudget(MEMORY)), [_request(size) for size in sizes]
    for request in requests:
        scheduler.add(request)
    return scheduler, requests


def test_a_small_request_overtakes_a_large_one_that_waits() -> None:
    scheduler, (first, second, small) = _scheduler(LARGE, LARGE, SMALL)
    assert scheduler.admit() == [first, small]
    scheduler.add(another := _request(1))
    assert scheduler.admit() == []  # the small requests' share is taken
    scheduler.remove(small)
    assert scheduler.admit() == [another]
    scheduler.remove(first)
    assert scheduler.admit() == [second]


def test_small_requests_keep_their_order() -> None:
    scheduler, requests = _scheduler(LARGE, LARGE, SMALL // 2, SMALL, SMALL // 2)
    assert scheduler.admit() == [requests[0], requests[2]]


def test_a_large_request_is_not_overtaken_for_its_memory() -> None:
    scheduler, requests = _scheduler(LARGE // 2, LARGE, *[SMALL] * 20)
    assert scheduler.admit() == [requests[0], requests[2]]
    scheduler.remove(requests[0])
    assert scheduler.admit() == [requests[1]]


def test_nothing_overtakes_an_exclusive_request() -> None:
    scheduler, (first, second, small) = _scheduler(LARGE, LARGE, SMALL)
    second.preemptions = 9
    assert scheduler.admit() == [first]
    scheduler.remove(first)
    assert scheduler.admit() == [second] and small in scheduler.requests


@pytest.mark.parametrize("seed", range(20))
def test_every_request_begins_whatever_arrives(seed: int) -> None:
    """The oldest one begins once those that ran before have ended."""
    draw = random.Random(seed)
    scheduler, _ = _scheduler()
    oldest, running_before = None, set[int]()
    for _ in range(2_000):
        if len(scheduler) < 30:
            scheduler.add(_request(draw.choice((1, SMALL, draw.randint(1, LARGE), LARGE))))
        scheduler.admit()
        running = scheduler.running
        assert sum(request.bytes_max for request in running) <= MEMORY
        waiting = scheduler.requests[len(running) :]
        if waiting and waiting[0] is not oldest:
            oldest, running_before = waiting[0], {id(request) for request in running if not request.overtook}
        left = running_before & {id(request) for request in running}
        assert left or not waiting
        if running:
            scheduler.remove(draw.choice(running))
