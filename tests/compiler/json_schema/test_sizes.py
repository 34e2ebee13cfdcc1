"""Sizes of schemas that compile under the default limits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from compiler.errors import LimitExceeded
from compiler.json_schema import schema_dfa
from compiler.limits import Limits, ResourceGuard
from compiler.pipeline import compile_text
from compiler.spec import spec_from_json
from compiler.text import AnyText, PushdownText, check_text
from tests.compiler.json_schema.test_random_schemas import embed

OPEN_OBJECT = {"type": "object", "properties": {"x": {"type": "string"}}}


def automaton(schema: Any, **fields: Any) -> AnyText:
    return compile_text(spec_from_json({"json_schema": schema, **fields}))


def accepts(text_automaton: AnyText, value: object) -> bool:
    text = json.dumps(value, ensure_ascii=False)
    return check_text(text_automaton, text).satisfied


def test_fifteen_open_objects_take_few_states() -> None:
    names = [f"p{number}" for number in range(15)]
    objects = automaton({"type": "object", "properties": dict.fromkeys(names, OPEN_OBJECT)})
    assert isinstance(objects, PushdownText) and objects.machine.states < 300
    value = {name: {"x": name, "y": [1, ["a"]], "z": {"deep": {"er": -1.5}}} for name in names}
    assert accepts(objects, value)
    assert not accepts(objects, value | {"p3": {"x": 1}})


def test_values_declared_open_are_deeper_than_undeclared_ones() -> None:
    schema = {"properties": {"a": {}, "b": {"additionalProperties": {"type": "array"}}}}
    bounded = automaton(schema, max_depth=3)
    assert accepts(bounded, {"a": [[[]]], "b": {"c": [[]]}, "d": [0]})
    assert not accepts(bounded, {"d": [[]]})
    assert accepts(automaton(schema | {"additionalProperties": {"type": "array"}}, max_depth=3), {"d": [[]]})
    assert accepts(automaton(schema), {"d": [[[[]]]]})


@pytest.mark.parametrize(
    ("schema", "accepted", "rejected"),
    [
        ({"format": "email", "maxLength": 256}, ["a@b", "a" * 200 + "@example.com"], ["a" * 256 + "@b", "a"]),
        ({"format": "uri", "maxLength": 128}, ["http://a.example/?q#f"], ["http://" + "a" * 128, "a"]),
        ({"format": "hostname", "maxLength": 64}, ["a.example", "a" * 24 + ".example"], ["a" * 64, "-"]),
        ({"maxLength": 100_000}, ["", "a" * 4_096], []),
        ({"minLength": 5_000, "maxLength": 100_000}, ["a" * 5_000], ["a" * 4_999]),
        ({"pattern": "^a{6000}$", "maxLength": 100_000}, ["a" * 6_000], ["a" * 5_999]),
        ({"maxLength": 2, "minLength": 1, "not": {"const": "a"}}, ["b", "ab"], ["", "a", "abc"]),
    ],
    ids=range(7),
)
def test_counted_strings_compile(schema: dict[str, Any], accepted: list[str], rejected: list[str]) -> None:
    strings = automaton({"type": "string", **schema})
    assert [text for text in accepted if not accepts(strings, text)] == []
    assert [text for text in rejected if accepts(strings, text)] == []


def test_strings_away_from_a_negation_are_shortened() -> None:
    long = {"type": "string", "maxLength": 32_767}
    link = {"oneOf": [{"type": "null"}, {"type": "string", "pattern": "^[0-9a-f]{24}$"}]}
    values = {"type": "object", "properties": {"text": long, "name": long, "link": link}, "additionalProperties": False}
    assert accepts(automaton(values), {"text": "a" * 4_000, "name": "é", "link": "0123456789abcdef" + "0" * 8})
    # Here a longer text would fit both options.
    either = {"oneOf": [{"maxLength": 4_200}, {"minLength": 4_150, "maxLength": 4_300}], "type": "string"}
    lengths = {0: True, 4_149: True, 4_150: False, 4_200: False, 4_201: True, 4_300: True, 4_301: False}
    strings = automaton(either)
    assert {length: accepts(strings, "a" * length) for length in lengths} == lengths


def test_ten_thousand_items_are_written_in_part() -> None:
    items = automaton({"type": "array", "items": {"type": "boolean"}, "maxItems": 10_000})
    assert accepts(items, [True] * 200)
    assert accepts(automaton({"type": "array", "items": {"type": "boolean"}, "minItems": 2_000, "maxItems": 10_000}),
                   [False] * 2_000)


def test_bounds_of_lengths_say_what_to_change() -> None:
    found = list[LimitExceeded]()
    for schema in ({"items": {"type": "null"}, "maxItems": 10_000}, {"type": "string", "maxLength": 100_000}):
        schema_dfa(schema, "compact", 1, embed, guard=ResourceGuard(Limits()), left_out=found)
    messages = {error.limit: str(error) for error in found}
    assert messages["array_items"].endswith("ask for fewer items, or leave maxItems out")
    assert messages["string_chars"].endswith("ask for shorter ones, or leave maxLength out")


def test_twenty_options_need_their_own_values() -> None:
    def option(number: int) -> dict[str, Any]:
        return {"properties": {"a": {"type": "object", "required": [f"b{number}"]}}, "required": ["a"]}

    options = automaton({"type": "object", "anyOf": [option(number) for number in range(20)]})
    assert all(accepts(options, {"a": {f"b{number}": [{}]}}) for number in range(20))
    assert not accepts(options, {"a": {"b20": 0}}) and not accepts(options, {"a": 1})


@pytest.mark.parametrize("additional", [False, True])
def test_seventy_patterns_of_keys_keep_their_values(additional: bool) -> None:
    patterns = {f"^p{number}$": {"const": number} for number in range(70)}
    objects = automaton({"type": "object", "patternProperties": patterns, "additionalProperties": additional})
    assert all(accepts(objects, {f"p{number}": number}) for number in range(70))
    assert not any(accepts(objects, {f"p{number}": number + 1}) for number in range(70))
    assert accepts(objects, {"p70": 0}) == additional


@pytest.mark.parametrize("whitespace", ["compact", "pretty"])
def test_many_objects_in_an_enum_share_states(whitespace: str) -> None:
    values = [{"b": [number] * 2, "a": number} for number in range(1_500)]
    listed = automaton({"enum": [*values, [1, "x"], "x", 5]}, whitespace=whitespace)
    separators = None if whitespace == "pretty" else (",", ":")
    texts = [json.dumps(value, indent=2 if separators is None else None, separators=separators)
             for value in (values[0], values[1_499], [1, "x"], "x", 5, {"b": [1, 2], "a": 1}, {"b": [1, 1]})]
    assert [check_text(listed, text).satisfied for text in texts] == [True] * 5 + [False] * 2


def test_an_enum_beside_other_facts_keeps_their_values() -> None:
    schema = {"enum": [{"a": 1e30}, {"a": [[1]]}, [1], 2], "properties": {"a": {}}}
    listed = automaton(schema)
    assert all(accepts(listed, value) for value in ({"a": [[1]]}, [1], 2))
    assert check_text(listed, '{"a": 1e+30}').satisfied
    assert not accepts(listed, {"a": [1]})
