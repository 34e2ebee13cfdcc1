"""The service's errors outside the compiler and the decoder, split by cause.

    AppError
    |-- CallerError    the caller's request: InvalidJson, InvalidRequest, UnknownField, RequestOverLimit, BodyTooLarge,
    |                  RequestTimeout, UnsupportedMediaType, MalformedRequest, HeadersTooLarge, HostRefused,
    |                  OriginRefused, Unauthorized, Forbidden, UnknownAutomaton, UnknownModel, AnswerTooLarge,
    |                  PromptViolates, KeyReused, UnknownJob, RouteNotFound, MethodNotAllowed, ClientGone
    |-- ServiceBusy    the service, for the moment; carries `retry_after_s`: QueueFull, DeadlineUnreachable,
    |                  RateLimited, StorageDown, ServiceDraining, NotReady
    |-- DeadlineExceeded, JobFailed, JobCancelled, JobUnknown, WorkerLost, AutomatonMissing
    |                  of jobs
    |-- MessageInvalid, ModelChanged, InternalError
    |                  data or code that is not what it should be
    `-- SettingsInvalid
                       the operator's environment
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace

from compiler.errors import CANCELLED, INTERNAL, Edit, ErrorFacts

# Facts that more than one class has.
INVALID = ErrorFacts(
    422, "invalid_request", "The request is not what this path takes", ("errors", "suggestion"), outcome="refused"
)
NO_AUTOMATON = ErrorFacts(
    404, "unknown_automaton", "No stored constraint has this hash", outcome="refused", explanation_optional=True
)
STORAGE_DOWN = ErrorFacts(
    503, "storage_down", "Jobs and automata cannot be reached", ("retry_after_s",), retry_after_s=5
)


class AppError(Exception):
    """Root of this package's errors. The message is meant to be read.

    fields  attributes of the error; `facts` says which of them HTTP shows
    """

    facts = INTERNAL

    def __init__(self, message: str = "", **fields: object) -> None:
        super().__init__(message)
        vars(self).update(fields)


class CallerError(AppError):
    """The caller's request is at fault."""


class InvalidJson(CallerError):
    """The body cannot be read as JSON in exactly one way. `position` is the character at fault, if one is."""

    facts = ErrorFacts(400, "invalid_json", "The body is not JSON", ("position",))
    position: int | None = None


class _FieldFaults(CallerError):
    """Fields are at fault. `errors` holds a path and a message for each fault, `suggestion` edits of the request."""

    facts = INVALID

    def __init__(self, errors: tuple[tuple[str, str], ...], suggestion: Sequence[Edit] = ()) -> None:
        path, message = errors[0]
        super().__init__(f"{path}: {message}" if path else message)
        self.errors = tuple({"path": path, "message": message} for path, message in errors)
        self.suggestion = tuple(suggestion)


class InvalidRequest(_FieldFaults):
    """The JSON is not what this path takes."""


class UnknownField(_FieldFaults):
    """Unknown fields may be meant as constraints, tools or budgets."""

    facts = ErrorFacts(400, "unknown_field", "A field not taken may be a constraint", ("errors",), outcome="refused")


class RequestOverLimit(CallerError):
    """A field is over a limit. `limit` is the name of the setting, `cap` its value, `path` the field."""

    facts = replace(INVALID, title="A field is over a limit", fields=("path", "limit", "cap"))
    path: str
    limit: str
    cap: float

    def __init__(self, path: str, limit: str, cap: float) -> None:
        super().__init__(f"{path} is over the limit {limit} = {cap:g}", path=path, limit=limit, cap=cap)


class BodyTooLarge(CallerError):
    """The body is longer than `cap` bytes."""

    facts = ErrorFacts(413, "body_too_large", "The body is too large", ("limit", "cap"))

    def __init__(self, cap: int) -> None:
        super().__init__(f"the body is over the limit body_bytes_max = {cap}", limit="body_bytes_max", cap=cap)


class RequestTimeout(CallerError):
    """The body did not arrive within `timeout_s` seconds."""

    facts = ErrorFacts(408, "request_timeout", "The request did not arrive in time", ("timeout_s",))

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"the body did not arrive within {timeout_s:g} s", timeout_s=timeout_s)


class UnsupportedMediaType(CallerError):
    """The body is declared as something other than JSON."""

    facts = ErrorFacts(415, "unsupported_media_type", "The body is not declared as plain JSON")


class MalformedRequest(CallerError):
    """The bytes are not an unambiguous HTTP request."""

    facts = ErrorFacts(400, "malformed_request", "This is not an HTTP request")


class HeadersTooLarge(CallerError):
    """The header fields are over a limit. `limit` is the name of the setting, `cap` its value."""

    facts = ErrorFacts(431, "headers_too_large", "The header is too large", ("limit", "cap"))

    def __init__(self, limit: str, cap: int) -> None:
        super().__init__(f"the header is over the limit {limit} = {cap}", limit=limit, cap=cap)


