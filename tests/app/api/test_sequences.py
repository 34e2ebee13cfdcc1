from __future__ import annotations

from fastapi.testclient import TestClient

CONSTRAINT = {"sequence": [
    "A ", {"capture": "who", "part": {"choice": ["dog", "cat"]}},
    {"capture": "what", "part": {"free": {"until": ["."], "max_tokens": 8}}},
]}  # fmt: skip


def test_answers_and_checks_have_captures(client: TestClient) -> None:
    body = {"prompt": "sentence:", "constraint": CONSTRAINT, "max_tokens": 12, "n": 2, "trace": True}
    choices = client.post("/generate", json=body).json()["choices"]
    for choice in choices:
        text, tokens = choice["text"], [step["text"] for step in choice["trace"]]
        assert [capture["name"] for capture in choice["captures"]] == ["who", "what"]
        for capture in choice["captures"]:
            assert text[capture["start"] : capture["end"]] == capture["text"]
            assert capture["text"] in "".join(tokens[capture["token_start"] : capture["token_end"]])
        check = client.post("/check", json={"text": text, "constraint": CONSTRAINT}).json()
        assert check["satisfied"] and [each["name"] for each in check["captures"]] == ["who", "what"]
    assert client.post("/check", json={"text": "A", "constraint": CONSTRAINT}).json()["captures"] is None


def test_answers_without_captures_have_none(client: TestClient) -> None:
    body = {"prompt": "sentence:", "constraint": {"sequence": ["a ", {"regex": "[a-z]+"}]}, "max_tokens": 6}
    assert all(choice["captures"] is None for choice in client.post("/generate", json=body).json()["choices"])
