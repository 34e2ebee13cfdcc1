"""Sends, retries, follows and awaits requests, as generators without input or output.

A generator yields the next action and receives its result. The synchronous and the asynchronous client perform the
actions, so they share every decision.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar

import httpx2

from abs_client.calls import Call, Reply, Request, cancel_call, events_request, job_call, submitted
from abs_client.errors import AbsError, AnswerInvalid, Cancelled, ConnectionFailed, NotReady, error_of
from abs_client.events import Done, told
from abs_client.results import JobState
from abs_client.retries import Retry, Tries, may_pass

T = TypeVar("T")
R = TypeVar("R")
STREAM_READ_S = 45.0  # the service sends something every 15 s
LEAVE_S = 2.0  # what one who goes away gives to calling off what he began
_POLL_S_MIN, _POLL_S_MAX, _POLL_SHARE = 0.05, 2.0, 0.05  # of the time that one has waited
READY_POLL_S = 0.25


@dataclass(frozen=True)
class Send:
    """Send the request. The generator receives the Reply; httpx2.RequestError is raised inside it."""

    request: Request


@dataclass(frozen=True)
class Open:
    """The same, for an answer of events: its body is then left to be read. What was open before is closed."""

    request: Request


@dataclass(frozen=True)
class Next:
    """Read an event of the open answer. The generator receives the event, or None at the end."""


@dataclass(frozen=True)
class Wait:
    """Wait for `seconds`."""

    seconds: float


@dataclass(frozen=True)
class Tell:
    """Tell the caller of this event."""

    event: Any


Story: TypeAlias = Generator["Send | Open | Next | Wait | Tell", Any, T]


def asked(call: Call[T], retry: Retry) -> Story[T]:
    """Send a request until it is answered, or patience is at its end. Raises AbsError."""
    tries = Tries(retry)
    while True:
        try:
            reply: Reply = yield Send(call.request)
        except httpx2.RequestError as error:
            failed, asked_s = _unanswered(error), None
            again = _may_pass(error)
        else:
            if reply.success:
                return call.read(reply)
            failed = reply.error(call.request.body)
            asked_s, again = getattr(failed, "retry_after_s", None), may_pass(failed)
        wait_s = tries.wait_s(asked_s) if again else None
        if wait_s is None:
            raise failed
        yield Wait(wait_s)


class Following(Generic[R]):
    """Reads the events of one job, over however many connections. `job_id` once it is known; `over` at the end."""

    def __init__(
        self, request: Request, job_id: str | None, retry: Retry, result: Callable[[dict[str, Any]], R]
    ) -> None:
        self.job_id, self.over = job_id, False
        self._request, self._retry, self._result = request, retry, result
        self._last_id, self._retry_s = "", 1.0

    def story(self) -> Story[None]:
        """Tells every event, last Done. Raises what the job failed with, and ConnectionFailed."""
        tries = Tries(self._retry)
        while True:
            before = self._last_id
            try:
                yield from self._line()
            except httpx2.RequestError as error:
                failed, asked_s, again = _unanswered(error), self._retry_s, _may_pass(error)
            except _Refused as refused:
                failed, again = refused.error, may_pass(refused.error)
                asked_s = getattr(failed, "retry_after_s", None) or self._retry_s
            else:
                failed, asked_s, again = ConnectionFailed("the answer broke off"), self._retry_s, True
            if self.over:
                return
            if self._last_id != before:
                tries.anew()
            wait_s = tries.wait_s(asked_s) if again else None
            if wait_s is None:
                raise failed
            yield Wait(wait_s)
            if self.job_id is not None:
                self._request = events_request(self.job_id, self._last_id)

    def _line(self) -> Story[None]:
        """One connection, to its end or until it hands over to another process."""
        reply: Reply = yield Open(self._request)
        if not reply.success:
            raise _Refused(reply.error(self._request.body))
        self.job_id = reply.headers.get("x-job-id", self.job_id)
        if not reply.headers.get("content-type", "").startswith("text/event-stream"):
            raise AnswerInvalid("the answer is not a stream of events", status=reply.status)
        while (sent := (yield Next())) is not None:
            if sent.retry is not None:
                self._retry_s = sent.retry / 1000
            if sent.event == "reconnect":
                return
            try:
                event = told(sent)
            except AbsError:
                self.over = True
                raise
            self._last_id = sent.id or self._last_id
            if isinstance(event, dict):
                self.over = True
                yield Tell(Done(self._result(event)))
                return
            if event is not None:
                yield Tell(event)


class _Refused(Exception):
    """A request for events was answered by an error, which may pass."""

    def __init__(self, error: AbsError) -> None:
        self.error = error


def awaited(job_id: str, result: Callable[[dict[str, Any]], R], retry: Retry, timeout_s: float | None) -> Story[R]:
    """Wait for a job's end. Raises what it failed with, and TimeoutError."""
    began = retry.clock()
    while True:
        state = yield from asked(job_call(job_id), retry)
        if state.over:
            return result_of(state, result)
        waited = retry.clock() - began
        wait_s = min(_POLL_S_MAX, max(_POLL_S_MIN, waited * _POLL_SHARE))
        if timeout_s is not None and waited + wait_s > timeout_s:
            if waited >= timeout_s:
                raise TimeoutError(f"the job {job_id} is {state.state} after {timeout_s:g} s")
            wait_s = timeout_s - waited
        yield Wait(wait_s)


