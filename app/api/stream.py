"""Server-sent events of a generation: what has come so far, then the answer or the error it ended in.

Between the generation and a reader stands a mailbox of bounded size, so that no reader, however slow, delays anybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event
from pydantic import BaseModel

from app.api.generation import GenerateResponse, StepEvent, compiled_event
from app.api.refusals import refusal
from app.errors import JobCancelled
from app.generation import GenerateAnswer
from app.jobs import CompileResult, Step

HEARTBEAT_S = 10.0
STEPS_KEPT = 16  # for a reader who lags
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}  # no proxy is to keep or collect events

Message = MutableMapping[str, Any]
Shape = Callable[[GenerateAnswer], GenerateResponse]


class Mailbox:
    """The news that one reader has not read yet: of steps the last few."""

    def __init__(self) -> None:
        self._news: deque[CompileResult | Step] = deque()
        self._arrival = asyncio.Event()

    def put(self, news: CompileResult | Step) -> None:
        """Never waits; the oldest step goes where there are too many."""
        self._news.append(news)
        steps = [kept for kept in self._news if isinstance(kept, Step)]
        if len(steps) > STEPS_KEPT:
            self._news.remove(steps[0])
        self._arrival.set()

    def close(self) -> None:
        """Nothing more will come."""
        self._arrival.set()

    @property
    def waiting(self) -> bool:
        """Whether there is something to take."""
        return bool(self._news)

    async def wait(self, s_max: float | None) -> None:
        """Until there is something to take, or the box is closed, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(s_max):
                await self._arrival.wait()

    def take(self) -> list[CompileResult | Step]:
        """All there is now, oldest first."""
        taken, self._news = list(self._news), deque()
        self._arrival.clear()
        return taken


class Generation:
    """A generation that runs, with its mailbox."""

    def __init__(self, mailbox: Mailbox, work: Awaitable[GenerateAnswer]) -> None:
        self.mailbox = mailbox
        self.task = asyncio.ensure_future(work)
        self.task.add_done_callback(lambda _: mailbox.close())

    async def begun(self) -> None:
        """Returns once there is something to tell. Raises what the generation fails with before."""
        try:
            await self.mailbox.wait(None)
            if self.task.done():
                self.task.result()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Call the generation off, unless it is over."""
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await self.task


class GenerationEvents(EventSourceResponse):
    """The answer to a client that reads along. A client that goes away takes the generation with him."""

    def __init__(self, generation: Generation, shape: Shape, request_id: str) -> None:
        self._generation, self._request_id, self._numbers = generation, request_id, itertools.count(1)
        super().__init__(_events(generation, shape, request_id, self._numbers), headers=_HEADERS)

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:  # the server is stopping, and has waited as long as it will
            last = _error_event(JobCancelled("the service is stopping"), self._request_id, self._numbers)
            await send({"type": "http.response.body", "body": last, "more_body": False})
        finally:  # wherever the iterator was left
            await self._generation.stop()


async def _events(
    generation: Generation, shape: Shape, request_id: str, numbers: itertools.count[int]
) -> AsyncIterator[bytes]:
    """The events as bytes: `compiled`, `step` as often as the reader keeps up, then `done` or `error`."""
    while True:
        over = generation.task.done()
        for news in generation.mailbox.take():
            if isinstance(news, Step):
                yield _event("step", StepEvent(step=news.step, budget_after=news.budget_after, rows=news.rows), numbers)
            else:
                yield _event("compiled", compiled_event(news), numbers)
        if over:
            break
        await generation.mailbox.wait(HEARTBEAT_S)
        if not generation.mailbox.waiting and not generation.task.done():
            yield KEEPALIVE_COMMENT
    yield _last_event(generation, shape, request_id, numbers)


def _last_event(generation: Generation, shape: Shape, request_id: str, numbers: itertools.count[int]) -> bytes:
    try:
        return _event("done", shape(generation.task.result()), numbers)
    except Exception as error:
        return _error_event(error, request_id, numbers)


def _error_event(error: Exception, request_id: str, numbers: itertools.count[int]) -> bytes:
    body = refusal(error, request_id).body.decode()
    return format_sse_event(data_str=body, event="error", id=str(next(numbers)))


def _event(name: str, data: BaseModel, numbers: itertools.count[int]) -> bytes:
    return format_sse_event(data_str=data.model_dump_json(), event=name, id=str(next(numbers)))
