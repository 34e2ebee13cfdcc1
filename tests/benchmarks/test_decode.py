"""The decoding benchmark measures the stated settings and reports its figures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from app.settings import BUILT_IN_MODEL
from benchmarks.decoding.decode import LONG, PATTERNS, POINTS, SHORT_SLACK, run_module, tokens_min
from benchmarks.decoding.gpt2 import KEYWORDS, constraint_json
from benchmarks.report.decoding import TIME_MAX, decode_section
from benchmarks.systems.base import TextConstraint
from benchmarks.systems.ours import OurSearch

ABOUT = {
    "date": "2026-01-01", "machine": "a machine", "code": "0", "threads": 2, "tokens": 32, "command": "python",
    "peers": [],
}  # fmt: skip


def _run(ours_s: float, theirs_s: float, ours_bytes: float = 2.0**20, theirs_bytes: float = 2.0**22) -> dict[str, Any]:
    rows = [
        {
            "prompt": 16,
            "beams": 4,
            "pair": pair,
            "ours": {"seconds": ours_s + pair, "peak_bytes": ours_bytes},
            "transformers": {"seconds": theirs_s + pair, "peak_bytes": theirs_bytes},
        }
        for pair in range(3)
    ]
    return {**ABOUT, "rows": rows}


def _cells(run: dict[str, Any]) -> list[str]:
    line = next(line for line in decode_section(run).splitlines() if line.startswith("| 16 | 4 |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_goals_use_the_median_of_paired_ratios() -> None:
    cells = _cells(_run(8.0, 10.0))
    assert cells[2:6] == ["9.0 (8.0-10)", "11 (10-12)", "0.82 (0.80-0.83)", "0.90: met"]
    assert cells[6:] == ["1.0", "4.0", "0.25", "1.0: met"]
    assert _cells(_run(10.0, 10.0, 2.0**23))[5::4] == ["0.90: missed", "1.0: missed"]


def test_a_point_that_failed_is_shown_as_failed() -> None:
    run = _run(1.0, 2.0)
    for row in run["rows"]:
        row["transformers"] = {"error": "out of memory"}
    assert _cells(run)[2:] == ["failed"] * 8


def test_other_decoders_are_listed_with_successes_and_failures() -> None:
    figures = {"seconds": 2.0, "requests": 8, "satisfied": 5, "texts": []}
    run = _run(1.0, 2.0) | {
        "peers": [{"name": "one", "texts": 8, "short": figures, "long": figures}, {"name": "two", "error": "not here"}]
    }
    section = decode_section(run)
    assert "| one | 5 of 8 | 2.0 | 5 of 8 | 2.0 |" in section
    assert "| two | not here |" in section


def test_every_point_has_a_goal() -> None:
    assert set(POINTS) == set(TIME_MAX)


def test_a_failed_child_process_reports_its_error() -> None:
    assert "No module named benchmarks.unknown" in run_module("benchmarks.unknown", threads=1)["error"]


def test_the_constraint_has_the_declared_number_of_keywords(shared: Path) -> None:
    assert len(constraint_json(shared)["keywords"]) == KEYWORDS


@pytest.mark.long
def test_both_budgets_suffice_for_every_pattern() -> None:
    ours = OurSearch(beams=2)
    ours.open(BUILT_IN_MODEL)
    for pattern, least in tokens_min(PATTERNS).items():
        assert least + SHORT_SLACK < LONG
        ours.constrain(TextConstraint(pattern))
        text = ours.answer("sentence:", least + SHORT_SLACK)
        assert re.fullmatch(pattern, text.removeprefix(" ")), text
