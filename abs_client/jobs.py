"""Jobs of the service, and streams of their events, for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Generic, TypeVar

from abs_client import _requests as requests
from abs_client._follower import EventFollower
from abs_client.errors import JobCancelledError, error_of
from abs_client.events import Event
from abs_client.results import JobState

if TYPE_CHECKING:  # the client imports this module
    from abs_client.async_client import AsyncClient

R = TypeVar("R")
_POLL_S_MIN, _POLL_S_MAX = 0.05, 2.0
_POLL_SHARE = 0.05  # of the time waited so far: a result is read about 5 % late at most


class AsyncStream(AsyncIterator[Event[R]], AbstractAsyncContextManager["AsyncStream[R]", None], Generic[R]):
    """The events of a job, as an asynchronous iterator.

    `aclose` and the end of an `async with` end the connection. They also cancel the job of `AsyncClient.stream`, but
    not that of `AsyncJob.events`.
    """

    def __init__(self, follower: EventFollower[R]) -> None:
        # The generator does not refer to this stream: it would keep the stream alive.
        self._follower, self._events = follower, follower.events()

    @property
    def result(self) -> R | None:
        """The result of the event Done. None before it."""
        return self._follower.result

    @property
    def job_id(self) -> str | None:
        """The job's id, which the client's method `job` takes. None until the first response."""
        return self._follower.job_id

    async def __anext__(self) -> Event[R]:
        """Wait for the next event."""
        return await anext(self._events)

    async def until_done(self) -> R:
        """Skip the remaining events and return the result."""
        async for _ in self:
            pass
        if self.result is None:
            raise RuntimeError("the stream was closed before its end")
        return self.result

    async def aclose(self) -> None:
        """End the connection. Reading on raises StopAsyncIteration."""
        await self._events.aclose()

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


class AsyncJob(Generic[R]):
    """A job of the service. It runs without a reader, until `cancel`. `AsyncClient.job` takes its `id`."""

    def __init__(self, client: AsyncClient, job_id: str) -> None:
        self._client, self.id = client, job_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    async def state(self) -> JobState:
        """Get the job's state."""
        return await self._client._request(requests.job_state(self.id))

    async def result(self, timeout_s: float | None = None) -> R:
        """Wait for the result. Raises the job's error, or TimeoutError after `timeout_s`."""
        client, clock = self._client, self._client._retry.clock
        started = clock()
        while not (state := await self.state()).over:
            waited = clock() - started
            wait_s = min(_POLL_S_MAX, max(_POLL_S_MIN, waited * _POLL_SHARE))
            if timeout_s is not None and waited + wait_s > timeout_s:
                if waited >= timeout_s:
                    raise TimeoutError(f"the job {self.id} is {state.state} after {timeout_s:g} s")
                wait_s = timeout_s - waited  # one last look at the deadline itself
            await client._io.sleep(wait_s)
        if state.error is not None:
            raise error_of(int(state.error.get("status", 500)), state.error)
        if state.result is None:
            raise JobCancelledError("the job was cancelled")
        result: R = client._io.endpoint.with_picture(requests.job_result(state.result))
        return result

    def events(self) -> AsyncStream[R]:
        """Stream the job's events from its first one. Closing the stream does not cancel the job."""
        client = self._client
        return AsyncStream(EventFollower(client._io, client._retry, requests.job_events(self.id), self.id))

    async def cancel(self) -> JobState:
        """Cancel the job and get its state."""
        return await self._client._request(requests.cancellation(self.id))
