"""The truncation benchmark: its patterns compile, `re` checks the answers, and failures are reported."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from rich.progress import Progress

from benchmarks.decoding.constrained_decoders import satisfies
from benchmarks.report.tasks import truncation_section
from benchmarks.systems import questions
from benchmarks.systems.base import TextConstraint
from benchmarks.systems.catalogue import SYSTEMS, Entry
from benchmarks.systems.process import SystemAnswer
from benchmarks.systems.questions import Questioner
from benchmarks.tasks.truncation import TIMES, patterns, truncation_row


def test_the_hundred_patterns_use_only_portable_syntax() -> None:
    assert len(set(patterns())) == 100
    assert not [pattern for pattern in patterns() if re.search(r"\\[wdsbWDSB]|\(\?|[^ -~]", pattern)]


def test_every_pattern_has_a_shortest_text(captions_dir: Path) -> None:
    from app.models import open_model_files
    from compiler.pipeline import compile_spec
    from compiler.spec import RegexSpec

    vocabulary = open_model_files(str(captions_dir)).vocabulary
    least = [compile_spec(RegexSpec(pattern), vocabulary).tokens.min_tokens for pattern in patterns()]
    assert min(least) >= 3 and 4 * max(least) <= 256, "the built-in model reads no more"


class ScriptedDecoder:
    """A decoder that has learned two answers, and fails with a large budget."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def ask(self, constraint: TextConstraint, prompt: str, max_tokens: int) -> SystemAnswer:
        self.asked.append(max_tokens)
        return SystemAnswer(" ab" if max_tokens > 4 else "a", 0.5, 1.5, "" if max_tokens < 8 else "E: x")


def test_every_budget_is_measured_and_its_answers_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = ScriptedDecoder()
    monkeypatch.setattr(questions, "run_system", lambda *_: contextlib.nullcontext(decoder))
    progress = Progress(disable=True)
    row = truncation_row("XGrammar", {"a?b": 2, "ab": 4}, Questioner(1, 1.0, progress))
    assert row is not None and progress.finished
    assert progress.tasks[0].total == 2 * len(TIMES)
    assert decoder.asked == [40, 2, 4, 2, 5, 3, 6, 4, 8, 6, 12, 8, 16]  # the first of all counts for nothing
    found = [(one["satisfied"], one["failed"], one["ms"]) for one in row["by_times"]]
    assert found == [(0, 0, 2), (1, 0, 2), (1, 0, 2), (0, 1, 2), (1, 1, 2), (0, 2, 2)]
    assert row["missed"][0] == {"pattern": "a?b", "budget": 2, "text": "a", "error": ""}


def test_a_missing_decoder_has_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SYSTEMS, "unknown", Entry("nowhere:Unknown", "an-environment-of-unknown"))
    assert truncation_row("unknown", {"a": 2}, Questioner(1, 1.0, Progress(disable=True))) is None


def test_only_a_leading_space_is_ignored_in_answers() -> None:
    assert satisfies("ab", " ab") and not satisfies("ab", "  ab") and not satisfies("ab", "ab\n")


@pytest.mark.usefixtures("results")
def test_the_report_shows_shares_and_wrong_answers() -> None:
    by_times = [{"times": 1.0, "requests": 8, "satisfied": 2, "failed": 1, "ms": 3.0}]
    row = {"system": "s", "by_times": by_times, "missed": [{"pattern": "a", "budget": 2, "text": "b", "error": ""}]}
    run = {"date": "d", "machine": "m", "threads": 1, "command": "c", "tokens_min": [2, 4], "rows": [row]}
    text = truncation_section(run)
    assert "| s | 25 % | 3 |" in text and "- s, `a` within 2 tokens: `b`" in text
