from __future__ import annotations

from app.pace import S_MAX, UNKNOWN_S, Pace
from tests.app.clock import Clock


def test_what_waits_is_told_by_what_has_gone_of_late() -> None:
    clock = Clock()
    pace = Pace(clock)
    assert pace.wait_s("q", 0) == pace.wait_s("q", 10**9) == UNKNOWN_S  # nothing is known yet
    for _ in range(10):
        clock.now += 2.0
        pace.ended("q", 100)
    assert pace.wait_s("q", 0) == 2  # ten in 20 s
    assert pace.wait_s("q", 500) == 10
    assert pace.wait_s("q", 10**9) == S_MAX
    assert pace.wait_s("other", 500) == UNKNOWN_S


def test_what_is_long_over_counts_no_more() -> None:
    clock = Clock()
    pace = Pace(clock)
    for _ in range(100):
        pace.ended("q", 100)
    clock.now = 30.0
    assert pace.wait_s("q", 10_000) == 30
    clock.now = 61.0
    pace.ended("q", 0)
    assert pace.wait_s("q", 10_000) == S_MAX
