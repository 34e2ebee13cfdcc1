"""POST /generate of messages: the same prompts, tools and policies as chats."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.app.service.test_policy_chats import RULES, TOOLS, play, refunded, require_conformance

USER = [{"role": "user", "content": "a dog"}]


def body_of(messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """A request whose answers are samples."""
    policy = {"rules": RULES, **fields.pop("policy", {})}
    options = {"algorithm": "sample", "max_tokens": 60, "seed": 1, "timeout_s": 60.0}
    return {"messages": messages, "tools": TOOLS, "policy": policy, **options, **fields}


def send(client: TestClient, messages: list[dict[str, Any]], **fields: Any) -> Any:
    body = body_of(messages, **fields)
    if body["algorithm"] != "sample":
        del body["seed"]
    return client.post("/generate", json=body)


def test_searching_agents_keep_every_rule(client: TestClient) -> None:
    require_conformance(play(client, random.Random(1), 2, send, algorithm="banked", beams=2))


@pytest.mark.parametrize(
    "fields",
    [
        {"policy": {"max_calls": 1}}, {}, {"policy": None},
        {"policy": None, "constraint": {"regex": "[a-z ]{3,9}\\."}},
        {"policy": None, "tools": None, "constraint": {"keywords": ["dog"]}, "max_tokens": 12},
        {"policy": None, "tools": None, "max_tokens": 12},
    ],
)  # fmt: skip
def test_a_chat_and_a_generation_give_the_same_answer(client: TestClient, fields: dict[str, Any]) -> None:
    for messages in (USER, refunded()):
        body = {name: value for name, value in {**body_of(messages), **fields}.items() if value is not None}
        if isinstance(body.get("policy"), dict):
            body["policy"] = {"rules": RULES[:3], **body["policy"]}
        native = client.post("/generate", json=body)
        chat = client.post("/v1/chat/completions", json=body)
        assert native.is_success and chat.is_success, (native.text, chat.text)
        mine, theirs = native.json(), chat.json()
        assert mine["automaton"] == theirs["automaton"]
        assert mine["usage"]["prompt_tokens"] == theirs["usage"]["prompt_tokens"]
        message = theirs["choices"][0]["message"]
        content = message["content"] and message["content"].strip()  # a chat keeps white space
        assert shape(mine["choices"][0]["message"]) == shape({**message, "content": content})


def test_answers_to_messages_never_differ_in_white_space_alone(client: TestClient) -> None:
    body = {"messages": USER, "constraint": {"regex": " ?a (dog|man)[ .]*"}, "max_tokens": 12, "n": 6}
    choices = client.post("/generate", json=body).json()["choices"]
    texts = [choice["text"] for choice in choices]
    assert len({*texts}) == len(texts) > 1 and texts == [text.strip() for text in texts]
    assert all(choice["message"]["content"] == choice["text"] for choice in choices)


def shape(message: dict[str, Any]) -> tuple[Any, ...]:
    """A message without ids of calls."""
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return message["role"], message["content"], calls, message.get("reasoning_content")


def test_streams_and_jobs_end_with_the_message(client: TestClient) -> None:
    body = body_of(refunded(), policy={"max_calls": 1})
    waited = client.post("/generate", json=body).json()["choices"][0]["message"]
    assert waited["tool_calls"][0]["function"] == {"name": "notify", "arguments": "{}"}
    events = client.post("/generate", json={**body, "stream": True}).text.split("\n\n")
    done = next(event for event in events if "event: done" in event)
    data = next(line.removeprefix("data: ") for line in done.splitlines() if line.startswith("data: "))
    assert shape(json.loads(data)["choices"][0]["message"]) == shape(waited)
    assert shape(finished_job(client, body)["result"]["choices"][0]["message"]) == shape(waited)


def finished_job(client: TestClient, body: dict[str, Any]) -> dict[str, Any]:
    """An asynchronous request's job once it is over, or its refusal."""
    job: dict[str, Any] = client.post("/generate", json=body, headers={"prefer": "respond-async"}).json()
    until = time.monotonic() + 30
    while job.get("state") in ("waiting", "running") and time.monotonic() < until:
        time.sleep(0.05)
        job = client.get(f"/jobs/{job['id']}").json()
    return job


