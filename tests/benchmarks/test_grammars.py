"""The benchmark on context-free grammars."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from benchmarks.compiler.engine_process import EngineProcess, MeasureRequest
from benchmarks.grammars.__main__ import MODULE, row_of
from benchmarks.grammars.growth import points
from benchmarks.grammars.suite import GrammarCase, cases
from benchmarks.report.grammars import grammars_section
from compiler.grammars import read_grammar
from compiler.limits import DEFAULT_LIMITS, ResourceGuard
from compiler.pipeline import compile_text
from compiler.pushdown import build_machine
from compiler.spec import spec_from_json
from compiler.text import AnyText, check_text
from tests.references.grammar_suites import earley_parser


def accepted(case: GrammarCase) -> list[str]:
    guard = ResourceGuard(DEFAULT_LIMITS)
    machine = build_machine(read_grammar(case.grammar, "lark", guard).grammar, guard)
    return [text for text in (*case.accepted, *case.rejected) if machine.accepts(text.encode())]


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_the_texts_of_a_grammar_are_its_own(case: GrammarCase) -> None:
    parses = earley_parser(case.grammar)
    assert accepted(case) == list(case.accepted)
    assert [text for text in (*case.accepted, *case.rejected) if parses(text)] == list(case.accepted)


def test_the_dialect_of_sql_has_a_hundred_rules() -> None:
    assert {case.name: case.rules for case in cases()}["sql"] > 100


def test_grammars_of_growing_size_have_their_texts() -> None:
    for point in points():
        if point.size <= 100 and not point.case.beside:
            assert accepted(point.case) == list(point.case.accepted), point


def compiled(case: GrammarCase) -> AnyText:
    """The automaton of a case, which accepts its texts alone."""
    expression = case.expression("ours")
    assert expression is not None and expression.kind == "constraint"
    text, texts = compile_text(spec_from_json(json.loads(expression.text))), (*case.accepted, *case.rejected)
    assert [each for each in texts if check_text(text, each).satisfied] == list(case.accepted), case
    return text


@pytest.mark.parametrize("series, most", [("forbidden words", 20), ("required words", 2)])
def test_growing_combinations_have_their_texts(series: str, most: int) -> None:
    for point in points():
        if point.series == series and point.size <= most:
            compiled(point.case)


@pytest.mark.long
def test_many_required_words_are_followed_side_by_side() -> None:
    (point,) = (point for point in points() if point.series == "required words" and point.size == 10)
    assert compiled(point.case).kind == "product"


@pytest.mark.long
def test_a_measured_grammar_has_times_and_verdicts(tokenizer: Path) -> None:
    (case,) = (case for case in cases() if case.name == "arithmetic")
    expression = case.expression("ours")
    assert expression is not None and case.expression("outlines_core") is None
    texts = {"accepted": case.accepted, "rejected": case.rejected}
    with ExitStack() as stack:
        process = EngineProcess("ours", tokenizer, stack, MODULE)
        row: dict[str, Any] = row_of(process.measure(MeasureRequest(expression, 60.0, 4 * 10**9, texts)))
    assert row["outcome"] == "ok" and row["wrong"] == 0 and row["texts"] == 11 and row["min_tokens"] == 2
    assert row["ms"] > 0 and row["mask_p99"] >= row["mask_p50"] > 0
    keyed = [row | {"vocabulary": "gpt2", "case": case.name, "engine": "ours", "repeat": 0}]
    about = {"date": "", "machine": "", "code": "0", "command": "", "versions": {}, "rules": {case.name: case.rules}}
    assert "| arithmetic | ours |" in grammars_section(about | {"compile": keyed})
