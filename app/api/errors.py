"""Builds the HTTP response to an error from its class (RFC 9457)."""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Collection, Mapping
from typing import Any

from fastapi import Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from app.api.near_misses import NotAnObject, unknown_field, with_constraint
from app.errors import (
    InternalError,
    InvalidRequest,
    JobFailed,
    MethodNotAllowed,
    NotReady,
    RouteNotFound,
    without_message,
)
from app.messages import Failure, NotReadyReason, failure_of, is_expected_error, suggested
from compiler.errors import Edit, ErrorFacts

PROBLEM_TYPE = "application/problem+json"
DETAIL_CHARS_MAX = 400
TEXT_CHARS_MAX = 120
FAULTS_MAX = 16  # reported faults of one request
PATH_CHARS_MAX = 40
NAME_CHARS_MAX = 64  # of a name in the path of a constraint's fault
UNKNOWN_FIELD = "an unknown field"
_EXPECTED = {  # by pydantic's types of faults
    "int_type": "a whole number", "int_from_float": "a whole number", "float_type": "a number",
    "bool_type": "true or false", "string_type": "a string", "list_type": "a list", "dict_type": "an object",
    "model_type": "an object", "model_attributes_type": "an object",
    "none_required": "null",
}  # fmt: skip
_INTEGER = "(?:0|[1-9][0-9]{0,8})"
_NUMBERS = {"int_type": re.compile(_INTEGER), "float_type": re.compile(rf"-?{_INTEGER}(?:\.[0-9]{{1,9}})?")}
_NAME = re.compile(r"[$A-Za-z0-9_-]+")
log = logging.getLogger(__name__)


