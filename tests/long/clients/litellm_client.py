"""LiteLLM's calls of servers with OpenAI's paths."""

from __future__ import annotations

from typing import Any

import litellm

from tests.long.clients.checks import MODEL, PROMPT, Pet, main

TOOL = {"type": "function", "function": {"name": "feed", "parameters": Pet.model_json_schema()}}


def _options(url: str) -> dict[str, Any]:
    return {"model": f"openai/{MODEL}", "api_base": url, "api_key": "none"}


def _ask(url: str, *history: Any, **fields: Any) -> Any:
    messages = [{"role": "user", "content": PROMPT}, *history]
    return litellm.completion(messages=messages, **_options(url), **fields)


def chat(url: str) -> None:
    assert _ask(url).choices[0].message.content
    assert "".join(chunk.choices[0].delta.content or "" for chunk in _ask(url, stream=True))


def response_format(url: str) -> None:
    Pet.model_validate_json(_ask(url, response_format=Pet).choices[0].message.content)


def tools(url: str) -> None:
    (call, *_) = _ask(url, tools=[TOOL], tool_choice="required").choices[0].message.tool_calls
    Pet.model_validate_json(call.function.arguments)
    chunks = list(_ask(url, tools=[TOOL], tool_choice="required", stream=True))
    (call, *_) = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls
    Pet.model_validate_json(call.function.arguments)


def tool_results(url: str) -> None:
    message = _ask(url, tools=[TOOL], tool_choice="required").choices[0].message
    results = [{"role": "tool", "tool_call_id": call.id, "content": "It ate."} for call in message.tool_calls]
    choice = _ask(url, message, *results, tools=[TOOL], tool_choice="none", response_format=Pet).choices[0]
    assert Pet.model_validate_json(choice.message.content) and not choice.message.tool_calls


def responses(url: str) -> None:
    assert litellm.responses(input=PROMPT, **_options(url)).output


def overlong_prompts(url: str) -> None:
    try:
        _ask(url, {"role": "user", "content": "dog " * 5_000})
    except litellm.ContextWindowExceededError:
        return
    raise AssertionError("an overlong prompt was taken")


CHECKS = (chat, response_format, tools, tool_results, responses, overlong_prompts)

if __name__ == "__main__":
    main(CHECKS)
