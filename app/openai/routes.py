"""The OpenAI-compatible routes. Each translates its request, runs it in the service and renders the result."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from fastapi import APIRouter, Request, Response

from app.api.dependencies import (
    ContextFactory,
    IdempotencyKey,
    ModelsDependency,
    require_no_key_policy,
    while_connected,
)
from app.api.json_route import JsonRoute
from app.api.openapi import Responses, bare_event, errors, event, stream_of, typed_events
from app.messages import GenerateJobResult
from app.openai.chats.policies import applied_policy
from app.openai.render import ChatWriter, CompletionWriter, Writer, answers, generated, merged
from app.openai.requests import ChatRequest, CompletionRequest, OpenAIRequest
from app.openai.response_events import RESPONSE_EVENTS, ResponseBody
from app.openai.responses import ChatCompletionResponse, CompletionResponse
from app.openai.responses_request import ResponsesRequest, chat_of, echoed_fields, own_paths, stray_parts
from app.openai.responses_writer import ResponsesWriter
from app.openai.stream import ChunkStream, StreamedAnswer
from app.openai.translate import TranslatedRequest, infill_tokens, request_paths, translate_chat, translations
from app.openai.unknown_fields import StrayField, header_of, ignored_fields
from app.service import EventSubscription, Service, SubmissionContext, SubmittedJob
from app.tasks import cancel_tasks
from compiler.exact_json import dump_json

_DEPRECATION = {"deprecation": "@1764720000"}  # RFC 9745: the date of vLLM 0.12, which removed the guided_ fields
_ERRORS = errors(400, 404, 408, 413, 415, 422, 429, 500, 503, 504, 507)
router = APIRouter(route_class=JsonRoute)


HEADERS = ("X-Job-Id", "X-Ignored-Fields", "Deprecation")


def _stream(chunk: str) -> Responses:
    return stream_of(
        f"With `stream`, events whose data is a {chunk}, an error (as ErrorBody), or at the end `[DONE]`",
        (event(chunk), event("ErrorBody"), bare_event("[DONE]")), *HEADERS,
    )  # fmt: skip


_RESPONSE_STREAM = stream_of(
    "With `stream`, events of the Responses API, whose names are their types, or an error (as ErrorBody)",
    (*typed_events(*RESPONSE_EVENTS), event("ErrorBody")), *HEADERS,
)


@router.post(
    "/v1/completions", responses=_stream("CompletionResponse") | _ERRORS, response_model=CompletionResponse,
    summary="Continue a prompt (OpenAI)",
)
async def completions(
    request: Request, models: ModelsDependency, body: CompletionRequest, idempotency_key: IdempotencyKey = None
) -> Response:
    service = models.of(body.model)
    ignored = ignored_header(service, body)
    require_no_key_policy(request, "send `messages` to /v1/chat/completions")
    suffix_tokens = 0
    if body.suffix and infill_tokens(service.files) is None:
        suffix_tokens = len((await service.tokenize(body.suffix, add_special_tokens=False)).ids)
    # In a thread: reading a large constraint would block the event loop.
    translated = await asyncio.to_thread(translations, body, service.files, service.most_tokens, suffix_tokens)
    return await respond(request, service, body, translated, idempotency_key, CompletionWriter, ignored)


@router.post(
    "/v1/chat/completions", responses=_stream("ChatChunkBody") | _ERRORS, response_model=ChatCompletionResponse,
    summary="Answer messages (OpenAI)",
)
async def chat_completions(
    request: Request, models: ModelsDependency, body: ChatRequest, idempotency_key: IdempotencyKey = None
) -> Response:
    service = models.of(body.model)
    ignored = ignored_header(service, body)
    translated = await translated_chat(request, service, body)
    return await respond(request, service, body, (translated,), idempotency_key, ChatWriter, ignored)


@router.post(
    "/v1/responses", responses=_RESPONSE_STREAM | _ERRORS, response_model=ResponseBody,
    summary="Answer a conversation by a response (OpenAI)",
)
async def responses(
    request: Request, models: ModelsDependency, body: ResponsesRequest, idempotency_key: IdempotencyKey = None
) -> Response:
    service = models.of(body.model)
    ignored = ignored_header(service, body, stray_parts(body))
    with own_paths():
        chat = await asyncio.to_thread(chat_of, body)
        translated = await translated_chat(request, service, chat)
        writer = functools.partial(ResponsesWriter, echoed=echoed_fields(body))
        return await respond(request, service, body, (translated,), idempotency_key, writer, ignored)


def ignored_header(service: Service, body: OpenAIRequest, further: Iterable[StrayField] = ()) -> dict[str, str]:
    """The response header that names ignored fields. Raises what `ignored_fields` raises."""
    policy, eos_ids = service.settings.requests.unknown_fields, service.files.vocabulary.eos_ids
    return header_of(ignored_fields(body, policy, further, eos_ids=eos_ids))


async def translated_chat(request: Request, service: Service, body: ChatRequest) -> TranslatedRequest:
    """Translates a chat, whose policy is applied to its messages first."""
    policy = await applied_policy(request, service, body)
    translate = functools.partial(translate_chat, form=service.settings.inference.chat_format, policy=policy)
    # In a thread: reading a large constraint would block the event loop.
    return await asyncio.to_thread(translate, body, service.files, service.most_tokens)


async def respond(
    request: Request,
    service: Service,
    body: OpenAIRequest,
    translated: Sequence[TranslatedRequest],
    key: str | None,
    writer_type: Callable[[str, str, TranslatedRequest], Writer],
    ignored: Mapping[str, str],
) -> Response:
    """Runs a translated request, and renders its answers or their stream."""
    context, first = ContextFactory(request, key)(body), translated[0]
    with request_paths(first.constraint, first.renamed):
        submitted = await while_connected(request, _begin(service, translated, context))
        sent = {"x-job-id": ", ".join(job.job_id for job in submitted), **ignored}
        sent |= _DEPRECATION if first.deprecated else {}
        writer = writer_type(submitted[0].job_id, service.model, first)
        firsts = range(0, first.n * len(translated), first.n)
        if first.params.stream:
            # A failed compilation, and a refusal by the worker, are answered with their own status.
            await while_connected(request, EventSubscription(service, submitted[0]).wait_until_begun())
            closes = body.usage_in_stream or writer.always_closes
            streamed = [
                StreamedAnswer(service, job, one, replace(writer, translated=one), closes, number)
                for job, one, number in zip(submitted, translated, firsts, strict=True)
            ]
            return ChunkStream(streamed, request.state.request_id, sent)
        results = await while_connected(request, _results(service, submitted))
    finished = [
        answer
        for result, one, number in zip(results, translated, firsts, strict=True)
        for answer in answers(result, one, service.files, number)
    ]
    response = writer.response(merged(results), tuple(finished))
    content = dump_json(response.model_dump(), ensure_ascii=False) if writer.has_json else response.model_dump_json()
    return Response(content, media_type="application/json", headers=sent)


async def _begin(
    service: Service, translated: Sequence[TranslatedRequest], context: SubmissionContext
) -> list[SubmittedJob]:
    """Submits a job for each prompt. If one is refused, the others are given up."""
    submitted = list[SubmittedJob]()
    try:
        for number, one in enumerate(translated):
            # No caller's key has a space, so these keys belong to no other request.
            key = context.key if context.key is None or number == 0 else f"{context.key} {number}"
            submitted.append(await service.begin(one.params, replace(context, key=key)))
    except BaseException:
        for job in submitted:
            service.jobs.unsubscribe_soon(*job.shares)
        raise
    return submitted


async def _results(service: Service, submitted: Sequence[SubmittedJob]) -> list[GenerateJobResult]:
    """The results of all jobs. If one fails, the others are given up."""
    waiting = [asyncio.ensure_future(service.answer(job)) for job in submitted]
    try:
        return [generated(result) for result in await asyncio.gather(*waiting)]
    finally:
        await cancel_tasks(*waiting)
