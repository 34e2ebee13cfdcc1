"""AbsError and its subclasses, one for each family of the server's codes.

AbsError
|-- ConnectionFailed        no server answers at the URL, or the connection broke during the answer
|-- AnswerInvalid           the answer does not come from this service
|-- RequestError            the request is at fault
|   |-- InvalidRequest        a field, the JSON or the path is invalid
|   |-- TooLarge              the request exceeds a limit on sizes, which the error names
|   |-- AccessRefused         the key, the host or the origin is not allowed
|   |-- NotFound
|   |   |-- UnknownAutomaton
|   |   |-- UnknownModel
|   |   `-- UnknownJob
|   |-- IdempotencyMismatch   the idempotency key belongs to an earlier, different request
|   |-- ConstraintError       the constraint is at fault
|   |   |-- ConstraintSyntax    the constraint does not parse; a caret marks the fault
|   |   |-- ConstraintUnsupported
|   |   |-- ConstraintUnsatisfiable
|   |   `-- ConstraintTooLarge
|   |-- BudgetTooSmall        `min_tokens` is the smallest sufficient budget
|   |-- PromptViolates
|   `-- PromptTooLong
|-- Busy                    a retry after `retry_after_s` may succeed
|   |-- RateLimited
|   |-- QueueFull
|   |-- DeadlineUnreachable
|   |-- NotReady
|   |-- Unavailable
|   `-- Cancelled
|-- DeadlineExceeded
`-- ServerError             the service is at fault
    |-- OutOfMemory
    `-- WorkerLost
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LINE_CHARS_MAX = 100


class AbsError(Exception):
    """Root of this package's errors.

    status      of HTTP; 0 where there was no answer
    code        the service's stable name of the fault, such as "budget_too_small"; "" where there is none
    detail      what is wrong, in words
    request_id  by which the service's log knows the request
    problem     the whole body of the answer (RFC 9457); what it says beside these is an attribute too, where the class
                declares it, and None where the body does not say it
    """

    request_id: str

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


class ConnectionFailed(AbsError):
    """No server answers, or a broken answer could not be resumed."""


class AnswerInvalid(AbsError):
    """What answered is not this service, or one of another version."""


class RequestError(AbsError):
    """The request is at fault; sent again it fails again."""


class InvalidRequest(RequestError):
    """`errors`: a path and a message for each fault. `limit` and `cap` where `path` is over one."""

    errors: list[dict[str, str]] | None
    path: str | None
    field: str | None
    limit: str | None
    cap: float | None


class TooLarge(RequestError):
    """The request, or the answer to it, is over the limit `limit` = `cap`, or needs more memory than there is."""

    limit: str | None
    cap: float | None
    needed_bytes: int | None
    memory_bytes: int | None


class AccessRefused(RequestError):
    """The request is not let in. `scope`: what its key lacks."""

    scope: str | None


class NotFound(RequestError):
    """There is no such thing."""


class UnknownAutomaton(NotFound):
    """No constraint with this hash is stored: compile it again."""


class UnknownModel(NotFound):
    """Another model is served: `served`."""

    served: str | None


class UnknownJob(NotFound):
    """No job of this caller's has the id, or it is long over."""


class IdempotencyMismatch(RequestError):
    """The Idempotency-Key came with another request before."""


class ConstraintError(RequestError):
    """The constraint is at fault."""


class ConstraintSyntax(ConstraintError):
    """The constraint does not parse.

    position  offset of the fault in the string at `field`; None where it has no place in one; so line and column
    source    that string, where it could be found in what was sent
    """

    position: int | None
    line: int | None
    column: int | None
    expected: str | None
    field: str | None
    source: str = ""

    def __str__(self) -> str:
        return super().__str__() + pointed_at(self.source, self.position)


class ConstraintUnsupported(ConstraintError):
    """`construct` is understood, and refused."""

    construct: str | None
    position: int | None
    field: str | None
    source: str = ""

    def __str__(self) -> str:
        return super().__str__() + pointed_at(self.source, self.position)


class ConstraintUnsatisfiable(ConstraintError):
    """No text satisfies it. `conflict`: parts that contradict each other; `characters`: what no token writes.

    Of a matrix to decode: `rows` it has, and the `lengths` that the constraint takes.
    """

    conflict: list[str] | None
    characters: list[str] | None
    rows: int | None
    lengths: Any


class ConstraintTooLarge(ConstraintError):
    """It outgrew the limit `limit` = `cap`."""

    limit: str | None
    cap: float | None


class BudgetTooSmall(RequestError):
    """No text of `max_tokens` satisfies; `min_tokens` are enough."""

    min_tokens: int | None
    max_tokens: int | None


class PromptViolates(RequestError):
    """With scope "full": from `position` on nothing that begins as the prompt does satisfies."""

    position: int | None


class PromptTooLong(RequestError):
    """Prompt and budget together are longer than the model reads."""

    prompt_tokens: int | None
    max_tokens: int | None
    context_length: int | None


class Busy(AbsError):
    """Not now. `retry_after_s`: when another try may succeed, where the service says."""

    retry_after_s: float | None


