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
from benchmarks.report.results_page import stored_runs
from benchmarks.systems.base import TextConstraint
from benchmarks.systems.ours import OurSearch


def _cells(run: dict[str, Any]) -> list[str]:
    line = next(line for line in decode_section(run).splitlines() if line.startswith("| 16 | 4 |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_missed_goal_is_called_missed() -> None:
    run = stored_runs()["decode"]
    for row in run["rows"]:
        row["ours"] = {name: 2 * row["transformers"][name] for name in ("seconds", "peak_bytes")}
    assert _cells(run)[5::4] == ["0.90: missed", "1.0: missed"]


def test_a_point_that_failed_is_shown_as_failed() -> None:
    run = stored_runs()["decode"] | {"peers": []}
    for row in run["rows"]:
        row["transformers"] = {"error": "out of memory"}
    assert _cells(run)[2:] == ["failed"] * 8


def test_a_decoder_that_does_not_start_is_listed() -> None:
    section = decode_section(stored_runs()["decode"] | {"peers": [{"name": "two", "error": "not here"}]})
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
