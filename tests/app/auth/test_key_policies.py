"""Policies of API keys. They hold in every conversation of a key, and requests can only tighten them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from app.auth import KeyPolicy, KeyRing, new_key, read_keys
from app.auth.keys import line_of
from app.cli.keys import key_commands
from app.errors import SettingsInvalid
from tests.app.access_keys import bearer, stored_key
from tests.app.conftest import service_client
from tests.app.service.test_policy_chats import TOOLS, refunded

RULES = ("precedence(confirm, delete)", "response(refund, notify)", "absence(wipe)")
USER = [{"role": "user", "content": "a dog"}]
MARKED = [f"key: {rule}" for rule in RULES]
PATHS = ("/generate", "/v1/chat/completions", "/v1/responses")
Keyed = tuple[TestClient, dict[str, dict[str, str]]]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    """A service, and the headers of a key for each policy. The owner of the key "free" has a bound one, too."""
    path, headers = tmp_path_factory.mktemp("keys") / "keys", {}
    policies = {
        "free": None, "bound": KeyPolicy(RULES), "short": KeyPolicy(RULES, max_calls=1), "over": KeyPolicy((), 0),
        "unmet": KeyPolicy(("existence(notify)",)), "trusting": KeyPolicy(RULES, None, ("result(approve, ok = true)",)),
    }  # fmt: skip
    for name, policy in (*policies.items(), ("free", KeyPolicy(RULES))):
        text = stored_key(
            path, name, "generate", "compile", policy=policy, requests_per_minute=0, beam_tokens_per_minute=0
        )
        headers["free, bound" if name in headers else name] = bearer(text)
    with service_client(keys_file=str(path), public_paths=("/ready",)) as client:
        yield client, headers


def ask(keyed: Keyed, key: str, path: str, messages: list[dict[str, Any]] = USER, **fields: Any) -> Any:
    """The response to messages at any of the paths."""
    client, headers = keyed
    body: dict[str, Any] = {"messages": messages, "tools": TOOLS, "seed": 1, **fields}
    body = {name: value for name, value in body.items() if value is not None}
    if path == "/v1/responses":
        body["input"] = list(_items(body.pop("messages")))
        if "tools" in body:
            body["tools"] = [{"type": "function", **tool["function"]} for tool in body["tools"]]
    body |= {"max_output_tokens": 60} if path == "/v1/responses" else {"max_tokens": 60}
    body |= {"algorithm": "sample"} if path == "/generate" else {}
    return client.post(path, json=body, headers=headers[key])


def _items(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for message in messages:
        for call in message.get("tool_calls", ()):
            yield {"type": "function_call", "call_id": call["id"], **call["function"]}
        if message["role"] == "tool":
            yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}
        elif "content" in message:
            yield {"role": message["role"], "content": message["content"]}


def called(response: Any) -> list[str]:
    """The names of the tools that an answer calls."""
    assert response.is_success, response.text
    body = response.json()
    if "output" in body:
        return [item["name"] for item in body["output"] if item["type"] == "function_call"]
    return [call["function"]["name"] for call in body["choices"][0]["message"].get("tool_calls") or ()]


@pytest.mark.parametrize("path", PATHS)
def test_the_policy_of_a_key_cannot_be_left_out(keyed: Keyed, path: str) -> None:
    assert called(ask(keyed, "short", path, refunded())) == ["notify"]
    assert not {"delete"} & set(called(ask(keyed, "bound", path)))
    looser: dict[str, Any] = {"rules": ["F(notify | reply)"], "max_calls": 9}
    assert called(ask(keyed, "short", path, refunded(), policy=looser)) == ["notify"]
    assert called(ask(keyed, "over", path)) == []


@pytest.mark.parametrize("path", PATHS)
def test_a_request_may_tighten_the_policy_of_its_key(keyed: Keyed, path: str) -> None:
    policy = {"rules": ["init(notify)"], "max_calls": 3}
    assert called(ask(keyed, "bound", path, policy=policy)) == ["notify"]
    assert called(ask(keyed, "short", path, refunded(), policy={"rules": [], "max_calls": 2})) == ["notify"]
    refused = ask(keyed, "short", path, refunded(), policy={"max_calls": 0})
    assert refused.status_code == 422 and "key: response(refund, notify)" in refused.text
    assert "max_calls of the policy is 0" in refused.text


@pytest.mark.parametrize("path", PATHS)
def test_errors_name_the_policy_at_fault(keyed: Keyed, path: str) -> None:
    contradicted = ask(keyed, "unmet", path, policy={"rules": ["absence(notify)"]})
    assert "key: existence(notify); absence(notify)" in contradicted.text
    weakened = ask(keyed, "bound", path, policy={"assume": ["result(approve, ok = true)"]})
    assert weakened.status_code == 422 and "would weaken the policy of the API key" in weakened.text
    assert "policy.assume.0" in weakened.text
    assert called(ask(keyed, "trusting", path, policy={"assume": ["result(approve, ok = true)"]})) is not None
    faulty = ask(keyed, "bound", path, policy={"rules": ["existence(wipe)"]})
    assert "there is no tool" in faulty.text and "policy.rules.0" in faulty.text
    stored = ask(keyed, "bound", path, tools=None, automaton="0" * 64)
    assert stored.status_code == 422 and "the policy of the API key" in stored.text


def test_errors_count_messages_as_the_request_does(keyed: Keyed) -> None:
    client, headers = keyed
    call = {"type": "tool_use", "id": "1", "name": "refund", "input": {"amount": 5}}
    messages = [*USER, {"role": "assistant", "content": [call]}, {"role": "user", "content": "And now?"}]
    body = {"model": "captions", "system": "Be quick.", "messages": messages, "max_tokens": 60}
    error = client.post("/v1/messages", json=body, headers=headers["bound"]).json()["error"]
    assert (error["param"], error["message"]) == ("messages.1", "messages.1: a call of this message has no result yet")


@pytest.mark.parametrize("path", PATHS)
def test_without_tools_only_a_reply_is_possible(keyed: Keyed, path: str) -> None:
    assert called(ask(keyed, "bound", path, tools=None)) == []
    refused = ask(keyed, "unmet", path, tools=None)
    assert refused.status_code == 422 and "key: existence(notify)" in refused.text


@pytest.mark.parametrize("path", ["/generate", "/v1/completions"])
def test_prompts_are_refused_under_the_policy_of_a_key(keyed: Keyed, path: str) -> None:
    client, headers = keyed
    body = {"prompt": "a", "constraint": {"regex": "b"}}
    assert client.post(path, json=body, headers=headers["free"]).is_success
    refused = client.post(path, json=body, headers=headers["bound"])
    assert refused.status_code == 422 and "the policy of the API key" in refused.text and "messages" in refused.text


def test_checks_and_compilations_show_both_policies(keyed: Keyed) -> None:
    client, headers = keyed
    body = {"policy": {"rules": ["absence(confirm)"]}, "tools": TOOLS}
    checked = client.post("/check", json={**body, "messages": refunded()}, headers=headers["short"]).json()
    assert checked["open_rules"] == [MARKED[1]] and list(checked["tools"]) == ["notify"] and not checked["reply"]
    states = client.post("/compile", json=body, headers=headers["bound"]).json()["states"]
    assert not [state for state in states if {"delete", "confirm"} & set(state["tools"])]
    plain = {"constraint": {"regex": "b"}}
    assert client.post("/check", json={**plain, "text": "b"}, headers=headers["bound"]).json()["satisfied"]
    matrix = {"log_probs": [[-1.0, -2.0]], "constraint": {"ltlf": "F b", "labels": ["a", "b"]}}
    assert client.post("/decode", json=matrix, headers=headers["bound"]).json()["labels"] == ["b"]


def test_a_stored_answer_is_not_given_under_another_policy(keyed: Keyed) -> None:
    client, headers = keyed
    body = {"messages": USER, "tools": TOOLS, "algorithm": "sample", "max_tokens": 60, "seed": 1}
    free, bound = (
        client.post("/generate", json=body, headers={**headers[key], "idempotency-key": "1"})
        for key in ("free", "free, bound")
    )
    assert free.is_success
    assert (bound.status_code, bound.json()["code"]) == (422, "idempotency_mismatch")


def test_a_line_of_the_file_keeps_the_policy(tmp_path: Path) -> None:
    policy = KeyPolicy(RULES, 3, ("result(approve, ok = true)",))
    text, key = new_key("anna", ["generate"], policy=policy)
    (tmp_path / "keys").write_text(line_of(key) + "\n", encoding="utf-8")
    assert KeyRing(tmp_path / "keys").find(text).policy == policy


@pytest.mark.parametrize(
    "policy",
    [
        {"rules": ["G(call(refund"]}, {"rules": "F a"}, {"rules": [1]}, {"rule": []}, {"max_calls": -1}, [],
        {"max_calls": True}, {"assume": ["reply"]}, {"decl": "Nothing[a]"}, {"decl": 1},
    ],
    ids=str,
)
def test_a_faulty_policy_of_a_key_is_refused(tmp_path: Path, policy: Any) -> None:
    fields = json.loads(line_of(new_key("anna", ["generate"])[1]))
    (tmp_path / "keys").write_text(json.dumps({**fields, "policy": policy}), encoding="utf-8")
    with pytest.raises(SettingsInvalid, match="line 1"):
        read_keys(tmp_path / "keys")


def test_the_command_binds_the_policy_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text(
        json.dumps({"rules": [RULES[0]], "decl": "Response[refund, notify] | | |", "max_calls": 4}), encoding="utf-8"
    )
    options = ["--file", str(tmp_path / "keys")]
    made = ["new", "anna", "--scope", "generate", "--policy", str(tmp_path / "policy.json"), *options]
    assert CliRunner().invoke(key_commands(), made).exit_code == 0
    (key,) = read_keys(tmp_path / "keys")
    assert key.policy == KeyPolicy((RULES[0], 'response("refund", "notify")'), 4)
    listed = CliRunner().invoke(key_commands(), ["list", *options], env={"COLUMNS": "120"}).output
    assert RULES[0] in listed
    (tmp_path / "policy.json").write_text('{"rules": ["G("]}', encoding="utf-8")
    assert CliRunner().invoke(key_commands(), made).exit_code == 2
    assert len(read_keys(tmp_path / "keys")) == 1
