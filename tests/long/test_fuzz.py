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


@pytest.mark.parametrize("block", range(CASES // BLOCK))
def test_no_answer_violates_its_constraint_and_no_refusal_is_wrong(block: int) -> None:
    outcomes: collections.Counter[str] = collections.Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # `re` of possible set operations in random patterns
        for seed in range(block * BLOCK, (block + 1) * BLOCK):
            outcomes[run_case(seed)] += 1
    assert sum(count for outcome, count in outcomes.items() if outcome.startswith("answered")) > BLOCK / 3, outcomes


def test_combinations_with_a_stack_keep_the_guarantee() -> None:
    outcomes: collections.Counter[str] = collections.Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        for seed in range(STACKED_CASES):
            outcomes[run_case(seed, stacked=True)] += 1
    answered = sum(count for outcome, count in outcomes.items() if outcome.startswith("answered"))
    assert answered > STACKED_CASES / 5, outcomes
