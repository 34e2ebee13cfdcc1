"""Refusals as unsatisfiable are proofs; other refusals name a bound."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for
from referencing import Registry

from compiler.errors import CompileError, LimitExceeded, SpecUnsatisfiable
from compiler.json_schema.decimals import as_decimal
from compiler.limits import Limits
from compiler.pipeline import compile_text
from compiler.spec import JsonSchemaSpec, spec_from_json
from compiler.text import check_text
from tests.compiler.json_schema.test_random_schemas import NUMBERS, random_schema, random_value
from tests.references.json_suite import DRAFTS, METASCHEMAS, groups, suites
from tests.servers.cluster import FULL
from tests.tables import rows


def spec_of(text: str, depth: int = 3) -> JsonSchemaSpec:
    return JsonSchemaSpec(text, max_depth=depth)


PERIODS = {
    "allOf": [{"$ref": "#/$defs/w"}, {"$ref": "#/$defs/x0"}, {"$ref": "#/$defs/y0"}],
    "$defs": {
        "w": {"type": "object", "properties": {"a": {"$ref": "#/$defs/w"}}, "additionalProperties": False},
        "x0": {"properties": {"a": {"$ref": "#/$defs/x1"}}},
        "x1": {"properties": {"a": {"$ref": "#/$defs/x0"}}, "minProperties": 1},
        "y0": {"properties": {"a": {"$ref": "#/$defs/y1"}}},
        "y1": {"properties": {"a": {"$ref": "#/$defs/y2"}}, "minProperties": 1},
        "y2": {"properties": {"a": {"$ref": "#/$defs/y0"}}, "minProperties": 1},
    },
    "minProperties": 1,
}


@pytest.mark.parametrize(("schema", "instance"), rows("json_schema", "a_number_that_can_be_written_is_never_refused"))
def test_a_number_that_can_be_written_is_never_refused(schema: str, instance: str) -> None:
    assert check_text(compile_text(spec_of(schema)), instance).satisfied


@pytest.mark.parametrize(
    ("schema", "limit", "cap"),
    [
        ('{"type":"integer","minimum":1e20}', "integer_digits_max", 19),
        ('{"type":"number","minimum":1e308}', "integer_digits_max", 19),
        ('{"type":"number","exclusiveMinimum":1,"exclusiveMaximum":1.0000000000000001}', "number_digits", 15),
        ('{"type":"number","not":{"anyOf":[{"maximum":1},{"minimum":1.0000000000000001}]}}', "number_digits", 15),
        ('{"type":"number","exclusiveMinimum":0,"maximum":1e-310}', "number_exponent", 307),
        ('{"type":"integer","exclusiveMinimum":0,"multipleOf":7e20}', "integer_digits_max", 19),
        ('{"type":"array","minItems":1,"items":{"type":"integer","minimum":1e20}}', "integer_digits_max", 19),
        (json.dumps(PERIODS), "max_depth", 3),
        ('{"not":{"type":["null","boolean","number","string","object"]},"minItems":1,"items":{"not":{"not":{"$ref":'
         '"#/$defs/d"}}},"$defs":{"d":{"type":"array","minItems":1,"items":{"anyOf":[{"$ref":"#/$defs/e"}]}},'
         '"e":{"type":"array","prefixItems":[{"$ref":"#/$defs/d"}]}}}', None, None),
    ],
)  # fmt: skip
def test_a_bound_that_leaves_out_all_values_is_named(schema: str, limit: str | None, cap: int | None) -> None:
    if limit is None:
        compile_text(spec_of(schema))
        return
    with pytest.raises(LimitExceeded) as excinfo:
        compile_text(spec_of(schema))
    assert (excinfo.value.limit, excinfo.value.cap) == (limit, cap)
    assert f"{limit} = {cap}" in str(excinfo.value)


def test_a_higher_depth_meets_what_a_low_one_refuses() -> None:
    text = '{"a": {"a": {"a": {"a": {"a": {"a": {}}}}}}}'
    assert check_text(compile_text(spec_of(json.dumps(PERIODS), depth=6)), text).satisfied


@pytest.mark.parametrize("schema", rows("json_schema", "a_schema_without_instances_is_unsatisfiable"))
def test_a_schema_without_instances_is_unsatisfiable(schema: str) -> None:
    with pytest.raises(SpecUnsatisfiable):
        compile_text(spec_of(schema))


NO_BRACE = {"not": {"regex": r"(?s:.*)\}(?s:.*)"}}


@pytest.mark.parametrize(("constraint", "limit"), [
    *rows("json_schema", "a_combination_with_a_schema_names_the_bound"),
    ({"all": [{"json_schema": {"type": "number"}}, {"regex": "a"}, {"regex": "b"}]}, None),
    ({"all": [{"json_schema": {"type": "string"}}, {"regex": "a"}]}, None),
    ({"all": [{"not": {"json_schema": {}}}, {"regex": "1"}]}, None),
    ({"all": [{"json_schema": {"type": "object"}}, NO_BRACE]}, None),
    ({"all": [{"json_schema": {"type": ["array", "object"]}}, {"regex": r"[^\]}]*"}]}, None),
    ({"all": [{"json_schema": {"type": "object", "required": ["a"]}}, {"regex": '[^"]*'}]}, None),
    ({"all": [{"json_schema": {"type": "integer", "minimum": 1e20}}, NO_BRACE]}, "integer_digits_max"),
    ({"all": [{"json_schema": {"type": ["object", "integer"], "minimum": 1e20}}, NO_BRACE]}, "integer_digits_max"),
    ({"all": [{"json_schema": {"type": ["object", "null"]}}, NO_BRACE]}, "satisfiable"),
])
def test_a_combination_with_a_schema_names_the_bound(constraint: Any, limit: str | None) -> None:
    spec = spec_from_json(constraint)
    patient = Limits(compile_s_max=100)
    if limit == "satisfiable":
        compile_text(spec, patient)
        return
    with pytest.raises(CompileError) as excinfo:
        compile_text(spec, patient)
    assert limit is None or getattr(excinfo.value, "limit", None) == limit
    assert isinstance(excinfo.value, SpecUnsatisfiable if limit is None else LimitExceeded)


# Values around those that random schemas name, which a search for a counterexample tries.
CANDIDATES: list[Any] = [*map(as_decimal, NUMBERS), Decimal(10**25), Decimal("1e-30"), [], {}, [[[[1]]]], None]


def unsatisfiable(text: str, schemas: dict[str, object] | None = None) -> bool:
    try:
        compile_text(replace(spec_of(text, depth=1), schemas=json.dumps(schemas or {})))
    except SpecUnsatisfiable:
        return True
    except CompileError:
        return False
    return False


def has_instance(schema: Any, rng: random.Random, attempts: int = 200) -> bool:
    """Whether a search among small values finds an instance. Numbers of the schema count among them, and near ones."""
    validator = validator_for(schema, default=Draft202012Validator)(schema, registry=Registry())
    numbers = list(CANDIDATES)

    def collect(value: Any) -> None:
        if isinstance(value, dict | list):
            for item in value.values() if isinstance(value, dict) else value:
                collect(item)
        elif isinstance(value, int | Decimal) and not isinstance(value, bool):
            numbers.extend((value, value + 1, value - 1, value + Decimal("1e-25"), value - Decimal("1e-25")))

    collect(schema)
    texts = [json.dumps(random_value(rng, 4)) for _ in range(attempts)]
    values = [*numbers, *([number] for number in numbers), *(json.loads(text, parse_float=Decimal) for text in texts)]
    return any(validator.is_valid(value) for value in values)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.sample(1)
def test_unsatisfiable_random_schemas_have_no_instance(seed: int) -> None:
    rng, refused = random.Random(seed), 0
    for _ in range(60 if FULL else 30):
        parts = [random_schema(rng, 2) for _ in range(2)]
        text = json.dumps({"allOf": parts})
        if unsatisfiable(text):
            refused += 1
            assert not has_instance(json.loads(text, parse_float=Decimal), rng), text
    assert refused > (5 if FULL else 2)


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.sample(1)
def test_unsatisfiable_schemas_of_the_suite_have_no_instance(draft: str) -> None:
    rng, refused, remotes = random.Random(0), 0, suites()[draft]["remotes"]
    for group in groups(draft):
        if not isinstance(group["schema"], dict):
            continue
        text = json.dumps({"$schema": METASCHEMAS[draft], **group["schema"]})
        if unsatisfiable(text, remotes):
            refused += 1
            assert not any(test["valid"] for test in group["tests"]), group["description"]
            assert not has_instance(json.loads(text, parse_float=Decimal), rng, 50), group["description"]
    assert refused > 0
