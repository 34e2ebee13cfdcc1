"""Stop strings of POST /generate."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.app.service.test_generate_messages import finished_job

USER = [{"role": "user", "content": "a dog"}]
SAMPLES = {"algorithm": "sample", "n": 8, "seed": 3, "max_tokens": 12}
STOPS = [" a", "on", "ing", " the"]
TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {
    "what": {"enum": ["dog", "the ball"]}}, "required": ["what"]}}}  # fmt: skip


def answer(client: TestClient, **body: Any) -> Any:
    response = client.post("/generate", json=body)
    assert response.is_success, response.text
    return response.json()


def test_a_stop_string_ends_a_reply_and_is_removed(client: TestClient) -> None:
    """The answers are those of a chat, without outer white space."""
    native = answer(client, messages=USER, stop=STOPS, **SAMPLES)["choices"]
    body = {"messages": USER, "stop": STOPS, **SAMPLES}
    chat = client.post("/v1/chat/completions", json=body).json()["choices"]
    for choice, theirs in zip(native, chat, strict=True):
        assert not any(stop in choice["text"] for stop in STOPS)
        assert choice["text"] == choice["message"]["content"] == theirs["message"]["content"].strip()
        if "stop" in choice:
            assert choice["stop"] in STOPS
            assert choice["raw_text"].endswith(choice["stop"])
            assert choice["raw_text"].removesuffix(choice["stop"]).strip() == choice["text"]
    assert any("stop" in choice for choice in native)


@pytest.mark.parametrize(
    "constraint",
    [{"regex": "[a-z ]{4,20}"}, {"keywords": ["dog"]}, {"all": [{"keywords": ["dog"]}, {"max_words": 6}]},
     {"not": {"keywords": ["dog"]}}],
)  # fmt: skip
def test_no_constrained_answer_contains_a_stop_string(client: TestClient, constraint: dict[str, Any]) -> None:
    for fields in (SAMPLES | {"n": 4}, {"max_tokens": 12, "beams": 4, "n": 3}):
        for place in ({"prompt": "sentence:"}, {"messages": USER}):
            result = answer(client, constraint=constraint, stop=STOPS, **place, **fields)
            texts = [choice["text"] for choice in result["choices"]]
            assert not any(stop in text for stop in STOPS for text in texts)
            assert len(set(texts)) == len(texts) or "seed" in fields
            for text in {*texts}:
                assert client.post("/check", json={"constraint": constraint, "text": text}).json()["satisfied"]


def test_white_space_may_end_a_text_of_words(client: TestClient) -> None:
    """The biased model writes a line break as soon as it may."""
    def token(text: str) -> str:
        body = {"prompt": text, "add_special_tokens": False}
        return str(client.post("/tokenize", json=body).json()["tokens"][0])

    body = {"prompt": "a", "constraint": {"ltlf": "F(dog)"}, "logit_bias": {token("\n"): 60.0, token(" dog"): 30.0}}
    result = answer(client, **body, stop="\n", max_tokens=6, algorithm="sample", seed=1, n=4)
    for choice in result["choices"]:
        assert (choice["text"], choice["raw_text"], choice["stop"]) == ("dog", " dog\n", "\n")


def test_answers_of_a_search_differ_without_their_stop_strings(client: TestClient) -> None:
    choices = answer(client, messages=USER, stop=".", max_tokens=20, beams=8, n=8)["choices"]
    texts = [choice["text"] for choice in choices]
    assert len(set(texts)) == len(texts) > 1
    assert any("stop" in choice for choice in choices)


def test_streams_and_jobs_remove_the_same_stop_string(client: TestClient) -> None:
    body = {"messages": USER, "stop": STOPS, **SAMPLES}
    expected = answer(client, **body)["choices"]
    stream = client.post("/generate", json={**body, "stream": True}).text
    (done,) = [part for part in stream.split("\n\n") if part.startswith("event: done")]
    data = next(line.removeprefix("data: ") for line in done.splitlines() if line.startswith("data: "))
    assert json.loads(data)["choices"] == expected
    assert finished_job(client, body)["result"]["choices"] == expected


def test_no_reply_contains_a_stop_string_and_calls_may(client: TestClient) -> None:
    body = {"messages": USER, "tools": [TOOL], "stop": ["the", "{", "e"], **SAMPLES, "max_tokens": 40}
    for choice in (*answer(client, **body)["choices"], *answer(client, **body, tool_choice="required")["choices"]):
        message = choice["message"]
        assert not any(stop in (message["content"] or "") for stop in body["stop"])
        for call in message.get("tool_calls") or ():
            assert json.loads(call["function"]["arguments"])["what"] in ("dog", "the ball")
            assert "stop" not in choice


@pytest.mark.parametrize(
    "place", [{"prompt": "x"}, {"messages": USER}, {"messages": USER, "tools": [TOOL]}],
    ids=["prompt", "messages", "tools"],
)  # fmt: skip
@pytest.mark.parametrize(
    ("constraint", "path"),
    [
        ({"all": [{"regex": "[a-z]+"}, {"json_schema": {"type": 5}}]}, "all.1.json_schema.type"),
        ({"grammar": "root ::= x", "syntax": "gbnf"}, "grammar"),
    ],
)  # fmt: skip
def test_errors_name_the_field_of_the_constraint(
    client: TestClient, place: dict[str, Any], constraint: dict[str, Any], path: str
) -> None:
    body = {**place, "constraint": constraint, "stop": ["\n"]}
    assert client.post("/generate", json=body).json()["field"] == path
    assert client.post("/generate", json={**body, "stream": True}).json()["field"] == path
    job = finished_job(client, body)
    assert job.get("error", job)["field"] == path


def test_warnings_are_about_the_constraint_as_written(client: TestClient) -> None:
    body = {"prompt": "x", "constraint": {"not": {"keywords": ["dog", "cat"]}}, "max_tokens": 6}
    assert answer(client, **body, stop="q")["warnings"] == answer(client, **body)["warnings"]


@pytest.mark.parametrize("path", ["/generate", "/v1/completions"])
@pytest.mark.parametrize(
    ("constraint", "first"),
    [
        ({"regex": "a;b"}, "'constraint' (regex a;b)"),
        ({"all": [{"regex": "a;b"}, {"keywords": ["b"]}]}, "'all.0' (regex a;b)"),
    ],
)
def test_a_contradiction_names_the_stop_strings(
    path: str, constraint: dict[str, Any], first: str, client: TestClient
) -> None:
    body = {"prompt": "a", "model": "captions", "constraint": constraint, "stop": [";"]}
    problem = client.post(path, json=body).json()
    problem = problem.get("error", problem)
    assert problem["conflict"] == [first, "'stop'"]
    assert f"{first} and 'stop' contradict each other" in problem.get("detail", problem.get("message"))
