"""Agents whose events the running service writes, and what rules cost it.

The service has the built-in model, whose prompt is the user's first message alone: longer histories do not fit into its
context. The rules read the whole history.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from app.settings import BUILT_IN_MODEL
from benchmarks.policies.agents import REPLY
from benchmarks.policies.domains import Domain, Session
from benchmarks.runs import Row
from compiler.policies import Event, EventKind, PolicyAutomaton
from tests.servers.service_process import serving

USER = "customer, help"
MAX_TOKENS = 96  # of one event
REQUEST_S = 600.0
LEAVES = 0.3  # the chance that the user leaves after a reply
EVENTS_MAX = 40  # of a conversation whose user stays
_TEMPLATE = '{{- bos_token -}}{{- "concepts: " ~ messages[0].content ~ "\\nsentence:" -}}'


@dataclass
class ServedConversation:
    """A conversation as it goes on. `stuck` says that the service had no event.

    times  of each request, without and with the policy: a row with its milliseconds
    """

    events: list[Event] = field(default_factory=list)
    times: dict[str, list[Row]] = field(default_factory=lambda: {"without": [], "with": []})
    stuck: bool = False


@contextlib.contextmanager
def policy_service(threads: int = 1) -> Iterator[httpx2.Client]:
    """A client of a service of its own. A request may take as long as it needs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = Path(shutil.copytree(BUILT_IN_MODEL, folder / "captions"))
        (model / "chat_template.jinja").write_text(_TEMPLATE, encoding="utf-8")
        settings = {"model": model, "log_level": "warning", "timeout_s_default": REQUEST_S, "timeout_s_max": REQUEST_S}
        with (
            serving(folder, **settings, OMP_NUM_THREADS=threads) as service,
            httpx2.Client(base_url=service.url, timeout=REQUEST_S) as http,
        ):
            service.wait_until_ready()
            yield http


def converse(http: httpx2.Client, domain: Domain, *, calls: int, seed: int) -> ServedConversation:
    """One conversation. Each event is requested without the policy, for its time, and with it."""
    rng, session, conversation = random.Random(seed), domain.session(), ServedConversation()
    tools = [
        {"type": "function", "function": {"name": tool, "parameters": schema}} for tool, schema in domain.tools.items()
    ]
    messages: list[dict[str, Any]] = [{"role": "user", "content": USER}]
    left = calls
    while len(conversation.events) < EVENTS_MAX:
        body = {
            "messages": messages, "tools": tools, "parallel_tool_calls": False, "algorithm": "sample",
            "max_tokens": MAX_TOKENS, "seed": rng.randrange(2**31),
        }  # fmt: skip
        _request(http, body, conversation.times["without"])
        policy = {"rules": domain.rules, "max_calls": left}
        message = _request(http, body | {"policy": policy}, conversation.times["with"])
        if message is None:
            conversation.stuck = True
            return conversation
        messages.append(message)
        if not message.get("tool_calls"):
            conversation.events.append(REPLY)
            if left == 0 or rng.random() < LEAVES:
                return conversation
            messages.append({"role": "user", "content": USER})
            continue
        left -= 1
        (call,) = message["tool_calls"]
        messages.append(_result_of(call, session, conversation.events))
    return conversation


def _request(http: httpx2.Client, body: dict[str, Any], times: list[Row]) -> dict[str, Any] | None:
    """The message of an answer. None where the rules leave none."""
    started = time.perf_counter()
    response = http.post("/generate", json=body)
    elapsed_ms = (time.perf_counter() - started) * 1000
    if response.status_code == httpx2.codes.UNPROCESSABLE_CONTENT and "conflict" in response.json():
        return None
    answer = response.raise_for_status().json()
    timings = answer["timings"]
    times.append({
        "request_ms": elapsed_ms, "compile_ms": timings["compile_ms"], "cached": timings["cached"],
        "overhead_ms": elapsed_ms - timings["decode_ms"], "tokens": answer["usage"]["completion_tokens"],
    })  # fmt: skip
    message: dict[str, Any] = answer["choices"][0]["message"]
    return message


def _result_of(call: dict[str, Any], session: Session, events: list[Event]) -> dict[str, Any]:
    """The message with the result of a call. Both are added to the events."""
    name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
    result = session.call(name, arguments)
    events += (Event(EventKind.CALL, name, arguments), Event(EventKind.RESULT, name, result))
    return {"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)}


def served_figures(
    http: httpx2.Client, domain: Domain, policy: PolicyAutomaton, *, conversations: int, calls: int, seed: int
) -> Row:
    """Whether conversations keep the rules, and how long requests take."""
    served = [converse(http, domain, calls=calls, seed=seed + number) for number in range(conversations)]
    broken = [policy.violations(each.events, ended=True) for each in served]
    return {
        "domain": domain.name, "conversations": len(served),
        "conform": sum(not found and not each.stuck for found, each in zip(broken, served, strict=True)),
        "stuck": sum(each.stuck for each in served),
        "calls": statistics.fmean(sum(event.kind is EventKind.CALL for event in each.events) for each in served),
        **{kind: _times([row for each in served for row in each.times[kind]]) for kind in ("without", "with")},
    }  # fmt: skip


def _times(rows: list[Row]) -> Row:
    """Medians and 99th percentiles of requests."""
    compiled = [row["compile_ms"] for row in rows if not row["cached"]]
    found: Row = {
        "requests": len(rows), "tokens": statistics.fmean(row["tokens"] for row in rows), "compiled": len(compiled),
        "compile_ms": statistics.median(compiled) if compiled else None,
    }  # fmt: skip
    for name in ("request_ms", "overhead_ms"):
        values = [row[name] for row in rows]
        found[name] = {"p50": statistics.median(values), "p99": statistics.quantiles(values, n=100)[98]}
    return found
