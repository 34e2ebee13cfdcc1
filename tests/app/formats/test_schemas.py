"""Schemas of tools and of `response_format`, and errors that name the place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.app.api.test_jobs import ended_job

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
USER = [{"role": "user", "content": "Feed the dog."}]
OBJECT = {"type": "object", "properties": {"n": {"enum": [1, 2]}}}
CLOSED = {"{}", '{"n": 1}', '{"n": 2}'}
SAMPLES: dict[str, Any] = {"n": 8, "temperature": 3.0, "seed": 1, "max_tokens": 32}


def tool(name: str, parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def response_format(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def chat(client: TestClient, **fields: Any) -> dict[str, Any]:
    response = client.post(CHAT, json={"model": "captions", "messages": USER, **SAMPLES, **fields})
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def arguments_of(answer: dict[str, Any]) -> list[str]:
    calls = [call for choice in answer["choices"] for call in choice["message"]["tool_calls"]]
    return [call["function"]["arguments"] for call in calls]


def required(schema: Any) -> dict[str, Any]:
    return {"tools": [tool("act", schema)], "tool_choice": "required"}


def test_a_typed_answer_has_declared_properties_alone(client: TestClient) -> None:
    for form in (response_format(OBJECT), {"type": "json_object", "schema": OBJECT}):
        texts = {choice["message"]["content"] for choice in chat(client, response_format=form)["choices"]}
        assert texts <= CLOSED
    of_vllm = {"json": OBJECT, "disable_additional_properties": True}
    assert {choice["message"]["content"] for choice in chat(client, structured_outputs=of_vllm)["choices"]} <= CLOSED
    opened = chat(client, response_format=response_format(OBJECT), closed_objects=False)["choices"]
    assert any(set(json.loads(choice["message"]["content"])) - {"n"} for choice in opened)


@pytest.mark.parametrize("schema", [{"type": "object", "properties": {}}, {"type": "object"}, {}, None], ids=str)
def test_a_tool_without_arguments_takes_an_empty_object(schema: Any, client: TestClient) -> None:
    assert set(arguments_of(chat(client, **required(schema)))) == {"{}"}


def test_arguments_are_declared_unless_the_request_opens_them(client: TestClient) -> None:
    assert set(arguments_of(chat(client, **required(OBJECT)))) <= CLOSED
    opened = arguments_of(chat(client, **required(OBJECT), closed_objects=False))
    assert any(set(json.loads(text)) - {"n"} for text in opened)


def test_an_object_that_needs_undeclared_properties_stays_open(client: TestClient) -> None:
    schema = {"type": "object", "properties": {"n": {"enum": [1]}}, "required": ["x"]}
    answer = chat(client, **required(schema), max_tokens=64)
    assert all("x" in json.loads(text) for text in arguments_of(answer))
    assert answer["approximate"] == ["/additionalProperties"]
    assert answer["warnings"][0]["message"].startswith("/additionalProperties: undeclared properties may be written")


def test_sets_of_strings_are_written_with_a_warning(client: TestClient) -> None:
    strings = {"type": "array", "items": {"type": "string", "maxLength": 3}, "uniqueItems": True, "maxItems": 2}
    schema = {"type": "object", "properties": {"tags": strings}, "required": ["tags"]}
    for fields in (required(schema), {"response_format": response_format(schema)}):
        answer = chat(client, **fields, max_tokens=64)
        assert answer["approximate"] == ["/properties/tags/uniqueItems"]
        assert answer["warnings"][0]["message"].startswith("/properties/tags/uniqueItems: equal items may be written")


# Names of properties, from the outermost on.
DEEP = ".".join(("äußere", *(f"level_of_nesting_{number}" for number in range(20)), "價格"))


def nested(schema: Any, names: str) -> dict[str, Any]:
    """The schema as the property of a property, and so on."""
    for name in reversed(names.split(".")):
        schema = {"type": "object", "properties": {name: schema}}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


@pytest.mark.parametrize(
    ("schema", "place", "message"),
    [
        ({"properties": {"when": {"type": "datetime"}}}, "properties.when.type", "this is not a type"),
        (
            nested({"type": "datetime"}, DEEP), "".join(f"properties.{name}." for name in DEEP.split(".")) + "type",
            "this is not a type",
        ),
        ({"properties": {"n": {"pattern": "("}}}, "properties.n.pattern", ""),
        ({"required": 5}, "required", "this is a list of strings"),
    ],
    ids=["shallow", "deep", "a pattern", "the root"],
)  # fmt: skip
def test_a_faulty_schema_is_named_by_tool_and_place(schema: Any, place: str, message: str, client: TestClient) -> None:
    for url, field, body in requests_with({"zeta": OBJECT, "alpha": schema}):  # not in the order of their names
        for stream in (False, True):
            error = refusal(client, url, {**body, "stream": stream})
            assert error["message"].startswith(f'tool "alpha", {place}: {message}'), error
            assert error["param"] == f"tools.1.{field}.{place}"


@pytest.mark.parametrize(
    ("schema", "message", "conflict"),
    [
        (
            {"properties": {"n": {"minimum": 10, "maximum": 5, "type": "integer"}}, "required": ["n"]},
            "contradict each other", ["properties.n.minimum", "properties.n.maximum", "required"],
        ),
        (
            {"additionalProperties": False, "required": ["價格"]}, "contradict each other",
            ["additionalProperties", "required"],
        ),
        ({"properties": {"n": False}, "required": ["n"]}, "contradict each other", ["properties.n", "required"]),
        ({"not": {}}, "'not' (not {}) alone rules out every one", ["not"]),
    ],
    ids=["bounds", "a forbidden name", "a false schema", "alone"],
)
def test_a_schema_without_values_is_named_by_its_tool(
    schema: Any, message: str, conflict: list[str], client: TestClient
) -> None:
    for url, field, body in requests_with({"zeta": schema, "alpha": schema}):
        error = refusal(client, url, {**body, "tool_choice": {"type": "any"} if url == MESSAGES else "required"})
        assert error["message"].startswith('tool "zeta": no arguments satisfy the schema'), error
        assert error["message"].endswith(message) and error["param"] == f"tools.0.{field}"
        assert {part.split("'")[1] for part in error["conflict"]} >= set(conflict)


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("a(", "not a pattern: missing ), unterminated subpattern"),
        ("a(?!b)(?=b)c", "no input satisfies the grammar: regex a(?!b)(?=b)c alone rules out every one"),
    ],
)
def test_a_faulty_grammar_is_named_by_its_tool(definition: str, message: str, client: TestClient) -> None:
    grammar = {"syntax": "regex", "definition": definition}
    moves = {"type": "custom", "custom": {"name": "move", "format": {"type": "grammar", "grammar": grammar}}}
    body = {"model": "captions", "messages": USER, "tools": [moves], "tool_choice": "required"}
    error = refusal(client, CHAT, body)
    assert (error["message"], error["param"]) == (f'tool "move": {message}', "tools.0.custom.format.grammar.definition")
    moves = {"type": "custom", "name": "move", "format": {"type": "grammar", **grammar}}
    error = refusal(client, RESPONSES, {"input": USER, "tools": [moves], "tool_choice": "required"})
    assert (error["message"], error["param"]) == (f'tool "move": {message}', "tools.0.format.definition")


def test_failed_jobs_name_tool_and_place(client: TestClient) -> None:
    choice = {"tool_choice": "required"}
    for schema, message in (
        ({"properties": {"n": {"type": "whole"}}}, 'tool "alpha", properties.n.type: this is not a type'),
        ({"properties": {"n": {"enum": []}}, "required": ["n"]}, 'tool "alpha": no arguments satisfy the schema: '),
    ):
        body = {"messages": USER, "tools": [tool("alpha", schema)], "max_tokens": 64, **choice}
        job = client.post("/generate", json=body, headers={"Prefer": "respond-async"}).json()
        error = ended_job(client, job["id"])["error"]
        assert error["detail"].startswith(message), error
        assert error["field"].startswith("tools.0.function.parameters")
        assert client.post("/generate", json=body).json() | {"request_id": ""} == error | {"request_id": ""}


def requests_with(schemas: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The path, the field of parameters and the body of requests."""
    body = {"model": "captions", "messages": USER, "max_tokens": 64}
    yield CHAT, "function.parameters", body | {"tools": [tool(name, each) for name, each in schemas.items()]}
    functions = [{"type": "function", "name": name, "parameters": each} for name, each in schemas.items()]
    yield RESPONSES, "parameters", {"model": "captions", "input": USER, "max_output_tokens": 64, "tools": functions}
    yield MESSAGES, "input_schema", body | {
        "tools": [{"name": name, "input_schema": each} for name, each in schemas.items()]
    }


def refusal(client: TestClient, url: str, body: dict[str, Any]) -> dict[str, Any]:
    response = client.post(url, json=body)
    error: dict[str, Any] = response.json()["error"]
    assert response.status_code == 422, error
    return error
