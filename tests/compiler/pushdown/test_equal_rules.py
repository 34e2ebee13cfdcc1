"""Equal rules are one, and the texts stay the same."""

from __future__ import annotations

import random

import numpy as np
import pytest

from compiler.automata import texts_dfa
from compiler.limits import DEFAULT_LIMITS, ResourceGuard
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

GUARD = ResourceGuard(DEFAULT_LIMITS)
TOOLS = [
    ("name", {"type": "object", "properties": {"n": {"type": "object"}}}),
    ("nest", {"type": "object", "properties": {"xy": {"type": "array"}, "é": {"type": "string"}}}),
    ("n", {"type": "object"}),
]
CALLS = {"any": [{"sequence": [name, {"json_schema": schema, "whitespace": "compact"}]} for name, schema in TOOLS]}
CONSTRAINT = {"sequence": [{"repeat": CALLS, "min": 1, "separator": ","}]}


def rule(node: Node) -> RuleDfa:
    return rule_dfa(node, GUARD)


def literal(text: str) -> Node:
    return literal_node(text, False)


def test_rules_are_equal_whatever_their_minterms() -> None:
    word = texts_dfa(["ab", "é"], GUARD)
    other = texts_dfa(["ab", "é", "xyz"], GUARD)
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
    machine = network_machine(["text", "brackets", "pair"], rules, GUARD)
    assert machine.accepts(b"(())()()") and not machine.accepts(b"(())()")


def compiled() -> tuple[PushdownAutomaton, PushdownText]:
    spec = spec_from_json(CONSTRAINT)
    tokens, text = compile_spec(spec, KEY_VOCABULARY).tokens, compile_text(spec)
    assert isinstance(tokens, PushdownAutomaton) and isinstance(text, PushdownText)
    return tokens, text


def test_texts_are_the_same_without_sharing(monkeypatch: pytest.MonkeyPatch) -> None:
    draw, (shared, text) = random.Random(5), compiled()

    def apart(rules: list[RuleDfa], _: object) -> tuple[list[int], list[RuleDfa]]:
        return list(range(len(rules))), list(rules)

    monkeypatch.setattr("compiler.forms.sequences.distinct_rules", apart)
    others, other_text = compiled()
    assert len(text.machine.rules) < len(other_text.machine.rules) and shared.states < others.states
    for _ in range(40):
        pair = Configurations(shared), Configurations(others)
        at, content = [each.start for each in pair], b""
        for _ in range(30):
            left, right = (
                each.distances_after(state)[each.token_class] for each, state in zip(pair, at, strict=True)
            )
            assert np.array_equal(left, right)
            near = np.flatnonzero(left <= int(left.min()) + draw.randrange(6))
            token = int(draw.choice(near.tolist()))
            if token in KEY_VOCABULARY.eos_ids:
                assert text.machine.accepts(content) and other_text.machine.accepts(content)
                break
            content += KEY_VOCABULARY.tokens[token] or b""
            at = [each.advance(state, token) for each, state in zip(pair, at, strict=True)]
