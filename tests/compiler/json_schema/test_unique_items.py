"""`uniqueItems` of finite items, compared with all arrays, and its approximation."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest

from compiler.codec import decode, encode
from compiler.diagnostics import explain
from compiler.errors import LimitExceeded, SpecSyntaxError, SpecUnsatisfiable, SpecUnsupported
from compiler.json_schema import schema_dfa
from compiler.limits import Limits, ResourceGuard
from compiler.pipeline import compile_spec, compile_text
from compiler.spec import spec_from_json
from compiler.text import check_text
from compiler.vocab import byte_vocabulary
from tests.compiler.json_schema.test_random_schemas import embed
from tests.references.json_validator import is_valid
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
    "values", [[f"value {number}" for number in NUMBERS], [number + 0.000125 for number in NUMBERS], [*NUMBERS]]
)
def test_many_listed_values_stand_in_any_order(values: list[Any]) -> None:
    schema = {"type": "array", "items": {"enum": values}, "uniqueItems": True, "minItems": 2, "maxItems": 4}
    compiled = compile_text(spec_from_json({"json_schema": schema}))
    draw = random.Random(1)
    for length in range(6):
        for _ in range(20):
            chosen = draw.sample(values, length)
            text = json.dumps(chosen)
            assert check_text(compiled, text).satisfied == (2 <= length <= 4), text
            equal = json.dumps([*chosen, *chosen[:1]])
            assert not check_text(compiled, equal).satisfied, equal


RANKING = {"type": "array", "items": {"enum": [f"value {n}" for n in range(12)]}, "uniqueItems": True, "minItems": 12}
INTEGERS = {"type": "array", "items": {"type": "integer"}}


def within(properties: dict[str, Any], **keywords: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": ["r"], **keywords}


CLOSED = {"additionalProperties": False}
ANY_ORDER: list[tuple[Any, str]] = [  # schemas, and what stands around the array in a text
    (RANKING, "{}"),
    (within({"r": RANKING}, **CLOSED), '{{"r": {}}}'),
    (within({"why": {"type": "string"}, "r": RANKING}, **CLOSED), '{{"why": "a", "r": {}}}'),
    (within({"r": RANKING, "s": {"$ref": "#/properties/r"}}, **CLOSED), '{{"r": {0}, "s": {0}}}'),
    (within({"r": RANKING}), '{{"r": {}, "more": [1]}}'),
    ({"type": "array", "items": within({"r": RANKING}, **CLOSED)}, '[{{"r": {0}}}, {{"r": {0}}}]'),
    ({"anyOf": [RANKING, INTEGERS]}, "{}"),
    ({"allOf": [RANKING, {"maxItems": 12}]}, "{}"),
    ({**RANKING, "contains": {"const": "value 3"}, "maxContains": 1}, "{}"),
    ({**RANKING, "prefixItems": [RANKING["items"], RANKING["items"]], "maxItems": 12}, "{}"),
    (within({"r": RANKING, "k": {"oneOf": [{"type": "integer"}, {"type": "string"}]}}, **CLOSED), '{{"r": {}}}'),
]
ONE_ORDER: list[tuple[Any, str]] = [
    (within({"r": RANKING, "next": {"$ref": "#"}}, **CLOSED), '{{"r": {}}}'),
    (within({"r": RANKING, "x": {}}, **CLOSED), '{{"r": {}}}'),
]


@pytest.mark.parametrize(("schema", "around"), ANY_ORDER)
def test_a_ranking_stands_in_any_order_wherever_it_is(schema: Any, around: str) -> None:
    compiled = compile_spec(spec_from_json({"json_schema": schema}), byte_vocabulary())
    assert compiled.approximate == ()
    assert bool(compiled.warnings) == ("more" in around)
    values, draw = RANKING["items"]["enum"], random.Random(2)
    for _ in range(5):
        order = draw.sample(values, len(values))
        text = around.format(json.dumps(order))
        assert is_valid(schema, text) and check_text(compiled.text, text).satisfied, text
        text = around.format(json.dumps([*order[1:], draw.choice(order[1:])]))
        assert not is_valid(schema, text) and not check_text(compiled.text, text).satisfied, text


@pytest.mark.parametrize(("schema", "around"), ONE_ORDER)
@pytest.mark.parametrize("form", ["json_schema", "sequence", "not"])
def test_a_ranking_in_one_order_is_said_to_be(schema: Any, around: str, form: str) -> None:
    part: dict[str, Any] = {"json_schema": schema}
    spec = {"json_schema": part, "sequence": {"sequence": [part]}, "not": {"not": {"not": part}}}[form]
    compiled = compile_spec(spec_from_json(spec), byte_vocabulary())
    assert [path.endswith("/uniqueItems") for path in compiled.approximate] == [True]
    assert len(compiled.warnings) == 1 and "order of their list" in compiled.warnings[0].message
    assert decode(encode(compiled, SECRET), SECRET, compiled.vocabulary).warnings == compiled.warnings
    values = RANKING["items"]["enum"]
    assert check_text(compiled.text, around.format(json.dumps(values))).satisfied
    assert not check_text(compiled.text, around.format(json.dumps(values[::-1]))).satisfied


@pytest.mark.parametrize("part", [{"max_chars": 900}, {"regex": r'.*"value 1"\]'}, {"keywords": ["value"]}])
def test_a_ranking_beside_other_constraints_has_a_warning(part: dict[str, Any]) -> None:
    ranking = {"json_schema": RANKING}
    for spec in ({"all": [ranking, part]}, {"any": [{"regex": "none"}, {"all": [ranking, part]}]}):
        (warning,) = compile_spec(spec_from_json(spec), byte_vocabulary()).warnings
        assert "bounded search" in warning.message
    assert not compile_spec(spec_from_json({"any": [ranking, part]}), byte_vocabulary()).warnings


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


def test_an_explanation_has_rankings_as_examples() -> None:
    schema = {"type": "array", "items": {"enum": [*"ABCDEFGHIJ"]}, "uniqueItems": True, "minItems": 10}
    explanation = explain(compile_spec(spec_from_json({"json_schema": schema}), byte_vocabulary()))
    assert "Which of 10 items an array holds is counted beside the states." in explanation.sentences
    examples = {explanation.shortest, *explanation.samples}
    assert len(examples) > 2 and all(text is not None and is_valid(schema, text) for text in examples)


def test_an_order_that_excludes_all_texts_is_a_limit() -> None:
    schema, pattern = {**RANKING, "minItems": 0}, {"regex": '\\["value 5", "value 2"\\]'}
    exact = compile_spec(spec_from_json({"all": [{"json_schema": schema}, pattern]}), byte_vocabulary())
    assert exact.tokens.min_tokens == len('["value 5", "value 2"]') + 1
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "unique_items_states"):
        compile_text(spec_from_json({"all": [{"sequence": [{"json_schema": schema}]}, pattern]}))


@pytest.mark.parametrize(
    "schema",
    [
        TAGS,
        {"oneOf": [RANKING, INTEGERS]},
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
