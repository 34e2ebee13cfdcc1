"""A short run of the fuzz of the store. `python -m tests.long.mutants` is the long form."""

from __future__ import annotations

from tests.long.mutants import WAYS, confirm_all_are_read, run_case

CASES = 1_500


def test_unchanged_values_are_read() -> None:
    confirm_all_are_read()


def test_no_changed_value_is_accepted() -> None:
    assert {run_case(seed) for seed in range(CASES)} == {way.__name__ for way in WAYS}
