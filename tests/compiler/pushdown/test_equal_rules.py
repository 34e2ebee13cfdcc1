"""Equal rules are one, and the texts stay the same."""

from __future__ import annotations

import random
from typing import TypeAlias

import numpy as np
import pytest

from compiler.automata import texts_dfa
from compiler.limits import Limits, ResourceGuard
from compiler.pipeline import compile_spec, compile_text
from compiler.pushdown import (
    END_SYMBOL,
    Configurations,
    PushdownAutomaton,
    RuleDfa,
    call,
    distinct_rules,
    network_machine,
    rule_dfa,
)
from compiler.regex import Chars, Node, Repeat, concat, literal_node
from compiler.spec import spec_from_json
from compiler.text import PushdownText
from tests.compiler.pushdown.test_lift import KEY_VOCABULARY

PATIENT = Limits(compile_s_max=100)
TOOLS = [
    ("name", {"type": "object", "properties": {"n": {"type": "object"}}}),
    ("nest", {"type": "object", "properties": {"xy": {"type": "array"}, "é": {"type": "string"}}}),
    ("n", {"type": "object"}),
]
CALLS = {"any": [{"sequence": [name, {"json_schema": schema, "whitespace": "compact"}]} for name, schema in TOOLS]}
CONSTRAINT = {"sequence": [{"repeat": CALLS, "min": 1, "separator": ","}]}

Compiled: TypeAlias = tuple[PushdownAutomaton, PushdownText]


def rule(node: Node) -> RuleDfa:
    return rule_dfa(node, ResourceGuard(PATIENT))


def literal(text: str) -> Node:
    return literal_node(text, False)


def test_rules_are_equal_whatever_their_minterms() -> None:
    word = texts_dfa(["ab", "é"], ResourceGuard(PATIENT))
    other = texts_dfa(["ab", "é", "xyz"], ResourceGuard(PATIENT))
    several = [
        RuleDfa(word.dfa, word.minterms), RuleDfa(other.dfa, other.minterms), rule(literal("ab")),
        rule(literal("ab")),
    ]  # fmt: skip
    assert distinct_rules(several, {})[0] == [0, 1, 2]
    assert distinct_rules(several, {3: "a budget"})[0] == [0, 1, 2, 3]


def test_rules_that_call_equal_ones_are_equal() -> None:
    def bracketed(called: int) -> RuleDfa:
        return rule(concat([literal("("), Repeat(call(called), 0, 1), literal(")")]))

    root = rule(concat([call(1), call(3), call(4), Chars(((END_SYMBOL, END_SYMBOL + 1),))]))
    kept, rules = distinct_rules([root, bracketed(2), bracketed(1), bracketed(3), rule(literal("()"))], {})
    assert kept == [0, 1, 4]
    assert rules[1].letters == (1,)
    machine = network_machine(["text", "brackets", "pair"], rules, ResourceGuard(PATIENT))
    assert machine.accepts(b"(())()()") and not machine.accepts(b"(())()")


def compiled(constraint: dict[str, object] = CONSTRAINT) -> Compiled:
    spec = spec_from_json(constraint)
    tokens, text = compile_spec(spec, KEY_VOCABULARY, PATIENT).tokens, compile_text(spec, PATIENT)
    assert isinstance(tokens, PushdownAutomaton) and isinstance(text, PushdownText)
    return tokens, text


def assert_same_texts(left: Compiled, right: Compiled) -> None:
    """Compare all distances along random walks, and both machines over the texts."""
    draw, ended = random.Random(5), 0
    for _ in range(40):
        pair = Configurations(left[0]), Configurations(right[0])
        at, content = [each.start for each in pair], b""
        for _ in range(30):
            found = [each.distances_after(state)[each.token_class] for each, state in zip(pair, at, strict=True)]
            assert np.array_equal(*found)
            near = np.flatnonzero(found[0] <= int(found[0].min()) + draw.randrange(6))
            token = int(draw.choice(near.tolist()))
            if token in KEY_VOCABULARY.eos_ids:
                ended += 1
                break
            content += KEY_VOCABULARY.tokens[token] or b""
            at = [each.advance(state, token) for each, state in zip(pair, at, strict=True)]
        assert left[1].machine.accepts(content) == right[1].machine.accepts(content)
    assert ended > 10


def test_texts_are_the_same_without_sharing(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = compiled()

    def apart(rules: list[RuleDfa], _: object) -> tuple[list[int], list[RuleDfa]]:
        return list(range(len(rules))), list(rules)

    monkeypatch.setattr("compiler.forms.sequences.distinct_rules", apart)
    others = compiled()
    assert len(shared[1].machine.rules) < len(others[1].machine.rules) and shared[0].states < others[0].states
    assert_same_texts(shared, others)


OBJECT = {"json_schema": {"type": "object"}, "whitespace": "compact"}
OPTIONS = [
    CONSTRAINT,
    {"sequence": ["{", {"any": ["n", {"sequence": ["na", OBJECT]}, {"sequence": ["na", {"optional": "xn"}]}, ""]}]},
    {"sequence": [
        {"any": [{"optional": OBJECT}, {"repeat": "é", "max": 2}, {"sequence": ["n", {"free": {"until": [":"]}}]}]}
    ]},
    {"sequence": [{"any": [{"choice": ["name", "nest"]}, {"sequence": ["n", {"choice": ["e"]}, ":", OBJECT]}]}, "}"]},
]  # fmt: skip


@pytest.mark.parametrize("constraint", OPTIONS)
def test_texts_are_the_same_with_options_as_rules(
    constraint: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = compiled(constraint)
    monkeypatch.setattr("compiler.forms.sequences._OPTION_POSITIONS_MAX", 0)
    rules = compiled(constraint)
    assert "options" in rules[1].machine.rules and "options" not in inside[1].machine.rules
    assert_same_texts(inside, rules)


def test_many_options_are_no_pattern() -> None:
    names = [f"{name:04}{'n' * (name % 9)}" for name in range(2_000)]
    spec = spec_from_json({"sequence": ["[", {"repeat": {"any": names}, "min": 1, "separator": ","}, "]"]})
    text = compile_text(spec, PATIENT)
    assert isinstance(text, PushdownText)
    assert text.machine.accepts(b"[0001n,1999n,0000]") and not text.machine.accepts(b"[0001nn]")
