"""The routes of Anthropic's Messages API."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from app.anthropic.errors import MESSAGES
from app.anthropic.events import MESSAGE_EVENTS, MessagesAnswerBody
from app.anthropic.requests import CountTokensResponse, MessagesRequest, chat_of, own_path, stray_parts
from app.anthropic.writer import MessagesWriter
from app.api.dependencies import IdempotencyKey, ModelsDependency, while_connected
from app.api.json_route import JsonRoute
from app.api.openapi import errors, event, headers, stream_of, typed_events
from app.openai.chats.chat_turn import chat_family, chat_prompt
from app.openai.chats.tools import tool_use
from app.openai.responses_request import own_paths
from app.openai.routes import HEADERS, ignored_header, respond, translated_chat

_STREAM = stream_of(
    "With `stream`, events of the Messages API, whose names are their types, or `error` (as MessagesErrorBody)",
    (*typed_events(*MESSAGE_EVENTS), event("MessagesErrorBody", "error")), *HEADERS,
)
router = APIRouter(route_class=JsonRoute)


@router.post(
    MESSAGES, responses=_STREAM | errors(400, 404, 408, 413, 415, 422, 429, 500, 503, 504, 507),
    response_model=MessagesAnswerBody, summary="Answer messages (Anthropic)",
)
async def messages(
    request: Request, models: ModelsDependency, body: MessagesRequest, idempotency_key: IdempotencyKey = None
) -> Response:
    service = models.of(body.model)
    ignored = ignored_header(service, body, stray_parts(body))
    with own_paths(own_path):
        chat = await asyncio.to_thread(chat_of, body)
        translated = await translated_chat(request, service, chat)
        return await respond(request, service, body, (translated,), idempotency_key, MessagesWriter, ignored)


@router.post(
    f"{MESSAGES}/count_tokens",
    responses=errors(400, 404, 408, 413, 415, 422, 429, 500, 503, 504) | {200: headers("X-Ignored-Fields")},
    summary="Count the tokens of messages (Anthropic)",
)
async def count_tokens(
    request: Request, response: Response, models: ModelsDependency, body: MessagesRequest
) -> CountTokensResponse:
    service = models.of(body.model)
    response.headers.update(ignored_header(service, body, stray_parts(body)))
    with own_paths(own_path):
        chat = await asyncio.to_thread(chat_of, body)
        family = chat_family(service.files, service.settings.inference.chat_format)
        prompt = await asyncio.to_thread(chat_prompt, chat, service.files, tool_use(chat), family)
        counted = service.tokenize(prompt.text, add_special_tokens=False, markers=prompt.markers)
        return CountTokensResponse(input_tokens=len((await while_connected(request, counted)).ids))
