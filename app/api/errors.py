"""The HTTP answer to an error (RFC 9457), from the facts of its class."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from app.errors import MethodNotAllowed
from app.messages import Failure, failure_of

PROBLEM_TYPE = "application/problem+json"
DETAIL_CHARS_MAX = 400
TEXT_CHARS_MAX = 120
FAULTS_MAX = 16  # reported faults of one request
PATH_CHARS_MAX = 40
UNKNOWN_FIELD = "an unknown field"
_NAME = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as HTTP sends it."""

    status: int
    body: bytes
    headers: dict[str, str]


def problem(error: Exception, request_id: str, headers: Mapping[str, str] | None = None) -> Problem:
    """The answer to an error. Of a bug it says nothing but that it happened; no text of any length is echoed."""
    failure = failure_of(error)
    facts = failure.facts
    body = {
        "type": f"urn:abs-server:error:{facts.code}", "title": facts.title, "status": facts.status, "code": facts.code,
        "detail": facts.title if facts.private else _detail(failure), "request_id": request_id,
    }
    fields: dict[str, object] = {"retry_after_s": facts.retry_after_s, **failure.fields}
    body |= {name: _field(name, fields[name]) for name in facts.fields if fields.get(name) not in (None, "", [])}
    seconds = fields["retry_after_s"]
    retry = {} if seconds is None else {"retry-after": str(seconds)}
    allow = {"allow": error.allow} if isinstance(error, MethodNotAllowed) else {}
    sent = {"content-type": PROBLEM_TYPE, "x-request-id": request_id, **(headers or {}), **retry, **allow}
    return Problem(facts.status, json.dumps(body, ensure_ascii=True).encode(), sent)


def shown_path(path: str) -> str:
    """A field's path as errors repeat it: names that look like names, 40 characters in all, as far as they go."""
    plain = list(itertools.takewhile(_NAME.fullmatch, path.split(".")))
    while len(".".join(plain)) > PATH_CHARS_MAX:
        plain.pop()
    return ".".join(plain) or UNKNOWN_FIELD


def _detail(failure: Failure) -> str:
    """The error's message, unless it holds a name of the caller's that is not to be repeated."""
    field = failure.fields.get("field")
    if isinstance(field, str) and field and shown_path(field) != field:
        hidden = [part for part in field.split(".") if part and shown_path(part) != part]
        if any(name in failure.detail for part in hidden for name in (part, repr(part)[1:-1])):
            return f"the constraint is at fault in {shown_path(field)}"
    return _short(failure.detail, DETAIL_CHARS_MAX)


def _field(name: str, value: object) -> object:
    return shown_path(value) if name == "field" and isinstance(value, str) else _clip(value)


def _short(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def _clip(value: object) -> object:
    """A field of a body, its texts and lists cut to a readable length."""
    match value:
        case str():
            return _short(value, TEXT_CHARS_MAX)
        case list():
            return [_clip(item) for item in value[:FAULTS_MAX]]
        case dict():
            return {name: _clip(item) for name, item in value.items()}
        case _:
            return value
