"""Infilling: the number of masked words, the original text as a solution, and the report."""

from __future__ import annotations

import random
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from benchmarks.report.tasks import infilling_section
from benchmarks.tasks.gapped_stories import PROMPT_WORDS, gapped_stories, mask

SENTENCES = [["One", "day,", "a", "dog", "ran", "home."], ["He", "saw", "an", "old,", "very", "old", "cat", "there."]]


@pytest.mark.parametrize("seed", range(40))
def test_a_masked_text_matches_its_pattern_and_keeps_its_prompt(seed: int) -> None:
    story = mask(SENTENCES, 0.3, random.Random(seed))
    assert story.prompt.split() == SENTENCES[0][:PROMPT_WORDS]
    assert story.prompt + story.text == " ".join(word for sentence in SENTENCES for word in sentence)
    assert re.fullmatch(story.pattern, story.text) and not re.fullmatch(story.pattern, story.text[:-1])
    assert 0 < story.masked <= 0.3 + 1 / 14
    assert mask(SENTENCES, 0.3, random.Random(seed)) == story


def test_the_mean_share_of_masked_words_is_as_configured(shared: Path) -> None:
    path = shared / "data" / "stories" / "tinystories_1000.jsonl"
    for share in (0.1, 0.3):
        found = gapped_stories(path, 40, share)
        assert all(re.fullmatch(story.pattern, story.text) for story in found)
        assert statistics.fmean(story.masked for story in found) == pytest.approx(share, abs=0.03)
    with pytest.raises(ValueError, match="fewer than"):
        gapped_stories(path, 2000, 0.1)


def test_coverage_counts_matching_answers_scored_with_their_prompt() -> None:
    pytest.importorskip("benchmarks.tasks.text_metrics")
    from benchmarks.systems.process import SystemAnswer
    from benchmarks.tasks.infilling import infilling_row

    story = mask(SENTENCES, 0.3, random.Random(1))
    found = [SystemAnswer(story.text, 1.0, 2.0, ""), SystemAnswer("", 1.0, 4.0, "E: x")]
    row = infilling_row({"model": "m"}, [story, story], found)
    assert (row["coverage"], row["errors"], row["error"], row["answer_ms"]) == (0.5, 1, "E: x", 2.0)
    assert infilling_row({}, [story], found[:1])["bleu_4"] == pytest.approx(100.0)
    stripped = [found[0]._replace(text=story.text.strip())]  # as some tokenizers decode it
    assert infilling_row({}, [story], stripped)["coverage"] == 1.0


@pytest.mark.usefixtures("results")
def test_the_report_has_a_line_for_each_system() -> None:
    row: dict[str, Any] = {
        "model": "m", "system": "s", "share": 0.1, "stories": 3, "rouge_l": 1.0, "bleu_4": 2.0, "coverage": 0.5,
        "errors": 1, "prepare_ms": 3.0, "answer_ms": 4.0,
    }  # fmt: skip
    run = {"date": "d", "machine": "x", "threads": 1, "command": "c", "rows": [row, row | {"share": 0.2, "errors": 0}]}
    assert "| s | 1.0 | 2.0 | 50 % (1 failed) | 1.0 | 2.0 | 50 % | 3 | 4 |" in infilling_section(run)
