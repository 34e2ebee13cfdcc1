"""POST /check decides JSON texts by their values."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from compiler.pipeline import compile_text
from compiler.spec import JsonSchemaSpec
from compiler.text import check_text
from docs.tools.pages import DOCS, code_of, tables

SCHEMA = {
    "type": "object", "properties": {"name": {"type": "string"}, "price": {"type": "number", "maximum": 10}},
    "required": ["name"],
}  # fmt: skip
FORM: dict[str, Any] = {"json_schema": SCHEMA}
WHOLE = {"json_schema": {"items": {"type": "integer"}, "uniqueItems": True}}  # refused by the compiler
NAMED = {"json_schema": {"propertyNames": {"enum": ["k1", "k2"]}, "additionalProperties": {"type": "integer"}}}
DEEP = 3_000


def check(client: TestClient, constraint: object, text: str) -> dict[str, Any]:
    response = client.post("/check", json={"constraint": constraint, "text": text})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


@pytest.mark.parametrize(
    ("constraint", "text", "satisfied", "canonical"),
    [
        (FORM, '{"name": "Ada", "price": 9.5}', True, True),
        (FORM, '{"name":"Ada","price":9.5}', True, False),
        (FORM, '{"price": 9.5, "name": "Ada"}', True, False),
        ({**FORM, "property_order": "any"}, '{"price": 9.5, "name": "Ada"}', True, True),
        ({**FORM, "property_order": "any"}, '{"price": 9.5, "more": 1, "name": "Ada"}', True, False),
        ({**FORM, "property_order": "any"}, '{"name": "Ada", "price": 9.5, "name": "Ada"}', True, False),
        ({**FORM, "property_order": "any"}, '{"name": "Ada", "price": 9.5, "name": 1}', False, False),
        ({"json_schema": {"type": "object"}}, '{"k1": 1, "k1": 2}', True, True),
        ({"json_schema": {"type": "object"}}, '{"k1":1,"k1":2}', True, False),
        (NAMED, '{"k1": 1, "k1": 2}', True, False),
        (NAMED, '{"k1":1,"k1":2}', True, False),
        (NAMED, '{"k1":1,"k1":null}', False, False),
        (FORM, ' { "price" : 95e-1,\r\n"name":"\\u0041da" } ', True, False),
        (FORM, '{"name":"Ada","more":[[[[[[[[1.50]]]]]]]]}', True, False),
        (FORM, '{"name":"Ada","price":123456789012345678901234567890}', False, False),
        (FORM, '{"name":"Ada","price":-123456789012345678901234567890.25}', True, False),
        (WHOLE, "[1, 2, 3]", True, None),
        (WHOLE, "[1, 2, 1.0]", False, None),
        ({"json_schema": False}, "1", False, None),
        ({"json_schema": {"not": {}}}, "{}", False, None),
        ({"json_schema": {"type": "integer", "minimum": 10, "maximum": 5}}, "7", False, None),
        ({"json_schema": {"type": "integer", "minimum": 10, "maximum": 5}}, "no JSON", False, None),
        ({"all": [{"json_schema": {"type": "integer"}}, {"json_schema": {"type": "null"}}]}, "1", False, None),
        ({"all": [{"json_schema": {"type": "integer"}}, {"regex": "[a-z]*"}]}, "1", False, None),
        ({"any": [{"json_schema": False}, {"regex": "a+"}]}, "aa", True, True),
        ({"not": {"json_schema": False}}, "1", True, True),
        ({"all": [FORM, {"max_chars": 20}]}, '{ "name": "Ada" }', True, False),
        ({"all": [FORM, {"max_chars": 14}]}, '{ "name": "Ada" }', False, False),
        ({"any": [{"regex": "a+"}, FORM]}, '{ "name": "Ada" }', True, False),
        ({"any": [{"regex": "a+"}, FORM]}, "{ }", False, False),
        ({"not": FORM}, '{"name": "Ada"}', False, False),
        ({"not": FORM}, '{ "name": "Ada" }', True, True),
        ({"not": {"not": FORM}}, '{ "name": "Ada" }', True, False),
        ({"json_schema": {"not": SCHEMA}}, '{ "name": "Ada" }', False, False),
        ({"regex": "a+"}, "aa", True, True),
        ({"regex": "a+"}, "ab", False, False),
    ],
)
def test_a_json_text_is_decided_by_its_value(
    client: TestClient, constraint: object, text: str, satisfied: bool, canonical: bool | None
) -> None:
    answer = check(client, constraint, text)
    assert (answer["satisfied"], answer["canonical"]) == (satisfied, canonical)
    assert (answer["violated_at"] is None) == satisfied


@pytest.mark.parametrize(
    ("text", "violated_at", "path", "keyword"),
    [
        ('{"name": "Ada", "price": 11}', 25, "$.price", "maximum"),
        ('{"price": 1}', 0, "$", "required"),
        ('{"name": 1}', 9, "$.name", "type"),
        ('{"name": "Ada"', 14, "$", "json"),
        ('{"name": "Ad', 12, "$", "json"),
        ('{"name": "A", "name": 1}', 22, "$.name", "type"),
        ('{"name": 1, "name": "A"}', 9, "$.name", "type"),
        ('{"name": NaN}', 9, "$", "json"),
        ('{"name": "Ada",}', 15, "$", "json"),
        ('{"name": "\\ud800"}', 9, "$", "json"),
        ("{'name': 1}", 1, "$", "json"),
        ('{"name":"Ada"} x', 15, "$", "json"),
        ('{"name":"Ada","price":1e9999999999999999999}', 22, "$", "json"),
    ],
)
def test_a_violation_names_path_and_keyword(
    client: TestClient, text: str, violated_at: int, path: str, keyword: str
) -> None:
    answer = check(client, FORM, text)
    assert answer["violated_at"] == violated_at
    assert (answer["violation"]["path"], answer["violation"]["keyword"]) == (path, keyword)


def test_a_violation_names_the_schema_that_has_the_keyword(client: TestClient) -> None:
    answer = check(client, {"all": [FORM, {"max_chars": 90}]}, '{"name":"Ada","price":11}')
    assert answer["violation"]["field"] == "all.0.json_schema.properties.price"


def test_each_negation_of_the_page_has_its_verdicts(client: TestClient) -> None:
    (table,) = [t for t in tables(DOCS / "json.md") if t.header[1:2] == ("what is complemented",)]
    for row in table.rows:
        code = code_of(row[0]).replace(": S}", ': {"type": "array"}}').replace(": C}", ': {"regex": "a+"}}')
        for text, verdict in zip(table.header[2:], row[2:], strict=True):
            satisfied = check(client, json.loads(code), code_of(text))["satisfied"]
            assert satisfied == {"yes": True, "no": False}[verdict], (code, text)


def test_listed_numbers_are_written_as_the_page_says(client: TestClient) -> None:
    (table,) = [t for t in tables(DOCS / "json.md") if t.header[:1] == ("the schema lists",)]
    for number, written in (map(code_of, row) for row in table.rows):
        # As text, since a client would write its own spelling of the number.
        library = compile_text(JsonSchemaSpec(f'{{"enum": [{number}]}}'))
        for text in {number, written, repr(float(number))}:
            data = f'{{"constraint": {{"json_schema": {{"enum": [{number}]}}}}, "text": "{text}"}}'
            answer = client.post("/check", content=data, headers={"content-type": "application/json"}).json()
            assert answer["canonical"] == check_text(library, text).satisfied == (text == written), (number, text)


def test_values_are_decided_at_any_depth(client: TestClient) -> None:
    deep = "[" * DEEP + "]" * DEEP
    assert check(client, {"json_schema": {"type": "array"}}, deep)["satisfied"]
    recursive = {"json_schema": {"type": "array", "items": {"$ref": "#"}}}
    assert check(client, recursive, deep)["satisfied"]
    assert not check(client, recursive, "[" * DEEP + "1" + "]" * DEEP)["satisfied"]


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"multipleOf": 3}, "1" * 30_000 + "e99999999"),
        ({"enum": [1]}, "1e-99999999"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}}}, "1"),
        ({"pattern": "(a|a)*b"}, json.dumps("a" * 30_000)),
        ({"uniqueItems": True}, json.dumps(list(range(5_000)))),
    ],
)
def test_hostile_numbers_schemas_and_texts_are_decided(client: TestClient, schema: object, text: str) -> None:
    check(client, {"json_schema": schema}, text)


CAPTURING = {"sequence": [
    "A ", {"capture": "who", "part": {"choice": ["dog", "cat"]}},
    {"capture": "what", "part": {"free": {"until": ["."], "max_tokens": 8}}},
]}  # fmt: skip


def test_answers_and_checks_have_captures(client: TestClient) -> None:
    body = {"prompt": "sentence:", "constraint": CAPTURING, "max_tokens": 12, "n": 2, "trace": True}
    choices = client.post("/generate", json=body).json()["choices"]
    for choice in choices:
        text, tokens = choice["text"], [step["text"] for step in choice["trace"]]
        assert [capture["name"] for capture in choice["captures"]] == ["who", "what"]
        for capture in choice["captures"]:
            assert text[capture["start"] : capture["end"]] == capture["text"]
            assert capture["text"] in "".join(tokens[capture["token_start"] : capture["token_end"]])
        check = client.post("/check", json={"text": text, "constraint": CAPTURING}).json()
        assert check["satisfied"] and [each["name"] for each in check["captures"]] == ["who", "what"]
    assert client.post("/check", json={"text": "A", "constraint": CAPTURING}).json()["captures"] is None


def test_answers_without_captures_have_none(client: TestClient) -> None:
    body = {"prompt": "sentence:", "constraint": {"sequence": ["a ", {"regex": "[a-z]+"}]}, "max_tokens": 6}
    assert all(choice["captures"] is None for choice in client.post("/generate", json=body).json()["choices"])


def test_generated_base64_decodes_and_passes_its_check(client: TestClient) -> None:
    form = {"json_schema": {"type": "string", "format": "byte", "minLength": 5, "maxLength": 12}}
    body = {"prompt": "a", "constraint": form, "max_tokens": 24, "algorithm": "sample", "seed": 2, "n": 4}
    choices = client.post("/generate", json=body).json()["choices"]
    texts = [json.loads(choice["text"]) for choice in choices]
    assert len(texts) == 4 and all(len(text) in (8, 12) for text in texts)
    assert [base64.b64encode(base64.b64decode(text, validate=True)).decode() for text in texts] == texts
    assert all(check(client, form, choice["text"])["canonical"] for choice in choices)
    assert check(client, form, '"any text"')["violation"]["keyword"] == "format"
