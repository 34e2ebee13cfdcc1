"""The README's summary is what the stored figures say, losses among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.report import readme as report_readme
from benchmarks.report.decoding import runtimes_section
from benchmarks.report.readme import BEGIN, END, README, summary, write_readme
from benchmarks.report.results_page import stored_runs


def row(system: str, share: float, **metrics: float) -> dict[str, Any]:
    counts = {"sets": 4, "errors": 0, "error": ""}
    return counts | {"model": "captions", "family": "f", "system": system, "complete": share} | metrics


COMMONGEN = {
    "rows": [
        row("ours, 16 beams", 1.0, rouge_l=50.0, bleu_4=20.0, cider=10.0),
        row("Outlines", 0.25, rouge_l=55.0, bleu_4=19.0, cider=10.0),
        row("XGrammar", 0.0, rouge_l=0.0, bleu_4=0.0, cider=0.0) | {"errors": 4, "error": "ConstraintNotSupported: it"},
        row("ours, 1 beam", 1.0, rouge_l=60.0, bleu_4=60.0, cider=60.0),
    ]
}
RUNTIMES = {
    "date": "d", "machine": "m", "code": "0", "threads": 1, "command": "c", "sets": 2, "max_tokens": 32, "growth": [],
    "rows": [
        {"method": "ours", "beams": 16, "seconds": [1.0, 3.0, 2.0]},
        {"method": "HMM", "beams": 16, "seconds": [4.0, 4.0, 8.0]},
    ],
}  # fmt: skip


def test_the_readme_shows_the_stored_figures() -> None:
    _, _, remainder = README.read_text(encoding="utf-8").partition(BEGIN)
    summary_text, end, _ = remainder.partition(END)
    assert end and summary_text.strip() == summary(stored_runs()).strip(), "python -m benchmarks.report"


def test_only_text_between_the_marks_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = tmp_path / "README.md"
    monkeypatch.setattr(report_readme, "README", readme)
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    write_readme({"runtimes": RUNTIMES})
    text = readme.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{BEGIN}\n") and text.endswith(f"{END}\nafter\n") and "old" not in text
    assert "this service's engine: ours 2.00, HMM 4.00." in " ".join(text.split())
    readme.write_text("no marks\n", encoding="utf-8")
    write_readme({})
    assert readme.read_text(encoding="utf-8") == "no marks\n"


def test_shares_and_losses_are_named() -> None:
    text = summary({"commongen": COMMONGEN})
    assert "| **ours, 16 beams** | 100 % |" in text and "| Outlines | 25 % |" in text
    assert "- f, captions: ROUGE-L 50.0, Outlines 55.0 (25 % satisfy the constraint)" in text
    assert "ms for an answer" not in text and "HMM" not in text  # Outlines does not keep it all
    assert "XGrammar" not in text  # constraints that it cannot express are left out
    assert "BLEU-4 20.0" not in text and "CIDEr" not in text and summary({}) == "\n"


def test_seconds_per_request_are_compared_run_by_run() -> None:
    text = runtimes_section(RUNTIMES)
    assert "| ours | 2.00 (1.00-3.00) |" in text
    assert "| ours / HMM | 0.25 |" in text  # of 0.25, 0.75 and 0.25
