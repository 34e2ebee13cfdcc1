"""A short run of the fuzz of the guarantee. `python -m tests.long.fuzz` is the long form."""

from __future__ import annotations

import collections
import warnings

import pytest

from tests.long.fuzz import run_case
from tests.servers.cluster import FULL

CASES = 1_000 if FULL else 100  # `make fuzz` runs the same seeds and more
BLOCK = 100
STACKED_CASES = 40 if FULL else 16  # combinations with a grammar or nested JSON


def run_cases(seeds: range, answered_min: float, stacked: bool = False) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # `re` of possible set operations in random patterns
        outcomes = collections.Counter(run_case(seed, stacked) for seed in seeds)
    assert sum(count for name, count in outcomes.items() if name.startswith("answered")) > answered_min, outcomes


@pytest.mark.parametrize("block", range(CASES // BLOCK))
def test_no_answer_violates_its_constraint_and_no_refusal_is_wrong(block: int) -> None:
    run_cases(range(block * BLOCK, (block + 1) * BLOCK), BLOCK / 3)


def test_combinations_with_a_stack_keep_the_guarantee() -> None:
    run_cases(range(STACKED_CASES), STACKED_CASES / 5, stacked=True)
