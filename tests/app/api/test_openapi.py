from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.main import create_app
from app.settings import Settings
from docs.tools.reference import ERRORS

COMMITTED = Path(__file__).parents[3] / "openapi.json"
BAD_REQUESTS = Path(__file__).parents[2] / "cases" / "bad_requests.toml"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(Settings()).openapi()


def test_the_committed_document_is_fresh(document: dict[str, Any]) -> None:
    assert json.loads(COMMITTED.read_text(encoding="utf-8")) == document, "run: abs openapi --output openapi.json"


def test_every_path_documents_its_errors_with_their_media_type(document: dict[str, Any]) -> None:
    codes = {row.code for row in ERRORS.values()} - {"client_gone"}
    descriptions = ""
    for path, operations in document["paths"].items():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if not status.startswith("2"):
                    media_type = "application/json" if path.startswith("/v1/") else "application/problem+json"
                    assert list(response["content"]) == [media_type], (path, status)
                    descriptions += response["description"]
    undocumented = {code for code in codes if code not in descriptions} - {"not_found", "method_not_allowed"}
    assert not undocumented
    assert {"Problem", "ErrorBody"} <= document["components"]["schemas"].keys()


def test_every_refusal_is_documented_where_it_happens(document: dict[str, Any]) -> None:
    paths = document["paths"]
    cases = tomllib.loads(BAD_REQUESTS.read_text(encoding="utf-8"))["case"]
    pairs = {(case["path"], str(case["status"])) for case in cases if "post" in paths.get(case["path"], {})}
    assert ("/compile", "404") in pairs
    assert not {(path, status) for path, status in pairs if status not in paths[path]["post"]["responses"]}


def test_image_responses_document_their_media_type(document: dict[str, Any]) -> None:
    for ending, media_type in {".dot": "text/vnd.graphviz", ".svg": "image/svg+xml"}.items():
        responses = document["paths"][f"/automata/{{automaton}}{ending}"]["get"]["responses"]
        assert list(responses["200"]["content"]) == [media_type]


def test_an_answer_and_its_stream_are_documented(document: dict[str, Any]) -> None:
    answer = document["paths"]["/generate"]["post"]["responses"]["200"]
    assert set(answer["content"]) == {"application/json", "text/event-stream"}
    assert answer["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/GenerateResponse"}
    for event in ("CompiledEventBody", "StepEventBody", "StepRowBody"):
        assert event in document["components"]["schemas"]
    described = json.dumps(answer["content"]["text/event-stream"])
    assert "CompiledEventBody" in described and "StepEventBody" in described


def test_headers_of_answers_are_documented(document: dict[str, Any], client: TestClient) -> None:
    user = [{"role": "user", "content": "a dog"}]
    own: dict[str, Any] = {"prompt": "a", "constraint": {"regex": "b"}}
    more = {"max_tokens": 9, "mirostat": 2, "guided_regex": "b"}
    requests: list[tuple[str, dict[str, Any], dict[str, str]]] = [
        ("/generate", own, {}), ("/generate", {**own, "stream": True}, {}),
        ("/generate", own, {"prefer": "respond-async"}), ("/compile", {"constraint": {"regex": "b"}}, {}),
        ("/compile", {"constraint": {"regex": "b"}}, {"prefer": "respond-async"}),
        ("/decode", {"constraint": {"ltlf": "F a"}, "labels": ["a", "b"], "log_probs": [[-1.0, -1.0]]}, {}),
        ("/v1/completions", {"prompt": "a", **more}, {}), ("/v1/chat/completions", {"messages": user, **more}, {}),
        ("/v1/chat/completions", {"messages": user, "stream": True, **more}, {}),
        ("/v1/responses", {"input": "a", "mirostat": 2, "guided_regex": "b"}, {}),
        ("/v1/messages", {"messages": user, **more}, {}), ("/v1/messages/count_tokens", {"messages": user, **more}, {}),
    ]
    names, seen = {"x-job-id", "x-ignored-fields", "deprecation", "location", "preference-applied"}, set[str]()
    for path, body, headers in requests:
        response = client.post(path, json=body, headers=headers)
        assert response.is_success, (path, response.text)
        documented = document["paths"][path]["post"]["responses"][str(response.status_code)].get("headers", {})
        found = names & set(response.headers)
        assert found <= {name.lower() for name in documented}, (path, found)
        seen |= found
    assert seen == names


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    for name in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in document["components"]["schemas"]
