"""The service's errors outside the compiler and the decoder, split by cause.

    AppError
    |-- RequestError            the caller's request
    |   |-- InvalidJson           the body is not JSON, or JSON that two readers could read differently
    |   |-- InvalidRequest        a field is missing, unknown, of the wrong type or out of its range
    |   |-- RequestOverLimit      a field is over a limit of ours; names the limit and its cap
    |   |-- BodyTooLarge          more bytes than we read
    |   |-- RequestTimeout        the header or the body did not arrive in time
    |   |-- UnsupportedMediaType  the body is not declared as JSON, or is compressed
    |   |-- MalformedRequest      the request is not valid HTTP
    |   |-- HeadersTooLarge       more, or longer, header fields than we read
    |   |-- HostRefused           addressed to a name that is not ours
    |   |-- OriginRefused         sent by a page of another origin
    |   |-- Unauthorized          no key, or an unknown one
    |   |-- Forbidden             the key lacks a scope, which the error names
    |   |-- UnknownAutomaton      no stored constraint has this hash
    |   |-- UnknownModel          another model is served here
    |   |-- BudgetTooSmall        the constraint needs more tokens than max_tokens; carries the number
    |   |-- AnswerTooLarge        the answer would be longer than we keep; names the limit
    |   |-- PromptViolates        no continuation of the prompt satisfies the constraint; carries the position
    |   |-- KeyReused             an Idempotency-Key of an earlier, different request
    |   |-- UnknownJob            no job of the caller's has this id
    |   |-- RouteNotFound         no such path
    |   |-- MethodNotAllowed      no such method on this path
    |   `-- ClientGone            the caller closed the connection
    |-- Busy                    the service, for the moment; carries `retry_after_s`
    |   |-- QueueFull             the limit on waiting requests or on compilations is reached; names the limit
    |   |-- DeadlineUnreachable     the queue is too long for the request's deadline; carries the expected time
    |   |-- RateLimited           the key has reached a rate limit; names the limit
    |   |-- TooManyConnections    the limit on open connections is reached
    |   |-- StorageDown           the server that holds jobs and automata cannot be reached
    |   |-- Draining              this process is about to stop, and takes nothing new
    |   `-- NotReady              a worker is missing or still loading; carries the reasons
    |-- DeadlineExceeded        the request's time ran out
    |-- JobFailed               a worker's error, carried by name across a process boundary
    |-- JobCancelled            the job was cancelled
    |-- JobUnknown              the job was never submitted, or its record has expired
    |-- WorkerLost              every worker that took the job died
    |-- AutomatonMissing        the store dropped an automaton between two steps of one request
    |-- MessageInvalid          bytes that are not a message of this version
    |-- ModelChanged            the model's files are not the expected ones; names those that differ
    |-- InternalError           a bug of ours; the log has the rest
    `-- SettingsInvalid         the operator's environment; names the variable
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping


class AppError(Exception):
    """Root of this package's errors. The message is meant to be read."""


class RequestError(AppError):
    """The caller's request is at fault."""


class InvalidJson(RequestError):
    """The body cannot be read as JSON in exactly one way."""


class InvalidRequest(RequestError):
    """The JSON is not what this path takes. `errors` holds a path and a message for each fault."""

    def __init__(self, errors: tuple[tuple[str, str], ...]) -> None:
        path, message = errors[0]
        super().__init__(f"{path}: {message}" if path else message)
        self.errors = tuple({"path": path, "message": message} for path, message in errors)


class RequestOverLimit(RequestError):
    """A field is over a limit. `limit` is the name of the setting, `cap` its value, `path` the field."""

    def __init__(self, path: str, limit: str, cap: float) -> None:
        super().__init__(f"{path} is over the limit {limit} = {cap:g}")
        self.path = path
        self.limit = limit
        self.cap = cap


