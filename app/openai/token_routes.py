"""The served models and their tokenizers: `/v1/models`, `/tokenize` and `/detokenize` as vLLM has them."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Self

from fastapi import APIRouter, Request, Response
from pydantic import Field, model_validator

from app.api.dependencies import ModelsDependency, while_connected
from app.api.json_route import JsonRoute
from app.api.openapi import errors
from app.api.schemas import ModelCardBody, ModelListResponse
from app.errors import RouteNotFound
from app.openai.chats.chat_turn import chat_family, chat_prompt
from app.openai.chats.markers import RenderedPrompt
from app.openai.chats.tools import tool_use
from app.openai.fields import BUILD_AT_ONCE, OpenBody
from app.openai.requests import ChatRequest, MessageBody, TemplateArguments, Tools
from app.openai.responses import DeferredModel
from app.openai.unknown_fields import header_of, ignored_fields
from app.service import Service

_NO_EMBEDDINGS = "/v1/embeddings is not served: this service generates text, and its model makes no embeddings"
_LOOKUP_ERRORS, _JOB_ERRORS = errors(404, 500, 503), errors(400, 404, 408, 413, 415, 422, 429, 500, 503, 504)
router = APIRouter(route_class=JsonRoute)


class TokenizeRequest(OpenBody):
    """A prompt, or messages of a chat, to tokenize."""

    model_config = BUILD_AT_ONCE

    model: str | None = None
    prompt: str | None = None
    messages: list[MessageBody] | None = Field(None, min_length=1, fail_fast=True)
    add_special_tokens: bool | None = Field(
        None, description="Whether the tokenizer adds its own first tokens; default: true for a prompt, false for "
        "messages, whose template writes them"
    )
    add_generation_prompt: bool | None = None
    chat_template_kwargs: TemplateArguments = None
    tools: Tools = None
    return_token_strs: bool | None = Field(None, description="Whether to return the tokenizer's name of each token")

    @model_validator(mode="after")
    def _one_text(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give exactly one of prompt and messages")
        return self


class TokenizeResponse(DeferredModel):
    """Token ids. `max_model_len` is the model's context, null without a limit."""

    count: int
    max_model_len: int | None
    tokens: tuple[int, ...]
    token_strs: tuple[str, ...] | None = None


class DetokenizeRequest(OpenBody):
    """Token ids whose text is asked for."""

    model_config = BUILD_AT_ONCE

    model: str | None = None
    tokens: Annotated[list[int], Field(fail_fast=True)]


class DetokenizeResponse(DeferredModel):
    """The text of token ids, special tokens by their names."""

    prompt: str


def _card(service: Service) -> ModelCardBody:
    context_tokens = service.files.context_tokens
    return ModelCardBody(
        id=service.model, root=service.model, parent=service.parent,
        context_tokens=context_tokens, max_model_len=context_tokens, vocabulary=service.files.vocabulary.size,
    )  # fmt: skip


@router.get("/v1/models", responses=errors(500, 503), summary="The served models")
async def models(models: ModelsDependency) -> ModelListResponse:
    return ModelListResponse(data=tuple(map(_card, models)))


@router.get("/v1/models/{model}", responses=_LOOKUP_ERRORS, summary="A served model by its name")
async def model_by_name(models: ModelsDependency, model: str) -> ModelCardBody:
    return _card(models.of(model))


@router.get("/v1/models/{owner}/{model}", responses=_LOOKUP_ERRORS, summary="A served model by its name on a hub")
async def model_of_hub(models: ModelsDependency, owner: str, model: str) -> ModelCardBody:
    return await model_by_name(models, f"{owner}/{model}")


@router.post("/tokenize", responses=_JOB_ERRORS, summary="Tokenize a prompt or messages (vLLM)")
@router.post("/v1/tokenize", responses=_JOB_ERRORS, summary="Tokenize a prompt or messages")
async def tokenize(
    request: Request, response: Response, models: ModelsDependency, body: TokenizeRequest
) -> TokenizeResponse:
    service = models.of(body.model)
    response.headers.update(header_of(ignored_fields(body, service.settings.requests.unknown_fields)))
    text, markers = body.prompt, None
    if text is None:
        prompt = await asyncio.to_thread(_chat_prompt, body, service)
        text, markers = prompt.text, prompt.markers
    first = body.prompt is not None if body.add_special_tokens is None else body.add_special_tokens
    result = await while_connected(request, service.tokenize(text, first, markers))
    names = result.names if body.return_token_strs else None
    return TokenizeResponse(
        count=len(result.ids), max_model_len=service.files.context_tokens, tokens=result.ids, token_strs=names
    )


def _chat_prompt(body: TokenizeRequest, service: Service) -> RenderedPrompt:
    fields: dict[str, Any] = {
        name: getattr(body, name) for name in ("messages", "add_generation_prompt", "chat_template_kwargs", "tools")
    }
    chat = ChatRequest.model_construct(**fields)  # its parts are validated
    family = chat_family(service.files, service.settings.inference.chat_format)
    return chat_prompt(chat, service.files, tool_use(chat), family)


@router.post("/detokenize", responses=_JOB_ERRORS, summary="The text of token ids (vLLM)")
@router.post("/v1/detokenize", responses=_JOB_ERRORS, summary="The text of token ids")
async def detokenize(
    request: Request, response: Response, models: ModelsDependency, body: DetokenizeRequest
) -> DetokenizeResponse:
    service = models.of(body.model)
    response.headers.update(header_of(ignored_fields(body, service.settings.requests.unknown_fields)))
    result = await while_connected(request, service.tokenize(tuple(body.tokens)))
    return DetokenizeResponse(prompt=result.text)


@router.post("/v1/embeddings", responses=errors(404), summary="Not served: this service makes no embeddings")
async def embeddings() -> None:
    raise RouteNotFound(_NO_EMBEDDINGS)
