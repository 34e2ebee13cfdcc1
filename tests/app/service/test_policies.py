"""Policies over HTTP."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessage, ParsedChatCompletionMessage
from starlette.testclient import TestClient

AMOUNT = {"type": "object", "properties": {"amount": {"type": "integer", "minimum": 0}}, "required": ["amount"]}
RULES = [
    "precedence(confirm, delete)",
    "response(refund, notify)",
    "G(call(refund, amount > 100) -> O(result(approve, ok = true)))",
]


def tool(name: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters or {"type": "object"}}}


TOOLS = [tool("refund", AMOUNT), *map(tool, ("confirm", "delete", "notify", "approve"))]


NOTIFY = {"name": "notify", "arguments": "{}"}


def conversation(*events: Any) -> list[dict[str, Any]]:
    """The messages of events. A triple is a call with arguments and result, a string a reply."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "help me"}]
    for number, event in enumerate(events):
        if isinstance(event, str):
            messages.append({"role": "assistant", "content": event})
            continue
        name, arguments, result = event
        function = {"name": name, "arguments": json.dumps(arguments)}
        calls = [{"id": f"c{number}", "type": "function", "function": function}]
        messages.append({"role": "assistant", "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": json.dumps(result)})
    return messages


def checked(client: TestClient, messages: Sequence[dict[str, Any]], **policy: Any) -> dict[str, Any]:
    body = {"policy": {"rules": RULES, **policy}, "tools": TOOLS, "messages": list(messages)}
    response = client.post("/check", json=body)
    assert response.status_code == 200, response.text
    return dict(response.json())


def test_a_conversation_that_keeps_the_rules_is_satisfied(client: TestClient) -> None:
    answer = checked(client, conversation(("refund", {"amount": 5}, "done"), ("notify", {}, "sent"), "Done."))
    assert answer["satisfied"] and answer["reply"] and answer["calls_needed"] == 0
    assert answer["broken"] == answer["open_rules"] == answer["conflict"] == []
    assert set(answer["tools"]) == {"refund", "confirm", "notify", "approve"}


def test_the_event_that_broke_a_rule_is_named(client: TestClient) -> None:
    answer = checked(client, conversation(("delete", {}, "gone"), ("refund", {"amount": 500}, "done"), "Done."))
    assert not answer["satisfied"]
    assert answer["broken"] == [
        {"rule": RULES[0], "event": "call(delete)", "message": 1},
        {"rule": RULES[1], "event": None, "message": None},
        {"rule": RULES[2], "event": "call(refund)", "message": 3},
    ]
    assert answer["conflict"] in ([RULES[0]], [RULES[2]])  # each is broken by itself
    assert answer["past"] in (["call(delete)"], ["call(refund, amount > 100)"])


def test_an_open_obligation_forbids_the_reply(client: TestClient) -> None:
    past = conversation(("refund", {"amount": 5}, "done"))
    answer = checked(client, past, max_calls=1)
    assert not answer["reply"] and set(answer["tools"]) == {"notify"}
    assert (answer["open_rules"], answer["calls_needed"]) == ([RULES[1]], 1)
    assert checked(client, past, max_calls=0)["conflict"] == [RULES[1]]


def test_results_decide_what_may_be_called(client: TestClient) -> None:
    refused = checked(client, conversation(("approve", {}, {"ok": False})))["tools"]["refund"]
    assert checked(client, conversation(("approve", {}, {"ok": True})))["tools"]["refund"] == AMOUNT
    assert refused["allOf"][0]["not"]["properties"]["amount"] == {"type": "number", "exclusiveMinimum": 100}


def test_the_states_of_a_policy_list_the_tools(client: TestClient) -> None:
    body = {"policy": {"rules": RULES[:2]}, "tools": TOOLS}
    answer = client.post("/compile", json=body).json()
    by_past = {tuple(state["past"]): state for state in answer["states"]}
    assert by_past[()]["reply"] and "delete" not in by_past[()]["tools"]
    confirmed, refunded = (by_past[f"call({name})", f"result({name})"] for name in ("confirm", "refund"))
    assert "delete" in confirmed["tools"]
    assert (refunded["reply"], refunded["calls_needed"]) == (False, 1)


def test_a_policy_may_be_a_file_of_declare(client: TestClient) -> None:
    policy = {"rules": [], "decl": "activity confirm\nPrecedence[confirm, delete] | |\n"}
    answer = checked(client, conversation(("delete", {}, "gone")), **policy)
    assert [each["rule"] for each in answer["broken"]] == ['precedence("confirm", "delete")']


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"policy": {"rules": ["response(refnd, notify)"]}}, "constraint_syntax", "did you mean refund"),
        ({"policy": {"rules": ["G(call(refund"]}}, "constraint_syntax", "bracket of an event"),
        ({"policy": {"rules": ["O F refund"]}}, "unsupported", "speaks of the past"),
        ({"policy": {"rules": RULES, "assume": ["reply"]}}, "constraint_syntax", "policy.assume.0"),
        ({"policy": {"rules": RULES, "max_calls": -1}}, "invalid_request", "max_calls"),
        ({"policy": {"rule": RULES}}, "invalid_request", "rule"),
        ({"messages": None}, "invalid_request", "policy and messages go together"),
        ({"constraint": {"regex": "a"}}, "invalid_request", "exactly one of constraint and policy"),
        ({"messages": [{"role": "tool", "tool_call_id": "x", "content": "1"}]}, "invalid_request", "no call before"),
    ],
)
def test_faulty_policies_get_an_error_that_helps(
    client: TestClient, change: dict[str, Any], code: str, words: str
) -> None:
    body = {"policy": {"rules": RULES}, "tools": TOOLS, "messages": conversation()} | change
    response = client.post("/check", json=body)
    assert response.json()["code"] == code, response.text
    assert words in response.text


