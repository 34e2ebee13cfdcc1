"""The one table from an error's class to an HTTP status and a stable code, and the body of an error (RFC 9457)."""

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
class Row:
    """How an error class is answered.

    fields         the attributes of the error that the body carries
    private        the error's own message is for the log: it may name the operator's files
    retry_after_s  when to try again, where the error itself does not say
    """

    status: int
    code: str
    title: str
    fields: tuple[str, ...] = ()
    private: bool = False
    retry_after_s: int | None = None


_INVALID = Row(422, "invalid_request", "The request is not what this path takes", ("errors",))
_OVER_LIMIT = Row(422, "invalid_request", "A field is over a limit", ("path", "limit", "cap"))
_INTERNAL = Row(500, "internal", "Internal error", private=True)
_CANCELLED = Row(503, "cancelled", "The request was called off", ("retry_after_s",), retry_after_s=1)
_STORAGE_DOWN = Row(503, "storage_down", "Jobs and automata cannot be reached", ("retry_after_s",), retry_after_s=5)
_DEADLINE = Row(504, "deadline", "The request's time ran out", ("timeout_s",))
_NO_AUTOMATON = Row(404, "unknown_automaton", "No stored constraint has this hash")
_UNSATISFIABLE = "The constraint cannot be met"
_NOT_READY = Row(503, "not_ready", "The service is not ready", ("reasons", "retry_after_s"))

