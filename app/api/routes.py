"""The paths of the API. Each handler reads a request, tells the service, and shapes the answer."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from fastapi import APIRouter, Request, Response

from app.api.decode import DecodeRequest, DecodeResponse, decode_response
from app.api.errors import PROBLEM_TYPE
from app.api.generation import GenerateRequest, GenerateResponse, generate_response
from app.api.picture import as_dot, as_json, as_svg
from app.api.schemas import (
    AutomatonResponse,
    CheckRequest,
    CheckResponse,
    CompileRequest,
    CompileResponse,
    ModelCard,
    ModelList,
    Status,
)
from app.api.stream import Generation, GenerationEvents, Mailbox
from app.errors import ClientGone, NotReady, UnknownAutomaton
from app.jobs import CompileResult
from app.keys import HASH
from app.service import Service
from compiler.compiled import Compiled
from compiler.explain import Explanation

T = TypeVar("T")
_MEANING = {
    400: "invalid_json", 404: "unknown_automaton, unknown_model, not_found", 405: "method_not_allowed",
    408: "request_timeout", 413: "body_too_large", 415: "unsupported_media_type",
    422: "invalid_request, constraint_syntax, constraint_unsatisfiable, constraint_too_large, unsupported, "
    "budget_too_small, prompt_too_long, prompt_violates, request_too_large",
    429: "queue_full, with Retry-After", 500: "internal, replay_rejected",
    503: "not_ready, model_unavailable, cancelled, all with Retry-After", 504: "deadline",
}
_CACHED = "public, max-age=86400, immutable"  # an automaton's hash says all that is in it


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {status: {"description": _MEANING[status], "content": {PROBLEM_TYPE: schema}} for status in statuses}


def _text(media_type: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {media_type: {"schema": {"type": "string"}}}}}


_JOB_ERRORS = _errors(400, 408, 413, 415, 422, 429, 500, 503, 504)
_LOOKUP_ERRORS = _errors(404, 500, 503)
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The answer; with `stream` the events `compiled` (as CompiledEvent), `step` (as StepEvent), and "
        "`done` (the answer) or `error` (as Problem)",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}
DOT_TYPE, SVG_TYPE = "text/vnd.graphviz", "image/svg+xml"
_PICTURE_ERRORS = _LOOKUP_ERRORS | _errors(422)
router = APIRouter()


def service_of(request: Request) -> Service:
    """The service of the application. Raises NotReady until the application has started it."""
    service = getattr(request.app.state, "service", None)
    if service is None:
        raise NotReady(("the service is starting",))
    return cast(Service, service)


async def until_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client closes the connection. Raises ClientGone then."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone("the client closed the connection")
        return task.result()
    finally:
        for pending in (task, gone):
            if not pending.done():
                pending.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await pending


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@router.post("/compile", responses=_JOB_ERRORS | _LOOKUP_ERRORS, summary="Compile a constraint and keep it")
async def compile_constraint(request: Request, body: CompileRequest) -> CompileResponse:
    result, explanation = await until_gone(request, _compiled(service_of(request), body))
    fields = {name: getattr(result, name) for name in CompileResponse.model_fields if name != "explanation"}
    return CompileResponse(**fields, explanation=explanation)


async def _compiled(service: Service, body: CompileRequest) -> tuple[CompileResult, Explanation | None]:
    spec = body.spec()
    result = await service.compile(spec, body.model)
    return result, await service.explanation(result.automaton, spec) if body.explain else None


@router.post(
    "/generate", responses=_EVENTS | _JOB_ERRORS | _LOOKUP_ERRORS, response_model=GenerateResponse,
    summary="Continue a prompt under a constraint",
)
async def generate(request: Request, body: GenerateRequest) -> GenerateResponse | GenerationEvents:
    service = service_of(request)
    shape = functools.partial(generate_response, model=service.settings.model_id)
    if not body.stream:
        return shape(await until_gone(request, service.generate(body.order())))
    mailbox = Mailbox()
    generation = Generation(mailbox, service.generate(body.order(), mailbox.put))
    await until_gone(request, generation.begun())  # what fails before is answered as if nobody had asked for events
    return GenerationEvents(generation, shape, request.state.request_id)


@router.post("/decode", responses=_JOB_ERRORS | _LOOKUP_ERRORS, summary="Decode a matrix of log-probs over labels")
async def decode(request: Request, body: DecodeRequest) -> DecodeResponse:
    return decode_response(await until_gone(request, service_of(request).decode(body.order())))


@router.post("/check", responses=_JOB_ERRORS, summary="Check a text; no model takes part")
async def check(request: Request, body: CheckRequest) -> CheckResponse:
    result = await until_gone(request, service_of(request).check(body.spec(), body.subject()))
    return CheckResponse(satisfied=result.satisfied, words=result.words, violated_at=result.violated_at)


async def _automaton(request: Request, response: Response, automaton: str) -> Compiled:
    if not HASH.fullmatch(automaton):
        raise UnknownAutomaton("a hash is 64 hexadecimal digits, as POST /compile answers it")
    compiled = await service_of(request).picture(automaton)
    response.headers["cache-control"] = _CACHED
    response.headers["etag"] = f'"{automaton}"'
    return compiled


@router.get(
    "/automata/{automaton}.dot", responses=_text(DOT_TYPE) | _PICTURE_ERRORS, response_class=Response, summary="As DOT"
)
async def automaton_dot(request: Request, response: Response, automaton: str) -> Response:
    compiled = await _automaton(request, response, automaton)
    dot = await asyncio.to_thread(as_dot, compiled)
    return Response(dot, media_type=DOT_TYPE, headers=dict(response.headers))


@router.get(
    "/automata/{automaton}.svg", responses=_text(SVG_TYPE) | _PICTURE_ERRORS, response_class=Response,
    summary="As a picture",
)
async def automaton_svg(request: Request, response: Response, automaton: str) -> Response:
    compiled = await _automaton(request, response, automaton)
    svg = await asyncio.to_thread(as_svg, compiled)
    return Response(svg, media_type=SVG_TYPE, headers=dict(response.headers))


@router.get("/automata/{automaton}", responses=_PICTURE_ERRORS, summary="States, distances and transitions")
async def automaton_json(request: Request, response: Response, automaton: str) -> AutomatonResponse:
    compiled = await _automaton(request, response, automaton)
    explanation = await until_gone(request, service_of(request).explanation(automaton, compiled.spec))
    if explanation is None:  # there may be one when it is asked for again
        del response.headers["cache-control"], response.headers["etag"]
    return await asyncio.to_thread(as_json, automaton, compiled, explanation)


@router.get("/v1/models", responses=_errors(500, 503), summary="The served model")
async def models(request: Request) -> ModelList:
    service = service_of(request)
    card = ModelCard(
        id=service.settings.model_id, context_tokens=service.files.context_tokens,
        vocabulary=service.files.vocabulary.size,
    )
    return ModelList(data=(card,))


@router.get("/health", summary="The process is alive")
async def health() -> Status:
    return Status(status="ok")


@router.get("/ready", responses=_errors(503), summary="Requests would be served now")
async def ready(request: Request) -> Status:
    reasons = await service_of(request).reasons_not_ready()
    if reasons:
        raise NotReady(reasons)
    return Status(status="ready")
