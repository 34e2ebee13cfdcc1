"""Workers of `abs up`, and its server, are killed under requests; at length by `python -m tests.chaos --supervised`."""

from __future__ import annotations

from tests.chaos import chaos
from tests.killable import supervised


def test_killed_processes_restart_and_every_request_is_answered_once() -> None:
    with supervised({"compile": 1, "generate": 1}) as running:
        story = chaos(running, requests=12, kills_max=3)
    assert story.good(), story.report()
