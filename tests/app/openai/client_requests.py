"""Requests of OpenAI's client that several test files send."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from openai import OpenAI
from openai.types import Completion
from openai.types.chat import ChatCompletion

S_MAX = 120.0
PATTERN = r"[A-Z][a-z]+( [a-z]+){2,8}\."
SCHEMA = {
    "type": "object", "required": ["animal", "age"], "additionalProperties": False,
    "properties": {"animal": {"enum": ["dog", "cat"]}, "age": {"type": "integer", "minimum": 0, "maximum": 20}},
}
USER: Any = [{"role": "user", "content": "dog, frisbee, catch"}]
NAMED = {"type": "json_schema", "json_schema": {"name": "pet", "schema": SCHEMA, "strict": True}}


def complete(ai: OpenAI, prompt: Any = "sentence:", max_tokens: int = 24, **options: Any) -> Completion:
    ours = {name: options.pop(name) for name in list(options) if name in OURS}
    return ai.completions.create(model="captions", prompt=prompt, max_tokens=max_tokens, extra_body=ours, **options)


OURS = {
    "constraint", "automaton", "structured_outputs", "guided_regex", "guided_json", "guided_choice", "regex",
    "json_schema", "grammar", "guided_grammar", "ebnf", "use_beam_search", "beams", "length_penalty", "priority",
    "timeout_s", "response_format", "scope", "algorithm",
}


def chunks(ai: OpenAI, **options: Any) -> Iterator[Completion]:
    """The chunks of a completion's stream."""
    yield from cast(Iterator[Completion], complete(ai, stream=True, **options))


def chat(ai: OpenAI, messages: Any = USER, **options: Any) -> ChatCompletion:
    ours = {name: options.pop(name) for name in list(options) if name in OURS - {"response_format"}}
    return ai.chat.completions.create(model="captions", messages=messages, extra_body=ours, **options)
