"""Grammars in every syntax: texts, faults, refusals and warnings."""

from __future__ import annotations

import random
from typing import Any

import pytest

from compiler.errors import LimitExceeded, SpecSyntaxError, SpecUnsatisfiable, SpecUnsupported
from compiler.grammars import SYNTAXES, ParsedGrammar, likely_syntax, read_grammar
from compiler.limits import DEFAULT_LIMITS, Limits, ResourceGuard
from compiler.pushdown import build_machine
from tests.references.context_free import derives, mutated, random_text
from tests.references.grammar_suites import earley_parser
from tests.tables import rows, table

TABLES = {syntax: table(syntax) for syntax in ("gbnf", "ebnf", "lark")}


def cases(kind: str) -> list[Any]:
    return [
        pytest.param(syntax, case, id=f"{syntax} {case.get('name', case['grammar'][:30])}")
        for syntax, each in TABLES.items()
        for case in each[kind]
    ]


def parsed(text: str, syntax: str, limits: Limits = DEFAULT_LIMITS) -> ParsedGrammar:
    return read_grammar(text, syntax, ResourceGuard(limits))


@pytest.mark.parametrize("syntax, case", cases("accepts"))
def test_grammars_accept_their_texts_alone(syntax: str, case: dict[str, Any]) -> None:
    grammar = parsed(case["grammar"], syntax).grammar
    machine = build_machine(grammar, ResourceGuard(DEFAULT_LIMITS))
    texts = (*case["accepted"], *case["rejected"])
    assert [text for text in texts if machine.accepts(text.encode())] == case["accepted"]
    assert [text for text in texts if derives(grammar, text)] == case["accepted"]


@pytest.mark.parametrize("syntax, case", cases("faults"))
def test_a_fault_is_shown_with_its_place(syntax: str, case: dict[str, Any]) -> None:
    with pytest.raises(SpecSyntaxError) as caught:
        parsed(case["grammar"], syntax)
    error = caught.value
    assert (error.line, error.column) == (case["line"], case["column"])
    assert case["expected"] in error.expected and case.get("message", "") in error.message


@pytest.mark.parametrize("syntax, case", cases("refused"))
def test_what_is_not_supported_is_refused_by_name(syntax: str, case: dict[str, Any]) -> None:
    with pytest.raises(SpecUnsupported) as caught:
        parsed(case["grammar"], syntax)
    assert (caught.value.construct, caught.value.position) == (case["construct"], case["position"])


@pytest.mark.parametrize("syntax", ["gbnf", "ebnf"])
def test_warnings_name_what_is_useless(syntax: str) -> None:
    text = 'root ::= a | b | a\na ::= "a" b | "b"\nb ::= "b" b\nc ::= "c" c | ()\nd ::= "d"'
    assert [(each.message, each.line, each.column) for each in parsed(text, syntax).warnings] == [
        ("an alternative of root derives no text", 1, 14),
        ("an alternative of root is written twice", 1, 18),
        ("an alternative of a derives no text", 2, 7),
        ("the rule b derives no text", 3, 1),
        ("the rule c is not used", 4, 1),
        ("the rule d is not used", 5, 1),
    ]


@pytest.mark.parametrize("text, syntax", [('root ::= "a" root', "gbnf"), ('a = "b", a;', "ebnf")])
def test_grammars_without_texts_are_unsatisfiable(text: str, syntax: str) -> None:
    with pytest.raises(SpecUnsatisfiable, match=r"what (root|a) calls never ends"):
        parsed(text, syntax)


def test_an_unknown_syntax_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SpecSyntaxError, check=lambda error: error.expected == ", ".join(SYNTAXES)):
        parsed("", "yacc")


@pytest.mark.parametrize(("text", "syntax"), rows("grammars", "a_rule_with_two_colons_and_equals_is_ebnf"))
def test_a_rule_with_two_colons_and_equals_is_ebnf(text: str, syntax: str) -> None:
    assert likely_syntax(text) == syntax


def test_differences_are_bounded() -> None:
    rules = "".join(f"r{n} ::= r{n + 1} r{n + 1}\n" for n in range(40))
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "nfa_positions_max"):
        parsed(f"root ::= r0 - 'x'\n{rules}r40 ::= 'x'", "ebnf")


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_the_length_of_a_grammar_is_bounded(syntax: str) -> None:
    most = DEFAULT_LIMITS.grammar_chars_max
    text = ("start: " if syntax == "lark" else "root ::= ") + '"a" ' * (most // 4 - 3)
    assert most > len(text) > DEFAULT_LIMITS.pattern_chars_max
    assert parsed(text, syntax, Limits(nfa_positions_max=most)).warnings == ()
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "grammar_chars_max"):
        parsed(text + " " * most, syntax)


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_deep_brackets_are_refused_by_name(syntax: str) -> None:
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "nesting_depth_max"):
        parsed(f"{'start:' if syntax == 'lark' else 'root ::='} {'(' * 5_000}[a]{')' * 5_000}", syntax)


@pytest.mark.parametrize("case", TABLES["lark"]["accepts"], ids=lambda case: case["name"])
def test_larks_earley_parser_accepts_the_same_texts(case: dict[str, Any]) -> None:
    parses = earley_parser(case["grammar"])
    grammar, draw, verdicts = parsed(case["grammar"], "lark").grammar, random.Random(3), list[bool]()
    machine = build_machine(grammar, ResourceGuard(DEFAULT_LIMITS))
    drawn = [random_text(grammar, draw)[:60] for _ in range(40)]
    edited = [mutated(text, draw, "".join(case["accepted"])) for text in (*drawn, *case["accepted"])]
    for text in (*case["accepted"], *case["rejected"], *drawn, *edited):
        verdicts.append(parses(text))
        assert machine.accepts(text.encode()) == verdicts[-1], text
    assert 10 < sum(verdicts) < len(verdicts) - 10


LLGUIDANCE = """
start: item{2} "x"{,1} word{1,2} num{1,} "" /[ab]*/
item: "i"
word: "w"
num: /[0-9]/
"""


def test_repetitions_of_llguidance_and_empty_terminals_are_read() -> None:
    machine = build_machine(parsed(LLGUIDANCE, "lark").grammar, ResourceGuard(DEFAULT_LIMITS))
    texts = ("iiw1", "iixww12ab", "iw1", "iixxw1", "iiwww1", "iiw", "iiw1c")
    assert [text for text in texts if machine.accepts(text.encode())] == ["iiw1", "iixww12ab"]
