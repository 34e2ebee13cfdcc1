"""Chats under a policy.

The traces of agents are judged by the evaluator of formulas.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from compiler.limits import DEFAULT_LIMITS, ResourceGuard
from compiler.policies import Event, EventKind
from compiler.policies.rules import read_rules
from tests.references.ltlf import satisfies


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [
    tool("refund", amount={"type": "integer", "minimum": 0, "maximum": 900}), tool("notify"), tool("confirm"),
    tool("delete"), tool("approve"),
]  # fmt: skip
RULES = [
    "precedence(confirm, delete)",
    "response(refund, notify)",
    "G(call(refund, amount > 100) -> O(result(approve, ok = true)))",
    "existence(call)",
]


def send(client: TestClient, messages: list[dict[str, Any]], **fields: Any) -> Any:
    policy = {"rules": RULES, **fields.pop("policy", {})}
    body = {"messages": messages, "tools": TOOLS, "policy": policy, "max_tokens": 60, "temperature": 1.0, **fields}
    return client.post("/v1/chat/completions", json=body)


def play(
    client: TestClient, rng: random.Random, calls_max: int, send: Callable[..., Any] = send, **fields: Any
) -> list[Event]:
    """The events of a conversation. The agent has a number of calls; results are drawn."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "a dog"}]
    events: list[Event] = []
    for left in range(calls_max, -1, -1):
        response = send(client, messages, policy={"max_calls": left}, seed=rng.randrange(10**6), **fields)
        assert response.is_success, response.text
        choice = response.json()["choices"][0]
        message = choice["message"]
        if not message.get("tool_calls"):
            return [*events, Event(EventKind.REPLY)]
        (made,) = message["tool_calls"]
        content = {"ok": rng.random() < 0.5}
        name, arguments = made["function"]["name"], json.loads(made["function"]["arguments"])
        events += [Event(EventKind.CALL, name, arguments), Event(EventKind.RESULT, name, content)]
        result = {"role": "tool", "tool_call_id": made["id"], "content": json.dumps(content)}
        messages += [message, result]
    raise AssertionError("the agent called more often than it may")


def require_conformance(events: list[Event]) -> None:
    for rule in read_rules(RULES, None, ResourceGuard(DEFAULT_LIMITS)):
        trace = [
            frozenset(
                name
                for name, each in rule.propositions.items()
                if each.kind is event.kind and each.tool in (None, event.tool)
                and all(condition.holds(event.value) for condition in each.conditions)
            )
            for event in events
        ]  # fmt: skip
        assert satisfies(rule.formula, trace), (rule.text, events)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.sample(2)
def test_sampled_agents_keep_every_rule_within_their_calls(client: TestClient, seed: int) -> None:
    rng = random.Random(seed)
    require_conformance(play(client, rng, calls_max=rng.randint(1, 3)))


def test_searching_agents_keep_every_rule(client: TestClient) -> None:
    require_conformance(play(client, random.Random(1), calls_max=2, temperature=0))


def test_forced_refunds_stay_within_what_was_approved(client: TestClient) -> None:
    named = {"type": "function", "function": {"name": "refund"}}
    for seed in range(2):
        response = send(client, [{"role": "user", "content": "a dog"}], tool_choice=named, seed=seed)
        (made,) = response.json()["choices"][0]["message"]["tool_calls"]
        assert json.loads(made["function"]["arguments"])["amount"] <= 100


def refunded() -> list[dict[str, Any]]:
    made = {"id": "1", "type": "function", "function": {"name": "refund", "arguments": '{"amount": 5}'}}
    messages = [{"role": "user", "content": "a dog"}, {"role": "assistant", "tool_calls": [made]}]
    return [*messages, {"role": "tool", "tool_call_id": "1", "content": "done"}]


