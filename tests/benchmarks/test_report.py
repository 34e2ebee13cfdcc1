"""The benchmark's measurements complete, and its report states their figures."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.compiler.cases import Expression
from benchmarks.compiler.engine_process import STEPS, MeasureRequest, Outcome, compile_outcome, forked_outcome
from benchmarks.compiler.engines import ExpressionRefused, Figures, Masks
from benchmarks.report import layout, results_page
from benchmarks.report.compile import compile_section, fitted_law, law_phrase, ratios, scale_section
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
        self._work = work

    def warm_up(self) -> None:
        pass

    def compile(self, expression: Expression) -> Masks:
        self._work()
        return TwoTokens()

    def figures(self, masks: Masks) -> Figures:
        assert isinstance(masks, TwoTokens)
        return {"states": 3}


def outcome_of(work: Callable[[], object], seconds: float = 20.0) -> Outcome:
    return forked_outcome(Pretender(work), MeasureRequest(Expression("regex", "a"), seconds, GIGABYTE))


def refuse() -> None:
    raise ExpressionRefused("no such thing")


def outgrow() -> None:
    raise LimitExceeded("dfa_states_max", 10, 11)


def fail() -> None:
    raise RuntimeError("out of order")


def fill_memory() -> None:
    np.ones(10 * GIGABYTE, dtype=np.uint8)


def test_a_compile_that_ends_is_measured_and_walked() -> None:
    outcome = outcome_of(lambda: np.ones(50_000_000, dtype=np.uint8).sum())
    assert outcome.outcome == "ok"
    assert outcome.figures["states"] == 3 and outcome.figures["first_ids"] == 1
    assert outcome.figures["ms"] > 0 and outcome.figures["peak_bytes"] > 40_000_000
    assert 0 < outcome.figures["look_up_p50"] <= outcome.figures["look_up_p99"]


def test_the_walk_makes_the_stated_number_of_lookups() -> None:
    masks = TwoTokens()

    class Kept(Pretender):
        def compile(self, expression: Expression) -> Masks:
            return masks

    compile_outcome(Kept(lambda: None), Expression("regex", "a"))
    assert masks.look_ups == STEPS


@pytest.mark.parametrize(
    ("work", "outcome", "message"),
    [
        (refuse, "refused", "no such thing"),
        (outgrow, "limit", "dfa_states_max"),
        (fail, "failed", "out of order"),
        (fill_memory, "memory", ""),
        (lambda: os._exit(3), "failed", "ended with status"),
    ],
)
def test_a_failed_compile_reports_its_outcome(work: Callable[[], object], outcome: str, message: str) -> None:
    result = outcome_of(work)
    assert result.outcome == outcome and message in result.message and not result.figures


def test_a_compile_over_the_time_limit_is_ended() -> None:
    assert outcome_of(lambda: time.sleep(60), seconds=0.3) == Outcome("time")


def figures(ms: float, mib: float = 1.0, p99: float = 9.0) -> dict[str, float]:
    look_up = {"look_up_p50": 5.0, "look_up_p99": p99, "expand_p50": 50.0, "expand_p99": 90.0}
    counts = {"states": 12, "classes": 3, "min_tokens": 2, "table_bytes": 2048, "first_ids": 7}
    return {"ms": ms, "peak_bytes": mib * 2**20, **look_up, **counts}


def row(case: str, engine: str, repeat: int, ms: float | None, outcome: str = "ok", **fields: Any) -> dict[str, Any]:
    fields_of_row = {"case": case, "engine": engine, "repeat": repeat, "outcome": outcome, "message": "because | of it"}
    return fields_of_row | {"figures": figures(ms, **fields) if ms else {}}


def run(rows: list[dict[str, Any]], notes: dict[str, str] | None = None) -> dict[str, Any]:
    names = dict.fromkeys(row["case"] for row in rows)
    return {
        "date": "2026-01-02",
        "machine": "a machine", "code": "0",
        "command": "python -m benchmarks.compiler.compile",
        "vocabulary": "v",
        "limits": {"seconds": 60, "gigabytes": 6},
        "versions": {"outlines_core": "1", "xgrammar": "2", "llguidance": "3"},
        "cases": [{"name": name, "family": "f", "notes": notes or {}} for name in names],
        "rows": rows,
    }


def test_ratios_pair_the_turns_and_take_the_median() -> None:
    rows = [row("a", "ours", turn, ms) for turn, ms in enumerate((10, 20, 40))]
    rows += [row("a", "xgrammar", turn, ms) for turn, ms in enumerate((20, 20, 20))]
    by_case = {("a", engine): [row_ for row_ in rows if row_["engine"] == engine] for engine in ("ours", "xgrammar")}
    assert ratios(by_case, ["a"], "xgrammar", "ms") == {"a": 1.0}
    assert ratios(by_case, ["a"], "llguidance", "ms") == {}


def test_the_report_names_losses_stopped_engines_and_missed_goals() -> None:
    rows = [
        row("slow", "ours", 0, 1500, mib=300, p99=70),
        row("slow", "xgrammar", 0, 300),
        row("fast", "ours", 0, 10),
        row("fast", "xgrammar", 0, 40),
        row("fast", "outlines_core", 0, None, outcome="time"),
        row("gone", "ours", 0, None, outcome="limit"),
    ]
    text = compile_section(run(rows))
    assert "to XGrammar, 1: slow (5.0)" in text
    assert "ours does not compile gone: limit" in text
    assert "over 60 s" in text and "cannot express it" in text
    assert "1,500 ms, the slowest compile (slow); goal 1000: missed by 1 of 2" in text
    assert "300 MiB, the highest peak (slow); goal 200: missed by 1 of 2" in text
    assert "70 us, the slowest p99 of a look-up by class (slow); goal 50: missed by 1 of 2" in text
    assert "0.89 (0.20-4.0)" in text  # the geometric mean of 1/5 and 4


def test_simpler_forms_are_marked_and_not_compared_by_tokens() -> None:
    peer = row("a", "xgrammar", 0, 5)
    peer["figures"]["first_ids"] = 9
    rows = [row("a", "ours", 0, 10), peer]
    assert "a, XGrammar: 9 tokens, ours 7" in compile_section(run(rows))
    starred = compile_section(run(rows, {"xgrammar": "ASCII only"}))
    assert "5.0\\*" in starred and "XGrammar: ASCII only: a" in starred and "9 tokens" not in starred


@pytest.mark.parametrize(("values", "law", "number"), [([2, 8, 18, 32], "power", 2.0), ([2, 4, 8, 16], "factor", 2.0)])
def test_the_growth_law_is_fitted(values: list[float], law: str, number: float) -> None:
    result, by = fitted_law([1, 2, 3, 4], values)
    assert result == law and by == pytest.approx(number)


def test_the_growth_law_uses_the_upper_half_of_sizes() -> None:
    sizes = [1, 2, 4, 8, 16, 32]
    assert law_phrase(sizes, [100, 100, 100, 8, 16, 32]) == "size to the power 1.00"


def test_the_growth_section_plots_and_lists_failed_compiles(results: Path) -> None:
    pytest.importorskip("matplotlib")
    rows: list[dict[str, Any]] = [
        {"series": "keywords", "size": size, "vocabulary": "v", "repeat": 0, "outcome": "ok", "message": ""}
        | {"figures": figures(2.0**size)}
        for size in range(1, 6)
    ]
    rows.append(rows[0] | {"size": 6, "outcome": "time", "figures": {}})
    text = scale_section({"date": "d", "machine": "m", "code": "0", "command": "c", "rows": rows})
    assert "keywords, 1 to 5: time as 2.00 times for each one more" in text
    assert "not compiled: keywords, 6: time" in text
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