ERRORS: Mapping[str, Row] = {
    # the caller's constraint
    "SpecSyntaxError": Row(
        422, "constraint_syntax", "The constraint does not parse", ("position", "line", "column", "expected", "field")
    ),
    "SpecUnsupported": Row(422, "unsupported", "A construct that is not supported", ("construct", "position", "field")),
    "SpecUnsatisfiable": Row(422, "constraint_unsatisfiable", _UNSATISFIABLE, ("conflict",)),
    "SpecUnspellable": Row(422, "constraint_unsatisfiable", _UNSATISFIABLE, ("characters",)),
    "LimitExceeded": Row(422, "constraint_too_large", "The constraint is over a limit", ("limit", "cap")),
    # the caller's request
    "BudgetTooSmall": Row(
        422, "budget_too_small", "The constraint needs more tokens than max_tokens", ("min_tokens", "max_tokens")
    ),
    "AnswerTooLarge": Row(422, "answer_too_large", "The answer would be too large", ("limit", "cap")),
    "PromptViolates": Row(
        422, "prompt_violates", "No continuation of the prompt satisfies the constraint", ("position",)
    ),
    "RequestTooLarge": Row(
        422, "request_too_large", "The request may need more memory than there is", ("needed_bytes", "memory_bytes")
    ),
    "PromptTooLong": Row(
        422, "prompt_too_long", "The prompt and max_tokens do not fit the model",
        ("prompt_tokens", "max_tokens", "context_length"),
    ),
    "LengthImpossible": Row(422, "constraint_unsatisfiable", _UNSATISFIABLE, ("rows", "lengths")),
    "PromptEmpty": Row(422, "invalid_request", "The prompt is empty"),
    "OptionsInvalid": Row(422, "invalid_request", "An option is out of its range", ("field",)),
    "InvalidJson": Row(400, "invalid_json", "The body is not JSON"),
    "InvalidRequest": _INVALID,
    "RequestOverLimit": _OVER_LIMIT,
    "BodyTooLarge": Row(413, "body_too_large", "The body is too large", ("limit", "cap")),
    "RequestTimeout": Row(408, "request_timeout", "The request did not arrive in time", ("timeout_s",)),
    "UnsupportedMediaType": Row(415, "unsupported_media_type", "The body is not declared as plain JSON"),
    "MalformedRequest": Row(400, "malformed_request", "This is not an HTTP request"),
    "HeadersTooLarge": Row(431, "headers_too_large", "The header is too large", ("limit", "cap")),
    "HostRefused": Row(421, "host_refused", "The request is addressed to another host"),
    "OriginRefused": Row(403, "origin_refused", "Pages of other origins may not send requests"),
    "Unauthorized": Row(401, "unauthorized", "Authentication required"),
    "Forbidden": Row(403, "forbidden", "The key does not open this path", ("scope",)),
    "UnknownAutomaton": _NO_AUTOMATON,
    "AutomatonMissing": _NO_AUTOMATON,
    "UnknownModel": Row(404, "unknown_model", "The model is not served here", ("served",)),
    "KeyReused": Row(422, "idempotency_mismatch", "The Idempotency-Key came with another request before"),
    "UnknownJob": Row(404, "unknown_job", "No job has this id"),
    "RouteNotFound": Row(404, "not_found", "No such path"),
    "MethodNotAllowed": Row(405, "method_not_allowed", "No such method on this path"),
    "ClientGone": Row(499, "client_gone", "The client closed the connection"),
    # us, for the moment
    "QueueFull": Row(429, "queue_full", "Too many requests wait", ("limit", "cap", "retry_after_s")),
    "DeadlineUnreachable": Row(
        429, "deadline_unreachable", "The queue is too long for the request's deadline",
        ("wait_s", "timeout_s", "retry_after_s"),
    ),
    "RateLimited": Row(429, "rate_limited", "Rate limit exceeded", ("limit", "cap", "retry_after_s")),
    "TooManyConnections": Row(
        503, "too_many_connections", "Too many connections are open", ("limit", "cap", "retry_after_s"),
        retry_after_s=1,
    ),
    "NotReady": _NOT_READY,
    "Draining": Row(503, "draining", "The service is about to stop", ("retry_after_s",), retry_after_s=1),
    "StorageDown": _STORAGE_DOWN,
    "DeadlineExceeded": _DEADLINE,
    "JobCancelled": _CANCELLED,
    "Cancelled": _CANCELLED,
    "CompileCancelled": _CANCELLED,
    "ModelUnavailable": Row(
        503, "model_unavailable", "The model cannot be used; the log says why",
        ("retry_after_s",), private=True, retry_after_s=30,
    ),
    "MemoryTaken": Row(
        503, "memory_taken", "Other requests hold the memory of the model's device", ("retry_after_s",),
        retry_after_s=5,
    ),
    "OutOfMemory": Row(
        507, "out_of_memory", "The model's device has too little memory for this request", ("needed_bytes",)
    ),
    # us
    "WorkerLost": Row(500, "worker_lost", "Every worker that took the job was lost", ("attempts",)),
    "JobFailed": _INTERNAL,
    "JobUnknown": _STORAGE_DOWN,  # of a job that was submitted: it was lost
    "MessageInvalid": _INTERNAL,
    "InternalError": _INTERNAL,
    "SettingsInvalid": _INTERNAL,
    "EngineFailure": _INTERNAL,
    "ModelChanged": _INTERNAL,
    "VocabularyError": _INTERNAL,
    "ArtefactInvalid": _INTERNAL,
    "ReplayRejected": Row(500, "replay_rejected", "An answer failed its final check and was withheld"),
    "ModelOutputInvalid": _INTERNAL,
    "SearchExhausted": _INTERNAL,
    "VocabularyMismatch": _INTERNAL,
}


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as HTTP sends it."""

    status: int
    body: bytes
    headers: dict[str, str]


def problem(error: Exception, request_id: str, headers: Mapping[str, str] | None = None) -> Problem:
    """The answer to an error. Of a bug it says nothing but that it happened; no text of any length is echoed."""
    failure = failure_of(error)
    row = ERRORS.get(failure.error, _INTERNAL)
    body = {
        "type": f"urn:abs-server:error:{row.code}", "title": row.title, "status": row.status, "code": row.code,
        "detail": row.title if row.private else _detail(failure), "request_id": request_id,
    }
    fields: dict[str, object] = {"retry_after_s": row.retry_after_s, **failure.fields}
    body |= {name: _field(name, fields[name]) for name in row.fields if fields.get(name) not in (None, "", [])}
    seconds = fields["retry_after_s"]
    retry = {} if seconds is None else {"retry-after": str(seconds)}
    allow = {"allow": error.allow} if isinstance(error, MethodNotAllowed) else {}
    sent = {"content-type": PROBLEM_TYPE, "x-request-id": request_id, **(headers or {}), **retry, **allow}
    return Problem(row.status, json.dumps(body, ensure_ascii=True).encode(), sent)


def is_private(error: Exception) -> bool:
    """True where the message of an error is kept from the caller, and so belongs in the log."""
    return ERRORS.get(failure_of(error).error, _INTERNAL).private


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
