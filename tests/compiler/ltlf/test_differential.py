"""Compares our LTLf translation with MONA's, and decision diagrams with truth tables.

MONA reads LTLf2DFA's programs and our own.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from compiler.automata import Dfa, is_empty
from compiler.errors import LimitExceeded
from compiler.limits import Limits, ResourceGuard
from compiler.ltlf import formula_to_dfa, formula_to_dfa_mona, parse_formula
from compiler.ltlf.bdd import FALSE, TRUE, MonotoneBdd
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


VARIABLES = 4
ASSIGNMENTS = list(itertools.product((False, True), repeat=VARIABLES))


def table(bdd: MonotoneBdd, function: int) -> tuple[bool, ...]:
    return tuple(bdd.holds(function, values, {}) for values in ASSIGNMENTS)


def random_function(bdd: MonotoneBdd, rng: random.Random, depth: int) -> int:
    if depth == 0:
        return rng.choice([FALSE, TRUE, *(bdd.atom(variable) for variable in range(VARIABLES))])
    left, right = random_function(bdd, rng, depth - 1), random_function(bdd, rng, depth - 1)
    return rng.choice((bdd.conjoin, bdd.disjoin))(left, right)


def test_joining_functions_joins_their_truth_tables() -> None:
    rng, bdd = random.Random(1), MonotoneBdd(ResourceGuard(Limits()))
    for _ in range(200):
        left, right = random_function(bdd, rng, 3), random_function(bdd, rng, 3)
        pairs = list(zip(table(bdd, left), table(bdd, right), strict=True))
        assert table(bdd, bdd.conjoin(left, right)) == tuple(
            left_value and right_value for left_value, right_value in pairs
        )
        assert table(bdd, bdd.disjoin(left, right)) == tuple(
            left_value or right_value for left_value, right_value in pairs
        )


def test_equal_functions_are_one_node() -> None:
    rng, bdd = random.Random(2), MonotoneBdd(ResourceGuard(Limits()))
    nodes: dict[tuple[bool, ...], int] = {}
    for _ in range(500):
        function = random_function(bdd, rng, 4)
        assert nodes.setdefault(table(bdd, function), function) == function
    assert len(nodes) > 50


def test_substituting_functions_composes_their_truth_tables() -> None:
    rng, bdd = random.Random(3), MonotoneBdd(ResourceGuard(Limits()))
    for _ in range(100):
        values = [random_function(bdd, rng, 2) for _ in range(VARIABLES)]
        function = random_function(bdd, rng, 3)
        composition = bdd.substitute(function, values, {})
        for assignment in ASSIGNMENTS:
            inner = [bdd.holds(value, assignment, {}) for value in values]
            assert bdd.holds(composition, assignment, {}) is bdd.holds(function, inner, {})


def test_a_diagram_deeper_than_the_stack_is_joined_and_substituted() -> None:
    bdd = MonotoneBdd(ResourceGuard(Limits()))
    even = odd = TRUE
    for variable in range(0, 5_000, 2):
        even, odd = bdd.node(variable, FALSE, even), bdd.node(variable + 1, FALSE, odd)
    both = bdd.conjoin(even, odd)
    assert bdd.holds(both, [True] * 5_000, {})
    assert not bdd.holds(both, [True] * 4_999 + [False], {})
    assert bdd.substitute(both, [TRUE] * 4_999 + [bdd.atom(7)], {}) == bdd.atom(7)


def test_growth_over_the_cap_stops() -> None:
    bdd = MonotoneBdd(ResourceGuard(Limits(bdd_nodes_max=2_000)))
    with pytest.raises(LimitExceeded, match="bdd_nodes_max"):
        for variable in range(5_000):
            bdd.atom(variable)