class HostRefused(CallerError):
    """The Host header names another host than this one."""

    facts = ErrorFacts(421, "host_refused", "The request is addressed to another host")


class OriginRefused(CallerError):
    """A page of another origin sent the request."""

    facts = ErrorFacts(403, "origin_refused", "Pages of other origins may not send requests")


class Unauthorized(CallerError):
    """No key came with the request, or one that opens nothing."""

    facts = ErrorFacts(401, "unauthorized", "Authentication required")


class Forbidden(CallerError):
    """The key lacks the `scope` of this path."""

    facts = ErrorFacts(403, "forbidden", "The key does not open this path", ("scope",))

    def __init__(self, scope: str) -> None:
        super().__init__(f"the key lacks the scope {scope}", scope=scope)


class UnknownAutomaton(CallerError):
    """No constraint with this hash is stored. It was never compiled here, or it has expired."""

    facts = NO_AUTOMATON


class UnknownModel(CallerError):
    """The request names a model that is not served here. `served` names those that are, separated by commas."""

    facts = ErrorFacts(404, "unknown_model", "The model is not served here", ("served",))

    def __init__(self, served: tuple[str, ...]) -> None:
        message = f"models served here: {', '.join(map(repr, served))}; leave `model` out, or name one of them"
        super().__init__(message, served=", ".join(served))


class AnswerTooLarge(CallerError):
    """The answer is longer than we keep. `limit` is the name of the setting, `cap` its value in bytes."""

    facts = ErrorFacts(
        422, "answer_too_large", "The answer would be too large", ("limit", "cap"),
        explanation_optional=True,
    )

    def __init__(self, cap: int) -> None:
        super().__init__(
            f"the answer is over the limit answer_bytes_max = {cap}: ask for no trace or explanation, or for fewer or "
            "shorter texts",
            limit="answer_bytes_max", cap=cap,
        )


class PromptViolates(CallerError):
    """Whatever follows the prompt, the whole text does not satisfy. `position` is the first character too many.

    Of a prefix of labels it is the first label too many.
    """

    facts = ErrorFacts(
        422, "prompt_violates", "No continuation of the prompt satisfies the constraint", ("position",),
        outcome="infeasible",
    )

    def __init__(self, position: int, *, labels: bool = False) -> None:
        text, prompt, unit = ("sequence", "prefix", "label") if labels else ("text", "prompt", "character")
        super().__init__(
            f"no {text} that begins as the {prompt} does satisfies the constraint: the {unit} at offset {position} is "
            "one too many",
            position=position,
        )


class KeyReused(CallerError):
    """The Idempotency-Key belongs to an earlier request that was not the same."""

    facts = ErrorFacts(422, "idempotency_mismatch", "The Idempotency-Key belongs to a different request")


class UnknownJob(CallerError):
    """The caller has no job with this id. It never existed, belongs to another caller, or has expired."""

    facts = ErrorFacts(404, "unknown_job", "No job has this id")


class RouteNotFound(CallerError):
    """The path does not exist."""

    facts = ErrorFacts(404, "not_found", "No such path")


class MethodNotAllowed(CallerError):
    """The path exists, but not for this method. `allow` lists those that it takes."""

    facts = ErrorFacts(405, "method_not_allowed", "No such method on this path")
    allow: str

    def __init__(self, message: str, allow: str) -> None:
        super().__init__(message, allow=allow)


class ClientGone(CallerError):
    """The caller closed the connection before the answer was ready."""

    # 499 is not registered; nginx uses it for clients that left.
    facts = ErrorFacts(499, "client_gone", "The client closed the connection")


class ServiceBusy(AppError):
    """The service cannot take the request now. A retry after `retry_after_s` seconds may succeed."""

    retry_after_s: int

    def __init__(self, message: str, retry_after_s: int, **fields: object) -> None:
        super().__init__(message, retry_after_s=retry_after_s, **fields)


class QueueFull(ServiceBusy):
    """The queue or a concurrency group is full."""

    facts = ErrorFacts(429, "queue_full", "Too many requests wait", ("limit", "cap", "retry_after_s"))

    def __init__(self, cap: int, limit: str = "queue_jobs_max", retry_after_s: int = 2) -> None:
        # The same error serves the limits of a queue and of pending compilations.
        full = "the queue is full" if limit.startswith("queue") else "too many constraints wait for their compilation"
        super().__init__(f"{full}: {limit} = {cap}", retry_after_s, limit=limit, cap=cap)


