"""Schemas with many choices about one object.

They compile within the limits and agree with the library `jsonschema`.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.compiler.json_schema.test_random_schemas import compiled
from tests.references.json_instances import write_instance

NAMES = [f"p{number}" for number in range(10)]
PAIRS = list(zip(NAMES[::2], NAMES[1::2], strict=True))
STRINGS = {"type": "object", "properties": {name: {"type": "string"} for name in NAMES}}


def assert_agrees(schema: Any, values: list[Any]) -> None:
    """Checks that our verdicts equal the library's. The values must include valid and invalid ones."""
    automaton, validator = compiled(schema, depth=3), Draft202012Validator(schema)
    expected = [validator.is_valid(value) for value in values]
    texts = [write_instance(schema, value) for value in values]
    assert [automaton.accepts(text) for text in texts] == expected
    assert any(expected) and not all(expected)


def required(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "x")


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize(
    "keyword",
    [
        {"dependentRequired": {name: [partner] for name, partner in PAIRS}},
        {"allOf": [{"anyOf": [{"required": [name]}, {"required": [partner]}]} for name, partner in PAIRS]},
        {"allOf": [{"oneOf": [{"required": [name]}, {"required": [partner]}]} for name, partner in PAIRS]},
    ],
    ids=["dependentRequired", "anyOf", "oneOf"],
)
@pytest.mark.sample(3)
def test_many_choices_about_one_object_compile_like_one(keyword: dict[str, Any], closed: bool) -> None:
    schema = {**STRINGS, **keyword, **({"additionalProperties": False} if closed else {})}
    first_names, second_names = zip(*PAIRS, strict=True)
    values = [{**required(*NAMES), "p3": 1}, {**required(*second_names), "q": 1}, {**required(*NAMES), "q": 1}]
    values += [required(*names) for names in (NAMES, first_names, second_names, ["p0"], ["p1"], NAMES[:9])]
    assert_agrees(schema, [{}, 1, *values])


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("otherwise", [{}, {"else": {"required": ["w"]}}], ids=["then", "else"])
@pytest.mark.sample(2)
def test_many_conditions_about_one_object_compile_like_few(otherwise: dict[str, Any], closed: bool) -> None:
    count = 6
    schema = {
        "type": "object",
        "properties": {"kind": {"type": "string"}, "v": {"type": "integer"}, "w": {}},
        "allOf": [
            {"if": {"properties": {"kind": {"const": f"k{i}"}}}, "then": {"properties": {"v": {"minimum": i}}}}
            | otherwise
            for i in range(count)
        ],
        **({"additionalProperties": False} if closed else {}),
    }
    values = [{"kind": f"k{i}", "v": v} for i in (0, 1, 3, count - 1) for v in (0, 1, 4, 5, 10, 11)]
    extra = [{}, {"v": 10}, {"v": 11}, {"kind": "k"}, {"kind": "k", "v": -1}, {"kind": "k3", "v": "x"}, {"kind": 1}, []]
    assert_agrees(schema, [*values, *({**value, "w": 1} for value in values), *extra, {"w": 1, "v": 0, "kind": "k1"}])


def test_conditions_that_fail_separately_are_compiled_together() -> None:
    null_a, null_c = ({"properties": {name: {"type": "null"}}, "required": [name]} for name in "ac")
    b_schema = {"properties": {"b": {}}, "additionalProperties": False}
    schema = {
        "type": "object",
        "properties": {name: {"enum": [0, 1, 2, None]} for name in "abc"},
        "additionalProperties": False,
        "allOf": [
            {"if": b_schema, "then": {"minProperties": 2}, "else": b_schema},
            {"if": null_c, "then": {"required": ["a"]}, "else": {"minProperties": 2}},
            {"if": null_a, "then": {"properties": {"c": {"const": 1}}}},
            {"if": {"maxProperties": 2}, "then": {"properties": {"b": {"type": "integer"}}, "required": ["b"]}},
        ],
    }
    values = [
        {name: value for name, value in zip("abc", chosen, strict=True) if value != ""}
        for chosen in itertools.product(("", 0, 1, None), repeat=3)
    ]
    automaton, validator = compiled(schema, depth=3), Draft202012Validator(schema)
    for value in values:
        assert automaton.accepts(write_instance(schema, value)) == validator.is_valid(value), value
