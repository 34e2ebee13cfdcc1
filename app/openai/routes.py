"""The paths. Each translates a request, has the service do it, and shapes what comes of it."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request, Response

from app.api.dependencies import IdempotencyKey, ServiceDependency, read_asking, until_gone
from app.api.openapi import Responses, errors
from app.openai.render import ChatWriter, CompletionWriter, Writer, answers, generated, now
from app.openai.requests import ChatRequest, CompletionRequest, OpenAIRequest
from app.openai.responses import ChatCompletion, Completion
from app.openai.stream import Chunks, StreamedAnswer
from app.openai.translate import TranslatedRequest, chat_order, completion_order, named
from app.service import Service

_FORMER = {"deprecation": "@1764720000"}  # RFC 9745; vLLM took leave of the guided_ fields with 0.12
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
    "/v1/completions", responses=_stream("Completion") | _ERRORS, response_model=Completion,
    summary="Continue a prompt, as OpenAI's clients ask for it",
)
async def completions(
    request: Request, service: ServiceDependency, body: CompletionRequest, idempotency_key: IdempotencyKey = None
) -> Response:
    order = await asyncio.to_thread(completion_order, body, service.most_tokens)  # large constraints are read meanwhile
    return await _answered(request, service, body, order, idempotency_key, CompletionWriter)


@router.post(
    "/v1/chat/completions", responses=_stream("ChatChunk") | _ERRORS, response_model=ChatCompletion,
    summary="Answer messages, as OpenAI's clients ask for it",
)
async def chat_completions(
    request: Request, service: ServiceDependency, body: ChatRequest, idempotency_key: IdempotencyKey = None
) -> Response:
    order = await asyncio.to_thread(chat_order, body, service.files, service.most_tokens)
    return await _answered(request, service, body, order, idempotency_key, ChatWriter)


async def _answered(
    request: Request,
    service: Service,
    body: OpenAIRequest,
    order: TranslatedRequest,
    key: str | None,
    kind: type[CompletionWriter] | type[ChatWriter],
) -> Response:
    asking = read_asking(request, body, key, None)
    with named(order.spelled, order.fields):
        submitted = await until_gone(request, service.begin_generate(order.order, asking))
        headers = {"x-job-id": submitted.job_id, **(_FORMER if order.former else {})}
        writer: Writer = kind(submitted.job_id, service.settings.model_id, order, now())
        if order.order.stream:
            await until_gone(
                request, service.reader(submitted).wait_until_compiled()
            )  # what fails before is an answer like any other
            streamed = StreamedAnswer(service, submitted, order, writer, body.usage_in_stream)
            return Chunks(streamed, _request_id(request), headers)
        result = generated(await until_gone(request, service.answer(submitted)))
    shown = writer.whole(result, answers(result, order, service.files))
    return Response(shown.model_dump_json(), media_type="application/json", headers=headers)


def _request_id(request: Request) -> Any:
    return request.state.request_id
