"""Answers and streams of every path are as openapi.json describes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from starlette.testclient import TestClient

from app.main import create_app
from app.settings import Settings

USER = [{"role": "user", "content": "a dog"}]
LONG = [{"role": "user", "content": "dog " * 3_000}]
PARAMETERS = {"type": "object", "properties": {"animal": {"enum": ["dog", "cat"]}}, "required": ["animal"]}
FEED = {"type": "function", "function": {"name": "feed", "parameters": PARAMETERS}}
ASK = {"name": "ask", "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": "who|what"}}}
TOOLS = [FEED, {"type": "custom", "custom": ASK}]
FLAT = [
    {"type": "function", "name": "feed", "parameters": PARAMETERS},
    {"type": "custom", "name": "ask", "format": {"type": "grammar", "syntax": "regex", "definition": "who|what"}},
]
THINK = {"seed": 3, "max_thinking_tokens": 6, "chat_template_kwargs": {"thinking": True}}
TEXT = {"prompt": "sentence:", "constraint": {"keywords": ["dog"]}, "max_tokens": 10}
FULL = {"prompt": "zzz", "scope": "full"}
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/generate", {**TEXT, "trace": True, "top_log_probs": 2}),
    ("/generate", {**TEXT, "constraint": {"sequence": [{"capture": "a", "part": {"choice": ["b"]}}]}}),
    ("/generate", {"messages": USER, "tools": [FEED], "tool_choice": "required", "max_tokens": 40}),
    ("/generate", {"messages": USER, "stop": ["e"], "algorithm": "sample", "n": 4, "seed": 1}),
    ("/generate", {**TEXT, **FULL, "constraint": {"regex": "abc"}}),
    ("/generate", {**TEXT, "constraint": {"not": {"keywords": ["dog", "cat"]}}, "rejected_top_k": 4, "stream": True}),
    ("/v1/completions", {"prompt": "a", "max_tokens": 5, "logprobs": 2, "echo": True, "seed": 1}),
    ("/v1/completions", {"prompt": ["a", "b"], "max_tokens": 5, "regex": "[a-z]{2,9}", "n": 2}),
    ("/v1/completions", {**FULL, "regex": "abc", "max_tokens": 5}),
    ("/v1/chat/completions", {"messages": USER, "max_tokens": 24, **THINK}),
    ("/v1/chat/completions", {"messages": USER, "max_tokens": 9, "seed": 1, "logprobs": True, "top_logprobs": 2}),
    ("/v1/chat/completions", {"messages": USER, "tools": TOOLS, "tool_choice": "required", "max_tokens": 40}),
    ("/v1/chat/completions", {"messages": LONG, "max_tokens": 9}),
    ("/v1/responses", {"input": USER, "max_output_tokens": 24, **THINK, "instructions": "Be kind.",
                       "metadata": {"a": "b"}}),
    ("/v1/responses", {"input": "a dog", "max_output_tokens": 4, "seed": 1, "top_logprobs": 2,
                       "include": ["message.output_text.logprobs"]}),
    ("/v1/responses", {"input": "a dog", "max_output_tokens": 4, "seed": 1}),
    ("/v1/responses", {"input": "a dog", "tools": FLAT[:1], "tool_choice": "required", "max_output_tokens": 40}),
    ("/v1/responses", {"input": "a dog", "tools": FLAT[1:], "tool_choice": "required", "max_output_tokens": 40,
                       "text": {"format": {"type": "text"}}, "reasoning": {"effort": "none"}}),
    ("/v1/responses", {"input": LONG, "max_output_tokens": 4}),
    ("/v1/messages", {"messages": USER, "max_tokens": 24, "seed": 3,
                      "thinking": {"type": "enabled", "budget_tokens": 6}}),
    ("/v1/messages", {"messages": USER, "max_tokens": 30, "stop_sequences": ["e"], "seed": 1}),
    ("/v1/messages", {"messages": USER, "max_tokens": 40, "tool_choice": {"type": "any"},
                      "tools": [{"name": "feed", "input_schema": PARAMETERS}]}),
    ("/v1/messages", {"messages": LONG, "max_tokens": 9}),
]  # fmt: skip
UNSEEN = {"restarted", "reconnect"}  # events of workers and servers that end


@cache
def validator() -> Draft202012Validator:
    """Resolves references into the document. Making it reads the whole document."""
    return Draft202012Validator(create_app(Settings()).openapi())


@pytest.fixture(scope="module")
def document() -> Any:
    return validator().schema


def faults(schema: dict[str, Any], value: Any) -> list[str]:
    """What is wrong with a value, by a schema of the document."""
    return [f"{fault.json_path}: {fault.message}" for fault in validator().evolve(schema=schema).iter_errors(value)]


def frames(text: str) -> Iterator[dict[str, Any]]:
    """The events of a stream as objects of their fields."""
    for block in text.split("\n\n"):
        lines = [line.partition(": ") for line in block.splitlines() if not line.startswith(":")]
        if fields := {name: int(value) if name == "retry" else value for name, _, value in lines}:
            yield fields


def event_faults(schema: dict[str, Any], frame: dict[str, Any]) -> list[str]:
    """Why no schema of a stream describes an event. Empty if one does."""
    found = list[str]()
    for kind in schema["anyOf"]:
        names = kind["properties"].get("event", {}).get("enum", [frame.get("event")])
        if frame.get("event") not in names:
            found.append(f"{frame.get('event')} is none of {names}")
            continue
        here = faults(kind, frame)
        content = kind["properties"].get("data", {}).get("contentSchema")
        if not here and content is not None:
            here = faults(content, json.loads(frame["data"])) if frame["data"] != "[DONE]" else ["the end"]
        if not here:
            return []
        found += here
    return found


def documented(document: dict[str, Any], path: str, media_type: str, method: str = "post") -> Any:
    return document["paths"][path][method]["responses"]["200"]["content"][media_type]["schema"]


@pytest.fixture(scope="module")
def sent(agent_client: TestClient) -> list[tuple[str, list[dict[str, Any]]]]:
    """The path and the events of each request's stream."""
    streams = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.service.service.FIRST_STEP_S_MAX", 0)  # so that refusals are events, too
        for path, body in REQUESTS:
            usage = {"stream_options": {"include_usage": True}} if path.endswith("completions") else {}
            streams.append((path, list(frames(agent_client.post(path, json={**body, "stream": True, **usage}).text))))
    return streams


