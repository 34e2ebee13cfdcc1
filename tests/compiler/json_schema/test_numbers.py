"""Long numbers in schemas get the verdicts of the library `jsonschema`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.compiler.json_schema.test_random_schemas import compiled

THIRD, LONG = 1 / 3, 12345678901234567
LISTED = [1e20, -1e20, 1e-20, THIRD, 2 / 3, LONG, 10**30, 10**30 + 1, 1e300, -5e-324, 1, 2, 7, 0.25]
FACTS: list[dict[str, Any]] = [
    {"type": "integer"},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"exclusiveMinimum": 1e-20, "exclusiveMaximum": 1e20},
    {"minimum": THIRD, "maximum": THIRD},
    {"multipleOf": 2},
    {"multipleOf": 0.25, "minimum": 2},
]


def assert_agrees(schema: dict[str, Any], texts: list[str]) -> None:
    automaton, validator = compiled(schema), Draft202012Validator(schema)
    assert [text for text in texts if automaton.accepts(text) != validator.is_valid(json.loads(text))] == []


@pytest.mark.parametrize("facts", FACTS, ids=json.dumps)
@pytest.mark.parametrize(
    "around",
    [
        lambda facts: {"enum": LISTED, **facts},
        lambda facts: {"anyOf": [{"const": value} for value in LISTED], **facts},
        lambda facts: {"enum": LISTED, "not": facts},
        lambda facts: {"enum": LISTED, "not": {"anyOf": [{"not": facts}, {"const": 1}]}},
        lambda facts: {"enum": LISTED, "oneOf": [facts, {"enum": LISTED[::2]}]},
        lambda facts: {"enum": LISTED, "if": facts, "then": {"minimum": 1}, "else": {"type": "integer"}},
    ],
    ids=["enum", "consts", "not", "not not", "oneOf", "if"],
)
def test_an_enum_number_is_compared_by_value(around: Any, facts: Any) -> None:
    assert_agrees(around(facts), [json.dumps(value) for value in LISTED])


@pytest.mark.parametrize("value", [1e20, 10**30])
def test_an_enum_number_counts_among_array_items(value: float) -> None:
    schema = {"items": {"enum": [value, 1]}, "contains": {"minimum": 5}, "minContains": 1, "maxContains": 1}
    items = [[], [1], [value], [1, value], [value, value]]
    assert_agrees({"type": "array", **schema}, [json.dumps(item, separators=(",", ":")) for item in items])


def test_a_long_bounded_enum_integer_may_end_in_point_zero() -> None:
    assert_agrees({"enum": [1234567890123456], "minimum": 1}, ["1234567890123456", "1234567890123456.0"])


@pytest.mark.parametrize("keyword", ["maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "const"])
def test_an_integral_float_bound_is_the_exact_double(keyword: str) -> None:
    around = [2**63 + step for step in (-1024, -1, 0, 1, 92, 192, 1024)]  # repr: 2**63 + 192
    assert_agrees({"type": "integer", keyword: float(2**63)}, list(map(str, around)))
