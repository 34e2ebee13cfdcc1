"""instructor, in each mode by which OpenAI's paths constrain the answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import instructor
from instructor import Mode
from openai import OpenAI
from pydantic import BaseModel

from tests.long.clients.checks import MODEL, PROMPT, main

OPTIONS: Any = {"model": MODEL, "messages": [{"role": "user", "content": PROMPT}], "max_retries": 0}


class Pet(BaseModel):
    """A pet."""

    animal: Literal["dog", "cat"]
    age: int


class AnyObject(BaseModel, extra="allow"):
    """Any object."""


class Toy(BaseModel):
    """A toy."""

    toy: Literal["ball", "frisbee"]


def _extract(url: str, *mode: Mode, kind: type[BaseModel] = Pet) -> None:
    with OpenAI(base_url=url, api_key="none") as ai:
        answer = instructor.from_openai(ai, *mode).chat.completions.create(response_model=kind, **OPTIONS)
    assert isinstance(answer, kind)


def tools(url: str) -> None:
    _extract(url)


def json_schema(url: str) -> None:
    _extract(url, Mode.JSON_SCHEMA)


def json_object(url: str) -> None:
    # The request has no schema: the answer is any object.
    _extract(url, Mode.JSON, kind=AnyObject)


def responses_tools(url: str) -> None:
    _extract(url, Mode.RESPONSES_TOOLS)


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


CHECKS = (tools, json_schema, json_object, responses_tools, parallel_tools, partial)

if __name__ == "__main__":
    main(CHECKS)