class BodyTooLarge(RequestError):
    """The body is longer than `cap` bytes."""

    def __init__(self, cap: int) -> None:
        super().__init__(f"the body is over the limit body_bytes_max = {cap}")
        self.limit = "body_bytes_max"
        self.cap = cap


class RequestTimeout(RequestError):
    """A part of the request, usually its body, did not arrive whole within `timeout_s` seconds."""

    def __init__(self, timeout_s: float, part: str = "the body") -> None:
        super().__init__(f"{part} did not arrive within {timeout_s:g} s")
        self.timeout_s = timeout_s


class UnsupportedMediaType(RequestError):
    """The body is declared as something other than JSON."""


class MalformedRequest(RequestError):
    """The bytes are not an HTTP request, or one that two readers could read differently."""


class HeadersTooLarge(RequestError):
    """The header fields are over a limit. `limit` is the name of the setting, `cap` its value."""

    def __init__(self, limit: str, cap: int) -> None:
        super().__init__(f"the header is over the limit {limit} = {cap}")
        self.limit = limit
        self.cap = cap


class HostRefused(RequestError):
    """The Host header names another host than this one."""


class OriginRefused(RequestError):
    """A page of another origin sent the request."""


class Unauthorized(RequestError):
    """No key came with the request, or one that opens nothing."""


class Forbidden(RequestError):
    """The key does not open this path. `scope` is what it lacks."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"the key lacks the scope {scope}")
        self.scope = scope


class UnknownAutomaton(RequestError):
    """No constraint with this hash is stored: it was never compiled here, or its time ran out."""


class UnknownModel(RequestError):
    """The request names a model that is not served here. `served` is the one that is."""

    def __init__(self, served: str) -> None:
        super().__init__(f"this service serves the model {served!r}; leave `model` out, or name that one")
        self.served = served


class BudgetTooSmall(RequestError):
    """The constraint needs more tokens than the request grants, as its compilation already says."""

    def __init__(self, min_tokens: int, max_tokens: int) -> None:
        super().__init__(f"the constraint needs at least {min_tokens} tokens, max_tokens is {max_tokens}")
        self.min_tokens = min_tokens
        self.max_tokens = max_tokens


class AnswerTooLarge(RequestError):
    """The answer is longer than we keep. `limit` is the name of the setting, `cap` its value in bytes."""

    def __init__(self, cap: int) -> None:
        super().__init__(
            f"the answer is over the limit answer_bytes_max = {cap}: ask for no trace or explanation, or for fewer or "
            "shorter texts"
        )
        self.limit = "answer_bytes_max"
        self.cap = cap


class PromptViolates(RequestError):
    """Whatever follows the prompt, the whole text does not satisfy. `position` is the first character too many."""

    def __init__(self, position: int) -> None:
        super().__init__(
            f"no text that begins as the prompt does satisfies the constraint: the character at offset {position} is "
            "one too many"
        )
        self.position = position


class KeyReused(RequestError):
    """The Idempotency-Key belongs to an earlier request that was not the same."""


class UnknownJob(RequestError):
    """No job of this caller's has the id: there never was one, it is someone else's, or it is long over."""


class RouteNotFound(RequestError):
    """The path does not exist."""


class MethodNotAllowed(RequestError):
    """The path exists, but not for this method. `allow` lists those that it takes."""

    def __init__(self, message: str, allow: str) -> None:
        super().__init__(message)
        self.allow = allow


class ClientGone(RequestError):
    """The caller closed the connection before the answer was ready."""


class Busy(AppError):
    """We cannot take the request now; trying again after `retry_after_s` seconds may succeed."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QueueFull(Busy):
    """The queue, or a pool of jobs that are limited together, holds as many as it may."""

    def __init__(self, cap: int, limit: str = "queue_jobs_max", retry_after_s: int = 2) -> None:
        full = "the queue is full" if limit.startswith("queue") else "too many constraints are yet to be compiled"
        super().__init__(f"{full}: {limit} = {cap}", retry_after_s)
        self.limit = limit
        self.cap = cap


