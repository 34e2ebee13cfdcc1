"""The benchmark of search quality: its cases, its scores, and its report."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from app.models import open_model_files
from benchmarks.quality import json_forms, search_quality
from benchmarks.quality.caption_scores import bleu_4, cider, words
from benchmarks.quality.cases import PATTERNS, QualityCase, families
from benchmarks.quality.search_quality import QualityAnswer, QualityModel, Setting
from benchmarks.report.quality import REFERENCE, gap, quality_section
from benchmarks.runs import RowStore
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json


def row(algorithm: str, beams: int, *log_probs: float, **fields: Any) -> dict[str, Any]:
    return {
        "model": "m", "family": "f", "algorithm": algorithm, "beams": beams, "length_penalty": 0.0,
        "cases": len(log_probs), "log_prob": sum(log_probs) / len(log_probs), "tokens": 9.0, "words": 7.5,
        "bleu_4": 12.34, "cider": 5.67, "seconds": 0.25,
        "log_probs": {str(at): value for at, value in enumerate(log_probs)},
    } | fields  # fmt: skip


def section(*rows: dict[str, Any]) -> str:
    about = {"date": "today", "machine": "here", "code": "0", "max_tokens": 32, "threads": 1, "command": "c"}
    return quality_section(about | {"rows": list(rows)})


def test_the_gap_is_over_the_cases_of_both() -> None:
    reference = row("banked", REFERENCE, -10.0, -20.0)
    assert gap(row("banked", 16, -11.0, -22.0, -500.0), reference) == pytest.approx((10.0, 0.0))
    assert gap(None, reference) is None


def test_the_gap_has_a_standard_error() -> None:
    candidate, reference = row("banked", 16, -12.0, -20.0, -33.0), row("banked", REFERENCE, -10.0, -20.0, -30.0)
    ratio = 65 / 60
    residuals = [12 - 10 * ratio, 20 - 20 * ratio, 33 - 30 * ratio]
    error = 100 * (sum(residual * residual for residual in residuals) / 2 / 3) ** 0.5 / 20
    assert gap(candidate, reference) == pytest.approx((100 * (ratio - 1), error))


def test_goals_use_the_widest_search_without_an_exact_optimum() -> None:
    text = section(
        row("banked", 8, -1.0), row("banked", 16, -10.3), row("banked", 64, -10.05), row("banked", REFERENCE, -10.0),
        row("abs", 128, -9.0),
    )
    assert "within 2 % at k = 16" in text and "met by 0 of 1 families, missed by m, f (3.0 %)" in text
    assert "beams: met by 1 of 1 families (of" in text and "ahead on every case: met" in text


def test_length_penalties_are_shown_where_texts_were_judged() -> None:
    default, penalized = row("banked", 16, -1.0), row("banked", 16, -2.0, length_penalty=0.7)
    assert "BLEU" in section(default, penalized)
    assert "BLEU" not in section(default | {"bleu_4": None}, penalized)
    assert "BLEU" not in section(default)


def test_means_are_compared_over_the_same_cases() -> None:
    text = section(row("banked", 8, -1.0, -2.0, -90.0), row("abs", 128, -2.0, -2.0))
    assert "Algorithm 1's with 128: 1 of 1 families" in text


class Answers:
    """A bench that answers a case with its name as log-prob."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    def answer(self, case: QualityCase, setting: Setting, lower_bound: float) -> QualityAnswer:
        self.requests.append(case.name)
        return QualityAnswer("a text", float(case.name), 3, 0.5)


@pytest.fixture
def rows(tmp_path: Path) -> RowStore:
    return RowStore(tmp_path / "rows.json", search_quality.sort_key)


def cases(*log_probs: float) -> list[QualityCase]:
    return [QualityCase(f"{log_prob}", "", {}, ("a text that people wrote",)) for log_prob in log_probs]


@pytest.mark.parametrize("remeasure", [False, True])
def test_a_stored_row_is_extended_by_its_missing_cases(remeasure: bool, rows: RowStore) -> None:
    bench, setting = Answers(), Setting("stories260k", "ordered", "banked", 16)
    half = search_quality.quality_row(bench, setting, cases(-1.0, -2.0), {})
    rows.store(half, asdict(setting))
    bench.requests.clear()
    result = search_quality.extended_row(bench, rows, setting, cases(-1.0, -6.0, -2.0), remeasure)
    assert bench.requests == (["-1.0", "-6.0", "-2.0"] if remeasure else ["-6.0"])
    assert result is not None and (result["cases"], result["log_prob"], result["tokens"]) == (3, -3.0, 3.0)
    assert sorted(result["log_probs"].values()) == [-6.0, -2.0, -1.0]
    assert (result["bleu_4"] is None) == (not remeasure)  # of the half of the texts nothing is known any more
    rows.store(result, asdict(setting))
    assert search_quality.extended_row(bench, rows, setting, cases(-1.0, -6.0, -2.0), again=False) is None


def test_a_row_with_judged_texts_is_measured_again(rows: RowStore) -> None:
    bench, setting = Answers(), Setting("captions", "ordered, concepts in the prompt", "banked", 16, 0.5)
    half = search_quality.quality_row(bench, setting, cases(-1.0), {})
    rows.store(half, asdict(setting))
    result = search_quality.extended_row(bench, rows, setting, cases(-1.0, -6.0), again=False)
    assert result is not None and result["bleu_4"] is not None and result["log_prob"] == -3.5


@pytest.mark.parametrize(("model", "concept_families"), [("captions", 4), ("bigram", 2)])
def test_a_model_has_the_requested_number_of_cases(shared: Path, model: str, concept_families: int) -> None:
    result = families(model, shared / "data" / "commongen" / "dev.jsonl", 20)
    assert len(result) == concept_families + 1
    assert {len(cases) for family, cases in result.items() if family != PATTERNS} == {20}
    assert len({case.name for case in result[PATTERNS]}) == 50


def test_every_pattern_compiles_and_can_be_met_in_the_budget(shared: Path, captions_dir: Path) -> None:
    vocabulary = open_model_files(str(captions_dir)).vocabulary
    for case in families("captions", shared / "data" / "commongen" / "dev.jsonl", 1)[PATTERNS]:
        assert compile_spec(spec_from_json(case.constraint), vocabulary).tokens.min_tokens <= 32


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("system", "bleu", "likeness"), [("unilm", 30.4, 15.7), ("bart", 27.5, 14.1), ("const_levt", 15.0, 8.9)]
)
@pytest.mark.sample(1)
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


@pytest.mark.long
def test_each_form_of_json_is_measured_on_values() -> None:
    assert list(json_forms.leaves({"a": ["x", 1.5], "b": {"c": None}})) == ["x", "1.5", "null"]
    model = QualityModel("captions", Path())
    schema: dict[str, Any] = {"type": "object", "properties": {"colour": {"enum": ["red"]}}, "required": ["colour"]}
    schema["additionalProperties"] = False
    figures = {
        form: json_forms.measure(model, QualityCase("colour", "sentence:", {"json_schema": schema} | fields), 2)
        for form, fields in json_forms.FORMS.items()
    }
    assert {figure["characters"] for figure in figures.values()} == {len('{"colour":"red"}')}
    assert {figure["plain"] for figure in figures.values()} == {figures["whitespace compact"]["plain"]}
    assert figures["whitespace pretty"]["tokens"] > figures["whitespace compact"]["tokens"]
