"""Whether the answers of a request think, and how long.

Fields of OpenAI, vLLM and SGLang say so, and what the chat template begins."""

from __future__ import annotations

from typing import Any

from app.errors import InvalidRequest
from app.formats import ThinkFormat, Thinking
from app.openai.requests import ChatRequest

_BUDGETS = ("max_thinking_tokens", "thinking_token_budget", "thinking_budget")  # ours, vLLM's, Qwen's
_SWITCHES = ("enable_thinking", "thinking")  # variables of chat templates


def thinking_budget(request: ChatRequest) -> int | None:
    """The tokens of a thought, at most. None without a limit. Raises InvalidRequest if two fields differ."""
    given = [(name, value) for name in _BUDGETS if (value := getattr(request, name)) is not None]
    for name, value in given[1:]:
        if value != given[0][1]:
            raise InvalidRequest(((name, f"differs from {given[0][0]}: give one"),))
    if request.reasoning_effort == "none":
        return 0
    return given[0][1] if given else None


def template_arguments(request: ChatRequest) -> dict[str, Any]:
    """The variables of the chat template. Those for thoughts follow the request's fields."""
    arguments: dict[str, Any] = {}
    budget = thinking_budget(request)
    if request.reasoning_effort is not None:
        arguments["reasoning_effort"] = request.reasoning_effort
    if request.reasoning_effort is not None or budget is not None:
        arguments |= dict.fromkeys(_SWITCHES, budget != 0)
    return arguments | (request.chat_template_kwargs or {})


def thinking_of(request: ChatRequest, form: ThinkFormat | None, prompt: str) -> Thinking | None:
    """How an answer to a prompt thinks. None if it does not."""
    if form is None:
        return None
    budget, end = thinking_budget(request), prompt.rstrip()
    if end.endswith(form.begin.strip()):
        return Thinking(form, opened=True, max_tokens=budget)
    return None if budget == 0 or end.endswith(form.mark) else Thinking(form, max_tokens=budget)