class DeadlineUnreachable(Busy):
    """The queue is too long: the job would be done in about `wait_s`, too late for its `timeout_s`."""

    def __init__(self, wait_s: float, timeout_s: float, retry_after_s: int) -> None:
        self.wait_s, self.timeout_s = round(wait_s, 1), round(timeout_s, 1)
        super().__init__(
            f"with the requests ahead of it this one would take about {self.wait_s:g} s, too close to its timeout_s, "
            f"{self.timeout_s:g}: try again in {retry_after_s} s, or raise timeout_s",
            retry_after_s,
        )


class RateLimited(Busy):
    """A key has used up what it may. `limit` names the limit, `cap` is its value."""

    def __init__(self, limit: str, cap: int, retry_after_s: int) -> None:
        super().__init__(f"this key is over its limit {limit} = {cap}", retry_after_s)
        self.limit = limit
        self.cap = cap


class TooManyConnections(Busy):
    """As many connections are open as may be."""

    def __init__(self, cap: int) -> None:
        super().__init__(f"as many connections are open as may be: connections_max = {cap}", retry_after_s=1)
        self.limit = "connections_max"
        self.cap = cap


class StorageDown(Busy):
    """The server that holds jobs and automata does not do its part. `reason` says why."""

    def __init__(self, reason: str = "cannot be reached") -> None:
        super().__init__(f"the storage of jobs and automata {reason}", retry_after_s=5)
        self.reason = reason


class Draining(Busy):
    """This process is about to stop. Another one, or the one that comes after it, takes the request."""

    def __init__(self) -> None:
        super().__init__("the service is about to stop and takes no new requests", retry_after_s=1)


class NotReady(Busy):
    """A part of the service is missing or still loading. `reasons` says which."""

    def __init__(self, reasons: tuple[str, ...]) -> None:
        super().__init__("not ready: " + "; ".join(reasons), retry_after_s=1)
        self.reasons = reasons


class DeadlineExceeded(AppError):
    """The request was not done when its time, in seconds where known, ran out."""

    def __init__(self, timeout_s: float | None = None) -> None:
        super().__init__("the request was not done in time" + (f" ({timeout_s:g} s)" if timeout_s else ""))
        self.timeout_s = timeout_s


class JobFailed(AppError):
    """A worker answered with an error. `error` is its class name, `fields` what the class carries."""

    def __init__(self, error: str, detail: str, fields: Mapping[str, object]) -> None:
        super().__init__(detail)
        self.error = error
        self.fields = dict(fields)


class JobCancelled(AppError):
    """The job was called off before it was done."""


class JobUnknown(AppError):
    """No job has this id."""


class WorkerLost(AppError):
    """As many workers as may try took the job, and none lived to answer. `attempts` says how many."""

    def __init__(self, attempts: int) -> None:
        super().__init__(f"the job was tried {attempts} times, and each time the worker was lost")
        self.attempts = attempts


class AutomatonMissing(AppError):
    """A job names an automaton that the store no longer holds."""


class MessageInvalid(AppError):
    """The bytes are not a message that this version wrote."""


class ModelChanged(AppError):
    """A file of the model is not what it should be, so none is loaded. `CHANGED` begins the message."""

    CHANGED = "the model's files are not those"

    def __init__(self, meant: str, how: str) -> None:
        super().__init__(f"{self.CHANGED} {meant}: {how}")


class InternalError(AppError):
    """A bug of ours."""


class SettingsInvalid(AppError):
    """The environment is at fault; the message names the variable."""


def without_message(error: BaseException) -> str:
    """An error for the log: its class and where it was raised, and so for its causes; messages may quote a prompt."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    own = f"{type(error).__name__}\n{''.join(traceback.format_tb(error.__traceback__))}"
    return own if cause is None else f"{own}from {without_message(cause)}"
