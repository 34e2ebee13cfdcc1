"""The benchmark's measurements complete, and its report states their figures."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.compiler.cases import Expression
from benchmarks.compiler.engine_process import STEPS, MeasureRequest, Outcome, compile_outcome, forked_outcome
from benchmarks.compiler.engines import ExpressionRefused, Figures, Masks
from benchmarks.report import layout, results_page
from benchmarks.report.compile import compile_section, scale_section
from benchmarks.report.layout import median_and_range, short_number, table
from benchmarks.runs import COMMITTED, REPORT
from compiler.errors import LimitExceeded

GIGABYTE = 10**9


class TwoTokens:
    """Masks that allow token 0 twice and then only EOS, id 1."""

    def __init__(self) -> None:
        self.tokens_read = 0
        self.look_ups = 0

    def restart(self) -> None:
        self.tokens_read = 0

    def look_up(self) -> None:
        self.look_ups += 1

    def allowed(self) -> np.ndarray:
        return np.array([0] if self.tokens_read < 2 else [1])

    def advance(self, token: int) -> None:
        assert token == 0 and self.tokens_read < 2
        self.tokens_read += 1


class Pretender:
    """An engine whose compile does what the test says."""

    eos = 1

    def __init__(self, work: Callable[[], object]) -> None:
        self._work, self.masks = work, TwoTokens()

    def warm_up(self) -> None:
        pass

    def compile(self, expression: Expression) -> Masks:
        self._work()
        return self.masks

    def figures(self, masks: Masks) -> Figures:
        assert isinstance(masks, TwoTokens)
        return {"states": 3}


def outcome_of(work: Callable[[], object], seconds: float = 20.0) -> Outcome:
    return forked_outcome(Pretender(work), MeasureRequest(Expression("regex", "a"), seconds, GIGABYTE))


def raising(error: Exception) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


def test_a_compile_that_ends_is_measured_and_walked() -> None:
    outcome = outcome_of(lambda: np.ones(50_000_000, dtype=np.uint8).sum())
    assert outcome.outcome == "ok"
    assert outcome.figures["states"] == 3 and outcome.figures["first_ids"] == 1
    assert outcome.figures["ms"] > 0 and outcome.figures["peak_bytes"] > 40_000_000
    assert 0 < outcome.figures["look_up_p50"] <= outcome.figures["look_up_p99"]


def test_the_walk_makes_the_stated_number_of_lookups() -> None:
    engine = Pretender(lambda: None)
    compile_outcome(engine, Expression("regex", "a"))
    assert engine.masks.look_ups == STEPS


@pytest.mark.parametrize(
    ("work", "outcome", "message"),
    [
        (raising(ExpressionRefused("no such thing")), "refused", "no such thing"),
        (raising(LimitExceeded("dfa_states_max", 10, 11)), "limit", "dfa_states_max"),
        (raising(RuntimeError("out of order")), "failed", "out of order"),
        (lambda: np.ones(10 * GIGABYTE, dtype=np.uint8), "memory", ""),
        (lambda: os._exit(3), "failed", "ended with status"),
    ],
)
def test_a_failed_compile_reports_its_outcome(work: Callable[[], object], outcome: str, message: str) -> None:
    result = outcome_of(work)
    assert result.outcome == outcome and message in result.message and not result.figures


def test_a_compile_over_the_time_limit_is_ended() -> None:
    assert outcome_of(lambda: time.sleep(60), seconds=0.3) == Outcome("time")


def test_a_constraint_that_ours_does_not_compile_is_a_loss() -> None:
    run = results_page.stored_runs()["compile"]
    failed = next(row for row in run["rows"] if row["engine"] == "ours")
    failed.update(outcome="limit", message="dfa_states_max", figures={})
    others = [row for row in run["rows"] if row["engine"] == "ours" and row["case"] != failed["case"]]
    text = compile_section(run | {"rows": [failed, *others]})
    assert f"- ours does not compile {failed['case']}: limit; dfa_states_max" in text
    assert "- no constraint was finished by all precomputing engines" in text


def test_the_growth_section_plots_and_lists_failed_compiles(results: Path) -> None:
    run = results_page.stored_runs()["scale"]
    run["rows"].append(run["rows"][0] | {"size": 99, "outcome": "time", "figures": {}})
    assert "- not compiled: keywords, 99: time" in scale_section(run)
    pytest.importorskip("matplotlib")
    assert "<svg" in (results / "scale.svg").read_text(encoding="utf-8")


def test_the_report_needs_no_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(layout, "RESULTS_DIRECTORY", COMMITTED)  # the report links its plots, and draws none here
    monkeypatch.setattr(results_page, "REPORT", tmp_path / "RESULTS.md")
    monkeypatch.setattr(results_page, "write_readme", lambda runs: None)
    report_text = REPORT.read_text(encoding="utf-8")
    results_page.write_report()
    assert (tmp_path / "RESULTS.md").read_text(encoding="utf-8") == report_text


def test_numbers_are_shown_with_the_digits_they_deserve() -> None:
    assert [short_number(value) for value in (0, 0.432, 4.32, 43.2, 4321)] == ["0.0", "0.43", "4.3", "43", "4,321"]
    assert median_and_range([3, 1, 2]) == "2.0 (1.0-3.0)" and median_and_range([2, 2]) == "2.0"
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
