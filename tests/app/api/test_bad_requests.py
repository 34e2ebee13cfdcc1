"""A bad request gets a 4xx without its text and harms nothing."""

from __future__ import annotations

import asyncio
import gzip
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.api.middleware import body as body_module

CASES = [
    case
    for name in ("bad_requests", "bad_conversations")
    for case in tomllib.loads((Path(__file__).parents[2] / f"cases/{name}.toml").read_text(encoding="utf-8"))["case"]
]
FILLINGS = {
    "$LONG_FORMULA": "F(dog) & " * 500 + "F(dog)",
    "$LONG_PATTERN": "a" * 40_000,
    "$DEEP_FORMULA": "(" * 1_900 + "dog" + ")" * 1_900,
    "$LONG_NAME": "name" * 20_000,
    "$MARKED_NAME": "MARKER" * 70,
    "$WORDY_PROMPT": "MARKER " * 400,
    "$MANY_ONES": "1" + ", 1" * 300_000,
    "$MANY_FIELDS": ", ".join(f'"x{number}": 1' for number in range(50_000)),
    "$MANY_MESSAGES": "{}" + ", {}" * 300_000,
    "$MANY_FORMULAS": ", ".join(['{"ltlf": "' + "F(MARKER) & " * 300 + 'F(dog)"}'] * 20),
}
BODY_CHARS_MAX = 2_000


def with_fillings(text: str) -> bytes:
    for name, filling in FILLINGS.items():
        text = text.replace(name, filling)
    return text.encode()


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_bad_request_is_refused_and_the_next_one_works(case: dict[str, Any], client: TestClient) -> None:
    headers = {"content-type": case.get("content_type", "application/json")}
    response = client.post(case["path"], content=with_fillings(case.get("json", case.get("body", ""))), headers=headers)
    body = response.json()
    assert (response.status_code, body["code"], body["status"]) == (case["status"], case["code"], case["status"]), body
    assert response.headers["content-type"] == "application/problem+json"
    assert body["title"] and body["detail"] and body["type"] and body["request_id"] == response.headers["x-request-id"]
    for field, expected in case.get("fields", {}).items():
        assert field in body, body
        assert expected == "*" or body[field] == expected, body
    assert "MARKER" not in response.text
    assert len(response.text) < BODY_CHARS_MAX
    next_response = client.post("/check", json={"constraint": {"regex": "a+"}, "text": "aa"})
    assert next_response.json()["satisfied"] is True


def test_an_oversized_body_is_refused_with_or_without_content_length(client: TestClient) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"prompt": "'
        for _ in range(320):
            yield b"MARKER--" * 8_192
        yield b'"}'

    for content in (b"".join(chunks()), chunks()):
        response = client.post("/generate", content=content, headers={"content-type": "application/json"})
        body = response.json()
        assert (response.status_code, body["code"]) == (413, "body_too_large")
        assert (body["limit"], body["cap"]) == ("body_bytes_max", 2**21)
        assert "MARKER" not in response.text
        assert client.get("/health").status_code == 200


@pytest.mark.parametrize(("size", "status", "code"), [(10, 408, "request_timeout"), (200, 413, "body_too_large")])
def test_a_stalled_body_times_out(size: int, status: int, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_module, "DRAIN_S_MAX", 0.05)
    answer: list[dict[str, Any]] = []
    parts = [{"type": "http.request", "body": b"x" * size, "more_body": True}]

    async def receive() -> Any:
        return parts.pop() if parts else await asyncio.sleep(60)

    async def send(message: Any) -> None:
        answer.append(message)

    async def no_app(*arguments: Any) -> None:
        raise AssertionError("the application was reached")

    scope = {"type": "http", "headers": []}
    asyncio.run(asyncio.wait_for(body_module.StrictBody(no_app, 100, 0.05, 1.0)(scope, receive, send), 10))
    assert (answer[0]["status"], json.loads(answer[1]["body"])["code"]) == (status, code)
    assert (b"connection", b"close") in answer[0]["headers"]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, identity", "MARKER"])
def test_a_compressed_body_is_not_unpacked(encoding: str, client: TestClient) -> None:
    bomb = gzip.compress(b'{"prompt": "' + b"MARKER" * 500_000 + b'"}')
    headers = {"content-type": "application/json", "content-encoding": encoding}
    response = client.post("/generate", content=bomb, headers=headers)
    assert (response.status_code, response.json()["code"]) == (415, "unsupported_media_type")
    assert "Content-Encoding" in response.json()["detail"] and "MARKER" not in response.text


def test_a_body_up_to_the_limit_is_read(client: TestClient) -> None:
    text = "a" * 32_768
    assert client.post("/check", json={"constraint": {"regex": "a+"}, "text": text}).json()["satisfied"] is True
    refusal = client.post("/check", json={"constraint": {"regex": "a+"}, "text": text + "a"})
    assert (refusal.json()["code"], refusal.json()["limit"]) == ("invalid_request", "text_chars_max")


def test_a_character_that_no_token_spells_is_named(unspelling_client: TestClient) -> None:
    response = unspelling_client.post("/compile", json={"constraint": {"regex": "caf\u00e9"}})
    body = response.json()
    assert (response.status_code, body["code"], body["characters"]) == (422, "constraint_unsatisfiable", ["é"])


def test_hashes_of_any_shape_are_looked_up_safely(client: TestClient) -> None:
    for name in ("0" * 64, "MARKER", "a" * 5_000, "%00", "..%2f..%2fetc"):
        for ending in ("", ".dot", ".svg"):
            response = client.get(f"/automata/{name}{ending}")
            assert response.status_code == 404
            assert response.json()["code"] in ("unknown_automaton", "not_found")
            assert "MARKER" not in response.text
