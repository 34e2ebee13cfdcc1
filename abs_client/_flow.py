"""Retries, resumes and polls requests without input or output ("sans I/O").

A generator yields the next action and receives its outcome. The synchronous and the asynchronous client perform the
actions, so they share every decision.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar

import httpx2

from abs_client._requests import Call, HttpRequest, HttpResponse, as_job, cancellation, job_events, job_state, readiness
from abs_client._retry import Retry, RetryState, is_transient
from abs_client.errors import (
    AbsError,
    ConnectionFailedError,
    InvalidResponseError,
    JobCancelledError,
    NotReadyError,
    error_of,
)
from abs_client.events import Done, parse_event
from abs_client.results import JobState, Readiness

T = TypeVar("T")
R = TypeVar("R")
STREAM_READ_S = 45.0  # the service sends something every 15 s
CANCEL_READ_S = 2.0  # an interrupted caller waits no longer for the cancellation of its job
READY_POLL_S = 0.25
_POLL_S_MIN, _POLL_S_MAX = 0.05, 2.0
_POLL_SHARE = 0.05  # of the time waited so far: a result is read about 5 % late at most
_ONCE = Retry(tries=1)


@dataclass(frozen=True)
class Send:
    """Send the request. The generator receives the HttpResponse; httpx2.RequestError is raised inside it."""

    request: HttpRequest


@dataclass(frozen=True)
class OpenStream:
    """Send the request, and leave the body of a stream to ReadEvent. Closes the stream that is open."""

    request: HttpRequest


@dataclass(frozen=True)
class ReadEvent:
    """Read an event of the open stream. The generator receives the event, or None at the end."""


@dataclass(frozen=True)
class Wait:
    """Close the open stream and wait for `seconds`."""

    seconds: float


@dataclass(frozen=True)
class Emit:
    """Pass the event to the caller."""

    event: Any


Action: TypeAlias = Send | OpenStream | ReadEvent | Wait
Flow: TypeAlias = Generator["Action | Emit", Any, T]


def send_with_retries(call: Call[T], retry: Retry) -> Flow[T]:
    """Send a request until it succeeds or `retry` ends. Raises AbsError."""
    state = RetryState(retry)
    while True:
        try:
            response: HttpResponse = yield Send(call.request)
        except httpx2.RequestError as failure:
            error = _no_response(failure)
        else:
            if response.success:
                return call.read(response)
            error = response.error(call.request.body)
        yield _wait_or_raise(state, error, getattr(error, "retry_after_s", None))


class EventFollower(Generic[R]):
    """Reads the events of one job, over any number of connections.

    job_id   None until the service has named it
    is_over  the last event is read
    """

    def __init__(
        self, request: HttpRequest, job_id: str | None, retry: Retry, result: Callable[[dict[str, Any]], R]
    ) -> None:
        self.job_id, self.is_over = job_id, False
        self._request, self._retry, self._result = request, retry, result
        self._last_id, self._retry_s = "", 1.0  # an event of the service may set another time

    def run(self) -> Flow[None]:
        """Emit every event, Done last. Raises the job's error, and ConnectionFailedError."""
        state = RetryState(self._retry)
        while True:
            last_id = self._last_id
            try:
                yield from self._read_connection()
            except httpx2.RequestError as failure:
                error = _no_response(failure)
            except _StreamRejected as rejected:
                error = rejected.error
            else:
                error = ConnectionFailedError("the stream broke off")
            if self.is_over:
                return
            if self._last_id != last_id:  # progress: `retry` bounds the failures in a row, not those of a long stream
                state.reset()
            yield _wait_or_raise(state, error, getattr(error, "retry_after_s", None) or self._retry_s)
            # Without a job id the request may not have arrived, so it is sent again.
            if self.job_id is not None:
                self._request = job_events(self.job_id, self._last_id)

    def _read_connection(self) -> Flow[None]:
        """Emit the events of one connection. Returns when it ends or must be reopened."""
        response: HttpResponse = yield OpenStream(self._request)
        if not response.success:
            raise _StreamRejected(response.error(self._request.body))
        self.job_id = response.headers.get("x-job-id", self.job_id)
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            raise InvalidResponseError("the response is not a stream of events", status=response.status)
        while (message := (yield ReadEvent())) is not None:
            if message.retry is not None:
                self._retry_s = message.retry / 1000
            if message.event == "reconnect":
                return
            try:
                event = parse_event(message)
            # The job has ended with this error, so the stream must not be resumed.
            except AbsError:
                self.is_over = True
                raise
            self._last_id = message.id or self._last_id
            if isinstance(event, dict):
                self.is_over = True
                yield Emit(Done(self._result(event)))
                return
            if event is not None:
                yield Emit(event)


