"""Streams an answer: chunks of the stable prefix, the rest at the end, then `[DONE]`.

An OpenAI client cannot resume a stream, so this module handles interruptions itself. If another worker restarts the
job, or the server is briefly unreachable, the stream waits and continues. If this process is about to stop, the stream
is still served to its end, like a plain request.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event
from pydantic import BaseModel

from app.api.errors import refusal
from app.api.sse import STORAGE_RETRY_MS, STREAM_HEADERS, paced
from app.broker import Event
from app.errors import JobCancelled, StorageDown, UnknownAutomaton
from app.messages import CompileJobResult, GenerateJobResult, RestartMessage, StepMessage, load
from app.openai.errors import error_body
from app.openai.render import Answer, Writer, answers, generated
from app.openai.stable_prefix import AnswerNormalizer, StablePrefixTracker
from app.openai.translate import TranslatedRequest, named
from app.service import EventSubscription, Service, SubmittedJob

DONE = format_sse_event(data_str="[DONE]")
_OTHERWISE = "the answer was begun anew and came out otherwise: what was sent of it is void; send the request again"
Message = MutableMapping[str, Any]


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """What a stream is made of."""

    service: Service
    submitted: SubmittedJob
    order: TranslatedRequest
    writer: Writer
    usage: bool


class Chunks(EventSourceResponse):
    """The answer to a client who reads along. He cannot come back: where he goes, his job is called off."""

    def __init__(self, streamed: StreamedAnswer, request_id: str, headers: dict[str, str]) -> None:
        self._streamed, self._request_id = streamed, request_id
        super().__init__(self._chunks(), headers={**STREAM_HEADERS, **headers})

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        submitted = self._streamed.submitted
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:  # the server is stopping, and has waited as long as it will
            last = self._error(JobCancelled("the service is stopping"))
            await send({"type": "http.response.body", "body": last, "more_body": False})
        finally:
            self._streamed.service.jobs.unsubscribe_soon(*submitted.shares)

    async def _chunks(self) -> AsyncIterator[bytes]:
        try:
            with named(self._streamed.order.spelled):
                async for chunk in _answer(self._streamed):
                    yield chunk
        except Exception as error:
            yield self._error(error)

    def _error(self, error: Exception) -> bytes:
        return format_sse_event(data_str=error_body(refusal(error, self._request_id).body).decode())


async def _answer(streamed: StreamedAnswer) -> AsyncIterator[bytes]:
    """The chunks of a whole answer. Raises what the job ends in, JobCancelled where that contradicts what was sent."""
    service, order, writer = streamed.service, streamed.order, streamed.writer
    sent = {index: order.before for index in range(_foreseen(order))}
    for index in sent:
        if (opening := writer.opening(index)) is not None:
            yield _data(opening)
    said, settled = _reading(order), None
    async for event in _events(service, service.reader(streamed.submitted), streamed.submitted.job_id):
        match None if event is None else load(event.data):
            case None:
                yield KEEPALIVE_COMMENT
            case CompileJobResult() as compiled:
                with contextlib.suppress(UnknownAutomaton, StorageDown):  # then the end says all
                    said.compiled = await service.constraints.automaton(compiled.automaton)
            case RestartMessage():
                settled = None
            case StepMessage() as step:
                settled = settled or StablePrefixTracker(order.order.options, said)
                settled.take(step)
                for index, before in sent.items():
                    text = order.before + settled.text(index)
                    if len(text) > len(before) and text.startswith(before):
                        sent[index] = text
                        yield _data(writer.chunk(index, text[len(before) :]))
            case _:
                pass
    result = generated(await _result(service, service.reader(streamed.submitted), streamed.submitted.job_id))
    for chunk in _rest(streamed, result, answers(result, order, service.files), sent):
        yield _data(chunk)
    yield DONE


def _reading(order: TranslatedRequest) -> AnswerNormalizer:
    """How raw texts are read as answers: after an echoed prompt, and where all of a text counts, no space goes."""
    return AnswerNormalizer(order.stops, raw=bool(order.before) or order.order.options.scope == "full")


def _foreseen(order: TranslatedRequest) -> int:
    """How many answers there will be for certain: a search may find fewer distinct ones than were asked for."""
    return order.n if order.order.options.algorithm == "sample" else 1


def _rest(
    streamed: StreamedAnswer, result: GenerateJobResult, found: tuple[Answer, ...], sent: dict[int, str]
) -> list[BaseModel]:
    """What of the answers was not certain before."""
    writer, chunks = streamed.writer, list[BaseModel]()
    for index, answer in enumerate(found):
        before = sent.get(index)
        if before is None:
            before = streamed.order.before
            chunks += [opening] if (opening := writer.opening(index)) is not None else []
        if not answer.text.startswith(before):
            raise JobCancelled(_OTHERWISE)
        chunks.append(writer.chunk(index, answer.text[len(before) :], answer))
    return [*chunks, writer.closing(result)] if streamed.usage else chunks


async def _events(service: Service, reader: EventSubscription, job_id: str) -> AsyncIterator[Event | None]:
    """The events of a job until it is over, None where none has come for a while; from where they broke off."""
    after = ""
    while True:
        try:
            async with contextlib.aclosing(paced(service, reader, job_id, after)) as events:
                async for event in events:
                    after = after if event is None else event.id
                    yield event
            return
        except StorageDown:
            async with reader.until_deadline():
                await asyncio.sleep(STORAGE_RETRY_MS / 1000)


async def _result(service: Service, reader: EventSubscription, job_id: str) -> Any:
    async with reader.until_deadline():
        while True:
            with contextlib.suppress(StorageDown):
                return await service.jobs.result(job_id)
            await asyncio.sleep(STORAGE_RETRY_MS / 1000)


def _data(chunk: BaseModel) -> bytes:
    return format_sse_event(data_str=chunk.model_dump_json(exclude_none=False))
