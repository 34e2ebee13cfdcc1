"""BLEU-4 and CIDEr of the stored outputs of other systems come out as they are known to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.quality.caption_scores import bleu_4, cider, words


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("system", "bleu", "likeness"), [("unilm", 30.4, 15.7), ("bart", 27.5, 14.1), ("const_levt", 15.0, 8.9)]
)
def test_stored_outputs_score_as_published(shared: Path, system: str, bleu: float, likeness: float) -> None:
    folder = shared / "data" / "commongen"
    outputs = read_lines(folder / "baseline_outputs" / f"{system}.dev.jsonl")
    sets = {row["concept_set_idx"]: row for row in read_lines(folder / "dev.jsonl")}
    texts = [row["output"] for row in outputs]
    references = [sets[row["concept_set_idx"]]["references"] for row in outputs]
    assert bleu_4(texts, references) == pytest.approx(bleu, abs=0.1)
    assert cider(texts, references) == pytest.approx(likeness, abs=0.1)


def test_a_text_that_is_its_reference_has_all_of_bleu() -> None:
    assert bleu_4(["A dog runs in the park."], [["A dog runs in the park.", "Dogs run."]]) == pytest.approx(100.0)


def test_a_text_without_a_common_four_words_has_none() -> None:
    assert bleu_4(["A dog runs in the park."], [["A dog sleeps in the sun."]]) == 0.0


def test_words_common_to_all_references_score_zero() -> None:
    references = [["the dog barks loudly today"], ["the cat sleeps quietly now"]]
    assert cider(["the", "the"], references) == 0.0
    assert cider(["the dog barks loudly today", "the cat sleeps quietly now"], references) == pytest.approx(100.0)


def test_punctuation_marks_are_separate_words() -> None:
    assert words("A dog's ball.") == ["A", "dog", "'", "s", "ball", "."]