class _StreamRejected(Exception):
    """The service answered a request for events with an error."""

    def __init__(self, error: AbsError) -> None:
        self.error = error


def wait_for_result(
    job_id: str, result: Callable[[dict[str, Any]], R], retry: Retry, timeout_s: float | None
) -> Flow[R]:
    """Poll a job until it ends. Raises the job's error, and TimeoutError."""
    started = retry.clock()
    while True:
        state = yield from send_with_retries(job_state(job_id), retry)
        if state.over:
            return _result_of(state, result)
        waited = retry.clock() - started
        wait_s = min(_POLL_S_MAX, max(_POLL_S_MIN, waited * _POLL_SHARE))
        if timeout_s is not None and waited + wait_s > timeout_s:
            if waited >= timeout_s:
                raise TimeoutError(f"the job {job_id} is {state.state} after {timeout_s:g} s")
            wait_s = timeout_s - waited  # one last look at the deadline itself
        yield Wait(wait_s)


def _result_of(state: JobState, result: Callable[[dict[str, Any]], R]) -> R:
    if state.error is not None:
        raise error_of(int(state.error.get("status", 500)), state.error)
    if state.result is None:
        raise JobCancelledError("the job was cancelled")
    return result(state.result)


def wait_until_ready(retry: Retry, timeout_s: float) -> Flow[Readiness]:
    """Poll until the service is ready. After `timeout_s` raises NotReadyError, or ConnectionFailedError."""
    ends = retry.clock() + timeout_s
    while True:
        try:
            return (yield from send_with_retries(readiness(), _ONCE))
        except AbsError as error:
            if not (is_transient(error) or isinstance(error, ConnectionFailedError)) or retry.clock() >= ends:
                raise
        yield Wait(READY_POLL_S)


def check_ready() -> Flow[Readiness]:
    """Ask once whether the service is ready. A service that is not ready is a value, not an error."""
    try:
        return (yield from send_with_retries(readiness(), _ONCE))
    except NotReadyError as error:
        return Readiness(False, tuple(error.reasons or (error.detail,)))


def cancel_job(call: Call[Any] | None, job_id: str | None) -> Flow[None]:
    """Cancel a job by its id or by its request.

    A request that waits for its answer does not know the job's id: sent again with its key, it gets the state of
    the same job.
    """
    if job_id is None and call is not None:
        state = yield from send_with_retries(_short(as_job(call)), _ONCE)
        # A job that is over needs no cancellation.
        job_id = None if state.over else state.id
    if job_id is not None:
        yield from send_with_retries(_short(cancellation(job_id)), _ONCE)


def _short(call: Call[T]) -> Call[T]:
    return replace(call, request=replace(call.request, read_s=CANCEL_READ_S))


def _no_response(failure: httpx2.RequestError) -> AbsError:
    """The error of a request that got no response. Its cause is `failure`."""
    if not isinstance(failure, httpx2.TransportError) or isinstance(failure, httpx2.SSEError):
        error: AbsError = InvalidResponseError(f"the response cannot be read ({type(failure).__name__})")
    else:
        named = _has_request(failure)
        url = failure.request.url.copy_with(userinfo=b"", path="/", query=None) if named else "the service"
        # LocalProtocolError may quote the header that it rejects, such as the API key.
        reason = "" if isinstance(failure, httpx2.LocalProtocolError) else f"{failure}"
        text = f"no response from {url} ({type(failure).__name__}: {reason})".replace(": )", ")")
        error = ConnectionFailedError(text)
    error.__cause__ = failure
    return error


def _has_request(failure: httpx2.RequestError) -> bool:
    try:
        return failure.request is not None
    except RuntimeError:  # raised by httpx2 for an error that was created without a request
        return False


def _wait_or_raise(state: RetryState, error: AbsError, retry_after_s: float | None) -> Wait:
    """The wait before the next attempt. Raises the error if there is none, or if it would fail in the same way."""
    # A broken connection may hide that the request arrived, but every request of this package is safe to send again.
    # A URL or header that httpx2 itself rejects stays wrong.
    permanent = isinstance(error.__cause__, httpx2.UnsupportedProtocol | httpx2.LocalProtocolError)
    transient = is_transient(error) or (isinstance(error, ConnectionFailedError) and not permanent)
    wait_s = state.wait_s(retry_after_s) if transient else None
    if wait_s is None:
        raise error
    return Wait(wait_s)
