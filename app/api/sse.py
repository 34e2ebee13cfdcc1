"""Streams a job's events and its answer or error as server-sent events.

The ids are the broker's, so a reader that sends the last id it has read resumes there, on any replica of the API. The
broker stores the events between a job and its readers, so a slow reader misses steps and delays neither the job nor
other readers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event
from starlette.types import Receive, Scope, Send

from app.api.errors import refusal
from app.api.schemas import Answer, answer_of, to_json
from app.broker import JobEvent
from app.errors import JobCancelled, StorageDown
from app.messages import (
    CompiledEventBody,
    CompileJobResult,
    RestartEventBody,
    RestartMessage,
    StepEventBody,
    StepMessage,
    load,
)
from app.service import EventSubscription, Service, SubmittedJob
from app.tasks import cancel_tasks

HEARTBEAT_S = 15.0
RETRY_MS, RECONNECT_RETRY_MS, STORAGE_RETRY_MS = 1_000, 500, 2_000
LAST_ID = "end"  # id of the last event: a reader that sends it has read everything
STREAM_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}  # for proxies: do not store or buffer events


class EventStream(EventSourceResponse):
    """A stream of events that reports the stop of the server."""

    def __init__(self, events: AsyncIterator[bytes], request_id: str, headers: Mapping[str, str]) -> None:
        self._request_id, self._ended = request_id, False
        super().__init__(events, headers={**STREAM_HEADERS, **headers})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:  # the server's shutdown grace is over
            last = self._error(JobCancelled("the service is stopping"))
            await send({"type": "http.response.body", "body": last, "more_body": False})
            self._ended = True
        finally:  # also when the client left in the middle of the iteration
            await self._leave()

    def _error(self, error: Exception) -> bytes:
        """The last event of a stream that fails."""
        data = refusal(error, self._request_id).body.decode()
        return format_sse_event(data_str=data, event="error", id=LAST_ID)

    async def _leave(self) -> None:
        """Give up the share in the job after the stream."""
        raise NotImplementedError


class JobEvents(EventStream):
    """A stream of a job's events. The reader's share in the job outlives its connection by `stream_grace_s`."""

    def __init__(
        self, reader: EventSubscription, request_id: str, after: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        self._reader = reader
        super().__init__(self._stream(after), request_id, headers or {})

    async def _leave(self) -> None:
        if self._ended:
            await self._reader.unsubscribe()
        else:
            self._reader.unsubscribe_later()

    async def _stream(self, after: str) -> AsyncIterator[bytes]:
        service, job = self._reader.service, self._reader.job
        yield f"retry: {RETRY_MS}\n\n".encode()
        try:
            async for chunk in _chunks(self._reader, after):
                yield chunk
            # No last event is sent here, so `_ended` stays false and the share waits for the reader's return.
            if service.jobs.transfers_streams:
                yield _reconnect(RECONNECT_RETRY_MS)
                return
            async with job.until_deadline():
                result = await service.jobs.result(job.job_id)
            answer = answer_of(job.job_id, result)
            last = _event("done", to_json(Answer, answer), LAST_ID)
        except StorageDown:  # the job goes on, only this stream cannot
            yield _reconnect(STORAGE_RETRY_MS)
            return
        except Exception as error:
            last = self._error(error)
        yield last
        self._ended = True


async def _chunks(reader: EventSubscription, after: str) -> AsyncIterator[bytes]:
    """The events as bytes. They end with the job, or when another process can continue the stream."""
    stopping = asyncio.create_task(reader.service.jobs.wait_for_transfer())
    try:
        async with contextlib.aclosing(paced(reader.service, reader.job, after, stopping)) as events:
            async for event in events:
                if chunk := KEEPALIVE_COMMENT if event is None else _chunk(event):
                    yield chunk
    finally:
        await cancel_tasks(stopping)


async def paced(
    service: Service, submitted: SubmittedJob, after: str, stopping: asyncio.Task[None] | None = None
) -> AsyncGenerator[JobEvent | None, None]:
    """The events of a job until it ends or `stopping` is done. Yields None after a while without an event."""
    events = service.jobs.events(submitted.job_id, after)
    coming: asyncio.Task[JobEvent | None] | None = None
    try:
        while stopping is None or not stopping.done():
            # The task outlives a timeout: cancelling it could lose an event that has just arrived.
            coming = coming or asyncio.create_task(anext(events, None))
            awaited = {coming} if stopping is None else {coming, stopping}
            async with submitted.until_deadline():
                await asyncio.wait(awaited, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                yield None
                continue
            event, coming = coming.result(), None
            if event is None:
                return
            yield event
    finally:
        if coming is not None:
            await cancel_tasks(coming)
        await events.aclose()


def _chunk(event: JobEvent) -> bytes:
    """The bytes of an event. They are empty for events that readers do not get."""
    match load(event.data):
        case StepMessage() as step:
            return _event("step", to_json(StepEventBody, step), event.id)
        case CompileJobResult() as sizes:
            return _event("compiled", to_json(CompiledEventBody, sizes), event.id)
        case RestartMessage() as restart:
            return _event("restarted", to_json(RestartEventBody, restart), event.id)
        case _:
            return b""


def _reconnect(retry_ms: int) -> bytes:
    """Tells a reader to reconnect at the path of the job's events."""
    return format_sse_event(event="reconnect", data_str="{}", retry=retry_ms)


def _event(name: str, data: bytes, event_id: str) -> bytes:
    return format_sse_event(data_str=data.decode(), event=name, id=event_id)
