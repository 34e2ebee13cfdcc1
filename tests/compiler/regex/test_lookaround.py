"""Compares look-arounds, word boundaries and anchors of lines with `re.fullmatch`."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from compiler.automata import CharDfa
from compiler.limits import Limits, ResourceGuard
from compiler.pipeline import compile_text
from compiler.regex import node_nfa, parse_pattern, pattern_dfa
from compiler.spec import spec_from_json
from compiler.text import check_text
from tests.compiler.regex.test_glushkov import compare, reference

TEXTS = ["".join(chars) for length in range(6) for chars in itertools.product("ab\n-", repeat=length)]
COMMON_LEAVES = ("a", "b", r"\n", ".", r"\w", r"\W", "[ab]", "[^a]", "^", "$", r"\b", r"\B")
PYTHON_LEAVES = (*COMMON_LEAVES, "-", r"\A", r"\Z")
PYTHON_FLAGS = ("m", "s", "i", "-m", "a")
REPEATS = ("*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}")
LOOKS = ("=", "!", "<=", "<!")


def random_pattern(rng: random.Random, leaves: tuple[str, ...], flags: tuple[str, ...], depth: int = 4) -> str:
    """flags: those that a group may have."""
    kind = rng.random()
    if depth == 0 or kind < 0.25:
        return rng.choice(leaves)
    if kind < 0.5:
        return "".join(random_pattern(rng, leaves, flags, depth - 1) for _ in range(rng.randint(1, 3)))
    if kind < 0.6:
        return f"(?:{'|'.join(random_pattern(rng, leaves, flags, depth - 1) for _ in range(rng.randint(1, 3)))})"
    if kind < 0.72:
        return f"(?:{random_pattern(rng, leaves, flags, depth - 1)}){rng.choice(REPEATS)}"
    if kind < 0.92 or not flags:
        return f"(?{rng.choice(LOOKS)}{random_pattern(rng, leaves, flags, depth - 1)})"
    return f"(?{rng.choice(flags)}:{random_pattern(rng, leaves, flags, depth - 1)})"


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.sample(2)
def test_random_look_arounds_accept_what_fullmatch_accepts(seed: int) -> None:
    rng, comparisons = random.Random(900 + seed), 0
    while comparisons < 60:
        pattern = rng.choice(("", "(?m)")) + random_pattern(rng, PYTHON_LEAVES, PYTHON_FLAGS)
        try:
            reference(pattern)
        except re.error:  # a look-behind of several widths
            continue
        comparisons += 1
        compare(pattern, TEXTS if comparisons % 10 == 0 else rng.sample(TEXTS, 120))


@pytest.mark.parametrize("pattern", [r"(?:(?!ab)[ab])*-?", r"\b\w+\b|-", "(?m)(?:^a$\n?)+", "a(?=b)b|(?<=b)a", "(?!)"])
def test_a_position_automaton_of_look_arounds_accepts_the_same(pattern: str) -> None:
    guard = ResourceGuard(Limits())
    nfa = node_nfa(parse_pattern(pattern, guard), guard)
    for text in TEXTS:
        positions, last = nfa.first, nfa.nullable
        for char in text:
            read = [
                number for number in range(nfa.positions)
                if positions >> number & 1
                and any(low <= ord(char) < high for low, high in nfa.sets[nfa.position_set[number]])
            ]  # fmt: skip
            positions, last = 0, any(nfa.last >> number & 1 for number in read)
            for number in read:
                positions |= nfa.follow[number]
        assert last == bool(re.fullmatch(pattern, text)), text


def test_a_proposition_may_hold_a_look_around() -> None:
    compiled = compile_text(spec_from_json({"ltlf": "F p", "propositions": {"p": {"regex": r"(?!cat\b)\w+"}}}))
    verdicts = {text: check_text(compiled, text).satisfied for text in ("cat", "a cat", "cats", "cat cat")}
    assert verdicts == {"cat": False, "a cat": True, "cats": True, "cat cat": False}


def test_copies_of_a_look_around_are_built_once() -> None:
    limits = Limits(nfa_positions_max=1_100)
    dfa = CharDfa(*pattern_dfa("(?:(?!foo|bar)[a-z]){1,1000}", ResourceGuard(limits)))
    assert dfa.accepts("fo" * 500) and not dfa.accepts("xxfoox") and not dfa.accepts("a" * 1001)
