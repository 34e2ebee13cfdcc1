"""Compares large repetitions with the powerset construction and exact distances."""

from __future__ import annotations

import random

import numpy as np
import pytest

from compiler.automata import CharDfa
from compiler.errors import LimitExceeded
from compiler.limits import Limits, ResourceGuard
from compiler.pipeline import compile_spec
from compiler.regex import parse_pattern, pattern_dfa
from compiler.regex.counted import counted_dfa
from compiler.spec import JsonSchemaSpec, RegexSpec, Spec
from compiler.vocab import Vocabulary
from tests.servers.cluster import FULL

ITEMS = ("a", "b", "c", "[ab]", "[^a]", "ab", "x", "d|e", "(?:ab|c)", ".", "é", "(?:a?b)*")
REPEATS = ("{0,3}", "{2,5}", "{3,}", "{4}", "*", "?", "{0}")


def random_pattern(draw: random.Random, depth: int) -> str:
    kind = draw.random()
    if not depth or kind < 0.2:
        return draw.choice(ITEMS)
    parts = [random_pattern(draw, depth - 1) for _ in range(draw.randint(1, 3))]
    if kind < 0.5:
        return "".join(f"(?:{part})" for part in parts)
    return f"(?:{'|'.join(parts)}){'' if kind < 0.65 else draw.choice(REPEATS)}"


def test_joined_parts_are_the_automaton_of_the_powerset_construction(monkeypatch: pytest.MonkeyPatch) -> None:
    draw, joined, count = random.Random(28), 0, 2_000 if FULL else 300
    for _ in range(count):
        pattern, guard = random_pattern(draw, 3), ResourceGuard(Limits())
        monkeypatch.setattr("compiler.regex.counted._SMALL", draw.choice((0, 1, 2, 5)))
        counted = counted_dfa(parse_pattern(pattern, guard), guard)
        if counted is None:
            continue
        monkeypatch.setattr("compiler.regex.counted._SMALL", 10_000)
        dfa, parts = pattern_dfa(pattern, guard)
        joined += 1
        assert np.array_equal(counted[1].cuts, parts.cuts) and np.array_equal(counted[1].cell, parts.cell), pattern
        for name in ("symbol_class", "next_state", "accepting", "start"):
            assert np.array_equal(getattr(counted[0], name), getattr(dfa, name)), (pattern, name)
    assert joined > count / 20


@pytest.mark.parametrize(
    ("pattern", "accepted", "rejected"),
    [
        ("a{1,100000}", ["a", "a" * 100_000], ["", "a" * 100_001]),
        ("[a-z]{0,100000}", ["", "xy" * 50_000], ["A", "a" * 100_001]),
        ("(ab|c){2,5000}", ["abc", "ab" * 5_000], ["c", "ab" * 5_001, "ca"]),
        ("[a-z ]{5,80000}\\.", ["a b c.", "a" * 80_000 + "."], ["a.", "a" * 80_001 + "."]),
        ("(x[0-9]+ ){3000,}", ["x12 " * 3_000, "x3 " * 9_000], ["x1 " * 2_999]),
        ("([ab]{2,4}-){2000}|c{9000}", ["aba-" * 2_000, "c" * 9_000], ["a-" * 2_000, "c" * 8_999]),
    ],
)
def test_large_repetitions_are_counted_exactly(pattern: str, accepted: list[str], rejected: list[str]) -> None:
    texts = CharDfa(*pattern_dfa(pattern, ResourceGuard(Limits())))
    assert all(map(texts.accepts, accepted)) and not any(map(texts.accepts, rejected))


@pytest.mark.parametrize("pattern", ["[a-z]{1,20000}z", "(?:a|aa){10000}", "(?:a?){20000}b?a"])
def test_a_repetition_whose_end_is_unclear_meets_a_limit(pattern: str) -> None:
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "nfa_positions_max"):
        pattern_dfa(pattern, ResourceGuard(Limits()))


@pytest.mark.parametrize(
    ("spec", "least"),
    [
        (RegexSpec("a{12000,40000}"), 3_001),
        (RegexSpec("[a-z]{12000,40000}"), 3_001),
        (RegexSpec("(?:ab|c){6000,30000}"), 6_001),
        (JsonSchemaSpec('{"type":"string","pattern":"^a{12000,40000}$"}'), 3_003),
    ],
)
@pytest.mark.sample(2)
def test_budgets_of_large_repetitions_are_exact(spec: Spec, least: int) -> None:
    vocabulary = Vocabulary((b"a", b"aa", b"aaaa", b"ab", b"c", b"b", b'"', b"\xc3", None), (8,))
    assert compile_spec(spec, vocabulary, Limits(compile_s_max=100)).tokens.min_tokens == least
