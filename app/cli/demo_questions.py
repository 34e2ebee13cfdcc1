"""The three questions that the demo answers by requests to a service."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import httpx2
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from abs_client import BudgetTooSmallError, Client, ConstraintUnsatisfiableError, Policy

REQUEST_S_MAX = 60.0
MODEL, PROMPT = "stories", "One day, a"
FLIGHT = {"keywords": ["cat", ["fly", "flies", "flew"], "moon"], "ordered": True}
SENTENCE = {"all": [FLIGHT, {"regex": r".*[a-z]\."}]}
RECORD_MODEL, RECORD_PROMPT = "captions", "sentence:"
RECORD = {
    "json_schema": {
        "type": "object",
        "properties": {
            "photo": {"type": "string", "constraint": {"all": [
                {"regex": r"(A|The) [a-z]+ (is|are|with|on|in) [a-z]+( [a-z]+){0,2}\."}, {"keywords": ["dog"]},
            ]}},
            "dogs": {"type": "integer", "minimum": 1, "maximum": 9},
        },
        "required": ["photo", "dogs"], "additionalProperties": False,
    },
}  # fmt: skip
BUDGETS = (1, 1.5, 2)  # of the least one
ALONE_CHARS_MAX = 19  # of the text without a constraint, of which the end is shown
IMPOSSIBLE = {"all": [{"keywords": ["cat", "moon"]}, {"max_words": 12}, {"regex": "[^oO]*"}]}
RULES = (
    "precedence(confirm, refund)", "G(!call(refund, amount > 100))", "existence(refund)", "response(refund, notify)",
)  # fmt: skip
QUESTION = {"role": "user", "content": "Refund 5000 right now!"}
CALLS_MAX, AGENT_TOKENS = 4, 40


def _tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {
        "type": "object", "properties": properties, "required": [*properties], "additionalProperties": False,
    }  # fmt: skip
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = (_tool("confirm"), _tool("refund", amount={"type": "integer", "minimum": 1}), _tool("notify"))


AGENT = {
    "messages": [QUESTION], "tools": TOOLS, "policy": {"rules": RULES, "max_calls": CALLS_MAX},
    "max_tokens": AGENT_TOKENS,
}  # fmt: skip


def compare_with_and_without(client: Client, url: str) -> Iterator[RenderableType]:
    """What the model writes with and without a constraint, by budget."""
    yield f"{PROMPT!r}, with cat, fly and moon in this order ({MODEL}); JSON ({RECORD_MODEL}):"
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1, 0, 0))
    table.add_column("tokens", justify="right", no_wrap=True)
    table.add_column("the model alone", no_wrap=True)
    table.add_column("with the constraint", no_wrap=True)
    for model, prompt, constraint in ((MODEL, PROMPT, SENTENCE), (RECORD_MODEL, RECORD_PROMPT, RECORD)):
        least = client.compile(constraint, explain=False, model=model).min_tokens
        for factor in BUDGETS:
            request: dict[str, Any] = {"prompt": prompt, "max_tokens": math.ceil(factor * least), "model": model}
            alone, is_cut = _unconstrained(url, request)
            verdict = _verdict(client, constraint, alone)
            shown = alone if len(alone) <= ALONE_CHARS_MAX else f"…{alone[1 - ALONE_CHARS_MAX:]}"
            text = client.generate(**request, constraint=constraint).choices[0].text
            table.add_row(
                str(request["max_tokens"]), Text.assemble(verdict, shown, " (cut)" if is_cut else ""),
                Text.assemble(_verdict(client, constraint, text), text),
            )
    yield table


def _unconstrained(url: str, request: Mapping[str, Any]) -> tuple[str, bool]:
    """The model's text, and whether the budget has cut it."""
    body = {**request, "temperature": 0}
    response = httpx2.post(f"{url}/v1/completions", json=body, timeout=REQUEST_S_MAX).raise_for_status()
    choice = response.json()["choices"][0]
    return str(choice["text"]).strip(), choice["finish_reason"] == "length"


def _verdict(client: Client, constraint: Mapping[str, Any], text: str) -> Text:
    satisfied = client.check(constraint, text).satisfied
    return Text("\u2713 ", "green") if satisfied else Text("\u2717 ", "red")


def refuse_the_impossible(client: Client, _: str) -> Iterator[RenderableType]:
    """What no text can meet, by its constraint or its budget."""
    yield "A cat and the moon in at most 12 words, without the letter o:"
    try:
        client.generate(PROMPT, IMPOSSIBLE, max_tokens=24, model=MODEL)
    except ConstraintUnsatisfiableError as error:
        yield Text(f"\u2717 {error.code}: {error.detail}", style="red")
    least = client.compile(SENTENCE, explain=False, model=MODEL).min_tokens
    yield f"The sentence above in {least - 1} tokens:"
    try:
        client.generate(PROMPT, SENTENCE, max_tokens=least - 1, model=MODEL)
    except BudgetTooSmallError as error:
        yield Text(f"\u2717 {error.code}: {error.detail}", style="red")


def hold_an_agent(client: Client, _: str) -> Iterator[RenderableType]:
    """An agent that is asked to break its rules."""
    yield f"{QUESTION['content']!r}, but at most {CALLS_MAX} calls, and {'; '.join(RULES)}:"
    messages: list[Mapping[str, Any]] = [QUESTION]
    for calls in range(CALLS_MAX, -1, -1):
        policy = Policy(RULES, max_calls=calls)
        following = client.check_conversation(policy, messages, tools=TOOLS)
        allowed = [*following.tools, *["reply"] * following.reply]
        message = client.generate(messages, tools=TOOLS, policy=policy, max_tokens=AGENT_TOKENS).choices[0].message
        assert message is not None
        called = message.get("tool_calls")
        if not called:
            yield f"  may: {', '.join(allowed):18} ends the conversation: nothing is left to do"
            return
        function = called[0]["function"]
        yield Text(f"  may: {', '.join(allowed):18} calls {function['name']}({function['arguments']})")
        messages += [message, {"role": "tool", "tool_call_id": called[0]["id"], "content": "done"}]
