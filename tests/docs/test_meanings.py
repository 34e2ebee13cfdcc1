"""The pages' statements about constraints hold. Each constraint compiles, and the tables of texts are right."""

from __future__ import annotations

import json
import random
import re
from functools import cache, partial

import pytest

from compiler.engines import NATIVE
from compiler.errors import SpecError
from compiler.forms import value_violation
from compiler.limits import Limits, ResourceGuard
from compiler.pipeline import compile_spec, compile_text
from compiler.spec import JsonSchemaSpec, spec_from_json
from compiler.spec.parse import FORMS
from compiler.text import TextAutomaton, check_text
from compiler.vocab import byte_vocabulary
from docs.tools.draw import drawings
from docs.tools.pages import DOCS, Block, Table, blocks, code_of, pages, tables

ROOT = DOCS.parent
CONSTRAINTS = [block for page in pages() for block in blocks(page) if block.language == "json" and not block.title]
TABLES = [table for page in pages() for table in tables(page)]
OF_TEXTS = [table for table in TABLES if table.header[:2] == ("text", "satisfied")]
LEFT_OUT = [row for table in TABLES if table.header[:2] == ("left out", "by") for row in table.rows]
OF_FORMULAS = [table for table in TABLES if table.header[:3] == ("formula", "text", "satisfied")]
IDIOMS = [(row[0], row[1]) for table in TABLES if table.header[:2] == ("regex", "LTLf") for row in table.rows]
LIMITS = Limits(compile_s_max=120)  # on a busy machine the first inflection alone may take seconds
WORDS = ("dog", "cat", "Dog", "dogs", "a", "ball", "hotdog", ",", ".", "?")
TEXTS = 250
PYTHON = ("search", "match", "fullmatch", "findall")  # that the left side of the idioms may use


@cache
def automaton(constraint: str) -> TextAutomaton:
    return compile_text(spec_from_json(json.loads(constraint)), LIMITS)


def json_schema(constraint: str) -> JsonSchemaSpec:
    spec = spec_from_json(json.loads(constraint))
    assert isinstance(spec, JsonSchemaSpec)
    return spec


def of_formula(formula: str) -> TextAutomaton:
    return automaton(json.dumps({"ltlf": formula}))


@pytest.mark.parametrize("block", CONSTRAINTS, ids=lambda block: block.name)
def test_each_constraint_of_the_pages_is_satisfiable(block: Block) -> None:
    # Their tokens are those of other models.
    over_bytes = byte_vocabulary(checks_texts=True)
    assert compile_spec(spec_from_json(json.loads(block.code)), over_bytes, LIMITS).tokens.min_tokens > 0


def test_each_form_has_its_page() -> None:
    overview = (DOCS / "constraints.md").read_text(encoding="utf-8")
    rows = [row for row in overview.splitlines() if "](constraints/" in row or "](grammars.md)" in row]
    linked = {name for row in rows for name in re.findall(r"`(\w+)", row)}
    assert set(FORMS) | {"labels"} <= linked
    for page in (DOCS / "constraints").glob("*.md"):
        assert f"(constraints/{page.name})" in overview
        assert any(block.page == f"constraints/{page.name}" for block in CONSTRAINTS), page
        assert re.search(r"!\[.+\]\(\.\./images/.+\.svg\)", page.read_text(encoding="utf-8")), page


def test_each_form_names_others_for_what_it_cannot_do() -> None:
    for page in (*(DOCS / "constraints").glob("*.md"), DOCS / "grammars.md"):
        assert "\n## When to use another form\n\n| to write | use |" in page.read_text(encoding="utf-8"), page


def test_the_units_of_each_script_are_those_of_re() -> None:
    (table,) = (table for table in TABLES if table.header == ("text", "units"))
    names = {"the joiner U+200D": "\u200d"}
    for text, units in table.rows:
        shown = [names.get(unit, unit.strip("`")) for unit in units.partition(": ")[0].split(", ")]
        assert shown == re.findall(r"\w+|[^\w\s]", code_of(text)), text


@pytest.mark.parametrize("table", OF_TEXTS, ids=lambda table: f"{table.page}:{table.line}")
def test_each_text_of_a_table_has_its_verdict(table: Table) -> None:
    assert table.above is not None and table.above in CONSTRAINTS
    for row in table.rows:
        check = check_text(automaton(table.above.code), code_of(row[0]))
        if table.header[2:4] == ("canonical", "violation"):
            assert check.satisfied == {"yes": True, "no": False}[row[2]], row
            found = value_violation(json_schema(table.above.code), code_of(row[0]), NATIVE, ResourceGuard(LIMITS))
            assert (found is None) == {"yes": True, "no": False}[row[1]], row
            assert row[3] == ("" if found is None else f"`{found.path}` `{found.keyword}`"), row
            continue
        assert check.satisfied == {"yes": True, "no": False}[row[1]], row
        if table.header[2:3] == ("violated_at",):
            assert check.violated_at == (int(row[2]) if row[2] else None), (row, check.violated_at)


@pytest.mark.parametrize("row", LEFT_OUT, ids=[row[0] for row in LEFT_OUT])
def test_each_text_that_is_left_out_fits(row: tuple[str, ...]) -> None:
    constraint = code_of(row[2])
    fitting, written = (eval(code_of(cell)) for cell in row[3:])
    assert value_violation(json_schema(constraint), fitting, NATIVE, ResourceGuard(LIMITS)) is None
    assert [check_text(automaton(constraint), text).satisfied for text in (fitting, written)] == [False, True]


@pytest.mark.parametrize("table", OF_FORMULAS, ids=lambda table: f"{table.page}:{table.line}")
def test_each_formula_of_a_table_gives_its_verdict(table: Table) -> None:
    for formula, text, satisfied, *_ in table.rows:
        if satisfied == "refused":
            with pytest.raises(SpecError):
                of_formula(code_of(formula))
        else:
            check = check_text(of_formula(code_of(formula)), code_of(text))
            assert check.satisfied == {"yes": True, "no": False}[satisfied], (formula, text)


@pytest.mark.parametrize(("regex", "formula"), IDIOMS, ids=[formula for _, formula in IDIOMS])
def test_each_regex_idiom_equals_its_formula(regex: str, formula: str) -> None:
    program, holds = compile(code_of(regex), "regex", "eval"), of_formula(code_of(formula))
    draw, verdicts = random.Random(20), set()
    for _ in range(TEXTS):
        text = " ".join(draw.choices(WORDS, k=draw.randint(1, 6)))
        text = draw.choice(["", " "]) + (text.replace(" ,", ",") if draw.random() < 0.5 else text)
        functions = {name: partial(getattr(re, name), string=text, flags=re.I | re.S) for name in PYTHON}
        verdict = bool(eval(program, {"len": len, **functions}))
        assert check_text(holds, text).satisfied == verdict, text
        verdicts.add(verdict)
    assert verdicts == {True, False}, "the texts do not tell it from a formula that is always the same"


def test_the_pages_have_tables_of_each_kind() -> None:
    assert len(OF_TEXTS) >= 15 and len(OF_FORMULAS) >= 2 and len(IDIOMS) >= 20


def test_the_drawings_are_up_to_date() -> None:
    expected = drawings()
    assert len(expected) >= 10
    for path, picture in expected.items():
        assert path.read_text(encoding="utf-8") == picture, f"{path.name}: run python -m docs.tools.draw"
    assert {path for path in (DOCS / "images").glob("*.svg")} == set(expected)
