"""The short form of the load benchmark, and its report. It runs real processes and Redis and checks every answer."""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.report.results_page import stored_runs
from benchmarks.report.service import load_section, queue_section, scaling_section
from benchmarks.service import load, queue, scaling

SHORT = {"requests": 3, "rate": 50.0, "cached_seconds": 1.0, "callers": 60, "clients": 10, "seconds": 3.0, "ramp": 0.5}


@pytest.fixture(scope="module")
def measured() -> Iterator[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch, load.run_service({"ABS_NICE": "1"}) as service:
        patch.setattr(load, "COMMON", 8)  # each of them is compiled and generated once before the sustained load
        yield asyncio.run(load.measure(service, argparse.Namespace(**SHORT)))


@pytest.mark.long
def test_under_load_every_answer_satisfies_and_nothing_fails(measured: dict[str, Any]) -> None:
    sustained = measured["sustained"]
    assert set(sustained["statuses"]) <= {200, 429} and sustained["statuses"][200] >= SHORT["clients"]
    assert sustained["violations"] == 0
    assert sustained["distinct"] == sustained["answers"]
    assert set(sustained["memory"]) >= {"api", "compile-1", "generate-1"}


@pytest.mark.long
def test_many_callers_of_one_cold_constraint_cost_one_compilation(measured: dict[str, Any]) -> None:
    assert measured["same_constraint"]["statuses"] == {200: SHORT["callers"]}
    assert measured["same_constraint"]["compilations"] == 1


@pytest.mark.long
def test_cached_constraints_are_answered_at_the_requested_rate(measured: dict[str, Any]) -> None:
    assert measured["cached"]["statuses"] == {200: SHORT["rate"] * SHORT["cached_seconds"]}


def test_the_report_lists_the_goals_met() -> None:
    figures = stored_runs()["load"]
    for sizes in figures["sustained"]["memory"].values():
        sizes["ratio"] = 1.0
    assert "- no process grows by more than 5%: met" in load_section(figures)
    figures["sustained"]["statuses"]["500"] = 1
    figures["sustained"]["violations"] = 2
    figures["sustained"]["memory"]["api"]["ratio"] = 1.06
    figures["same_constraint"]["compilations"] = 2
    text = load_section(figures)
    for goal in ("no error but 429", "no process grows by more than 5%", "one compilation", "every answer satisfies"):
        assert goal in text and text.partition(goal)[2].splitlines()[0].endswith("missed")


@pytest.mark.long
def test_the_queue_benchmark_counts_jobs_events_and_scripts() -> None:
    rows = queue.measure_all(256, 3)
    assert [(row["jobs"], row["events"]) for row in rows] == [(256, 0), (64, 3)]
    assert 3 < rows[0]["scripts"] < rows[1]["scripts"]
    text = queue_section(stored_runs()["queue"] | {"rows": rows})
    assert "\n| 0 | " in text and "\n| 3 | " in text


@pytest.mark.long
def test_workers_share_the_jobs_of_one_queue() -> None:
    rows = scaling.measure_all([1, 2], 4.0)
    assert [(row["workers"], row["failed"]) for row in rows] == [(1, 0), (2, 0)]
    assert rows[1]["least_jobs"] > 0 and all(row["answers_per_s"] > 0 for row in rows)
    text = scaling_section(stored_runs()["scaling"] | {"rows": rows})
    assert "\n| 1 | 8 | " in text and " | 1.00 | " in text and "\n| 2 | 16 | " in text


def test_growth_compares_memory_after_warm_up_and_end() -> None:
    samples = [(float(at), {"api": 100.0 if at < 50 else 110.0}) for at in range(100)]
    samples[0][1]["api"] = 7.0
    assert load.growth(samples, 100.0) == {"api": {"warm_mib": 100.0, "end_mib": 110.0, "ratio": pytest.approx(1.1)}}


def test_the_answer_checks_reject_wrong_answers() -> None:
    _, ordered = load.keywords(("dog", ("run", "runs")))
    assert ordered("The dog runs.") and not ordered("It runs, the dog.") and not ordered("a hotdog runs")
    _, pattern_request = load.pattern(r"[a-z]+\.")
    assert pattern_request("dog.") and not pattern_request("dog. ")
    rng = random.Random(1)
    assert not any(request.satisfies("") for request in (load.cold_request(rng), *load.common_requests(4, rng)))
    assert load.percentiles([3.0, 1.0, 2.0])["p50"] == 2.0
