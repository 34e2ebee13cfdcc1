"""A short run of the fuzz of pushdown automata. `python -m tests.long.pushdown_fuzz` is the long form."""

from __future__ import annotations

import collections

from tests.long.pushdown_fuzz import run_case


def test_random_grammars_are_lifted_exactly() -> None:
    outcomes = sum(map(run_case, range(20)), collections.Counter[str]())
    assert outcomes["answered"] > 4 and outcomes["refusals"]
