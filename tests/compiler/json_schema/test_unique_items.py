"""`uniqueItems` of finite items, compared with all arrays, and its approximation."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest

from compiler.codec import decode, encode
from compiler.errors import LimitExceeded, SpecSyntaxError, SpecUnsatisfiable, SpecUnsupported
from compiler.json_schema import schema_dfa
from compiler.limits import Limits, ResourceGuard
from compiler.pipeline import compile_spec, compile_text
from compiler.spec import spec_from_json
from compiler.text import check_text
from compiler.vocab import byte_vocabulary
from tests.compiler.json_schema.test_random_schemas import embed
from tests.tables import rows

SECRET = b"0123456789abcdef0123456789abcdef"
TAGS = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}


def accepts(schema: Any, value: Any, **fields: Any) -> bool:
    text = json.dumps(value, ensure_ascii=False)
    return check_text(compile_text(spec_from_json({"json_schema": schema, **fields})), text).satisfied


@pytest.mark.parametrize(("items", "values"), [
    *rows("json_schema", "a_few_values_may_stand_in_any_order"),
    ({"enum": ["a", 1, None, True, 1.5]}, ["a", 1, None, True, 1.5]),
    ({"type": ["boolean", "null"]}, [False, True, None]),
])
def test_a_few_values_may_stand_in_any_order(items: Any, values: list[Any]) -> None:
    schema = {"type": "array", "items": items, "uniqueItems": True, "minItems": 1}
    compiled = compile_text(spec_from_json({"json_schema": schema}))
    for length in range(4):
        for chosen in itertools.product(range(len(values)), repeat=length):
            text = json.dumps([values[number] for number in chosen])
            expected = length > 0 and len(set(chosen)) == length
            assert check_text(compiled, text).satisfied == expected, text


NUMBERS = (7, 3, 12, 1, 9, 2, 30, 4, 11, 10, 5, 8, 6)


@pytest.mark.parametrize(
    "values", [[f"value {number}" for number in NUMBERS], [number + 0.000125 for number in NUMBERS]]
)
def test_many_listed_values_are_written_in_their_order(values: list[Any]) -> None:
    schema = {"type": "array", "items": {"enum": values}, "uniqueItems": True, "minItems": 2, "maxItems": 4}
    compiled = compile_text(spec_from_json({"json_schema": schema}))
    for length in range(6):
        for chosen in itertools.islice(itertools.combinations(values, length), 200):
            text = json.dumps(chosen)
            assert check_text(compiled, text).satisfied == (2 <= length <= 4), text
            equal = json.dumps([*chosen, *chosen[-1:]])
            assert not check_text(compiled, equal).satisfied, equal


@pytest.mark.parametrize("whitespace", ["compact", "spaced", "pretty"])
def test_arrays_and_objects_are_unique_in_each_fixed_layout(whitespace: str) -> None:
    values = [[1, 2], {"a": [3]}, "x", []]
    schema = {"type": "array", "items": {"enum": values}, "uniqueItems": True}
    compiled = compile_text(spec_from_json({"json_schema": schema, "whitespace": whitespace}))
    options: Any = {"compact": {"separators": (",", ":")}, "pretty": {"indent": 2}}.get(whitespace, {})
    for chosen in itertools.product(values, repeat=2):
        text = json.dumps(chosen, **options)
        assert check_text(compiled, text).satisfied == (chosen[0] != chosen[1]), text


@pytest.mark.parametrize("whitespace", ["flexible", "any"])
def test_arrays_in_free_white_space_are_refused(whitespace: str) -> None:
    schema = {"type": "array", "items": {"enum": [[1, 2], [3]]}, "uniqueItems": True}
    with pytest.raises(SpecUnsupported):
        compile_text(spec_from_json({"json_schema": schema, "whitespace": whitespace}))


def test_pairs_of_many_values_stand_in_any_order() -> None:
    values = [f"value {number}" for number in range(30)]
    schema = {"type": "array", "items": {"enum": values}, "uniqueItems": True, "maxItems": 2}
    compiled = compile_text(spec_from_json({"json_schema": schema}))
    for pair in itertools.product(values, repeat=2):
        assert check_text(compiled, json.dumps(pair)).satisfied == (pair[0] != pair[1])
    assert not check_text(compiled, json.dumps(values[:3])).satisfied


@pytest.mark.parametrize("bounds", [{}, {"minItems": 2, "maxItems": 5}])
def test_a_list_of_hundreds_shares_its_states(bounds: dict[str, int]) -> None:
    values = [f"code {number * 7 % 401}" for number in range(401)]
    schema = {"type": "array", "items": {"enum": values}, "uniqueItems": True, **bounds}
    dfa = schema_dfa(schema, "spaced", 1, embed, guard=ResourceGuard(Limits()))
    characters = len(json.dumps(values))
    assert dfa.dfa.states < characters * (bounds.get("maxItems", 0) + 1) * 1.1
    draw = random.Random(1)
    for length in (1, 2, 4, 5, 6, 401):
        chosen = sorted(draw.sample(range(401), length))
        is_counted = not bounds or 2 <= length <= 5
        assert dfa.accepts(json.dumps([values[number] for number in chosen])) == is_counted
        if length > 1:
            chosen[0], chosen[-1] = chosen[-1], chosen[0]
            assert not dfa.accepts(json.dumps([values[number] for number in chosen]))
            assert not dfa.accepts(json.dumps([values[chosen[0]]] * length))


def test_items_with_their_own_places_are_unique() -> None:
    schema = {"prefixItems": [{"enum": [1, 2]}, {"enum": [2, 3]}], "items": False, "uniqueItems": True, "minItems": 2}
    schema["type"] = "array"
    verdicts = {pair: accepts(schema, list(pair)) for pair in ((1, 2), (2, 3), (2, 2), (1, 3))}
    assert verdicts == {(1, 2): True, (2, 3): True, (2, 2): False, (1, 3): True}


def test_unique_items_and_contains_are_counted_together() -> None:
    schema = {"type": "array", "items": {"enum": [1, 2, 3, 4]}, "uniqueItems": True,
              "contains": {"minimum": 3}, "minContains": 2}  # fmt: skip
    assert [accepts(schema, value) for value in ([3, 4], [4, 1, 3], [3, 3], [1, 3], [1, 2])] == [
        True, True, False, False, False,
    ]  # fmt: skip


def test_more_unique_items_than_values_are_unsatisfiable() -> None:
    schema = {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True, "minItems": 3}
    with pytest.raises(SpecUnsatisfiable):
        compile_text(spec_from_json({"json_schema": schema}))


def test_an_order_that_excludes_all_texts_is_a_limit() -> None:
    values = [f"value {number}" for number in range(12)]
    schema = {"type": "array", "items": {"enum": values}, "uniqueItems": True}
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "unique_items_states"):
        compile_text(spec_from_json({"all": [{"json_schema": schema}, {"regex": '\\["value 5", "value 2"\\]'}]}))


@pytest.mark.parametrize(
    "schema",
    [
        TAGS,
        {"not": {"type": "array", "items": {"enum": [f"value {n}" for n in range(12)]}, "uniqueItems": True}},
        {"type": "array", "uniqueItems": True, "maxItems": 2},
    ],
)
def test_items_without_end_are_refused_unless_they_are_approximated(schema: Any) -> None:
    with pytest.raises(SpecUnsupported, check=lambda error: error.construct == "uniqueItems"):
        compile_text(spec_from_json({"json_schema": schema}))


def test_an_approximated_keyword_is_listed_with_the_constraint() -> None:
    schema = {"type": "object", "properties": {"tags": TAGS, "a.b": {"$ref": "#/$defs/pair"}},
              "$defs": {"pair": {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True}}}  # fmt: skip
    spec = spec_from_json({"json_schema": schema, "approximate": ["uniqueItems"]})
    compiled = compile_spec(spec, byte_vocabulary())
    assert compiled.approximate == ("/properties/tags/uniqueItems",) and compiled.not_enforced == ()
    assert accepts(schema, {"tags": ["a", "a"]}, approximate=["uniqueItems"])
    assert not accepts(schema, {"a.b": [True, True]}, approximate=["uniqueItems"])
    fingerprint = compiled.vocabulary
    assert decode(encode(compiled, SECRET), SECRET, fingerprint).approximate == compiled.approximate


def test_a_negated_approximation_is_never_called_unsatisfiable() -> None:
    spec = spec_from_json({"json_schema": {**TAGS, "not": {"uniqueItems": True}}, "approximate": ["uniqueItems"]})
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "unique_items_states"):
        compile_text(spec)


def test_no_other_keyword_can_be_approximated() -> None:
    with pytest.raises(SpecSyntaxError, check=lambda error: error.field == "approximate"):
        spec_from_json({"json_schema": True, "approximate": ["pattern"]})
