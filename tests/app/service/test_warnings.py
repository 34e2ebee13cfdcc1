"""Every path that takes a constraint warns of probable mistakes in it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

NEGATED = {"not": {"keywords": ["dog", "cat"]}}
NONE = [{"op": "move", "from": "/constraint/not", "path": "/constraint"},
        {"op": "add", "path": "/constraint/none", "value": True}]  # fmt: skip
GLUED = {"ltlf": "G(!Fdog)"}
SPACE = [{"op": "splice", "path": "/constraint/ltlf", "start": 4, "end": 4, "value": " "}]
MESSAGES = [{"role": "user", "content": "Hello"}]
PATHS: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "A", "max_tokens": 6},
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 6},
    "/v1/responses": {"input": MESSAGES, "max_output_tokens": 16},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 6},
    "/generate": {"prompt": "A", "max_tokens": 6},
    "/check": {"text": "a dog"},
    "/compile": {},
}
TOOL = {"type": "function", "function": {"name": "refund", "parameters": {"type": "object", "properties": {}}}}


def warnings_of(client: TestClient, path: str, **fields: Any) -> list[dict[str, Any]]:
    model = {"model": "captions"} if path.startswith("/v1/") else {}
    response = client.post(path, json={**PATHS[path], **model, **fields})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json().get("warnings", [])
    return found


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("constraint", "field", "suggestion"), [(NEGATED, "not", NONE), (GLUED, "ltlf", SPACE)])
def test_every_path_warns_and_suggests(
    path: str, constraint: dict[str, Any], field: str, suggestion: list[dict[str, Any]], client: TestClient
) -> None:
    (warning,) = warnings_of(client, path, constraint=constraint)
    assert warning["field"] == (f"constraint.{field}" if path.startswith("/v1/") else field)
    assert warning["suggestion"] == suggestion
    assert warnings_of(client, path, constraint={"ltlf": "G(!dog)"}) == []


def test_a_pattern_is_named_by_its_field(client: TestClient) -> None:
    spelled = {"structured_outputs": {"regex": "F(dog) & G(!cat)"}}
    (warning,) = warnings_of(client, "/v1/completions", **spelled, max_tokens=16)
    assert warning["field"] == "structured_outputs.regex" and "suggestion" not in warning


@pytest.mark.parametrize("extra", [{"tools": [TOOL]}, {"stop": ["\n"]}])
def test_paths_beside_tools_are_the_callers(extra: dict[str, Any], client: TestClient) -> None:
    (warning,) = warnings_of(client, "/v1/chat/completions", constraint=NEGATED, **extra)
    assert (warning["field"], warning["suggestion"]) == ("constraint.not", NONE)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("fields", [{"stream_options": {"include_usage": True}}, {}, {"n": 2, "temperature": 1}])
def test_a_stream_warns_in_its_last_chunk(path: str, fields: dict[str, Any], client: TestClient) -> None:
    body = {**PATHS[path], "model": "captions", "stream": True, "constraint": NEGATED, **fields}
    response = client.post(path, json=body)
    chunks = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]
    assert [chunk["warnings"][0]["field"] for chunk in chunks if "warnings" in chunk] == ["constraint.not"]
    assert "warnings" in chunks[-1]


def test_a_check_warns_of_a_grammar(client: TestClient) -> None:
    grammar = {"grammar": 'root ::= "a" | b | "a"\nb ::= "b"', "syntax": "gbnf"}
    (warning,) = warnings_of(client, "/check", constraint=grammar)
    assert (warning["line"], warning["column"]) == (1, 20)
