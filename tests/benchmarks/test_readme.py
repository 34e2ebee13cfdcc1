"""The README's summary is what the stored figures say, losses among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.report import readme as report_readme
from benchmarks.report.decoding import runtimes_section
from benchmarks.report.readme import BEGIN, END, OURS, README, summary, write_readme
from benchmarks.report.results_page import stored_runs

ROWS = [
    {"method": "ours", "beams": 16, "seconds": [1.0, 3.0, 2.0]},
    {"method": "HMM", "beams": 16, "seconds": [4.0, 4.0, 8.0]},
]


def test_the_readme_shows_the_stored_figures() -> None:
    _, _, remainder = README.read_text(encoding="utf-8").partition(BEGIN)
    summary_text, end, _ = remainder.partition(END)
    assert end and summary_text.strip() == summary(stored_runs()).strip(), "python -m benchmarks.report"


def test_only_text_between_the_marks_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = tmp_path / "README.md"
    monkeypatch.setattr(report_readme, "README", readme)
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    write_readme({"runtimes": {"rows": ROWS}})
    text = readme.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{BEGIN}\n") and text.endswith(f"{END}\nafter\n") and "old" not in text
    assert "this service's engine: ours 2.00, HMM 4.00." in " ".join(text.split())
    readme.write_text("no marks\n", encoding="utf-8")
    write_readme({})
    assert readme.read_text(encoding="utf-8") == "no marks\n"


def test_losses_alone_are_named_with_their_reason() -> None:
    ours = next(row for row in stored_runs()["commongen"]["rows"] if row["system"] == OURS)
    text = summary({"commongen": {"rows": [ours, ours | {"system": "guidance", "cider": ours["cider"] + 1.0}]}})
    assert "CIDEr" in text and "BLEU-4" not in text and "ROUGE-L" not in text and "ms for an answer" not in text
    assert "guidance decodes" in text and "The HMM" not in text
    assert summary({}) == "\n" and "scores higher" not in summary({"commongen": {"rows": [ours]}})


def test_seconds_per_request_are_compared_run_by_run() -> None:
    text = runtimes_section(stored_runs()["runtimes"] | {"rows": ROWS})
    assert "| ours | 2.00 (1.00-3.00) |" in text
    assert "| ours / HMM | 0.25 |" in text  # of 0.25, 0.75 and 0.25
