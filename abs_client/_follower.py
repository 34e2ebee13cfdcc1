"""Reads the events of a job. After each failure it resumes them on a new connection."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Generic, TypeVar

import httpx2

from abs_client._io import Io
from abs_client._requests import HttpRequest, error_in, job_events, job_result
from abs_client._retry import Retry, RetryState, no_response
from abs_client.errors import AbsError, ConnectionFailedError
from abs_client.events import Done, Event, parse_event

R = TypeVar("R")


class EventFollower(Generic[R]):
    """Reads the events of one job, over any number of connections.

    job_id  None until the service has named it
    result  that of the event Done; None before it
    cancel  receives the job's id when the reader is interrupted or closes `events` early
    """

    def __init__(
        self, io: Io, retry: Retry, request: HttpRequest, job_id: str | None = None,
        cancel: Callable[[str | None], None] | None = None,
    ) -> None:
        self.job_id = job_id
        self.result: R | None = None
        self._io, self._state, self._request, self._cancel = io, RetryState(retry), request, cancel
        self._last_id, self._retry_s = "", 1.0  # an event of the service may set another time

    async def events(self) -> AsyncGenerator[Event[R], None]:
        """Every event, Done last. Raises the job's error, and ConnectionFailedError."""
        try:
            while self.result is None:
                # Closed here, for a generator that is dropped would be closed later, by another task.
                async with contextlib.aclosing(self._connection()) as events:
                    async for event in events:
                        yield event
        except BaseException as error:
            # GeneratorExit, KeyboardInterrupt or CancelledError: no one reads the result.
            if self._cancel and self.result is None and not isinstance(error, Exception):
                self._cancel(self.job_id)
            raise

    async def _connection(self) -> AsyncGenerator[Event[R], None]:
        """The events of one connection. After it breaks off, waits for the next attempt or raises."""
        last_id = self._last_id
        error: AbsError = ConnectionFailedError("the stream broke off")
        try:
            async with self._io.open(self._request) as (response, messages):
                if response.is_success:
                    self.job_id = response.headers.get("x-job-id", self.job_id)
                else:
                    error = error_in(response, self._request.body)
                async for message in messages:
                    if message.retry is not None:
                        self._retry_s = message.retry / 1000
                    if message.event == "reconnect":
                        break
                    event = parse_event(message)
                    self._last_id = message.id or self._last_id
                    if isinstance(event, dict):
                        result: R = self._io.endpoint.with_picture(job_result(event))
                        self.result = result  # before the event, after which the reader may close the stream
                        yield Done(result)
                        return
                    if event is not None:
                        yield event
        except httpx2.RequestError as failure:
            error = no_response(failure)
        if self._last_id != last_id:  # progress: `retry` bounds the failures in a row, not those of a long stream
            self._state.reset()
        await self._io.sleep(self._state.wait_or_raise(error, self._retry_s))
        # Without a job id the request may not have arrived, so it is sent again.
        if self.job_id is not None:
            self._request = job_events(self.job_id, self._last_id)
