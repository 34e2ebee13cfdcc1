"""A short run of the fuzz of pushdown automata. `python -m tests.long.pushdown_fuzz` is the long form."""

from __future__ import annotations

import collections

from tests.long.pushdown_fuzz import run_case


def test_random_grammars_are_lifted_exactly() -> None:
    outcomes = collections.Counter(run_case(seed) for seed in range(20))
    assert outcomes["answered"] > 4