class DeadlineUnreachable(ServiceBusy):
    """The queue is too long for the deadline. The job would take about `wait_s`, which exceeds its `timeout_s`."""

    facts = ErrorFacts(
        429, "deadline_unreachable", "The queue is too long for the request's deadline",
        ("wait_s", "timeout_s", "retry_after_s"),
    )

    def __init__(self, wait_s: float, timeout_s: float, retry_after_s: int) -> None:
        # Rounded, because the estimate is no more precise than that.
        wait_s, timeout_s = round(wait_s, 1), round(timeout_s, 1)
        super().__init__(
            f"with the requests ahead of it this one would take about {wait_s:g} s, too close to its timeout_s, "
            f"{timeout_s:g}: try again in {retry_after_s} s, or raise timeout_s",
            retry_after_s, wait_s=wait_s, timeout_s=timeout_s,
        )


class RateLimited(ServiceBusy):
    """A key has reached a limit. `limit` is its name, `cap` its value."""

    facts = ErrorFacts(429, "rate_limited", "Rate limit exceeded", ("limit", "cap", "retry_after_s"))
    cap: int

    def __init__(self, limit: str, cap: int, retry_after_s: int) -> None:
        super().__init__(f"this key is over its limit {limit} = {cap}", retry_after_s, limit=limit, cap=cap)


class StorageDown(ServiceBusy):
    """The server that holds jobs and automata does not do its part. `reason` says why."""

    facts = STORAGE_DOWN
    reason: str

    def __init__(self, reason: str = "cannot be reached") -> None:
        super().__init__(f"the storage of jobs and automata {reason}", retry_after_s=5, reason=reason)


class ServiceDraining(ServiceBusy):
    """This process is about to stop. Another process, or its successor, takes the request."""

    facts = ErrorFacts(503, "draining", "The service is about to stop", ("retry_after_s",), retry_after_s=1)

    def __init__(self) -> None:
        super().__init__("the service is about to stop and takes no new requests", retry_after_s=1)


class NotReady(ServiceBusy):
    """A part of the service is missing or still loading. `reasons` says which."""

    facts = ErrorFacts(503, "not_ready", "The service is not ready", ("reasons", "retry_after_s"))
    reasons: Sequence[object]

    def __init__(self, reasons: Sequence[object]) -> None:
        super().__init__("not ready: " + "; ".join(map(str, reasons)), retry_after_s=1, reasons=reasons)


class DeadlineExceeded(AppError):
    """The request exceeded its time limit, in seconds if known."""

    facts = ErrorFacts(504, "deadline", "The request's time ran out", ("timeout_s",), outcome="timeout")

    def __init__(self, timeout_s: float | None = None) -> None:
        limit = f" ({timeout_s:g} s)" if timeout_s else ""
        super().__init__(f"the request was not done in time{limit}", timeout_s=timeout_s)


class JobFailed(AppError):
    """A worker answered with an error. It has the class name, the attributes, and the facts of the class."""

    def __init__(self, error: str, detail: str, fields: Mapping[str, object], facts: ErrorFacts = INTERNAL) -> None:
        super().__init__(detail)
        # These facts shadow those of the class: the error keeps the status and code of the class it had in the worker.
        self.error = error
        self.fields = dict(fields)
        self.facts = facts


class JobCancelled(AppError):
    """The job was cancelled before it was done."""

    facts = CANCELLED


class JobUnknown(AppError):
    """No job has this id."""

    # A job that was submitted is only unknown if the server lost it, so the caller may try again.
    facts = STORAGE_DOWN


class WorkerLost(AppError):
    """Every worker that tried the job died. The job has no attempt left; `attempts` counts them."""

    facts = ErrorFacts(500, "worker_lost", "Every worker that took the job was lost", ("attempts",))

    def __init__(self, attempts: int) -> None:
        super().__init__(f"the job was tried {attempts} times, and its worker died each time", attempts=attempts)


class AutomatonMissing(AppError):
    """A job names an automaton that the store no longer holds."""

    # The caller gets the same answer as for a hash that was never stored: compile the constraint again.
    facts = NO_AUTOMATON


class MessageInvalid(AppError):
    """The bytes are not a message that this version wrote."""

    # A job that is submitted again is signed again, for instance after a change of the secret.
    facts = STORAGE_DOWN


class ModelChanged(AppError):
    """A file of the model has changed, or processes have different models."""


class InternalError(AppError):
    """A bug of ours."""


class SettingsInvalid(AppError):
    """The environment is at fault; the message names the variable."""


def without_message(error: BaseException) -> str:
    """An error's class, place and causes, for the log. Messages are left out, since they may quote a prompt."""
    # The same choice as Python's own traceback: an explicit cause, else the context unless it is suppressed.
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    frames = f"{type(error).__name__}\n{''.join(traceback.format_tb(error.__traceback__))}"
    return frames if cause is None else f"{frames}from {without_message(cause)}"