class Problem(Response):
    """An error as HTTP sends it.

    The state of the request gets its `code`, for the log, and may hold a `problem_format` of another body.
    """

    media_type = PROBLEM_TYPE
    body: bytes

    def __init__(self, facts: ErrorFacts, fields: Mapping[str, object], headers: Mapping[str, str]) -> None:
        super().__init__(json.dumps(fields), facts.status, headers)
        self.code = facts.code

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope.setdefault("state", {})
        state["code"] = self.code
        if "problem_format" in state:
            await state["problem_format"](self)(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def problem(error: Exception, request_id: str, headers: Mapping[str, str] | None = None) -> Problem:
    """The answer to an error. Of a bug it says nothing but that it happened; no text of any length is echoed."""
    failure = failure_of(error)  # of a bug it holds no message
    facts = failure.facts
    body = {
        "type": f"urn:abs-server:error:{facts.code}", "title": facts.title, "status": facts.status, "code": facts.code,
        "detail": facts.title if facts.private else _detail(failure), "request_id": request_id,
    }
    fields: dict[str, object] = {"retry_after_s": facts.retry_after_s, **failure.fields}
    fields["suggestion"] = suggested(fields)
    shown = [name for name in facts.fields if fields.get(name) not in (None, "", [])]
    body |= {name: _field(name, fields[name]) for name in shown}
    sizes = {name: len(value) for name in shown if isinstance(value := fields[name], list)}
    if left_out := {name: size - FAULTS_MAX for name, size in sizes.items() if size > FAULTS_MAX}:
        body["left_out"] = left_out
    seconds = fields["retry_after_s"]
    retry = {} if seconds is None else {"retry-after": str(seconds)}
    allow = {"allow": error.allow} if isinstance(error, MethodNotAllowed) else {}
    response_headers = {"x-request-id": request_id, **(headers or {}), **retry, **allow}
    return Problem(facts, body, response_headers)


def shown_path(path: str) -> str:
    """A field's path as an error repeats it. It keeps names that look like names, up to 40 characters in all."""
    names = list(itertools.takewhile(_NAME.fullmatch, path.split(".")))
    while len(".".join(names)) > PATH_CHARS_MAX:
        names.pop()
    return ".".join(names) or UNKNOWN_FIELD


def fault_path(path: str) -> str:
    """The path of a fault in a constraint, of any depth. Names that may be texts are left out."""
    names = path.split(".")
    return ".".join(name if len(name) <= NAME_CHARS_MAX and name.isprintable() else "…" for name in names)


def _detail(failure: Failure) -> str:
    """The error's message, without names that may be texts. It may be longer by the path that it names."""
    field, detail = failure.fields.get("field"), failure.detail
    path = field if isinstance(field, str) else ""
    for part in path.split("."):
        if (shown := fault_path(part)) != part:
            detail = detail.replace(part, shown).replace(repr(part)[1:-1], shown)
    return _short(detail, DETAIL_CHARS_MAX + len(fault_path(path)))


def _field(name: str, value: object) -> object:
    return fault_path(value) if name == "field" and isinstance(value, str) else _clip(value)


def _short(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def _clip(value: object) -> object:
    """A field of a body with long texts and lists cut."""
    match value:
        case str():
            return _short(value, TEXT_CHARS_MAX)
        case list():
            return [_clip(item) for item in value[:FAULTS_MAX]]
        case dict():
            return {name: _clip(item) for name, item in value.items()}
        case _:
            return value


def refusal(error: Exception, request_id: str, known: Collection[str] = (), paths: str = "") -> Problem:
    """The answer to an error. Details that the caller must not see are logged.

    known  the fields that the request may have
    paths  what to say of the paths that there are
    """
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    app_error = _app_error(error, known, paths)
    if isinstance(app_error, InternalError):
        log.error("request %s failed: %s", request_id, without_message(error))
    elif isinstance(app_error, JobFailed) and app_error.facts.private:
        log.error("request %s failed: %s: %s", request_id, app_error.error, app_error)
    return problem(app_error, request_id, headers)


def _app_error(error: Exception, known: Collection[str], paths: str) -> Exception:
    """The framework's errors, and bugs, as errors of ours. Nothing of the input goes along but paths."""
    match error:
        case RequestValidationError():
            return _invalid_request(error, known)
        case HTTPException(status_code=404):
            return RouteNotFound(f"there is no such path{paths}")
        case NotReady():  # a worker's status may name the operator's files
            return NotReady([_public(reason) for reason in error.reasons])
        case _:
            return error if is_expected_error(error) else InternalError("an internal error")


def _public(reason: object) -> object:
    return reason.public() if isinstance(reason, NotReadyReason) else reason


def _path(location: tuple[Any, ...]) -> str:
    """`("body", "beams")` as "beams"."""
    return shown_path(".".join(str(part) for part in location[1:]) or str(location[0]))


def _invalid_request(error: RequestValidationError, known: Collection[str]) -> InvalidRequest:
    """The faults of a body, and the edits that were probably meant."""
    errors, edits = list[tuple[str, str]](), list[Edit]()
    for fault in itertools.islice(error.errors(), FAULTS_MAX):
        message, location = _message(fault), fault["loc"]
        if fault["type"] == "extra_forbidden" and known and len(location) == 2:
            message, meant = unknown_field(str(location[1]), fault.get("input"), known)
            edits += meant
        elif isinstance(cause := fault.get("ctx", {}).get("error"), NotAnObject):
            edits += cause.suggestion
        elif fault["type"] in _NUMBERS and len(location) == 2 and _quoted(fault):
            edits.append({"op": "parse", "path": f"#/{location[1]}"})
        errors.append((_path(location), message))
    # A constraint that is missing because its fields stand elsewhere is one fault.
    if any(edit["path"] == "#/constraint" or str(edit["path"]).startswith("#/constraint/") for edit in edits):
        errors = [(path, message) for path, message in errors if "constraint and " not in message] or errors
    return InvalidRequest(tuple(errors), with_constraint(edits, error.body))


def _quoted(fault: dict[str, Any]) -> bool:
    """Whether the input is the number that is wanted, in quotes."""
    text = fault.get("input")
    return isinstance(text, str) and _NUMBERS[fault["type"]].fullmatch(text) is not None


def _message(fault: dict[str, Any]) -> str:
    if fault["type"] == "extra_forbidden":
        return "unknown field"
    if fault["type"] == "missing" and fault["loc"] == ("body",):
        return 'the body is empty: send an object, such as {"prompt": "...", "constraint": {...}}'
    expected = _EXPECTED.get(fault["type"])
    if expected is not None:
        quoted = ", without quotes" if isinstance(fault.get("input"), str) else ""
        return f"must be {expected}{quoted}"
    message = str(fault["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    return message[0].lower() + message[1:]
