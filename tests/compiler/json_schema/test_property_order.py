"""The order in which generation writes the properties of objects."""

from __future__ import annotations

import json
import random
from itertools import permutations
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from compiler.automata import steps_to
from compiler.errors import LimitExceeded, SpecUnsupported
from compiler.limits import DEFAULT_LIMITS
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json
from compiler.vocab import byte_vocabulary
from tests.compiler.json_schema.test_random_schemas import (
    compiled,
    object_schema,
    random_schema,
    random_text,
    random_value,
)
from tests.references.json_instances import write_instance

NAMES = ("a", "b", "ab", "c")
CLOSED: dict[str, Any] = {
    "type": "object", "properties": {name: {"type": "null"} for name in NAMES}, "required": ["b", "c"],
    "additionalProperties": False,
}  # fmt: skip


def text_of(names: tuple[str, ...]) -> str:
    return "{" + ",".join(f'"{name}":null' for name in names) + "}"


def shuffled(rng: random.Random, value: Any) -> Any:
    """The value with the keys of all its objects in random order."""
    if isinstance(value, list):
        return [shuffled(rng, item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: shuffled(rng, value[name]) for name in rng.sample(list(value), len(value))}


@pytest.mark.parametrize(
    "counts", [{}, {"maxProperties": 3}, {"minProperties": 3}, {"minProperties": 3, "maxProperties": 3}], ids=str
)
def test_each_order_of_each_valid_set_is_written(counts: dict[str, int]) -> None:
    schema = CLOSED | counts
    automaton, validator = compiled(schema, any_order=True), Draft202012Validator(schema)
    for size in range(len(NAMES) + 1):
        for names in permutations(NAMES, size):
            assert automaton.accepts(text_of(names)) == validator.is_valid(dict.fromkeys(names)), names


def test_no_declared_key_comes_twice() -> None:
    for schema in (CLOSED, CLOSED | {"additionalProperties": True}):
        automaton = compiled(schema, any_order=True)
        for names in permutations(NAMES):
            for repeated in NAMES:
                assert not automaton.accepts(text_of((*names, repeated)))


def test_undeclared_keys_stand_behind_all_declared_ones() -> None:
    automaton = compiled(CLOSED | {"additionalProperties": True}, any_order=True)
    assert automaton.accepts(text_of(("c", "b", "x", "y")))
    assert not automaton.accepts(text_of(("c", "x", "b")))
    assert not automaton.accepts(text_of(("c", "b", "x", "a")))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.sample(1)
def test_random_schemas_in_any_order_agree_with_the_library(seed: int) -> None:
    rng, accepted, reordered = random.Random(seed), 0, 0
    for _ in range(25):
        schema = random_schema(rng, 2) if rng.random() < 0.5 else object_schema(rng, 2)
        validator = Draft202012Validator(schema)
        try:
            automaton = compiled(schema, any_order=True)
        except (SpecUnsupported, LimitExceeded):
            continue
        values = [random_value(rng, 2) for _ in range(15)]
        steps = steps_to(automaton.dfa.next_state, automaton.dfa.accepting)
        if steps[automaton.dfa.start] < automaton.dfa.states:
            values += [json.loads(random_text(rng, automaton, steps)) for _ in range(15)]
            assert all(map(validator.is_valid, values[15:])), schema
        for value in values:
            text = write_instance(schema, shuffled(rng, value), any_order=True)
            assert automaton.accepts(text) == validator.is_valid(value), (schema, text)
            accepted += automaton.accepts(text)
            reordered += automaton.accepts(text) and text != write_instance(schema, value)
    assert accepted > 100 and reordered > 5


def test_listed_objects_are_written_in_any_order() -> None:
    automaton = compiled({"enum": [{"a": 1, "b": [{"c": 2, "d": 3}]}, "x"]}, any_order=True)
    for text in ('{"a":1,"b":[{"c":2,"d":3}]}', '{"b":[{"d":3,"c":2}],"a":1}', '"x"'):
        assert automaton.accepts(text)
    assert not automaton.accepts('{"a":1}')


def test_unique_objects_of_several_orders_are_refused() -> None:
    listed = {"enum": [{"a": 1, "b": 2}, {"a": 2, "b": 2}]}
    schema = {"type": "array", "items": listed, "uniqueItems": True, "maxItems": 2}
    assert compiled(schema).accepts('[{"a":1,"b":2},{"a":2,"b":2}]')
    with pytest.raises(SpecUnsupported, check=lambda error: error.construct == "uniqueItems"):
        compiled(schema, any_order=True)


def test_the_least_budget_is_that_of_the_schema_s_order() -> None:
    budgets = [
        compile_spec(spec_from_json({"json_schema": CLOSED, "property_order": order}), byte_vocabulary())
        for order in ("schema", "any")
    ]
    assert budgets[0].tokens.min_tokens == budgets[1].tokens.min_tokens == len('{"b": null, "c": null}') + 1


def test_too_many_properties_exceed_a_limit_by_name() -> None:
    cap = DEFAULT_LIMITS.unordered_properties_max
    properties = {f"p{number}": {"type": "boolean"} for number in range(cap + 1)}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    with pytest.raises(LimitExceeded) as refusal:
        compiled(schema, any_order=True)
    assert (refusal.value.limit, refusal.value.cap) == ("unordered_properties_max", cap)
    # A name without a value is never written, and is not counted.
    properties["p0"] = False  # type: ignore[assignment]
    assert compiled(schema, any_order=True).accepts('{"p2":true,"p1":false}')
