"""Objects that are written without undeclared properties."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from compiler.automata import CharDfa, everything, is_empty, steps_to
from compiler.errors import LimitExceeded, SpecUnsupported
from compiler.json_schema import schema_dfa
from compiler.limits import ResourceGuard
from tests.compiler.json_schema.test_random_schemas import PATIENT, random_schema, random_text
from tests.servers.cluster import FULL

NUMBER = {"type": "integer"}
VALUES: tuple[Any, ...] = (1, "x", {}, {"a": 1}, {"b": 1}, {"a": 1, "b": 1})
KEYS = ("a", "b", "c", "k")


def thing(*names: str, **keywords: Any) -> dict[str, Any]:
    """The schema of objects with such numbers."""
    return {"type": "object", "properties": dict.fromkeys(names, NUMBER), **keywords}


def shut(*names: str, **keywords: Any) -> dict[str, Any]:
    return {**thing(*names, **keywords), "unevaluatedProperties": False}


def inside(schema: Any, **keywords: Any) -> dict[str, Any]:
    """The schema of objects with such a property."""
    return {"type": "object", **keywords, "properties": {"k": schema}}


def tagged(tag: str, *names: str) -> dict[str, Any]:
    return {**thing(*names), "required": ["k"], "properties": {"k": {"const": tag}, **thing(*names)["properties"]}}


# A schema, and one of the standard with the values that are written for it.
CASES: dict[str, tuple[Any, Any]] = {
    "declared properties": (thing("a"), shut("a")),
    "no properties": ({"type": "object", "properties": {}}, shut()),
    "nothing declared": ({"type": "object"}, {"type": "object"}),
    "a bound on their number alone": ({"type": "object", "maxProperties": 1}, {"type": "object", "maxProperties": 1}),
    "open by its schema": (thing("a", additionalProperties=True), thing("a")),
    "others of a type": (thing("a", additionalProperties=NUMBER), thing("a", additionalProperties=NUMBER)),
    "patterns of names": (thing("a", patternProperties={"^b": NUMBER}), shut("a", patternProperties={"^b": NUMBER})),
    "joined schemas": ({"allOf": [thing("a"), thing("b")]}, {"allOf": [thing("a"), thing("b")], **shut()}),
    "a reference": ({"$defs": {"d": thing("a")}, "$ref": "#/$defs/d"}, shut("a")),
    "a reference that adds a property": (
        {"$defs": {"d": thing("a")}, "$ref": "#/$defs/d", **thing("b")}, shut("a", "b")
    ),
    "alternatives": ({"anyOf": [thing("a"), thing("b")]}, {"anyOf": [shut("a"), shut("b")]}),
    "or nothing": ({"anyOf": [thing("a"), {"type": "null"}]}, {"anyOf": [shut("a"), {"type": "null"}]}),
    "alternatives beside properties": (
        thing("c", anyOf=[thing("a"), thing("b")]), {"anyOf": [shut("a", "c"), shut("b", "c")]}
    ),
    "distinct by a string": (
        {"oneOf": [tagged("x", "a"), tagged("y", "b")]}, {"oneOf": [tagged("x", "a"), tagged("y", "b")], **shut()}
    ),
    "overlapping alternatives": (
        {"oneOf": [thing("a", required=["a"]), thing("b", required=["b"])]},
        {"oneOf": [thing("a", required=["a"]), thing("b", required=["b"])], **shut()},
    ),
    "a condition": (
        thing("a", **{"if": {"required": ["a"]}, "then": thing("b"), "else": thing("c")}),
        shut("a", **{"if": {"required": ["a"]}, "then": thing("b"), "else": thing("c")}),
    ),
    "a condition on a value": (
        thing("a", **{"if": {"properties": {"a": {"const": 1}}}, "then": thing("b")}),
        shut("a", **{"if": {"properties": {"a": {"const": 1}}}, "then": thing("b")}),
    ),
    "a condition on declared properties": (
        thing("a", "b", **{"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}}),
        shut("a", "b", **{"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}}),
    ),
    "alternatives below declared properties": (
        {**thing(), "properties": {"k": thing("a", "b")}, "anyOf": [{"properties": {"k": thing("a", required=["a"])}}]},
        {**shut(), "properties": {"k": shut("a", "b", required=["a"])}},
    ),
    "one property of two schemas": (
        {"allOf": [inside(thing("a")), inside(thing("b"))]},
        inside({"allOf": [thing("a"), thing("b")], **shut()}, **shut()),
    ),
    "a property of a reference and beside it": (
        {"$defs": {"d": inside(thing("b", required=["b"]))}, "$ref": "#/$defs/d", **inside(thing("a"))},
        inside(shut("a", "b", required=["b"]), **shut()),
    ),
    "a property of an alternative, too": (
        inside(thing("a"), anyOf=[inside(thing("b")), inside(thing("c"), required=["k"])]),
        {"anyOf": [inside(shut("a", "b"), **shut()), inside(shut("a", "c"), **shut(required=["k"]))]},
    ),
    "a property that one schema opens": (
        {"allOf": [inside(thing("a")), inside(thing(additionalProperties=NUMBER))]},
        inside(thing("a", additionalProperties=NUMBER), **shut()),
    ),
    "items of two schemas": (
        {"type": "array", "allOf": [{"items": thing("a")}, {"items": thing("b")}]},
        {"type": "array", "items": {"allOf": [thing("a"), thing("b")], **shut()}},
    ),
    "a dependent schema": (
        thing("a", dependentSchemas={"a": thing("b")}), shut("a", dependentSchemas={"a": thing("b")})
    ),
    "a dependent schema of an undeclared key": (
        thing("b", dependentSchemas={"a": thing("c")}), shut("b", dependentSchemas={"a": thing("c")})
    ),
    "required by a key": (thing("a", dependentRequired={"a": ["b"]}), shut("a", dependentRequired={"a": ["b"]})),
    "below a property": (
        {**thing(), "properties": {"k": thing("a")}}, {**shut(), "properties": {"k": shut("a")}}
    ),
    "below an array": ({"items": thing("a"), "type": "array"}, {"items": shut("a"), "type": "array"}),
    "below others": (thing(additionalProperties=thing("a")), thing(additionalProperties=shut("a"))),
    "a negation": ({"type": "object", "not": thing("a")}, {"type": "object", "not": thing("a")}),
    "a constant": ({"enum": [{"a": 1}, {"a": 1, "b": 1}]}, {"enum": [{"a": 1}, {"a": 1, "b": 1}]}),
    "closed already": (thing("a", unevaluatedProperties=False), shut("a")),
}
# A schema whose objects stay open, and the fields of those.
OPEN: dict[str, tuple[Any, list[str]]] = {
    "an undeclared name is required": (thing("a", required=["b"]), [""]),
    "an inner object": ({**thing("a"), "properties": {"k": thing("a", required=["b"])}}, ["properties.k"]),
    "too many combinations": (thing("a", allOf=[{"anyOf": [thing("b"), thing("c"), thing("k")]}] * 5), [""]),
    "no value is left": ({"oneOf": [thing("a"), thing("b")]}, [""]),
    "a pattern beside a property": (
        inside(thing("a"), patternProperties={"^k": thing("b")}), ["properties.k", "patternProperties.^k"]
    ),
    "another schema's undeclared properties": (
        {"allOf": [inside(thing("a")), {"additionalProperties": thing("b")}]},
        ["allOf.0.properties.k", "allOf.1.additionalProperties"],
    ),
}


def closed(schema: Any) -> tuple[CharDfa, list[tuple[str, ...]]]:
    left_open: list[tuple[str, ...]] = []
    dfa = schema_dfa(
        schema, "compact", 2, lambda *_: everything(), guard=ResourceGuard(PATIENT), closed_objects=True,
        approximated=left_open,
    )  # fmt: skip
    return dfa, left_open


def written(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def objects() -> list[Any]:
    """Many objects, and arrays of them."""
    members = [{}, *({name: value} for name in KEYS for value in VALUES)]
    pairs = [{**left, **right} for left, right in itertools.combinations(members, 2)]
    return [*VALUES, None, *members, *pairs, *([each] for each in members)]


@pytest.mark.parametrize("case", CASES)
def test_values_are_those_without_unevaluated_properties(case: str) -> None:
    schema, standard = CASES[case]
    dfa, left_open = closed(schema)
    validator, verdicts = Draft202012Validator(standard), set()
    for value in objects():
        texts = map(written, orders(value))
        verdict = any(map(dfa.accepts, texts))
        assert verdict == validator.is_valid(value), value
        verdicts.add(verdict)
    assert verdicts == {True, False} and left_open == []


def orders(value: Any) -> list[Any]:
    """The value with its keys in each order."""
    if not isinstance(value, dict):
        return [value]
    return [dict(items) for items in itertools.permutations(value.items())]


@pytest.mark.parametrize("case", OPEN)
def test_an_object_without_closed_values_stays_open(case: str) -> None:
    schema, fields = OPEN[case]
    dfa, left_open = closed(schema)
    paths = [("json_schema", *filter(None, field.split(".")), "additionalProperties") for field in fields]
    assert left_open == paths
    validator, found = Draft202012Validator(schema), 0
    for value in objects():
        verdict = any(map(dfa.accepts, map(written, orders(value))))
        assert not verdict or validator.is_valid(value)
        found += verdict
    assert found


@pytest.mark.parametrize("pattern", ["^k", "k(?<n>)", "^x"])
def test_a_property_of_two_descriptions_has_both(pattern: str) -> None:
    dfa, _ = closed(inside(thing("a", required=["a"]), patternProperties={pattern: thing("b", required=["b"])}))
    both = pattern != "^x"
    assert dfa.accepts('{"k":{"a":1,"b":1}}') is both and dfa.accepts('{"k":{"a":1}}') is not both


def test_a_schema_without_values_leaves_no_object_open() -> None:
    for keywords in ({"required": ["a"], "maxProperties": 0}, {"required": ["b"], "propertyNames": {"const": "a"}}):
        dfa, left_open = closed(thing("a", **keywords))
        assert is_empty(dfa.dfa) and left_open == []


def test_random_texts_of_closed_schemas_are_valid() -> None:
    draw, texts = random.Random(7), 0
    for _ in range(400 if FULL else 60):
        schema = random_schema(draw, 3)
        try:
            dfa, _ = closed(schema)
        except (SpecUnsupported, LimitExceeded):
            continue
        distance, validator = steps_to(dfa.dfa.next_state, dfa.dfa.accepting), Draft202012Validator(schema)
        for _ in range(5 if distance[dfa.dfa.start] < dfa.dfa.states else 0):
            text = random_text(draw, dfa, distance)
            texts += 1
            assert validator.is_valid(json.loads(text)), (schema, text)
    assert texts > 50
