"""The syntax of LTLf: accepted formulas, their structure, and positions of faults."""

from __future__ import annotations

import random

import pytest

from compiler.errors import LimitExceeded, SpecSyntaxError, SpecUnsupported
from compiler.limits import Limits, ResourceGuard
from compiler.ltlf import Builder, LtlfFormula, Op, parse_formula, print_formula, propositions_of
from compiler.ltlf.syntax import Node
from tests.references.random_formulas import random_formula
from tests.tables import rows, table

DEFAULTS = Limits()


def parse(source: str, limits: Limits = DEFAULTS) -> LtlfFormula:
    return parse_formula(source, ResourceGuard(limits))


TABLE = table("ltlf_syntax")


@pytest.mark.parametrize(("source", "meaning"), TABLE["readings"])
def test_a_formula_reads_as_its_bracketed_form(source: str, meaning: str) -> None:
    assert parse(source) == parse(meaning)


@pytest.mark.parametrize(
    ("source", "other"),
    [("a U b U c", "(a U b) U c"), ("a & b", "b & a"), ("X a", "WX a"), ('"true"', "true"), ('"X"', "x"), ("a", "A")],
)
def test_formulas_that_differ_are_not_equal(source: str, other: str) -> None:
    assert parse(source) != parse(other)


@pytest.mark.parametrize(("source", "names"), rows("ltlf", "names_are_listed_verbatim_in_order_of_occurrence"))
def test_names_are_listed_verbatim_in_order_of_occurrence(source: str, names: list[str]) -> None:
    assert list(propositions_of(parse(source))) == names
    assert list(propositions_of(parse(print_formula(parse(source))))) == names


@pytest.mark.parametrize(("source", "position", "expected"), TABLE["faults"])
def test_a_syntax_error_names_position_and_expected_tokens(source: str, position: int, expected: str) -> None:
    with pytest.raises(SpecSyntaxError) as excinfo:
        parse(source)
    assert excinfo.value.position == position
    assert expected in excinfo.value.expected
    assert excinfo.value.field == "ltlf"


@pytest.mark.parametrize(("source", "position", "words", "corrected"), TABLE["hints"])
def test_what_other_tools_write_gets_a_hint(source: str, position: int, words: str, corrected: str) -> None:
    with pytest.raises(SpecSyntaxError) as excinfo:
        parse_formula(source, ResourceGuard(DEFAULTS), declared=())
    error = excinfo.value
    assert error.position == position
    assert words in str(error)
    assert (error.replacement is not None) == bool(corrected)
    if error.replacement is not None:
        begin, end, text = error.replacement
        assert source[:begin] + text + source[end:] == corrected
        parse_formula(corrected, ResourceGuard(DEFAULTS), declared=())


@pytest.mark.parametrize("source", ["Fa", "tt", "F(end)", "G(start)", "Gdog & F(dog)"])
def test_declared_and_quoted_words_are_no_operators(source: str) -> None:
    formula = parse(source)
    names = propositions_of(formula)
    assert parse_formula(source, ResourceGuard(DEFAULTS), declared=names) == formula
    assert parse_formula(print_formula(formula), ResourceGuard(DEFAULTS), declared=()) == formula


def test_a_capitalized_word_is_a_word() -> None:
    formula = parse_formula("F(Fred) & F(Guitar)", ResourceGuard(DEFAULTS), declared=())
    assert propositions_of(formula) == ("Fred", "Guitar")


def test_a_syntax_error_counts_lines_and_columns_from_one() -> None:
    with pytest.raises(SpecSyntaxError, check=lambda error: (error.line, error.column) == (2, 7)):
        parse("F a &\n  G(b ^ c)")


def test_an_open_bracket_is_named_by_its_line_and_column() -> None:
    with pytest.raises(SpecSyntaxError, match="line 2, column 4"):
        parse("F a &\n  G(b")


@pytest.mark.parametrize("source", ["secretname ^ b", '"secretname', "a secretname", "secretname)"])
def test_a_syntax_error_does_not_repeat_the_source(source: str) -> None:
    with pytest.raises(SpecSyntaxError, check=lambda error: "secretname" not in str(error)):
        parse(source)


@pytest.mark.parametrize(("source", "construct", "position"), [
    *rows("ltlf", "unsupported_operators_are_refused_by_name"), ("O(a & F b)", "the future inside O", None),
    ("a S last", "the future inside S", None),
])
def test_unsupported_operators_are_refused_by_name(source: str, construct: str, position: int | None) -> None:
    with pytest.raises(SpecUnsupported) as excinfo:
        parse(source)
    assert (excinfo.value.construct, excinfo.value.position, excinfo.value.field) == (construct, position, "ltlf")


ROOMY = Limits(formula_chars_max=1_000_000)


@pytest.mark.parametrize(
    ("source", "limits", "limit"),
    [
        ("a" * 4_097, DEFAULTS, "formula_chars_max"),
        ("!" * 10_000, DEFAULTS, "formula_chars_max"),
        ("!" * 10_000 + "a", ROOMY, "nesting_depth_max"),
        ("(" * 10_000, ROOMY, "nesting_depth_max"),
        ("(" * 10_000 + "a" + ")" * 10_000, ROOMY, "nesting_depth_max"),
        ("G(" * 33 + "a" + ")" * 33, DEFAULTS, "nesting_depth_max"),
        ("X" * 65 + " a", DEFAULTS, "nesting_depth_max"),
        (" & ".join(f"p{index}" for index in range(33)), DEFAULTS, "propositions_max"),
    ],
)
def test_a_formula_over_a_limit_is_refused_with_its_name(source: str, limits: Limits, limit: str) -> None:
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == limit):
        parse(source, limits)


@pytest.mark.parametrize(
    "source",
    [
        "X" * 64 + " a",
        "G(" * 32 + "a" + ")" * 32,
        " U ".join(f"p{index}" for index in range(30)),
        " U ".join("ab"[index % 2] for index in range(1_000)),
        " & ".join("ab"[index % 2] for index in range(1_000)),
        " W ".join("ab"[index % 2] for index in range(1_000)),
        " | ".join("!(a)" for _ in range(500)),
    ],
)
def test_long_chains_are_not_deep(source: str) -> None:
    formula = parse(source)
    assert parse(print_formula(formula)) == formula


AWKWARD = r'"X \" and \\ or ("'  # one quoted name, as written in a formula


def test_printing_and_parsing_again_gives_an_equal_formula() -> None:
    rng = random.Random(20)
    for _ in range(500):
        formula = parse(random_formula(rng, ("a", "B_2", AWKWARD)))
        assert parse(print_formula(formula)) == formula


def test_a_formula_refuses_a_malformed_table() -> None:
    true = Node(Op.TRUE)
    for nodes in ((), (Node(Op.NOT, (0,)),), (true, Node(Op.UNTIL, (0,))), (true, Node(Op.NAME, (0,)))):
        with pytest.raises(ValueError):
            LtlfFormula(nodes)


def test_the_builder_drops_unused_nodes() -> None:
    builder = Builder()
    builder.add(Op.NAME, (), "unused")
    root = builder.add(Op.NOT, (builder.add(Op.NAME, (), "a"),))
    assert builder.formula(root) == parse("!a")