def test_answers_match_their_schemas(document: dict[str, Any], agent_client: TestClient) -> None:
    for path, body in REQUESTS:
        if not body.get("stream"):
            response = agent_client.post(path, json=body)
            content = document["paths"][path]["post"]["responses"][str(response.status_code)]["content"]
            media_type = response.headers["content-type"].partition(";")[0]
            assert faults(content[media_type]["schema"], response.json()) == [], (path, body)


def test_events_match_their_schemas(document: dict[str, Any], sent: list[tuple[str, list[dict[str, Any]]]]) -> None:
    for path, events in sent:
        assert events
        schema = documented(document, path, "text/event-stream")
        for frame in events:
            assert event_faults(schema, frame) == [], (path, frame)


def test_events_of_a_job_match_their_schemas(document: dict[str, Any], agent_client: TestClient) -> None:
    job = agent_client.post("/generate", json={**TEXT, "stream": True}, headers={"Prefer": "respond-async"}).json()
    text = agent_client.get(f"/jobs/{job['id']}/events").text
    schema = documented(document, "/jobs/{job_id}/events", "text/event-stream", "get")
    assert [event_faults(schema, frame) for frame in frames(text)] == [[] for _ in frames(text)]
    state = agent_client.get(f"/jobs/{job['id']}").json()
    assert faults(documented(document, "/jobs/{job_id}", "application/json", "get"), state) == []


def test_every_described_event_is_sent(document: dict[str, Any], sent: list[tuple[str, list[dict[str, Any]]]]) -> None:
    seen = {frame.get("event") for _, events in sent for frame in events}
    assert {"data": "[DONE]"} in [frame for _, events in sent for frame in events]
    names = set[str]()
    for path in {path for path, _ in REQUESTS}:
        for kind in documented(document, path, "text/event-stream")["anyOf"]:
            names |= set(kind["properties"].get("event", {}).get("enum", ()))
    assert len(names) > 25
    assert names - seen <= UNSEEN


def test_a_wrong_event_is_noticed(document: dict[str, Any]) -> None:
    schema = documented(document, "/v1/responses", "text/event-stream")
    right = {"type": "response.output_item.done", "sequence_number": 3, "output_index": 0, "item": {
        "type": "custom_tool_call", "id": "a", "call_id": "b", "name": "c", "input": "d"}}  # fmt: skip
    changes: list[dict[str, Any]] = [{}, {"more": 1}, {"item": {}}, {"type": "response.done"}]
    for change in changes:
        event = {**right, **change}
        frame = {"event": event["type"], "data": json.dumps(event)}
        assert (event_faults(schema, frame) == []) == (not change)


def test_headers_of_limits_and_retries_are_described(document: dict[str, Any]) -> None:
    rate = {"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}
    assert rate | {"Retry-After", "WWW-Authenticate"} == document["components"]["headers"].keys()
    for path, operations in document["paths"].items():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                headers = response.get("headers", {}).keys()
                assert ("Retry-After" in headers) == (status in ("429", "503")), (path, status)
                assert ("WWW-Authenticate" in headers) == (status == "401"), (path, status)
                if "security" in operation and status in ("200", "429"):
                    assert rate <= headers, (path, status)
