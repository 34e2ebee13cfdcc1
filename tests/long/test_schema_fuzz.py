"""A short run of the fuzz of JSON schemas. `python -m tests.long.schema_fuzz` is the long form."""

from __future__ import annotations

import collections
import warnings

from tests.long.schema_fuzz import run_schema


def test_answers_under_random_schemas_are_valid_and_pass() -> None:
    outcomes: collections.Counter[str] = collections.Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of `re` and `jsonschema` about odd schemas
        for seed in range(25):
            outcomes.update(run_schema(seed, []))
    assert [name for name in outcomes if name.startswith("FAILED")] == []
    assert outcomes["generations"] > 100 and outcomes["answers valid"] > 100
