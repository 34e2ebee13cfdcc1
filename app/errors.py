"""Every way a request can fail outside the compiler and the decoder, split by blame.

    AppError
    |-- RequestError            the caller's request
    |   |-- InvalidJson           the body is not JSON, or JSON that two readers could read differently
    |   |-- InvalidRequest        a field is missing, unknown, of the wrong type or out of its range
    |   |-- RequestOverLimit      a field is over a limit of ours; names the limit and its cap
    |   |-- BodyTooLarge          more bytes than we read
    |   |-- RequestTimeout        the body did not arrive in time
    |   |-- UnsupportedMediaType  the body is not declared as JSON
    |   |-- UnknownAutomaton      no stored constraint has this hash
    |   |-- UnknownModel          another model is served here
    |   |-- BudgetTooSmall        the constraint needs more tokens than max_tokens; says how many
    |   |-- PromptViolates        no continuation of the prompt satisfies the constraint; says from which character on
    |   |-- RouteNotFound         no such path
    |   |-- MethodNotAllowed      no such method on this path
    |   `-- ClientGone            the caller closed the connection
    |-- Busy                    us, for the moment; carries `retry_after_s`
    |   |-- QueueFull             as many requests wait as may
    |   `-- NotReady              a worker is missing or still loading; carries the reasons
    |-- DeadlineExceeded        the request's time ran out
    |-- JobFailed               a worker's error, carried by name across a process boundary
    |-- JobCancelled            the job was called off
    |-- JobUnknown              a job that nobody submitted, or that is long over
    |-- AutomatonMissing        the store dropped an automaton between two steps of one request
    |-- MessageInvalid          bytes that are not a message of this version
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
    """The body did not arrive whole within `timeout_s` seconds."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"the body did not arrive within {timeout_s:g} s")
        self.timeout_s = timeout_s


class UnsupportedMediaType(RequestError):
    """The body is declared as something other than JSON."""


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


class PromptViolates(RequestError):
    """Whatever follows the prompt, the whole text does not satisfy. `position` is the first character too many."""

    def __init__(self, position: int) -> None:
        super().__init__(
            f"no text that begins as the prompt does satisfies the constraint: the character at offset {position} is "
            "one too many"
        )
        self.position = position


class RouteNotFound(RequestError):
    """The path does not exist."""


class MethodNotAllowed(RequestError):
    """The path exists, but not for this method."""


class ClientGone(RequestError):
    """The caller closed the connection before the answer was ready."""


class Busy(AppError):
    """We cannot take the request now; trying again after `retry_after_s` seconds may succeed."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QueueFull(Busy):
    """The queue holds as many jobs as it may."""

    def __init__(self, cap: int) -> None:
        super().__init__(f"the queue is full: queue_jobs_max = {cap}", retry_after_s=2)
        self.limit = "queue_jobs_max"
        self.cap = cap


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


class AutomatonMissing(AppError):
    """A job names an automaton that the store no longer holds."""


class MessageInvalid(AppError):
    """The bytes are not a message that this version wrote."""


class InternalError(AppError):
    """A bug of ours."""


class SettingsInvalid(AppError):
    """The environment is at fault; the message names the variable."""


def without_message(error: BaseException) -> str:
    """An error for the log: its class and where it was raised, and so for its causes; messages may quote a prompt."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    own = f"{type(error).__name__}\n{''.join(traceback.format_tb(error.__traceback__))}"
    return own if cause is None else f"{own}from {without_message(cause)}"
