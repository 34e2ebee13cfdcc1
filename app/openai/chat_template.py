"""A prompt made of messages, by the model's own chat template: Jinja in a sandbox, as transformers renders it."""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from app.errors import InvalidRequest, SettingsInvalid
from app.models import ModelFiles
from app.openai.requests import Message

_NONE = "the model has no chat template: send a prompt to /v1/completions"
_REFUSED = "the model's chat template takes no such messages"
_TOLD = ("messages", "add_generation_prompt")  # what the caller's own arguments may not replace
_NOTHING = {"tools": None, "documents": None}  # some templates ask whether these are none, not whether they are defined


class _Refused(Exception):
    """What a template says of messages that it does not take."""


def prompt_of(
    files: ModelFiles, messages: Sequence[Message], add_generation_prompt: bool = True,
    arguments: Mapping[str, object] | None = None,
) -> str:
    """The prompt that the model's template makes of the messages.

    Raises InvalidRequest where there is no template, or it refuses them; SettingsInvalid where it is no template.
    """
    if files.chat_template is None:
        raise InvalidRequest((("messages", _NONE),))
    for name in arguments or {}:
        if name in _TOLD or name in files.special_tokens:
            raise InvalidRequest(((f"chat_template_kwargs.{name}", "is told to the template already"),))
    told = [_told(message) for message in messages]
    template = _compiled(files.chat_template)
    known_to_it = {**_NOTHING, **files.special_tokens, **(arguments or {})}
    known_to_it |= {"messages": told, "add_generation_prompt": add_generation_prompt}
    try:
        return str(template.render(known_to_it))
    except _Refused as refused:
        said = str(refused)
        known = said if said and not any(one["content"] and one["content"] in said for one in told) else ""
        raise InvalidRequest((("messages", f"{_REFUSED}: {known}" if known else _REFUSED),)) from None
    except Exception as error:  # of the template's own code, over messages that it did not expect
        raise InvalidRequest((("messages", f"{_REFUSED} ({type(error).__name__})"),)) from None


def _told(message: Message) -> dict[str, str]:
    """A message as templates read it. They know OpenAI's newer name for a system's messages by the older one."""
    role = "system" if message.role == "developer" else message.role
    named = {} if message.name is None else {"name": message.name}
    return {"role": role, "content": message.content or "", **named}


@functools.lru_cache(maxsize=4)
def _compiled(text: str) -> Any:
    """The template. Jinja is loaded when the first is asked for."""
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _generation_tag()]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _raise, "strftime_now": _now}
    try:
        return environment.from_string(text)
    except TemplateError as error:
        raise SettingsInvalid(f"the model's chat template cannot be read: {error}") from None


def _generation_tag() -> Any:
    """`{% generation %}` marks what an assistant wrote, for those who train models; here it is passed over."""
    from jinja2.ext import Extension

    class GenerationTag(Extension):
        tags = {"generation"}  # noqa: RUF012 - as the class above has it

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    return GenerationTag


def _to_json(value: object, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise(message: object) -> None:
    raise _Refused(str(message))


def _now(form: str) -> str:
    return datetime.datetime.now().strftime(form)
