"""The OpenAI-compatible routes. Each translates its request, runs it in the service and renders the result."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from app.api.dependencies import ContextFactory, IdempotencyKey, ServiceDependency, while_connected
from app.api.openapi import Responses, errors
from app.openai.render import ChatWriter, CompletionWriter, Writer, answers, generated
from app.openai.requests import ChatRequest, CompletionRequest, OpenAIRequest
from app.openai.responses import ChatCompletionResponse, CompletionResponse
from app.openai.stream import ChunkStream, StreamedAnswer
from app.openai.translate import TranslatedRequest, request_paths, translate_chat, translate_completion
from app.service import EventSubscription, Service

_DEPRECATION = {"deprecation": "@1764720000"}  # RFC 9745: the date of vLLM 0.12, which removed the guided_ fields
_ERRORS = errors(400, 404, 408, 413, 415, 422, 429, 500, 503, 504, 507)
router = APIRouter()


def _stream(chunk: str) -> Responses:
    event = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
    return {
        200: {
            "description": f"With `stream`, events whose data is a {chunk}, an error (as ErrorBody) or `[DONE]`",
            "content": {"text/event-stream": {"schema": event}},
        }
    }


@router.post(
    "/v1/completions", responses=_stream("CompletionResponse") | _ERRORS, response_model=CompletionResponse,
    summary="Continue a prompt (OpenAI)",
)
async def completions(
    request: Request, service: ServiceDependency, body: CompletionRequest, idempotency_key: IdempotencyKey = None
) -> Response:
    # In a thread: reading a large constraint would block the event loop.
    translated = await asyncio.to_thread(translate_completion, body, service.most_tokens)
    return await _respond(request, service, body, translated, idempotency_key, CompletionWriter)


@router.post(
    "/v1/chat/completions", responses=_stream("ChatChunkBody") | _ERRORS, response_model=ChatCompletionResponse,
    summary="Answer messages (OpenAI)",
)
async def chat_completions(
    request: Request, service: ServiceDependency, body: ChatRequest, idempotency_key: IdempotencyKey = None
) -> Response:
    translated = await asyncio.to_thread(translate_chat, body, service.files, service.most_tokens)
    return await _respond(request, service, body, translated, idempotency_key, ChatWriter)


async def _respond(
    request: Request,
    service: Service,
    body: OpenAIRequest,
    translated: TranslatedRequest,
    key: str | None,
    writer_type: type[Writer],
) -> Response:
    context = ContextFactory(request, key)(body)
    params = translated.params
    with request_paths(translated.constraint, translated.renamed):
        submitted = await while_connected(request, service.begin(params, context))
        headers = {"x-job-id": submitted.job_id, **(_DEPRECATION if translated.deprecated else {})}
        writer = writer_type(submitted.job_id, service.settings.inference.model_id, translated)
        if params.stream:
            # A failed compilation is answered with its own status, so the stream starts after it.
            await while_connected(request, EventSubscription(service, submitted).wait_until_compiled())
            streamed = StreamedAnswer(service, submitted, translated, writer, body.usage_in_stream)
            return ChunkStream(streamed, request.state.request_id, headers)
        result = generated(await while_connected(request, service.answer(submitted)))
    response = writer.response(result, answers(result, translated, service.files))
    return Response(response.model_dump_json(), media_type="application/json", headers=headers)
