"""The schema compiler on the case table: verdicts, refusals and limits. Its output is compared with `json.dumps`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from compiler.automata import minimize
from compiler.errors import LimitExceeded, SpecSyntaxError, SpecUnsupported
from compiler.forms import unenforced_keywords
from compiler.lifting import UNREACHABLE
from compiler.limits import Limits, ResourceGuard
from compiler.pipeline import compile_text
from compiler.spec import spec_from_json, spec_to_json
from tests.compiler.json_schema.test_random_schemas import compiled
from tests.references.json_instances import write_instance
from tests.tables import table

TABLE = table("json_schema")
FEW_STATES = Limits(dfa_states_max=20_000, compile_s_max=100)  # by default ten times as many


def _field(case: dict[str, Any]) -> str:
    return f"json_schema.{case['field']}".removesuffix(".")


@pytest.mark.parametrize("case", TABLE["case"], ids=lambda case: case["name"])
def test_the_table_of_schemas(case: dict[str, Any]) -> None:
    schema = json.loads(case["schema"])
    schemas = json.loads(case.get("schemas", "{}"))
    automaton = compiled(schema, case.get("whitespace", "compact"), case.get("max_depth", 2), schemas)
    assert [text for text in case["accepts"] if not automaton.accepts(text)] == []
    assert [text for text in case["rejects"] if automaton.accepts(text)] == []


@pytest.mark.parametrize("case", TABLE["refusal"], ids=lambda case: case["schema"])
def test_an_unsupported_keyword_is_refused_by_name_and_path(case: dict[str, Any]) -> None:
    with pytest.raises(SpecUnsupported) as excinfo:
        compiled(json.loads(case["schema"]))
    assert (excinfo.value.construct, excinfo.value.field) == (case["construct"], _field(case))


@pytest.mark.parametrize("case", TABLE["unenforced"], ids=lambda case: case["schema"])
def test_unknown_keywords_and_formats_are_listed_or_refused(case: dict[str, Any]) -> None:
    spec = spec_from_json({"json_schema": json.loads(case["schema"])})
    assert unenforced_keywords(spec, ResourceGuard(Limits())) == tuple(case["pointers"])
    assert compile_text(spec).byte_automaton.min_tokens != UNREACHABLE
    with pytest.raises(SpecUnsupported, match=case["hint"]) as excinfo:
        compile_text(spec_from_json({"json_schema": json.loads(case["schema"]), "strict": True}))
    assert (excinfo.value.construct, excinfo.value.field) == (case["construct"], _field(case))


def test_documents_that_are_sent_along_are_read_and_reported() -> None:
    schemas = {"https://e.x/a": {"type": "integer", "frobnicate": 1, "minimum": "no"}, "https://e.x/b": {"const": 1}}
    spec = spec_from_json({"json_schema": {"$ref": "https://e.x/b"}, "schemas": schemas})
    assert spec_from_json(spec_to_json(spec)) == spec
    assert unenforced_keywords(spec, ResourceGuard(Limits())) == ()
    with pytest.raises(SpecSyntaxError, check=lambda error: error.field == "schemas.https://e.x/a.minimum"):
        compile_text(spec_from_json({"json_schema": {"$ref": "https://e.x/a"}, "schemas": schemas}))
    schemas["https://e.x/a"] = {"frobnicate": 1}
    spec = spec_from_json({"json_schema": {"$ref": "https://e.x/a"}, "schemas": schemas})
    assert unenforced_keywords(spec, ResourceGuard(Limits())) == ("https://e.x/a#/frobnicate",)


def test_a_vocabulary_that_is_required_and_unknown_is_refused() -> None:
    metaschema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$vocabulary": {"https://e.x/v": True}}
    constraint = {"json_schema": {"$schema": "https://e.x/meta"}, "schemas": {"https://e.x/meta": metaschema}}
    with pytest.raises(SpecUnsupported) as excinfo:
        compile_text(spec_from_json(constraint))
    assert (excinfo.value.construct, excinfo.value.field) == ("$vocabulary", "json_schema.$schema")


def test_a_long_report_of_keywords_without_effect_is_cut() -> None:
    schema = {"properties": {f"p{number:03}": {"unknown": 1} for number in range(200)}}
    listed = unenforced_keywords(spec_from_json({"json_schema": schema}), ResourceGuard(Limits()))
    assert listed[:1] == ("/properties/p000/unknown",) and listed[-1] == "…" and len(listed) == 101
    schema = {"properties": {"p" * 5_000 + str(number): {"unknown": 1} for number in range(3)}}
    assert len(unenforced_keywords(spec_from_json({"json_schema": schema}), ResourceGuard(Limits()))) == 2


def test_schemas_inside_combinations_and_strings_are_reported() -> None:
    inner = {"json_schema": {"type": "integer", "inner": 1}}
    first = {"json_schema": {"type": "object", "properties": {"a": {"constraint": inner}}, "first": 1}}
    parts = [first, {"not": {"json_schema": {"second": 1}}}]
    reports = [unenforced_keywords(spec_from_json({"all": order}), ResourceGuard(Limits()))
               for order in (parts, parts[::-1])]
    assert reports[0] == ("/first", "/properties/a/constraint/json_schema/inner", "/second") and len({*reports}) == 1


@pytest.mark.parametrize("case", TABLE["fault"], ids=lambda case: case["schema"])
def test_an_invalid_schema_is_a_syntax_error_with_its_path(case: dict[str, Any]) -> None:
    with pytest.raises(SpecSyntaxError, check=lambda error: error.field == _field(case)):
        compiled(json.loads(case["schema"]))


@pytest.mark.parametrize("case", TABLE["limit"], ids=lambda case: case["name"])
def test_a_schema_that_explodes_ends_at_a_named_limit(case: dict[str, Any]) -> None:
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == case["limit"]):
        compiled(json.loads(case["schema"]), depth=case["max_depth"], limits=FEW_STATES)


def test_a_deeply_nested_schema_meets_nesting_depth_max() -> None:
    schema: dict[str, Any] = {}
    for _ in range(5_000):
        schema = {"items": schema}
    with pytest.raises(LimitExceeded, match="nesting_depth_max"):
        compiled(schema)


def test_a_long_chain_of_references_is_followed() -> None:
    links = {f"d{number}": {"$ref": f"#/$defs/d{number + 1}"} for number in range(2_000)}
    automaton = compiled({"$ref": "#/$defs/d0", "$defs": {**links, "d2000": {"type": "null"}}})
    assert automaton.accepts("null") and not automaton.accepts("1")


def test_the_automaton_is_minimal() -> None:
    dfa = compiled({"type": "object", "properties": {"a": {"type": "string", "maxLength": 5}, "b": {}}}).dfa
    assert minimize(dfa).states == dfa.states


def test_an_instance_is_written_in_the_order_of_the_schema() -> None:
    schema = {"properties": {"b": {"properties": {"d": {}, "c": {}}}, "a": {"items": {"required": ["y", "x"]}}}}
    instance = {"z": 1, "a": [{"x": 1, "y": 2}], "b": {"c": 1, "e": 2, "d": "é\n"}}
    text = write_instance(schema, instance)
    assert text == '{"b":{"d":"é\\n","c":1,"e":2},"a":[{"y":2,"x":1}],"z":1}'
    assert json.loads(write_instance(schema, instance, "pretty")) == instance
    assert compiled(schema, depth=3).accepts(text)
