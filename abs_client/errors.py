"""AbsError and its subclasses: one class for each kind of failure.

AbsError
|-- ConnectionFailedError         no server answers at the URL, or the connection broke during the response
|-- InvalidResponseError          the response does not come from this service
|-- RequestError                  the request is at fault
|   |-- InvalidRequestError         a field, the JSON or the path is invalid
|   |-- RequestTooLargeError        the request exceeds a limit on sizes, which the error names
|   |-- AccessDeniedError           the key, the host or the origin is not allowed
|   |-- NotFoundError
|   |   |-- UnknownAutomatonError
|   |   |-- UnknownModelError
|   |   `-- UnknownJobError
|   |-- IdempotencyMismatchError    the idempotency key belongs to an earlier, different request
|   |-- ConstraintError             the constraint is at fault
|   |   |-- ConstraintSyntaxError     the constraint does not parse; a caret marks the fault
|   |   |-- ConstraintUnsupportedError
|   |   |-- ConstraintUnsatisfiableError
|   |   `-- ConstraintTooLargeError
|   |-- BudgetTooSmallError         `min_tokens` is a sufficient budget
|   |-- UndecidedError              whether the budget is enough was not decided; `min_tokens` is a sufficient one
|   |-- PromptViolationError
|   `-- PromptTooLongError
|-- BusyError                     a retry after `retry_after_s` may succeed
|   |-- RateLimitError
|   |-- QueueFullError
|   |-- DeadlineUnreachableError
|   |-- NotReadyError
|   |-- ServiceUnavailableError
|   `-- JobCancelledError
|-- DeadlineExceededError
`-- ServerError                   the service is at fault
    |-- OutOfMemoryError
    `-- WorkerLostError
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LINE_CHARS_MAX = 100
CODES: dict[str, type[AbsError]] = {}  # filled by the definitions of the classes below


class AbsError(Exception):
    """Root of this package's errors.

    status      of HTTP; 0 without a response
    code        the service's stable name of the error, such as "budget_too_small"; "" without a response
    detail      what is wrong, in words
    request_id  names the request in the service's log
    problem     the whole body of the response (RFC 9457)

    A subclass names its codes, and declares the fields that the body of its error has: attributes, None where the body
    lacks them.
    """

    request_id: str

    def __init_subclass__(cls, codes: str = "") -> None:
        # Each class registers its own codes, so no second table has to be kept.
        CODES.update(dict.fromkeys(codes.split(), cls))

    def __init__(self, detail: str = "", *, status: int = 0, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.status = status
        self.problem = dict(problem or {})
        self.code = str(self.problem.get("code", ""))
        self.request_id = str(self.problem.get("request_id", ""))
        for name in _declared(type(self)) - {"request_id"}:
            setattr(self, name, self.problem.get(name))

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}" if self.code else self.detail


class _LimitFields:
    # A class without a base, so that it is no error of its own.
    limit: str | None
    cap: float | None


class ConnectionFailedError(AbsError):
    """No server answers, or a broken response could not be resumed."""


class InvalidResponseError(AbsError):
    """The response is not one of this service, or of another version."""


class RequestError(AbsError):
    """The request is at fault. Sent again, it fails again."""


class InvalidRequestError(
    RequestError, _LimitFields,
    codes="invalid_json malformed_request invalid_request method_not_allowed unknown_field unsupported_media_type",
):
    """A field, the JSON or the path is invalid.

    errors      a path and a message for each fault
    suggestion  edits of the request that were probably meant; `apply_suggestion` applies them
    path        a field over the limit `limit`, whose value is `cap`
    field       an option out of its range
    position    the first character at which the body is not JSON
    """

    errors: list[dict[str, str]] | None
    suggestion: list[dict[str, Any]] | None
    path: str | None
    field: str | None
    position: int | None


class RequestTooLargeError(
    RequestError, _LimitFields, codes="body_too_large headers_too_large answer_too_large request_too_large"
):
    """The request or its result is too large. It exceeds the memory, or `limit`, whose value is `cap`."""

    needed_bytes: int | None
    memory_bytes: int | None


class AccessDeniedError(RequestError, codes="unauthorized forbidden origin_refused host_refused"):
    """The key, the host or the origin is not allowed. `scope`: what the key lacks."""

    scope: str | None


class NotFoundError(RequestError, codes="not_found"):
    """The service has no such path, automaton, model or job."""


class UnknownAutomatonError(NotFoundError, codes="unknown_automaton"):
    """No constraint with this hash is stored: compile it again."""


class UnknownModelError(NotFoundError, codes="unknown_model"):
    """The model is not served here. `served`: the models that are, separated by commas."""

    served: str | None


class UnknownJobError(NotFoundError, codes="unknown_job"):
    """The caller has no such job, or the result has expired."""


class IdempotencyMismatchError(RequestError, codes="idempotency_mismatch"):
    """The idempotency key belongs to an earlier, different request."""


class ConstraintError(RequestError):
    """The constraint is at fault."""


class _Located:
    detail: str
    position: int | None
    line: int | None
    column: int | None
    field: str | None
    source: str = ""  # not from the response, which never quotes the request

    def __str__(self) -> str:
        place = f", in {self.field}" if self.field and self.field not in (self.detail or "") else ""
        return super().__str__() + place + pointed_at(self.source, self.position)


class ConstraintSyntaxError(_Located, ConstraintError, codes="constraint_syntax"):
    """The constraint does not parse.

    field         path of the string at fault, such as "all.1.ltlf"
    position      offset of the fault in that string; None where no single place is at fault. So are line and column
    expected      what the grammar allows there
    suggestion    edits of the request that were probably meant; `apply_suggestion` applies them
    source        that string, if it is in the request
    """

    expected: str | None
    suggestion: list[dict[str, Any]] | None


class ConstraintUnsupportedError(_Located, ConstraintError, codes="unsupported"):
    """The constraint uses `construct`, which parses but is not supported."""

    construct: str | None


class ConstraintUnsatisfiableError(ConstraintError, codes="constraint_unsatisfiable"):
    """No text satisfies the constraint.

    conflict       conjuncts that contradict each other, or rules of a policy that cannot be met together any more
    field          where a tool is at fault: the path of its parameters
    past           of a policy: the shortest conversation that leads to the conflict; its first 16 events
    left_out       how many elements such a list lacks, by its name
    characters     characters that no token of the model writes
    rows, lengths  of `decode`: rows of the matrix, and the lengths that the constraint accepts
    """

    conflict: list[str] | None
    field: str | None
    past: list[str] | None
    left_out: dict[str, int] | None
    characters: list[str] | None
    rows: int | None
    lengths: Any


class ConstraintTooLargeError(ConstraintError, _LimitFields, codes="constraint_too_large"):
    """The compilation exceeds the limit `limit`, whose value is `cap`."""


class BudgetTooSmallError(RequestError, codes="budget_too_small"):
    """No text of at most `max_tokens` satisfies the constraint; `min_tokens` are enough."""

    min_tokens: int | None
    max_tokens: int | None
    min_tokens_at_least: int | None


class UndecidedError(RequestError, codes="undecided"):
    """Whether `max_tokens` are enough was not decided. `min_tokens` are, fewer than `min_tokens_at_least` are not.

    `min_tokens` is None where no sufficient budget is known.
    """

    min_tokens: int | None
    max_tokens: int | None
    min_tokens_at_least: int | None


class PromptViolationError(RequestError, codes="prompt_violates"):
    """With scope "full": no continuation of the prompt satisfies. `position`: offset where it fails."""

    position: int | None


class PromptTooLongError(RequestError, codes="context_length_exceeded"):
    """The prompt and the budget together exceed the model's `context_length`, in tokens."""

    prompt_tokens: int | None
    max_tokens: int | None
    context_length: int | None


