"""Operators of the past, beside the evaluator and beside MONA.

MONA reads programs that share nothing with the translator.
"""

from __future__ import annotations

import random

import pytest

from compiler.errors import LimitExceeded
from compiler.limits import Limits, ResourceGuard
from compiler.ltlf import formula_to_dfa, formula_to_dfa_mona, print_formula
from tests.compiler.ltlf.test_progression import parse, translate
from tests.references.dfa import assert_same
from tests.references.ltlf import satisfies
from tests.references.mona_oracle import mona_binary
from tests.references.mona_program import mona_program
from tests.references.random_formulas import LETTERS, random_formula_with_past, traces


@pytest.mark.parametrize(
    ("source", "trace", "verdict"),
    [
        ("F(b & Y a)", "ab", True),
        ("F(b & Y a)", "acb", False),
        ("Y true", "a", False),  # nothing is before the first step
        ("G(b -> O a)", "acb", True),
        ("G(b -> O a)", "cba", False),
        ("F(c & H a)", "ac", False),
        ("F(c & H(a | c))", "aac", True),
        ("F(c & (a S b))", "baac", False),
        ("F(c & ((a | c) S b))", "baac", True),
        ("F(c & ((a | c) S b))", "bbac", True),
        ("G(c -> Y(!c S b))", "bacc", False),
        ("O a", "ab", True),  # at the first step, which is a
        ("O a", "ba", False),
        ("last | X(O a)", "ab", True),
    ],
)
def test_past_operators_agree_with_hand_written_verdicts(source: str, trace: str, verdict: bool) -> None:
    steps = [frozenset(step) for step in trace]
    assert satisfies(parse(source), steps) is verdict
    assert translate(source, LETTERS).accepts(LETTERS.index(step) for step in steps) is verdict


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sample(2)
def test_random_past_formulas_agree_with_the_evaluator(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(12):
        source = random_formula_with_past(rng)
        letters = rng.sample(LETTERS, rng.choice((1, 2, 3, 4, 4, 5, 6)))
        formula, dfa = parse(source), translate(source, letters)
        for trace in traces(len(letters), 4):
            assert dfa.accepts(trace) is satisfies(formula, [letters[symbol] for symbol in trace]), (source, trace)


def test_random_past_formulas_give_the_automata_of_mona() -> None:
    rng, binary = random.Random(3), mona_binary()
    for _ in range(40):
        formula = parse(random_formula_with_past(rng))
        theirs = formula_to_dfa_mona(formula, LETTERS, ResourceGuard(Limits()), binary=binary, program=mona_program)
        assert_same(formula_to_dfa(formula, LETTERS, ResourceGuard(Limits())), theirs)


@pytest.mark.parametrize("source", ["G(b -> O a)", "a S b", "(Y a) S (H b)", "Y Y !a", "F(a & (O b U c))"])
def test_past_formulas_parse_from_their_printed_text(source: str) -> None:
    assert parse(print_formula(parse(source))) == parse(source)


def test_names_of_the_caller_may_look_like_ours() -> None:
    dfa = translate('G("past 0" -> O a)', [frozenset({"past 0"}), frozenset({"a"})])
    assert dfa.accepts([1, 0]) and not dfa.accepts([0, 1])


def test_the_letters_with_the_past_have_their_limit() -> None:
    source = " & ".join(f"F(c & {'Y ' * depth}a)" for depth in range(1, 7))
    with pytest.raises(LimitExceeded, match="letters_max"):
        translate(source, LETTERS, Limits(letters_max=40))