def result_of(state: JobState, result: Callable[[dict[str, Any]], R]) -> R:
    """What came of a job that is over. Raises what it failed with."""
    if state.error is not None:
        raise error_of(int(state.error.get("status", 500)), state.error)
    if state.result is None:
        raise Cancelled("the job was called off")
    return result(state.result)


def became_ready(call: Call[T], retry: Retry, timeout_s: float) -> Story[T]:
    """Wait until the service is ready. Raises NotReady, or ConnectionFailed where there is none, after `timeout_s`."""
    ends = retry.clock() + timeout_s
    while True:
        try:
            return (yield from asked(call, Retry(tries=1)))
        except AbsError as error:
            if not (may_pass(error) or isinstance(error, ConnectionFailed)) or retry.clock() >= ends:
                raise
        yield Wait(READY_POLL_S)


def is_ready(call: Call[T], otherwise: Callable[[tuple[str, ...]], T]) -> Story[T]:
    """Ask once whether the service is ready; not to be is no error."""
    try:
        return (yield from asked(call, Retry(tries=1)))
    except NotReady as error:
        return otherwise(tuple(error.reasons or (error.detail,)))


def called_off(call: Call[Any] | None, job_id: str | None) -> Story[None]:
    """Call a job off, as well as may be in a moment: by its id, or by the key under which it was begun."""
    once = Retry(tries=1)
    if job_id is None and call is not None:
        begun = submitted(call)
        state = yield from asked(replace(begun, request=replace(begun.request, read_s=LEAVE_S)), once)
        job_id = None if state.over else state.id
    if job_id is not None:
        off = cancel_call(job_id)
        yield from asked(replace(off, request=replace(off.request, read_s=LEAVE_S)), once)


def _unanswered(error: httpx2.RequestError) -> AbsError:
    if not isinstance(error, httpx2.TransportError) or isinstance(error, httpx2.SSEError):
        failed: AbsError = AnswerInvalid(f"the answer cannot be read ({type(error).__name__})")
    else:
        url = error.request.url.copy_with(userinfo=b"", path="/", query=None) if _has_request(error) else "the service"
        why = "" if isinstance(error, httpx2.LocalProtocolError) else f"{error}"  # which may quote what was to be sent
        failed = ConnectionFailed(f"no answer from {url} ({type(error).__name__}: {why})".replace(": )", ")"))
    failed.__cause__ = error
    return failed


def _has_request(error: httpx2.RequestError) -> bool:
    try:
        return error.request is not None
    except RuntimeError:
        return False


def _may_pass(error: httpx2.RequestError) -> bool:
    """Whether the line was at fault. Every request of this package may be sent again."""
    lasting = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.SSEError)
    return isinstance(error, httpx2.TransportError) and not isinstance(error, lasting)
