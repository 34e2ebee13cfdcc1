"""A page with a single view, and made-up events."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page, Route

_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>view</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/static/base.css"><link rel="stylesheet" href="/static/views.css">
</head><body><main><h1>View</h1><div id="view"></div></main></body></html>"""
_POLICY = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src data:"


def open_view(page: Page, module: str, name: str, options: str = "undefined") -> None:
    """Open a page with one view, at `window.view`."""
    page.route("**/view", lambda route: _fulfil(route))
    page.goto("/view")
    page.evaluate(
        f"""async () => {{
            window.calls = [];
            const {{ {name} }} = await import("/static/{module}");
            window.view = new {name}(document.getElementById("view"), {options});
        }}"""
    )


def _fulfil(route: Route) -> None:
    headers = {"content-type": "text/html; charset=utf-8", "content-security-policy": _POLICY}
    route.fulfill(status=200, headers=headers, body=_PAGE)


def row(text: str, parent: int = 0, **facts: Any) -> dict[str, Any]:
    """A row of a step event."""
    defaults = {"state": 0, "distance": 3, "alpha": 0.5, "log_prob": -float(len(text)), "finished": False}
    all_facts = defaults | facts
    return {"text": text, "parent": parent, "score": all_facts["log_prob"]} | all_facts


def rejected_token(text: str, parent: int, reason: str, distance: int | None = None) -> dict[str, Any]:
    return {"text": text, "parent": parent, "reason": reason, "distance": distance, "log_prob": -1.0}


def step(number: int, budget: int, *rows: dict[str, Any], rejected: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {"step": number, "budget_after": budget, "rows": list(rows), "rejected_tokens": list(rejected)}


def choice(*tokens: tuple[str, int, int, float], words: tuple[tuple[str, list[str], int], ...] = ()) -> dict[str, Any]:
    """A choice of an answer, of tokens and words."""
    trace = [
        {"token": place, "text": text, "state": state, "distance": distance, "alpha": 0.0, "log_prob": log_prob,
         "score": log_prob, "propositions": []}
        for place, (text, state, distance, log_prob) in enumerate(tokens)
    ]
    total = sum(log_prob for *_, log_prob in tokens)
    shown_words = [{"text": text, "propositions": propositions, "state": state} for text, propositions, state in words]
    text = "".join(text for text, *_ in tokens)
    return {
        "text": text, "finish_reason": "eos", "log_prob": total, "score": total, "satisfied": True, "trace": trace,
        "words": shown_words,
    }


def automaton(
    letters: list[list[str]], distances: list[int | None], edges: list[tuple[int, int, list[int]]], kind: str = "words"
) -> dict[str, Any]:
    """An automaton as GET /automata/{hash} returns it."""
    states = [{"id": id, "accepting": distance == 1, "distance": distance} for id, distance in enumerate(distances)]
    return {
        "automaton": "0" * 64, "constraint": {}, "kind": kind, "start": 0, "letters": letters, "states": states,
        "transitions": [{"from": source, "to": target, "letters": label} for source, target, label in edges],
        "accepting": [state["id"] for state in states if state["accepting"]], "min_tokens": distances[0],
        "explanation": None,
    }