def test_tool_choice_requires_names_and_forbids_calls(client: TestClient) -> None:
    def answered(choice: object) -> Any:
        return client.post("/generate", json=body_of(USER, policy={"rules": []}, tool_choice=choice))

    def names(choice: object) -> list[str]:
        message = answered(choice).json()["choices"][0]["message"]
        return [call["function"]["name"] for call in message.get("tool_calls") or ()]

    named = {"type": "function", "function": {"name": "notify"}}
    assert names("required") and names(named) == ["notify"] and names("none") == []
    permitted = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}
    assert set(names(permitted)) == {"notify"}
    for choice, path in ((named | {"function": {"name": "fly"}}, "tool_choice.function.name"), (5, "tool_choice")):
        refused = answered(choice)
        assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, path)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"constraint": {"all": [{"regex": "[a-z]+"}, {"json_schema": {"type": 5}}]}}, "all.1.json_schema.type"),
        ({"constraint": {"grammar": "root ::= x", "syntax": "gbnf"}}, "grammar"),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": 5}}}]},
         "tools.0.function.parameters.type"),
    ],
)  # fmt: skip
def test_answers_streams_and_jobs_name_the_same_field(client: TestClient, fields: dict[str, Any], path: str) -> None:
    body = {"messages": USER, "tools": TOOLS, **fields}
    assert client.post("/generate", json=body).json()["field"] == path
    assert client.post("/generate", json={**body, "stream": True}).json()["field"] == path
    assert finished_job(client, body)["error"]["field"] == path


def test_an_answer_to_a_prompt_has_no_message(client: TestClient) -> None:
    response = client.post("/generate", json={"prompt": "a", "constraint": {"regex": "b"}})
    assert "message" not in response.json()["choices"][0]


def test_errors_of_the_constraint_name_its_own_fields(client: TestClient) -> None:
    def field(**fields: Any) -> Any:
        return client.post("/generate", json={**fields, "constraint": {"all": [{"regex": "a"}, {"regex": "(b"}]}})

    faults = [field(prompt="a"), field(messages=USER), field(messages=USER, tools=TOOLS)]
    assert [response.json()["field"] for response in faults] == ["all.1.regex"] * 3
    impossible = send(client, refunded(), policy={"max_calls": 0})
    assert impossible.status_code == 422
    assert (impossible.json()["code"], impossible.json()["conflict"]) == ("constraint_unsatisfiable", [RULES[1]])
    assert "max_calls of the policy is 0" in impossible.json()["detail"]


def test_an_infeasible_policy_names_the_shortest_past(client: TestClient) -> None:
    rules, tools = ["response(refund, notify)", "absence(notify)"], TOOLS
    past = [*refunded(), {"role": "assistant", "content": "Wait."}, {"role": "user", "content": "Why?"}]
    body = {"policy": {"rules": rules}, "tools": tools}
    check = client.post("/check", json={**body, "messages": past}).json()
    assert check["conflict"] == rules and check["past"] == ["call(refund)"]
    items = [
        {"role": "user", "content": "a dog"},
        {"type": "function_call", "call_id": "1", "name": "refund", "arguments": '{"amount": 5}'},
        {"type": "function_call_output", "call_id": "1", "output": "done"},
    ]
    flat = [{"type": "function", **each["function"]} for each in tools]
    errors = [
        client.post("/generate", json={**body, "messages": past}),
        client.post("/v1/chat/completions", json={**body, "messages": past}),
        client.post("/v1/chat/completions", json={**body, "messages": past, "stream": True}),
        client.post("/v1/responses", json={**body, "input": items, "tools": flat}),
    ]
    for response in errors:
        assert response.status_code == 422, response.text
        error = response.json().get("error", response.json())
        assert (error["code"], error["conflict"]) == ("constraint_unsatisfiable", rules)
        assert error["past"] == check["past"]
    excluded = client.post("/generate", json={"messages": refunded(), **body, "policy": {"rules": rules[:1]},
                                              "tool_choice": "none"})  # fmt: skip
    assert excluded.json()["conflict"] == rules[:1] and "past" not in excluded.json()