def test_the_last_call_meets_the_obligation(client: TestClient) -> None:
    choice = send(client, refunded(), policy={"max_calls": 1}).json()["choices"][0]
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "notify"
    streamed = send(client, refunded(), policy={"max_calls": 1}, stream=True).text
    assert '"name":"notify"' in streamed.replace(" ", "")


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"policy": {"max_calls": 0}}, 422, "response(refund, notify)"),
        ({"tool_choice": "none"}, 422, "response(refund, notify)"),
        ({"tools": []}, 422, "there is no tool"),
        ({"policy": {"rules": ["G(call(refund)"]}}, 422, "policy.rules.0"),
        ({"policy": {"rule": []}}, 422, "policy.rule"),
    ],
)
def test_impossible_and_faulty_policies_are_refused(
    client: TestClient, fields: dict[str, Any], status: int, words: str
) -> None:
    response = send(client, refunded(), **fields)
    assert (response.status_code, words in response.text) == (status, True), response.text


def test_no_condition_holds_of_the_text_of_a_custom_tool(client: TestClient) -> None:
    ask, rules = {"type": "custom", "custom": {"name": "ask"}}, ["G(call(ask) -> call(ask, a = 1))"]
    user = [{"role": "user", "content": "a dog"}]
    for seed in range(3):
        response = send(client, user, tools=[ask], policy={"rules": rules}, seed=seed)
        assert not response.json()["choices"][0]["message"].get("tool_calls")
    assert send(client, user, tools=[ask], policy={"rules": rules}, tool_choice="required").status_code == 422


def test_a_call_without_result_is_refused(client: TestClient) -> None:
    response = send(client, refunded()[:2])
    assert response.status_code == 422 and "has no result yet" in response.text


def test_responses_take_a_policy(client: TestClient) -> None:
    tools = [{"type": "function", **each["function"]} for each in TOOLS]
    items = [
        {"role": "user", "content": "a dog"},
        {"type": "function_call", "call_id": "1", "name": "refund", "arguments": '{"amount": 5}'},
        {"type": "function_call_output", "call_id": "1", "output": "done"},
    ]
    body = {"input": items, "tools": tools, "policy": {"rules": RULES, "max_calls": 1}, "max_output_tokens": 60}
    response = client.post("/v1/responses", json=body)
    assert response.is_success, response.text
    called = [item["name"] for item in response.json()["output"] if item["type"] == "function_call"]
    assert called == ["notify"]
    unanswered = {**body, "instructions": "Be quick.", "input": items[:2]}  # a message of its own in the chat
    error = client.post("/v1/responses", json=unanswered).json()["error"]
    assert (error["param"], error["message"]) == ("input.1", "input.1: a call of this message has no result yet")
    stray = {**unanswered, "input": [items[0], {**items[2], "call_id": "2"}]}
    assert client.post("/v1/responses", json=stray).json()["error"]["param"] == "input.1"


def test_policies_name_the_tool_of_a_faulty_schema(client: TestClient) -> None:
    schema = {"properties": {"when": {"type": "datetime"}}}
    chat_tools = [TOOLS[0], {"type": "function", "function": {"name": "book", "parameters": schema}}]
    rules = {"rules": ["G(call(book) -> call(book, when = 5))"]}
    message = 'tool "book", properties.when.type: this is not a type'
    error = send(client, [{"role": "user", "content": "a"}], tools=chat_tools, policy=rules).json()["error"]
    assert (error["message"], error["param"]) == (message, "tools.1.function.parameters.properties.when.type")
    body = {"input": "a", "tools": [{"type": "function", **each["function"]} for each in chat_tools], "policy": rules}
    error = client.post("/v1/responses", json=body).json()["error"]
    assert (error["message"], error["param"]) == (message, "tools.1.parameters.properties.when.type")
    checked = client.post("/check", json={"messages": [], "tools": chat_tools, "policy": rules}).json()
    assert (checked["detail"], checked["field"]) == (message, "tools.1.function.parameters.properties.when.type")