class RateLimited(Busy):
    """The API key exceeds its rate limit: `limit` = `cap`."""

    limit: str | None
    cap: float | None


class QueueFull(Busy):
    """Too many requests wait: `limit` = `cap`."""

    limit: str | None
    cap: float | None


class DeadlineUnreachable(Busy):
    """The queue is too long: the request would take about `wait_s`, too close to `timeout_s`."""

    wait_s: float | None
    timeout_s: float | None


class NotReady(Busy):
    """A part of the service is missing or still loading: `reasons`."""

    reasons: list[str] | None


class Unavailable(Busy):
    """The service stops, or its storage, its model, its memory or its connections are not to be had now."""

    limit: str | None
    cap: float | None


class Cancelled(Busy):
    """The job was called off."""


class DeadlineExceeded(AbsError):
    """The request was not done within `timeout_s`."""

    timeout_s: float | None


class ServerError(AbsError):
    """The service is at fault; its log has the rest, under `request_id`."""


class OutOfMemory(ServerError):
    """The model's device ran out of memory over this request alone: fewer beams or tokens may fit."""

    needed_bytes: int | None


class WorkerLost(ServerError):
    """As many workers took the request as may, and each died."""

    attempts: int | None


CODES: dict[str, type[AbsError]] = {
    "invalid_json": InvalidRequest, "malformed_request": InvalidRequest, "invalid_request": InvalidRequest,
    "method_not_allowed": InvalidRequest, "unsupported_media_type": InvalidRequest, "body_too_large": TooLarge,
    "headers_too_large": TooLarge, "answer_too_large": TooLarge, "request_too_large": TooLarge,
    "unauthorized": AccessRefused, "forbidden": AccessRefused, "origin_refused": AccessRefused,
    "host_refused": AccessRefused, "unknown_automaton": UnknownAutomaton, "unknown_model": UnknownModel,
    "unknown_job": UnknownJob, "not_found": NotFound, "idempotency_mismatch": IdempotencyMismatch,
    "constraint_syntax": ConstraintSyntax, "unsupported": ConstraintUnsupported,
    "constraint_unsatisfiable": ConstraintUnsatisfiable, "constraint_too_large": ConstraintTooLarge,
    "budget_too_small": BudgetTooSmall, "prompt_violates": PromptViolates, "prompt_too_long": PromptTooLong,
    "rate_limited": RateLimited, "queue_full": QueueFull,
    "deadline_unreachable": DeadlineUnreachable, "not_ready": NotReady, "draining": Unavailable,
    "storage_down": Unavailable, "too_many_connections": Unavailable, "model_unavailable": Unavailable,
    "memory_taken": Unavailable, "cancelled": Cancelled, "deadline": DeadlineExceeded,
    "request_timeout": DeadlineExceeded, "out_of_memory": OutOfMemory, "worker_lost": WorkerLost,
    "internal": ServerError, "replay_rejected": ServerError,
}  # fmt: skip


def error_of(
    status: int, problem: Mapping[str, Any], *, sent: Mapping[str, Any] | None = None,
    retry_after_s: float | None = None,
) -> AbsError:
    """The error that a problem document is, whatever a newer service may call it. `sent` is the body of the request."""
    kind = CODES.get(str(problem.get("code")), _by_status(status))
    detail = str(problem.get("detail") or problem.get("title") or f"the service answered with status {status}")
    error = kind(detail, status=status, problem=problem)
    if isinstance(error, Busy) and error.retry_after_s is None:
        error.retry_after_s = retry_after_s
    if isinstance(error, ConstraintSyntax | ConstraintUnsupported) and sent is not None:
        error.source = _string_at(sent.get("constraint"), error.field or "")
    return error


def pointed_at(source: str, position: int | None) -> str:
    """The line of the source at fault, with a caret under the place; nothing where there is no place."""
    if not source or position is None or not 0 <= position <= len(source):
        return ""
    begin, end = source.rfind("\n", 0, position) + 1, source.find("\n", position)
    line, column = source[begin : end if end >= 0 else len(source)], position - begin
    if len(line) > LINE_CHARS_MAX:  # as much around the place as fits
        first = max(0, min(column - LINE_CHARS_MAX // 2, len(line) - LINE_CHARS_MAX))
        line, column = line[first : first + LINE_CHARS_MAX], column - first
    return f"\n  {line}\n  {' ' * column}^".replace("\t", " ")


def _by_status(status: int) -> type[AbsError]:
    if status in (429, 503):
        return Busy
    return RequestError if status < 500 else ServerError


def _declared(kind: type[AbsError]) -> set[str]:
    """The attributes that the class and those above it declare, those aside that have a value of their own."""
    names = {name for base in kind.__mro__ for name in vars(base).get("__annotations__", {})}
    return {name for name in names if not hasattr(kind, name)}


def _string_at(constraint: Any, path: str) -> str:
    """The string at a path such as "all.1.ltlf", nothing where there is none."""
    found = constraint
    for name in path.split("."):
        if isinstance(found, Mapping):
            found = found.get(name)
        elif isinstance(found, list) and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        else:
            return ""
    return found if isinstance(found, str) else ""
