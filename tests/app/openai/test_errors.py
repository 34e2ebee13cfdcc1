"""Refusals of the OpenAI API in OpenAI's shape."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from decoding.errors import ReplayRejected
from decoding.token_texts import TokenTexts
from tests.app.access_keys import bearer, stored_key
from tests.app.conftest import service_client

ROWS = Path(__file__).parents[2] / "cases" / "openai_requests.toml"
CASES = tomllib.loads(ROWS.read_text(encoding="utf-8"))["case"]
COMPLETIONS, CHATS, RESPONSES = "/v1/completions", "/v1/chat/completions", "/v1/responses"
KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def error_of(response: Any) -> dict[str, Any]:
    """The error of an answer, whose shape is checked."""
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert list(body) == ["error"]
    error: dict[str, Any] = body["error"]
    assert {"message", "type", "param", "code", "request_id"} <= error.keys() and error["message"]
    assert error["request_id"] == response.headers["x-request-id"]
    status = response.status_code
    assert error["type"] == KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return error


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_an_invalid_request_is_refused_by_field_and_reason(case: dict[str, Any], client: TestClient) -> None:
    first = case["json"].partition(":")[0]
    path = CHATS if "messages" in first else RESPONSES if "input" in first else COMPLETIONS
    response = client.post(path, content=case["json"].encode(), headers={"content-type": "application/json"})
    error = error_of(response)
    assert (response.status_code, error["code"]) == (case.get("status", 422), case["code"]), error
    param = case.get("param")
    assert error["param"] is not None if param == "*" else error["param"] == param, error
    assert case.get("says", "") in error["message"]
    if not case.get("marked"):
        assert "MARKER" not in response.text


def test_an_overlong_prompt_is_refused_in_the_words_of_others(client: TestClient) -> None:
    messages = [{"role": "user", "content": "a dog " * 2_000}]
    bodies = {
        CHATS: {"messages": messages}, RESPONSES: {"input": messages}, COMPLETIONS: {"prompt": "a dog " * 2_000},
        "/v1/messages": {"messages": messages, "max_tokens": 8},
    }
    for path, body in bodies.items():
        response = client.post(path, json={"model": "captions", **body})
        streamed = client.post(path, json={"model": "captions", "stream": True, **body})
        assert (response.status_code, streamed.status_code) == (400, 400)
        for text in (response.text, streamed.text):
            assert "context_length_exceeded" in text and "prompt is too long" in text
            assert "This model's maximum context length is 256 tokens" in text


def test_a_text_that_the_library_decodes_otherwise_is_not_sent(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differ(texts: TokenTexts, tokens: Sequence[int]) -> str:
        raise ReplayRejected(f"{len(tokens)} tokens have another text")

    monkeypatch.setattr(TokenTexts, "compared", differ)
    body = {"prompt": "a dog", "max_tokens": 12, "seed": 1}
    response = client.post(COMPLETIONS, json=body)
    assert (response.status_code, error_of(response)["code"]) == (500, "replay_rejected")
    streamed = client.post(COMPLETIONS, json={**body, "stream": True}).text
    assert '"code": "replay_rejected"' in streamed and '"text"' not in streamed


def test_errors_of_the_middleware_have_the_same_shape(client: TestClient) -> None:
    kinds = {
        404: client.get("/v1/nowhere"), 405: client.get(COMPLETIONS),
        413: client.post(COMPLETIONS, content=b" " * (2**21 + 1)),
        415: client.post(CHATS, content=b"{}", headers={"content-type": "text/plain"}),
        421: client.get("/v1/models", headers={"host": "elsewhere.example"}),
        403: client.get("/v1/models", headers={"origin": "http://elsewhere.example"}),
        431: client.get("/v1/models", headers={"x-long": "a" * 20_000}),
    }
    for status, response in kinds.items():
        assert response.status_code == status
        error_of(response)
    assert client.get("/nowhere").headers["content-type"] == "application/problem+json"


@pytest.fixture
def keyed_service(tmp_path: Path) -> Iterator[tuple[TestClient, str, str]]:
    """A service with two keys and no workers."""
    path = tmp_path / "keys"
    anna = stored_key(path, "anna", "generate", requests_per_minute=2)
    bert = stored_key(path, "bert", "compile", requests_per_minute=0)
    with service_client(None, keys_file=str(path), embedded_workers=()) as client:
        yield client, anna, bert


def test_keys_limits_and_a_service_that_is_not_ready(keyed_service: tuple[TestClient, str, str]) -> None:
    client, anna, bert = keyed_service

    def ask(key: str) -> Any:
        return client.post(COMPLETIONS, json={"prompt": "a"}, headers=bearer(key))

    response = ask("sk-proj-of-openai")
    assert response.status_code == 401 and response.headers["www-authenticate"]
    assert error_of(response)["code"] == "unauthorized"
    assert (ask(bert).status_code, error_of(ask(bert))["scope"]) == (403, "generate")
    answer = ask(anna)
    assert (answer.status_code, error_of(answer)["code"]) == (503, "not_ready") and answer.headers["retry-after"]
    ask(anna)
    limit = ask(anna)
    assert (limit.status_code, error_of(limit)["code"]) == (429, "rate_limited") and limit.headers["retry-after"]


def test_an_idempotency_key_repeats_one_request_only(client: TestClient) -> None:
    def ask(seed: int | None) -> Any:
        body = {"prompt": "sentence:", "max_tokens": 8} | ({} if seed is None else {"seed": seed})
        return client.post(COMPLETIONS, json=body, headers={"idempotency-key": "openai-1"})

    one, two = ask(None).json(), ask(None).json()
    assert (one["id"], one["choices"], one["seed"]) == (two["id"], two["choices"], two["seed"])
    assert error_of(ask(5))["code"] == "idempotency_mismatch"


def test_a_deadline_in_a_stream_is_an_error_event(client: TestClient) -> None:
    slow = {"regex": "[a-z ]{300,}"}
    assert client.post("/compile", json={"constraint": slow, "explain": False}).status_code == 200
    body = {"prompt": "sentence:", **slow, "max_tokens": 200, "beams": 64, "timeout_s": 0.4, "stream": True}
    events = [line[6:] for line in client.post(COMPLETIONS, json=body).text.splitlines() if line.startswith("data: ")]
    assert "[DONE]" not in events
    assert json.loads(events[-1])["error"]["code"] == "deadline"
