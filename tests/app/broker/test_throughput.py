"""How fast a queue moves, by a clock that the test sets. Brokers are in test_contract_admission.py."""

from __future__ import annotations

import pytest

from app.broker.throughput import (
    DEFAULT_RETRY_S,
    IDLE_MEMORY_S,
    MEMORY_S,
    RETRY_S_MAX,
    WAITING_S_MIN,
    ThroughputEstimator,
    retry_delay_s,
)
from tests.app.manual_clock import Clock


def moves(pace: ThroughputEstimator, clock: Clock, work_per_s: float, seconds: float) -> None:
    """A queue that never empties, with this much taken each half second."""
    for _ in range(round(2 * seconds)):
        clock.now += 0.5
        pace.advance(moving=True)
        pace.record_taken(round(work_per_s / 2))


def test_throughput_counts_jobs_taken_while_others_wait() -> None:
    clock = Clock()
    pace = ThroughputEstimator(clock)
    assert pace.seconds(100) is None
    moves(pace, clock, 20, 10)
    assert pace.seconds(100) == pytest.approx(5.0, rel=0.05)
    moves(pace, clock, 20, 200)
    assert pace.seconds(100) == pytest.approx(5.0, rel=0.05)


def test_throughput_needs_a_waiting_time_and_a_taken_job() -> None:
    clock = Clock()
    pace = ThroughputEstimator(clock)
    pace.record_taken(10)
    clock.now = 0.5 * WAITING_S_MIN
    pace.advance(moving=True)
    assert pace.seconds(10) is None
    standing = ThroughputEstimator(clock)
    clock.now += 100
    standing.advance(moving=True)
    assert standing.seconds(10) is None, "a first job may be long"


def test_long_idle_time_makes_the_throughput_unknown() -> None:
    clock = Clock()
    pace = ThroughputEstimator(clock)
    moves(pace, clock, 20, 30)
    for _ in range(10):
        clock.now += IDLE_MEMORY_S / 10
        pace.advance(moving=False)
        assert pace.seconds(100) == pytest.approx(5.0, rel=0.05)
    clock.now += 10 * IDLE_MEMORY_S
    pace.advance(moving=False)
    assert pace.seconds(100) is None, "it is forgotten in the end"


def test_recent_throughput_outweighs_older_and_sooner_after_idling() -> None:
    taken_s = []
    for idle_s in (0.0, 2 * IDLE_MEMORY_S):
        clock = Clock()
        pace = ThroughputEstimator(clock)
        moves(pace, clock, 20, 100)
        clock.now += idle_s
        pace.advance(moving=False)
        moves(pace, clock, 200, MEMORY_S / 3)
        seconds = pace.seconds(1000)
        assert seconds is not None
        taken_s.append(seconds)
    assert 50 > taken_s[0] > taken_s[1] > 5


def test_a_stalled_queue_has_a_falling_throughput() -> None:
    clock = Clock()
    pace = ThroughputEstimator(clock)
    moves(pace, clock, 20, 60)
    clock.now += MEMORY_S
    pace.advance(moving=True)
    assert (pace.seconds(100) or 0) > 10


def test_throughput_counts_starts_of_a_whole_batch() -> None:
    clock = Clock()
    pace = ThroughputEstimator(clock)
    for _ in range(32):
        pace.advance(moving=False)
    pace.on_first_waiting(320)  # as many run as may, of whom none had to wait
    clock.now += 8
    pace.advance(moving=True)
    pace.record_taken(10)
    assert pace.seconds(40) == pytest.approx(1.0, rel=0.2)  # 40 a second


def test_a_run_needs_about_the_time_of_recent_runs() -> None:
    pace = ThroughputEstimator(Clock())
    assert not pace.cannot_meet_deadline(10, 0.01, 100)
    for _ in range(50):
        pace.record_run(10.0, 100)
    assert pace.cannot_meet_deadline(100, 4, 50) and not pace.cannot_meet_deadline(100, 6, 50)
    assert pace.cannot_meet_deadline(10_000, 4, 50), "more work need not take longer"
    assert not pace.cannot_meet_deadline(10_000, 6, 50)
    assert not pace.cannot_meet_deadline(10, 4, 50) and pace.cannot_meet_deadline(10, 0.4, 50), "less work takes less"
    assert not pace.cannot_meet_deadline(100, 4, 3), "its time was short from the first"
    assert not pace.cannot_meet_deadline(100, -1, 50), "a worker ends an expired job itself"
    for _ in range(50):
        pace.record_run(1.0, 100)
    assert not pace.cannot_meet_deadline(100, 4, 50)


def test_a_requeued_job_does_not_count_as_done() -> None:
    clock = Clock()
    pace = ThroughputEstimator(clock)
    moves(pace, clock, 20, 60)
    before = pace.seconds(100)
    pace.record_taken(400)
    pace.record_requeued(400)
    assert pace.seconds(100) == pytest.approx(before)
    pace.record_requeued(10**6)
    assert pace.seconds(100) is None


def test_a_clock_that_goes_back_counts_as_no_time() -> None:
    clock = Clock()
    pace = ThroughputEstimator(clock)
    moves(pace, clock, 20, 60)
    clock.now -= 1000
    pace.advance(moving=True)
    assert pace.seconds(100) == pytest.approx(5.0, rel=0.05)


def test_retry_times_of_refused_requests_are_spread() -> None:
    assert retry_delay_s(None, None, lambda: 0.0) == DEFAULT_RETRY_S
    assert retry_delay_s(0.0, 0.0, lambda: 0.0) == 1
    assert retry_delay_s(2.2, 40.0, lambda: 0.0) == 3
    assert retry_delay_s(2.2, 40.0, lambda: 1.0) == 13
    assert retry_delay_s(100.0, 1000.0, lambda: 0.5) == RETRY_S_MAX
    assert len({retry_delay_s(5.0, 60.0) for _ in range(500)}) > 8
