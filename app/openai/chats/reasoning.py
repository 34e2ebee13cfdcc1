"""Whether the answers of a request think, and how long.

Fields of OpenAI, vLLM and SGLang say so, and what the chat template begins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from app.errors import InvalidRequest
from app.formats import ThinkFormat, Thinking
from app.openai.requests import ChatRequest

_BUDGETS = ("max_thinking_tokens", "thinking_token_budget", "thinking_budget")  # ours, vLLM's, Qwen's
_SWITCHES = ("enable_thinking", "thinking")  # variables of chat templates
_OF_TEMPLATE = "chat_template_kwargs.thinking_budget"


def thinking_budget(request: ChatRequest) -> int | None:
    """The tokens of a thought, at most. None without a limit.

    Raises InvalidRequest if two fields differ, or a variable of the template is no budget.
    """
    given = [(name, value) for name, value in _budgets(request) if value is not None]
    for name, value in given[1:]:
        if value != given[0][1]:
            raise InvalidRequest(((name, f"differs from {given[0][0]}: give one"),))
    if request.reasoning_effort == "none":
        return 0
    return given[0][1] if given else None


def _budgets(request: ChatRequest) -> Iterator[tuple[str, int | None]]:
    """The fields with a budget. The last two are SGLang's."""
    for name in _BUDGETS:
        yield name, getattr(request, name)
    if request.thinking is not None:
        yield "thinking", request.thinking.tokens
    if request.custom_params is not None:
        yield "custom_params.thinking_budget", request.custom_params.thinking_budget
    variable = (request.chat_template_kwargs or {}).get("thinking_budget")
    if variable is not None and (type(variable) is not int or variable < 0):  # `type`, because True is an int
        raise InvalidRequest(((_OF_TEMPLATE, "must be a whole number from 0"),))
    yield _OF_TEMPLATE, variable


def template_arguments(request: ChatRequest) -> dict[str, Any]:
    """The variables of the chat template. Those for thoughts follow the request's fields."""
    arguments: dict[str, Any] = {}
    budget = thinking_budget(request)
    if request.reasoning_effort is not None:
        arguments["reasoning_effort"] = request.reasoning_effort
    enabled = request.thinking is not None and request.thinking.type == "enabled"
    if request.reasoning_effort is not None or budget is not None or enabled:
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
