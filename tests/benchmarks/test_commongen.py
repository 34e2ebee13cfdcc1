"""CommonGen's benchmark asks what it says, counts what occurs, and its metrics give the figures that are known."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.report.tasks import commongen_section
from benchmarks.tasks.concept_sets import PROMPTS, concept_constraint, concept_sets

CONCEPTS = (("dog", "dogs"), ("run", "runs", "ran"))


def test_pattern_parts_and_concepts_are_equivalent() -> None:
    free, ordered = concept_constraint(CONCEPTS, ordered=False), concept_constraint(CONCEPTS, ordered=True)
    for text, both, in_order in (
        ("A dog runs.", True, True), ("He ran with Dogs", True, False), ("ran dog ran", True, True),
        ("a hotdog runs", False, False), ("dog", False, False), ("dog run2", False, False),
    ):  # fmt: skip
        assert (re.fullmatch(free.pattern, text) is not None) == both, text
        assert all(re.fullmatch(part, text) for part in free.parts) == both, text
        assert (re.fullmatch(ordered.pattern, text) is not None) == in_order, text


def test_concept_sets_span_the_split_and_appear_in_prompts(shared: Path) -> None:
    found = concept_sets(shared / "data" / "commongen" / "dev.jsonl", PROMPTS["captions"], 50, ordered=True)
    assert len({case.name for case in found}) == 50 and all(case.references for case in found)
    first = found[0]
    assert first.prompt == f"concepts: {', '.join(first.concepts)}\nsentence:"
    assert first.constraint.ordered and len(first.constraint.concepts) == len(first.concepts)


def test_concepts_count_by_lemma_or_listed_form_and_in_order() -> None:
    metrics = pytest.importorskip("benchmarks.tasks.text_metrics")
    forms = (("dog", "dogs"), ("look",))
    assert metrics.concepts_covered("Two DOGS looked up", ("dog", "look"), forms) == 2  # no list has "looked"
    assert metrics.concepts_covered("a hotdog", ("dog", "look"), forms) == 0
    assert metrics.leading_concepts("He looks at dogs", ("dog", "look"), forms) == 1
    assert metrics.leading_concepts("The dog looks at dogs", ("dog", "look"), forms) == 2


def test_an_unknown_model_is_refused_and_captions_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("benchmarks.tasks.text_metrics")
    from benchmarks.tasks.commongen import main, sort_key

    monkeypatch.delenv("ABS_MODEL", raising=False)
    monkeypatch.setattr("sys.argv", ["commongen", "--models", "other"])
    with pytest.raises(SystemExit):
        main()
    rows = [{"model": model, "family": "f", "system": "XGrammar"} for model in ("gpt2-large", "captions")]
    assert min(rows, key=sort_key)["model"] == "captions"


@pytest.mark.parametrize(
    ("system", "bleu", "cider"), [("UniLM", 30.4, 15.7), ("BART", 27.5, 14.1),
                                  ("constrained Levenshtein Transformer", 15.0, 8.9)]
)  # fmt: skip
def test_published_outputs_have_their_known_scores(
    shared: Path, system: str, bleu: float, cider: float
) -> None:
    pytest.importorskip("benchmarks.tasks.text_metrics")
    from benchmarks.tasks.commongen import published_scores

    row = next(row for row in published_scores(shared) if row["system"] == system)
    assert row["bleu_4"] == pytest.approx(bleu, abs=0.1)
    assert row["cider"] == pytest.approx(cider, abs=0.1)


@pytest.mark.usefixtures("results")
def test_the_report_has_a_table_per_model_and_errors() -> None:
    row: dict[str, Any] = {
        "model": "m", "family": "f", "system": "s", "sets": 4, "coverage": 0.5, "complete": 0.25, "rouge_l": 1.0,
        "bleu_4": 2.0, "cider": 3.0, "log_prob": None, "words": 4.0, "prepare_ms": 5.0, "answer_ms": 6.0, "errors": 1,
        "error": "E: why", "texts": [],
    }  # fmt: skip
    published = [{"system": "U", "sets": 9, "rouge_l": 1.0, "bleu_4": 2.0, "cider": 3.0}]
    run: dict[str, Any] = {"date": "d", "machine": "x", "threads": 1, "command": "c", "max_tokens": 32}
    run |= {"rows": [row], "published": published}
    text = commongen_section(run)
    assert "### f, m" in text and "| s | 50.0 % | 25 % | 1.0 | 2.0 | 3.0 |  | 4.0 |  |  | 1 |" in text
    assert "- s: 1 times, first: E: why" in text and "| U | 1.0 | 2.0 | 3.0 |" in text
