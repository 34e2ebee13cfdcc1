"""Compares our LTLf translation with MONA's for every formula. MONA reads LTLf2DFA's programs and our own."""

from __future__ import annotations

from collections import Counter

import pytest

from compiler.automata import Dfa, is_empty
from compiler.limits import Limits, ResourceGuard
from compiler.ltlf import formula_to_dfa, formula_to_dfa_mona, parse_formula
from tests.compiler.ltlf.test_progression import ROWS
from tests.references.dfa import assert_same
from tests.references.formula_suite import DECLARE, Case, suite
from tests.references.mona_oracle import mona_binary
from tests.references.mona_program import mona_program
from tests.references.random_formulas import LETTERS

CASES = [*suite(), *(Case("table of traces", str(row["formula"]), LETTERS) for row in ROWS)]
PATIENT = Limits(formula_chars_max=100_000, propositions_max=100, compile_s_max=60)


@pytest.fixture(scope="session")
def binary() -> str:
    return mona_binary()


def native(case: Case) -> Dfa:
    return formula_to_dfa(parse_formula(case.source, ResourceGuard(PATIENT)), case.letters, ResourceGuard(PATIENT))


def of_family(family: str) -> list[Case]:
    return [case for case in CASES if case.family == family]


FAMILIES = list(dict.fromkeys(case.family for case in CASES))


def test_the_suite_has_500_distinct_formulas_from_every_family() -> None:
    assert len({(case.source, case.letters) for case in suite()}) == len(suite()) >= 500
    assert len({case.source for case in suite()}) >= 450  # the rest are the same ones over other letters
    assert min(Counter(case.family for case in suite()).values()) >= 15
    assert len(DECLARE) >= 21


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.sample(2)
def test_mona_with_ltlf2dfa_programs_gives_the_same_automata(family: str, binary: str) -> None:
    """The paper's tool chain. Minimal automata in canonical form: equal arrays are equal languages."""
    for case in of_family(family):
        formula = parse_formula(case.source, ResourceGuard(PATIENT))
        theirs = formula_to_dfa_mona(formula, case.letters, ResourceGuard(PATIENT), binary=binary)
        assert_same(native(case), theirs)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.sample(4)
def test_mona_with_native_programs_gives_the_same_automata(family: str, binary: str) -> None:
    for case in of_family(family)[::3]:
        formula = parse_formula(case.source, ResourceGuard(PATIENT))
        theirs = formula_to_dfa_mona(formula, case.letters, ResourceGuard(PATIENT), binary=binary, program=mona_program)
        assert_same(native(case), theirs)


def test_few_formulas_of_the_suite_are_trivial() -> None:
    automata = [native(case) for case in suite()]
    empty_dfas = [dfa for dfa in automata if is_empty(dfa)]
    always = [dfa for dfa in automata if dfa.states == 2 and dfa.next_state.all() and dfa.accepting[1]]
    assert len(empty_dfas) + len(always) < len(automata) / 5