@pytest.mark.parametrize("arguments", ["{amount", "", None, "[1]", {"amount": 5}])
@pytest.mark.parametrize("tools", [TOOLS, None])
def test_any_arguments_are_those_of_an_event(client: TestClient, arguments: Any, tools: Any) -> None:
    messages = conversation(("refund", {}, 1))
    messages[1]["tool_calls"][0]["function"]["arguments"] = arguments
    rules = ["absence(call(refund, amount = 5))", "absence(reply)", "absence(refund)"]
    response = client.post("/check", json={"policy": {"rules": rules}, "tools": tools, "messages": messages})
    broken = [each["rule"] for each in response.json()["broken"]]
    assert broken == [rule for rule in rules if rule == rules[2] or (rule == rules[0] and isinstance(arguments, dict))]


ASK: dict[str, Any] = {"type": "custom", "custom": {"name": "ask", "format": {"type": "text"}}}
THOUGHT = {
    "role": "assistant", "content": "Yes.", "refusal": None, "reasoning_content": "A dog?", "reasoning": "A dog?"
}  # fmt: skip


def answered(client: TestClient, tool_choice: Any) -> dict[str, Any]:
    """The message of a chat's answer."""
    user = [{"role": "user", "content": [{"type": "text", "text": "a dog"}]}]
    body = {"messages": user, "tools": [*TOOLS, ASK], "tool_choice": tool_choice, "max_tokens": 60, "seed": 1}
    response = client.post("/v1/chat/completions", json=body)
    assert response.is_success, response.text
    return dict(response.json()["choices"][0]["message"])


@pytest.mark.parametrize("called", ["notify", "ask", None])
def test_answers_of_chats_are_messages_as_they_are(client: TestClient, called: str | None) -> None:
    kind = "custom" if called == "ask" else "function"
    raw = answered(client, {"type": kind, kind: {"name": called}}) if called else THOUGHT
    dumped = ChatCompletionMessage.model_validate(raw).model_dump()
    messages_of_clients = [raw, dumped, dumped | {"annotations": []}]
    if kind == "function":  # the client parses functions alone
        messages_of_clients.append(ParsedChatCompletionMessage[Any].model_validate(raw).model_dump())
    for message in messages_of_clients:
        calls = message.get("tool_calls") or ()
        done = [{"type": "text", "text": "done"}]
        results = [{"role": "tool", "tool_call_id": call["id"], "content": done} for call in calls]
        messages = [{"role": "user", "content": [{"type": "text", "text": "a dog"}]}, message, *results]
        rules, tools = ["init(ask)", "init(notify)"], [*TOOLS, ASK]
        body = {"policy": {"rules": rules}, "tools": tools, "messages": messages}
        check = client.post("/check", json=body)
        assert check.status_code == 200, check.text
        broken = [each["rule"] for each in check.json()["broken"]]
        assert broken == [rule for rule in rules if rule != f"init({called})"]
        generation = {"messages": messages, "tools": tools, "tool_choice": "none", "max_tokens": 9}
        assert client.post("/generate", json=generation).is_success
        assert client.post("/v1/chat/completions", json=generation).is_success


def test_custom_calls_are_events_without_a_list_of_tools(client: TestClient) -> None:
    call = {"id": "1", "type": "custom", "custom": {"name": "ask", "input": "{no json"}}
    messages = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "1", "content": "done"}]
    answer = client.post("/check", json={"policy": {"rules": ["init(ask)", "absence(result)"]}, "messages": messages})
    assert [each["event"] for each in answer.json()["broken"]] == ["result(ask)"]
    assert client.post("/compile", json={"policy": {"rules": ["init(ask)"]}, "tools": [ASK]}).is_success


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0.content", "reads text only"),
        ({"messages": [{"role": "user", "content": "a", "audio": {}}]}, "messages.0.audio", "must be null"),
        ({"messages": [{"role": "user", "content": "a", "regex": "b"}]}, "messages.0.regex", "unknown field"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "1", "type": "custom", "function": NOTIFY}]}]},
         "messages.0.tool_calls.0", "`custom`"),
        ({"tools": [{"type": "custom", "custom": {"name": "a", "regex": "b"}}]}, "tools.0.custom.regex", "unknown"),
        ({"tools": [{"type": "custom", "function": {"name": "a"}}]}, "tools.0", "`custom`"),
    ],
)  # fmt: skip
def test_other_fields_of_messages_and_tools_stay_errors(
    client: TestClient, change: dict[str, Any], path: str, words: str
) -> None:
    body = {"policy": {"rules": []}, "tools": TOOLS, "messages": conversation()} | change
    response = client.post("/check", json=body)
    (error,) = response.json()["errors"]
    assert (error["path"], words in error["message"]) == (path, True), response.text
