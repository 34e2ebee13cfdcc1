"""Monotone decision diagrams against truth tables."""

from __future__ import annotations

import itertools
import random

import pytest

from compiler.errors import LimitExceeded
from compiler.limits import Limits, ResourceGuard
from compiler.ltlf.bdd import FALSE, TRUE, MonotoneBdd

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
