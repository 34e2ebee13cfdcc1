"""Declare's templates beside the formulas of the literature, and files of Declare."""

from __future__ import annotations

import pytest

from compiler.errors import SpecSyntaxError, SpecUnsupported
from compiler.limits import Limits, ResourceGuard
from compiler.ltlf import formula_to_dfa
from compiler.policies import read_decl
from compiler.policies.declare import BINARY, TEMPLATES
from compiler.policies.rules import read_rules
from tests.references.dfa import assert_same
from tests.tables import rows, table

LETTERS = [frozenset(), frozenset({"call(a)"}), frozenset({"call(b)"}), frozenset({"call(c)"})]
LITERATURE: dict[str, str] = table("declare")


def guard() -> ResourceGuard:
    return ResourceGuard(Limits(formula_chars_max=100_000))


def spelled(name: str) -> str:
    """Our spelling of a template of the literature, over a and b."""
    template, _, count = name.replace("-", "_").partition(" ")
    rest = [count] if count.isdigit() else []
    if count and not rest:
        template = f"{template}_{count.replace(' ', '_')}"
    events = ["call(a)", "call(b)"] if template in BINARY else ["call(a)"]
    return f"{template}({', '.join([*events, *rest])})"


SPELLED = [(spelled(name), formula.format(a="call(a)", b="call(b)")) for name, formula in LITERATURE.items()]


@pytest.mark.parametrize(
    ("template", "formula"), [*SPELLED, *rows("policies", "templates_say_what_their_definitions_say")]
)
def test_templates_say_what_their_definitions_say(template: str, formula: str) -> None:
    """Where no results stand between the events."""
    ours, theirs = read_rules([template, formula], None, guard())
    assert_same(formula_to_dfa(ours.formula, LETTERS, guard()), formula_to_dfa(theirs.formula, LETTERS, guard()))


def test_all_templates_are_known_to_the_literature_or_tested_here() -> None:
    named = {spelled(name).partition("(")[0] for name in LITERATURE}
    assert set(TEMPLATES) - named == {
        "not_responded_existence", "not_response", "not_precedence", "not_chain_response", "not_chain_precedence",
    }  # fmt: skip


RESULT = frozenset({"result", "result(a)"})
CALL_A, CALL_B, REPLY = frozenset({"call(a)"}), frozenset({"call(b)"}), frozenset({"reply"})


@pytest.mark.parametrize(
    ("rule", "trace", "verdict"),
    [
        ("chain_response(call(a), call(b))", [CALL_A, RESULT, CALL_B], True),
        ("chain_response(call(a), call(b))", [CALL_A, RESULT, REPLY, CALL_B], False),
        ("chain_response(call(a), result(a))", [CALL_A, RESULT], True),
        ("chain_response(call(a), result(a))", [CALL_A, CALL_B, RESULT], False),
        ("chain_precedence(call(a), call(b))", [CALL_A, RESULT, CALL_B], True),
        ("chain_precedence(call(a), call(b))", [RESULT, CALL_B], False),
        ("chain_precedence(result(a), call(b))", [CALL_A, RESULT, CALL_B], True),
        ("chain_precedence(result(a), call(b))", [RESULT, CALL_A, CALL_B], False),
        ("not_chain_response(call(a), call(b))", [CALL_A, RESULT, CALL_B], False),
        ("chain_response(call(a), reply)", [CALL_A, RESULT, REPLY], True),
        ("end(call(a))", [CALL_B, RESULT, CALL_A, RESULT, REPLY], True),
        ("end(call(a))", [CALL_A, RESULT, REPLY, CALL_B, RESULT, REPLY], False),
        ("end(call(a))", [CALL_A], True),
        ("end(call(a))", [REPLY], False),
        ("end(result(a))", [CALL_A, RESULT, REPLY], True),
        ("end(result(a))", [CALL_A, RESULT, CALL_B, REPLY], False),
        ("end(reply)", [CALL_A, RESULT, REPLY], True),
        ("end(reply)", [REPLY, CALL_A, RESULT], False),
    ],
)
def test_templates_pass_over_results_and_replies(rule: str, trace: list[frozenset[str]], verdict: bool) -> None:
    letters = list(dict.fromkeys([*trace, REPLY, CALL_A, CALL_B, RESULT]))
    (read,) = read_rules([rule], None, guard())
    assert formula_to_dfa(read.formula, letters, guard()).accepts(map(letters.index, trace)) is verdict


@pytest.mark.parametrize(("rule", "expected"), rows("policies", "faulty_templates_are_refused"))
def test_faulty_templates_are_refused(rule: str, expected: str) -> None:
    with pytest.raises(SpecSyntaxError) as caught:
        read_rules(["F a", rule], None, guard())
    assert caught.value.field == "policy.rules.1"
    assert expected in caught.value.expected


def test_a_tool_that_does_not_exist_is_named() -> None:
    with pytest.raises(SpecSyntaxError, match="there is no tool refnd; did you mean refund"):
        read_rules(["response(refnd, notify)"], ["refund", "notify"], guard())


def test_a_file_of_declare_is_read() -> None:
    text = """\ufeffactivity Create Fine
activity Send Fine
bind Send Fine: amount
amount: float between 0 and 100
org:group, amount-eur, concept.name: a, b:c, [d]
# Response[Send Fine, Create Fine] | | |
Response[Create Fine, Send Fine] | | |
Existence2[Send Fine] | |
Not Chain Succession[Create Fine, Send Fine] |
Not Co-Existence[Create Fine, Send Fine]
AlternatePrecedence[Create Fine, Send Fine] | | |
Init[Send: [1]]|
"""
    assert read_decl(text) == [
        'response("Create Fine", "Send Fine")',
        'existence("Send Fine", 2)',
        'not_chain_succession("Create Fine", "Send Fine")',
        'not_co_existence("Create Fine", "Send Fine")',
        'alternate_precedence("Create Fine", "Send Fine")',
        'init("Send: [1]")',
    ]
    tools = ["Create Fine", "Send Fine", "Send: [1]"]
    assert [rule.text for rule in read_rules(read_decl(text), tools, guard())] == read_decl(text)


@pytest.mark.parametrize("line", ["Respond[a, b]", "Response a, b", "[a]", "Response[a, b] b", "amount [EUR]: float"])
def test_lines_of_declare_that_do_not_read_are_named(line: str) -> None:
    with pytest.raises(SpecSyntaxError, match=r"line 2"):
        read_decl(f"activity a\n{line}\n")


def test_conditions_of_declare_files_are_refused_by_name() -> None:
    with pytest.raises(SpecUnsupported, match="call\\(tool, path > 5\\)"):
        read_decl("Response[a, b] |A.amount > 5 | |")