class BusyError(AbsError):
    """The service cannot take the request now. `retry_after_s`: seconds to wait, if the service names them."""

    retry_after_s: float | None


class RateLimitError(BusyError, _LimitFields, codes="rate_limited"):
    """The API key exceeds its rate limit `limit`, whose value is `cap`."""


class QueueFullError(BusyError, _LimitFields, codes="queue_full"):
    """The queue exceeds the limit `limit`, whose value is `cap`."""


class DeadlineUnreachableError(BusyError, codes="deadline_unreachable"):
    """The queue is too long for the request. The wait is about `wait_s`, which leaves too little of `timeout_s`."""

    wait_s: float | None
    timeout_s: float | None


class NotReadyError(BusyError, codes="not_ready"):
    """A part of the service is missing or still loading: `reasons`."""

    reasons: list[str] | None


class ServiceUnavailableError(
    BusyError, _LimitFields, codes="draining storage_down model_unavailable memory_taken"
):
    """The service is shutting down or lacks a resource.

    The resources are its storage, model, memory and connections.
    """


class JobCancelledError(BusyError, codes="cancelled"):
    """The job was cancelled."""


class DeadlineExceededError(AbsError, codes="deadline request_timeout"):
    """The request was not done within `timeout_s`."""

    timeout_s: float | None


