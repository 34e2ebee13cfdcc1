"""Streams an answer in chunks of the stable prefix. The rest follows at the end, then `[DONE]`.

An OpenAI client cannot resume a stream, so this module handles interruptions itself. If another worker restarts the
job, or the server is briefly unreachable, the stream waits and continues. If this process is about to stop, the stream
is still served to its end, like a plain request.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from pydantic import BaseModel

from app.api.errors import refusal
from app.api.sse import STORAGE_RETRY_MS, EventStream, paced
from app.broker import JobEvent
from app.errors import JobCancelled, StorageDown, UnknownAutomaton
from app.messages import CompileJobResult, GenerateJobResult, RestartMessage, StepMessage, load
from app.openai.render import FinishedAnswer, Writer, answers, constraint_notes, generated, merged
from app.openai.responses import EventGroup
from app.openai.stable_prefix import AnswerNormalizer, StablePrefixTracker
from app.openai.translate import TranslatedRequest, request_paths
from app.service import Service, SubmittedJob
from compiler.exact_json import dump_json

DONE = format_sse_event(data_str="[DONE]")
_CONTRADICTED = "the worker failed and the retry produced a different answer; discard the partial text and retry"


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """A submitted request, and how its chunks are rendered. With `usage` a last chunk has the token counts.

    first  the number of its first answer, among those to all prompts
    """

    service: Service
    submitted: SubmittedJob
    translated: TranslatedRequest
    writer: Writer
    usage: bool
    first: int = 0


class ChunkStream(EventStream):
    """The response with the chunks. If the client disconnects its jobs are cancelled, because it cannot resume.

    The answers to several prompts are generated at the same time, and sent one after the other.
    """

    def __init__(self, streamed: Sequence[StreamedAnswer], request_id: str, headers: dict[str, str]) -> None:
        self._streamed = streamed
        super().__init__(self._chunks(), request_id, headers)

    async def _leave(self) -> None:
        for streamed in self._streamed:
            streamed.service.jobs.unsubscribe_soon(*streamed.submitted.shares)

    async def _chunks(self) -> AsyncIterator[bytes]:
        results = list[GenerateJobResult]()
        try:
            for streamed in self._streamed:
                with request_paths(streamed.translated.constraint):
                    async for chunk in _chunks(streamed, results):
                        yield chunk
            if self._streamed[0].usage:
                yield _data(self._streamed[0].writer.closing(merged(results)))
            if self._streamed[0].writer.ends_with_done:
                yield DONE
        except Exception as error:
            yield self._error(error)

    def _error(self, error: Exception) -> bytes:
        writer = self._streamed[0].writer
        body = writer.error(refusal(error, self._request_id).body)
        return format_sse_event(data_str=body.decode(), event=writer.error_event)


async def _chunks(streamed: StreamedAnswer, results: list[GenerateJobResult]) -> AsyncIterator[bytes]:
    """The chunks of all answers of one job.

    Its result is then added to `results`. Raises the job's error, or JobCancelled if the result contradicts what was
    sent.
    """
    service, translated, writer = streamed.service, streamed.translated, streamed.writer
    options = translated.params.options
    # A search may find fewer distinct answers than `n`, so only its first one is certain.
    certain = translated.n if options.algorithm == "sample" else 1
    first = streamed.first
    sent = dict.fromkeys(range(first, first + certain), translated.prefix)  # index: the text sent so far
    for index in sent:
        if (opening := writer.opening(index)) is not None:
            yield _data(opening)
    # The leading space stays after an echoed prompt, and if the constraint covers the prompt too.
    raw = bool(translated.prefix) or options.scope == "full"
    hidden = translated.stops + ((translated.suffix,) if translated.suffix else ())
    normalize, tracker = AnswerNormalizer(hidden, raw), None
    async for event in _events(service, streamed.submitted):
        match None if event is None else load(event.data):
            case None:
                yield KEEPALIVE_COMMENT
            case CompileJobResult() as sizes:
                # Without the automaton fewer prefixes are stable; the last chunks hold the rest.
                with contextlib.suppress(UnknownAutomaton, StorageDown):
                    normalize.constraint = await service.constraints.automaton(sizes.automaton)
            case RestartMessage():
                tracker = None
            case StepMessage() as step:
                tracker = tracker or StablePrefixTracker(options, normalize)
                tracker.take(step)
                for index, prefix in sent.items():
                    text = translated.prefix + tracker.text(index - first)
                    # A retry starts with shorter texts, and may differ: `_final_chunks` compares it at the end.
                    if len(text) > len(prefix) and text.startswith(prefix):
                        sent[index] = text
                        if (chunk := writer.chunk(index, prefix, text)) is not None:
                            yield _data(chunk)
            case _:
                pass
    result = generated(await _result(service, streamed.submitted))
    results.append(result)
    finished = answers(result, translated, service.files, first)
    if finished and not streamed.usage:  # no closing chunk has the warnings
        finished = (*finished[:-1], replace(finished[-1], notes=constraint_notes(result)))
    for final in _final_chunks(streamed, finished, sent):
        yield _data(final)


def _final_chunks(
    streamed: StreamedAnswer, finished: tuple[FinishedAnswer, ...], sent: dict[int, str]
) -> list[BaseModel]:
    """The chunks with the text that was not sent yet."""
    writer, chunks = streamed.writer, list[BaseModel]()
    for answer in finished:
        index = answer.index
        prefix = sent.get(index)
        if prefix is None:
            prefix = streamed.translated.prefix
            chunks += [opening] if (opening := writer.opening(index)) is not None else []
        if not answer.text.startswith(prefix):
            raise JobCancelled(_CONTRADICTED)
        # The chunk that ends an answer has no part of a call: OpenAI's client would not report the end of that call.
        if answer.parts.calls and (chunk := writer.chunk(index, prefix, answer.text)) is not None:
            chunks.append(chunk)
            prefix = answer.text
        if (chunk := writer.chunk(index, prefix, answer.text, answer)) is not None:
            chunks.append(chunk)
    return chunks


async def _events(service: Service, submitted: SubmittedJob) -> AsyncIterator[JobEvent | None]:
    """The events of a job until it ends, across storage failures. Yields None after a while without one."""
    after = ""
    while True:
        try:
            async with contextlib.aclosing(paced(service, submitted, after)) as events:
                async for event in events:
                    after = after if event is None else event.id
                    yield event
            return
        except StorageDown:
            async with submitted.until_deadline():
                await asyncio.sleep(STORAGE_RETRY_MS / 1000)


async def _result(service: Service, submitted: SubmittedJob) -> Any:
    async with submitted.until_deadline():
        while True:
            with contextlib.suppress(StorageDown):
                return await service.jobs.result(submitted.job_id)
            await asyncio.sleep(STORAGE_RETRY_MS / 1000)


def _data(chunk: BaseModel) -> bytes:
    if isinstance(chunk, EventGroup):
        return b"".join(format_sse_event(data_str=dump_json(event), event=event["type"]) for event in chunk.events)
    return format_sse_event(data_str=chunk.model_dump_json(exclude_none=False))
