"""Values are decided as by the suite, `jsonschema` and the automata."""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from compiler.errors import LimitExceeded, SpecSyntaxError, SpecUnsupported
from compiler.json_schema import SchemaViolation, schema_violation
from compiler.limits import Limits, ResourceGuard
from tests.compiler.json_schema.test_random_schemas import compiled, embed, random_schema, random_value
from tests.references.json_instances import write_instance
from tests.references.json_suite import DRAFTS, check_by_value
from tests.servers.cluster import FULL
from tests.tables import rows, table

FILES = {entry["file"]: entry for entry in table("json_schema")["suite"]}
ARRAY = {"type": "array", "items": {"$ref": "#"}}


def violation(schema: object, text: str, limits: Limits | None = None) -> SchemaViolation | None:
    return schema_violation(schema, text, embed, ResourceGuard(limits or Limits()))


@pytest.mark.parametrize("draft", DRAFTS)
def test_verdicts_on_values_differ_only_where_it_is_listed(draft: str) -> None:
    for name, tally in check_by_value(draft).items():
        entry = FILES.get(name, {})
        assert len(tally.narrower) <= entry.get("narrower", 0), (name, tally.narrower)
        assert len(tally.wider) <= entry.get("wider", 0), (name, tally.wider)
        assert set(tally.refused) <= {"$ref"}, (name, tally.refused)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sample(1)
def test_random_values_agree_with_the_library_and_the_automaton(seed: int) -> None:
    rng, accepted = random.Random(seed), 0
    for _ in range(40 if FULL else 20):
        schema = random_schema(rng, 2)
        validator = Draft202012Validator(schema)
        try:
            automaton = compiled(schema)
        except (SpecUnsupported, LimitExceeded):
            automaton = None
        for value in (random_value(rng, 2) for _ in range(20)):
            valid = violation(schema, json.dumps(value, indent=rng.choice((None, 1)))) is None
            assert valid == validator.is_valid(value), (schema, value)
            if automaton is not None:
                assert automaton.accepts(write_instance(schema, value)) == valid, (schema, value)
            accepted += valid
    assert accepted > (60 if FULL else 30)


@pytest.mark.parametrize(("schema", "text", "found"), rows("json_schema", "the_first_violation_is_named"))
def test_the_first_violation_is_named(schema: object, text: str, found: list[str]) -> None:
    first = violation(schema, text)
    assert ([] if first is None else [first.path, first.keyword]) == found


def test_a_schema_that_negates_itself_is_refused() -> None:
    with pytest.raises(SpecSyntaxError, match="negates itself"):
        violation({"not": {"$ref": "#"}}, "1")


def test_a_value_too_deep_for_the_stack_names_a_limit() -> None:
    depth = sys.getrecursionlimit()
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "nesting_depth_max"):
        violation(ARRAY, "[" * depth + "]" * depth)


def test_a_long_validation_stops_at_the_limit_of_time() -> None:
    schema: dict[str, Any] = {"items": {"allOf": [{"properties": {f"p{n}": {"type": "null"}}} for n in range(500)]}}
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "compile_s_max"):
        violation(schema, json.dumps([{}] * 5_000), Limits(compile_s_max=0.5))
