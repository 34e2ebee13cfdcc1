"""The short form of `make chaos` (tests/chaos.py): real generations, while workers and the server are killed."""

from __future__ import annotations

from tests.chaos import chaos

REQUESTS = 30
KILLS_MAX = 4


def test_workers_and_the_server_are_killed_under_requests() -> None:
    story = chaos(REQUESTS, KILLS_MAX, workers=2)
    assert story.good(REQUESTS), story.report(REQUESTS)
    assert story.killed.total() >= 2 and story.killed["server"] == 1, story.report(REQUESTS)