class ServerError(AbsError, codes="internal replay_rejected"):
    """The service is at fault; its log has the cause under `request_id`."""


class OutOfMemoryError(ServerError, codes="out_of_memory"):
    """This request alone exceeds the memory of the model's device. Fewer beams or tokens may fit."""

    needed_bytes: int | None


class WorkerLostError(ServerError, codes="worker_lost"):
    """Each of `attempts` workers died while it ran the request."""

    attempts: int | None


def error_of(
    status: int, problem: Mapping[str, Any], *, sent: Mapping[str, Any] | None = None,
    retry_after_s: float | None = None,
) -> AbsError:
    """The error that a problem document describes. The status classifies an unknown code.

    `sent` is the body of the request, in which ConstraintSyntaxError finds the string at fault.
    """
    kind = CODES.get(str(problem.get("code")), _by_status(status))
    # A proxy answers without a problem document, so the status may be all there is.
    detail = str(problem.get("detail") or problem.get("title") or f"the service answered with status {status}")
    error = kind(detail, status=status, problem=problem)
    if isinstance(error, BusyError) and error.retry_after_s is None:
        error.retry_after_s = retry_after_s
    if isinstance(error, _Located) and sent is not None:
        error.source = _string_at(sent.get("constraint"), error.field or "")
    return error


def pointed_at(source: str, position: int | None) -> str:
    """The source line with a caret under the position. It is "" without a position."""
    if not source or position is None or not 0 <= position <= len(source):
        return ""
    begin, end = source.rfind("\n", 0, position) + 1, source.find("\n", position)
    line, column = source[begin : end if end >= 0 else len(source)], position - begin
    if len(line) > LINE_CHARS_MAX:  # cut to a window around the position
        first = max(0, min(column - LINE_CHARS_MAX // 2, len(line) - LINE_CHARS_MAX))
        line, column = line[first : first + LINE_CHARS_MAX], column - first
    # A tab would move the line against its caret.
    return f"\n  {line}\n  {' ' * column}^".replace("\t", " ")


def _by_status(status: int) -> type[AbsError]:
    # Codes of a newer service, and answers of a proxy, which have no code.
    if status in (429, 503):
        return BusyError
    return RequestError if status < 500 else ServerError


def _declared(kind: type[AbsError]) -> set[str]:
    """The attributes that the class and its bases annotate without a value."""
    # Attributes with a value are not fields of the response: `source` comes from the request.
    names = {name for base in kind.__mro__ for name in vars(base).get("__annotations__", {})}
    return {name for name in names if not hasattr(kind, name)}


def _string_at(constraint: Any, path: str) -> str:
    """The string at a path such as "all.1.ltlf". It is "" if there is none."""
    value = constraint
    for name in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return ""
    return value if isinstance(value, str) else ""
