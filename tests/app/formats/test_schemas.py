"""Schemas of tools and of `response_format`, and errors that name the place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

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


DEEP = "äußere.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.價格"  # names of properties, from the outermost on


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
    path = {CHAT: "function.parameters", RESPONSES: "parameters", MESSAGES: "input_schema"}
    schemas = {"zeta": OBJECT, "alpha": schema}  # the order of tools is not that of their names
    tools: dict[str, Any] = {
        CHAT: [tool(name, each) for name, each in schemas.items()],
        RESPONSES: [{"type": "function", "name": name, "parameters": each} for name, each in schemas.items()],
        MESSAGES: [{"name": name, "input_schema": each} for name, each in schemas.items()],
    }
    for url, field in path.items():
        body = {"model": "captions", "tools": tools[url], "max_tokens": 64}
        body |= {"input": USER, "max_output_tokens": body.pop("max_tokens")} if url == RESPONSES else {"messages": USER}
        for stream in (False, True):
            response = client.post(url, json={**body, "stream": stream})
            error = response.json()["error"]
            assert response.status_code == 422, error
            assert error["message"].startswith(f'tool "alpha", {place}: {message}'), error
            assert error["param"] == f"tools.1.{field}.{place}"
