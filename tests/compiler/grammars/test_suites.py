"""Grammars and texts of other systems' suites, and answers that parsers judge."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from app.models import open_model_files
from app.settings import BUILT_IN_MODEL
from compiler.vocab import Vocabulary
from tests.references.context_free import derives
from tests.references.grammar_suites import (
    SUITES,
    SuiteRow,
    answers,
    earley_parser,
    markdown_reasons,
    markdown_table,
    suite_rows,
)  # fmt: skip
from tests.references.json_validator import is_valid
from tests.references.random_constraints import real_vocabulary
from tests.servers.cluster import FULL

PAGE = Path(__file__).parents[3] / "docs" / "grammars.md"
EVERY_SMALL, EVERY = (1, 1) if FULL else (8, 60)  # of the grammars, over the small vocabulary and the real one
TEXT_CHARS_MAX = 120  # of an answer that the slow references read
COMPILED = [row for suite in SUITES for row in suite_rows(suite) if not row.refused]


@cache
def small() -> Vocabulary:
    return open_model_files(BUILT_IN_MODEL).vocabulary


@pytest.mark.parametrize("suite", SUITES)
def test_verdicts_are_those_of_the_suite_or_explained(suite: str) -> None:
    for row in suite_rows(suite):
        assert row.judge() == (row.refused or row.otherwise), row.name
        assert bool(row.why) == (row.outcome in ("other verdicts", "read here alone")), row.name


def test_the_page_states_the_counts() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert markdown_table() in page and markdown_reasons() in page


def parser_of(row: SuiteRow) -> Callable[[str], bool]:
    """A parser of another system where there is one.

    Else it is recursive descent on the rules that we read.
    """
    grammar, _ = row.compile()
    if row.schema is not None:
        return lambda text: is_valid(row.schema, text) is not False and derives(grammar, text)
    if row.syntax == "lark" and not row.refused_there:
        try:
            return earley_parser(row.grammar)
        except ValueError:  # extensions of Lark's syntax
            pass
    return lambda text: derives(grammar, text)


@pytest.mark.parametrize("suite", SUITES)
def test_answers_over_a_small_vocabulary_are_in_the_language(suite: str) -> None:
    judged = 0
    for number, row in enumerate([row for row in COMPILED if row.suite == suite][::EVERY_SMALL]):
        accepts = parser_of(row)
        for text in answers(row, small(), number):
            if len(text) <= TEXT_CHARS_MAX:
                assert accepts(text), (row.name, text)
                judged += 1
    assert judged > 100 / EVERY_SMALL


def test_answers_over_a_real_vocabulary_are_in_the_language(shared: Path) -> None:
    vocabulary = real_vocabulary("gpt2", 50_257, 50_256)
    assert vocabulary is not None and shared
    for number, row in enumerate(random.Random(5).sample(COMPILED, len(COMPILED) // EVERY)):
        accepts = parser_of(row)
        for text in answers(row, vocabulary, number):
            assert len(text) > TEXT_CHARS_MAX or accepts(text), (row.name, text)


@pytest.mark.parametrize("name", ["json.gbnf", "json_arr.gbnf"])
def test_answers_of_json_grammars_are_json(name: str) -> None:
    (row,) = (row for row in suite_rows("llama_cpp") if row.name == name)
    for seed in range(8):
        for text in answers(row, small(), seed):
            json.loads(text)
