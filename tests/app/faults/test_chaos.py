"""Real generations while workers and the server are killed.

A process that dies is forked again here; in tests/app/local/test_up.py, which always runs, `abs up` restarts it.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.report.service import chaos_section
from tests.long.chaos import Chaos, ChaosResult, StableAnswer
from tests.servers.cluster import FULL
from tests.servers.restarting_service import forked_service

REQUESTS = 12
KILLS_MAX = 3
WORKERS = {"compile": 1, "generate": 1}


@pytest.mark.skipif(not FULL, reason="tests/app/local/test_up.py is the short form")
def test_workers_and_the_server_are_killed_under_requests() -> None:
    with forked_service(WORKERS) as running:
        result = Chaos(running, REQUESTS, KILLS_MAX).run()
    assert result.good(), result.report()


def good_result() -> ChaosResult:
    """The outcome of a good run of two requests."""
    answers = {f"chaos-{number}": StableAnswer(f"job {number}", ("a dog",)) for number in range(2)}
    return ChaosResult(
        2, answers, dict(answers), Counter(done=2), killed=Counter({"server": 1, "generate-1": 1}), took_s=1.0
    )


def test_a_clean_chaos_run_is_reported_as_passed() -> None:
    assert good_result().good() and not good_result().changed()
    about = {"date": "d", "machine": "m", "command": "c", "code": "0"}
    section = chaos_section(about | json.loads(json.dumps(good_result().figures())))
    assert "2 answered" in section and "0 lost" in section and section.endswith(": met\n")
    section = chaos_section(about | replace(good_result(), failed=["chaos-1: 500"]).figures())
    assert "1 failed" in section and section.endswith(": missed\n")


@pytest.mark.parametrize(
    "spoilt",
    [
        {"killed": Counter(server=1)}, {"killed": Counter({"generate-1": 5})}, {"failed": ["chaos-1: 500"]},
        {"wrong": ["chaos-0: cat"]}, {"states": Counter(done=3)}, {"states": Counter(done=2, cancelled=1)},
        {"answers": {"chaos-0": StableAnswer("job 0", ("a dog",))}}, {"replayed": {}},
        {"replayed": {f"chaos-{number}": StableAnswer("job 2", ("a dog",)) for number in range(2)}},
        {"replayed": {f"chaos-{number}": StableAnswer(f"job {number}", ("a cat",)) for number in range(2)}},
    ],
)
def test_a_chaos_run_with_a_defect_is_not_good(spoilt: dict[str, Any]) -> None:
    assert not replace(good_result(), **spoilt).good()
