"""Input and output of the clients. `AsyncIo` suspends, `BlockingIo` blocks.

A coroutine that awaits only a `BlockingIo` never suspends, so that `run` needs no event loop. This is how both clients
share every decision.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeAlias, TypeVar

import httpx2

from abs_client._requests import HttpRequest
from abs_client._transport import EVENT_BYTES_MAX, Endpoint, open_client

T = TypeVar("T")
Messages: TypeAlias = AsyncIterator[httpx2.ServerSentEvent]


class Io(Protocol):
    """The input and output of a client. `send` and `open` raise httpx2.RequestError without a response."""

    endpoint: Endpoint

    async def send(self, request: HttpRequest) -> httpx2.Response:
        """Send a request and read its response."""

    def open(self, request: HttpRequest) -> contextlib.AbstractAsyncContextManager[tuple[httpx2.Response, Messages]]:
        """Send a request and open the stream of its response. An error is read whole; its stream has no events."""

    async def sleep(self, seconds: float) -> None:
        """Wait before the next attempt."""

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine for a caller that is interrupted."""

    async def aclose(self) -> None:
        """Close all connections."""


class AsyncIo:
    """The Io of an event loop."""

    def __init__(
        self, endpoint: Endpoint, transport: httpx2.AsyncBaseTransport | None,
        sleep: Callable[[float], Awaitable[object]],
    ) -> None:
        self.endpoint, self._sleep = endpoint, sleep
        self._http: httpx2.AsyncClient = open_client(httpx2.AsyncClient, endpoint.options(transport=transport))
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(self, request: HttpRequest) -> httpx2.Response:
        return await self._http.send(self.endpoint.prepare(self._http, request, streams=False))

    @contextlib.asynccontextmanager
    async def open(self, request: HttpRequest) -> AsyncGenerator[tuple[httpx2.Response, Messages], None]:
        response = await self._http.send(self.endpoint.prepare(self._http, request, streams=True), stream=True)
        # An asynchronous generator that is dropped would be closed later, by another task.
        async with contextlib.aclosing(response), contextlib.aclosing(self._messages(response)) as messages:
            if not response.is_success:
                await response.aread()
            yield response, messages

    async def _messages(self, response: httpx2.Response) -> AsyncGenerator[httpx2.ServerSentEvent, None]:
        if response.is_success:
            async for message in httpx2.EventSource(response, EVENT_BYTES_MAX):
                yield message

    async def sleep(self, seconds: float) -> None:
        await self._sleep(seconds)

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        # A cancelled task must end at once. If the loop ends before this task, the service sees the connection close.
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)  # the loop keeps only a weak reference
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.aclose()


class BlockingIo:
    """The Io without an event loop. Its coroutines block instead of suspending."""

    def __init__(
        self, endpoint: Endpoint, transport: httpx2.BaseTransport | None, sleep: Callable[[float], object]
    ) -> None:
        self.endpoint, self._sleep = endpoint, sleep
        self._http: httpx2.Client = open_client(httpx2.Client, endpoint.options(transport=transport))

    async def send(self, request: HttpRequest) -> httpx2.Response:
        return self._http.send(self.endpoint.prepare(self._http, request, streams=False))

    @contextlib.asynccontextmanager
    async def open(self, request: HttpRequest) -> AsyncGenerator[tuple[httpx2.Response, Messages], None]:
        response = self._http.send(self.endpoint.prepare(self._http, request, streams=True), stream=True)
        with contextlib.closing(response):
            if not response.is_success:
                response.read()
            yield response, self._messages(response)

    async def _messages(self, response: httpx2.Response) -> AsyncGenerator[httpx2.ServerSentEvent, None]:
        if response.is_success:
            for message in httpx2.EventSource(response, EVENT_BYTES_MAX):
                yield message

    async def sleep(self, seconds: float) -> None:
        self._sleep(seconds)

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        # There is no task to leave it to, so the caller waits. Each of its two requests has a limit of 2 s.
        run(coroutine)

    async def aclose(self) -> None:
        self._http.close()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The value of a coroutine that does not suspend."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    coroutine.close()
    raise RuntimeError("a coroutine of the synchronous client awaits something besides its Io")
