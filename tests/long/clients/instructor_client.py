"""instructor, in each of its modes for clients of OpenAI and Anthropic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import instructor
from anthropic import Anthropic
from instructor import Mode
from instructor.core.exceptions import ModeError
from openai import OpenAI
from pydantic import BaseModel

from tests.long.clients.checks import MODEL, PROMPT, AnyObject, Pet, Tags, main

OPTIONS: Any = {"model": MODEL, "messages": [{"role": "user", "content": PROMPT}], "max_retries": 0}
# Deprecated names of TOOLS, JSON_SCHEMA and RESPONSES_TOOLS.
DEPRECATED = (Mode.FUNCTIONS, Mode.TOOLS_STRICT, Mode.JSON_O1, Mode.RESPONSES_TOOLS_WITH_INBUILT_TOOLS)
ANTHROPIC_TOOLS = (Mode.TOOLS, Mode.ANTHROPIC_TOOLS, Mode.ANTHROPIC_REASONING_TOOLS)
ANTHROPIC_PARALLEL = (Mode.PARALLEL_TOOLS, Mode.ANTHROPIC_PARALLEL_TOOLS)
ANTHROPIC_JSON = (Mode.JSON, Mode.JSON_SCHEMA, Mode.ANTHROPIC_JSON)
# Deprecated names for providers with protocols of their own, which this service does not have.
OTHER_PROVIDERS = (
    "BEDROCK", "CEREBRAS", "COHERE", "FIREWORKS", "GEMINI", "GENAI", "MISTRAL", "OPENROUTER", "PERPLEXITY", "VERTEXAI",
    "WRITER", "XAI",
)  # fmt: skip


class Toy(BaseModel):
    """A toy."""

    toy: Literal["ball", "frisbee"]


def _extract(url: str, *mode: Mode, kind: type[BaseModel] = Pet, **fields: Any) -> None:
    with OpenAI(base_url=url, api_key="none") as ai:
        answer = instructor.from_openai(ai, *mode).chat.completions.create(response_model=kind, **OPTIONS, **fields)
    assert isinstance(answer, kind)


def tools(url: str) -> None:
    _extract(url)
    _extract(url, Mode.TOOLS, strict=True)


def sets_of_strings(url: str) -> None:
    for mode in (Mode.TOOLS, Mode.JSON_SCHEMA):
        _extract(url, mode, kind=Tags)
    assert isinstance(_extract_message(url, Mode.TOOLS, Tags, max_tokens=80), Tags)


def json_schema(url: str) -> None:
    _extract(url, Mode.JSON_SCHEMA)


def json_object(url: str) -> None:
    # The request has no schema: the answer is any object.
    _extract(url, Mode.JSON, kind=AnyObject)


def markdown_json(url: str) -> None:
    # The request has no constraint, only a prompt: without this one, the answer is any text.
    _extract(url, Mode.MD_JSON, kind=AnyObject, extra_body={"guided_json": {"type": "object"}})


def responses_tools(url: str) -> None:
    _extract(url, Mode.RESPONSES_TOOLS)


def deprecated_modes(url: str) -> None:
    for mode in DEPRECATED:
        _extract(url, mode)


def parallel_tools(url: str) -> None:
    with OpenAI(base_url=url, api_key="none") as ai:
        patched = instructor.from_openai(ai, mode=Mode.PARALLEL_TOOLS)
        # With the client's own choice, "auto", the model may also reply.
        options = {"response_model": Iterable[Pet | Toy], "extra_body": {"tool_choice": "required"}, **OPTIONS}
        calls = list(patched.chat.completions.create(**options))
    assert calls and all(isinstance(call, Pet | Toy) for call in calls)


def partial(url: str) -> None:
    with OpenAI(base_url=url, api_key="none") as ai:
        *_, pet = instructor.from_openai(ai).chat.completions.create_partial(response_model=Pet, **OPTIONS)
    assert Pet.model_validate(pet.model_dump())


def _extract_message(url: str, mode: Mode, kind: Any, **fields: Any) -> Any:
    with Anthropic(base_url=url.removesuffix("/v1"), api_key="none") as ai:
        patched = instructor.from_anthropic(ai, mode=mode)
        return patched.chat.completions.create(response_model=kind, **OPTIONS, **fields)


def anthropic_tools(url: str) -> None:
    for mode in ANTHROPIC_TOOLS:
        assert isinstance(_extract_message(url, mode, Pet, max_tokens=80), Pet)
    for mode in ANTHROPIC_PARALLEL:
        fields = {"max_tokens": 80, "extra_body": {"tool_choice": {"type": "any"}}}
        calls = list(_extract_message(url, mode, Iterable[Pet | Toy], **fields))
        assert calls and all(isinstance(call, Pet | Toy) for call in calls)


def anthropic_json(url: str) -> None:
    # With the version of Anthropic's client, JSON_SCHEMA too has no constraint, only a prompt.
    for mode in ANTHROPIC_JSON:
        fields = {"max_tokens": 16, "extra_body": {"guided_json": {"type": "object"}}}
        assert isinstance(_extract_message(url, mode, AnyObject, **fields), AnyObject)


def other_modes(url: str) -> None:
    checked = {
        Mode.TOOLS, Mode.JSON_SCHEMA, Mode.JSON, Mode.MD_JSON, Mode.RESPONSES_TOOLS, Mode.PARALLEL_TOOLS, *DEPRECATED,
        *ANTHROPIC_TOOLS, *ANTHROPIC_PARALLEL, *ANTHROPIC_JSON,
    }  # fmt: skip
    for mode in set(Mode) - checked:
        assert mode.name.startswith(OTHER_PROVIDERS), f"{mode} has no check"
        try:
            _extract(url, mode)
        except ModeError:
            continue
        raise AssertionError(f"{mode} is refused no longer")


CHECKS = (
    tools, sets_of_strings, json_schema, json_object, markdown_json, responses_tools, parallel_tools, partial,
    deprecated_modes, anthropic_tools, anthropic_json, other_modes,
)  # fmt: skip

if __name__ == "__main__":
    main(CHECKS)
