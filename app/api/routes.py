"""The paths of the API. Each handler reads a request, calls the service and renders the answer."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from app.api.automaton_views import as_dot, as_json, as_svg
from app.api.decode_request import DecodeRequest
from app.api.dependencies import (
    ContextDependency,
    ModelsDependency,
    ServiceDependency,
    key_policy_of,
    owner_of,
    while_connected,
)
from app.api.jobs import JobResponse, accepted_response
from app.api.json_route import JsonRoute
from app.api.openapi import Responses, errors, headers, text
from app.api.schemas import (
    Answer,
    AutomatonResponse,
    CheckRequest,
    CompileRequest,
    answer_of,
    to_exact_json,
    to_json,
)
from app.errors import UnknownAutomaton
from app.messages import HASH, CheckResponse, CompileResponse, DecodeResponse, PolicyResponse
from app.service import ServedModels, Service, SubmittedJob
from compiler.artifact import CompiledConstraint

_CACHED = "public, max-age=86400, immutable"  # the automaton of a hash never changes
ACCEPTED: Responses = {
    202: {
        "description": "Asked for by `Prefer: respond-async`", "model": JobResponse,
        **headers("X-Job-Id", "Location", "Preference-Applied"),
    }
}
_JOB: Responses = {200: headers("X-Job-Id")}
JOB_ERRORS = errors(400, 408, 413, 415, 422, 429, 500, 503, 504)
LOOKUP_ERRORS = errors(404, 500, 503)
DOT_TYPE, SVG_TYPE = "text/vnd.graphviz", "image/svg+xml"
_PICTURE_ERRORS = LOOKUP_ERRORS | errors(422)
router = APIRouter(route_class=JsonRoute)


@router.post(
    "/compile", responses=_JOB | ACCEPTED | JOB_ERRORS | LOOKUP_ERRORS, summary="Compile a constraint and keep it",
    response_model=CompileResponse | PolicyResponse,
)
async def compile_constraint(
    request: Request, models: ModelsDependency, body: CompileRequest, context_of: ContextDependency
) -> Response:
    context, service = context_of(body), models.of(body.model)
    if policy := body.policy_params(key_policy_of(request)):
        return _json(PolicyResponse, await while_connected(request, service.apply_policy(policy)))
    # Without a key or `Prefer` the caller cannot come back for the answer, so no job of the caller is needed.
    if not context.detached:
        return _json(CompileResponse, await while_connected(request, _compile(service, body, context.owner)))
    submitted = await while_connected(request, service.begin_describe(body.spec(), body.explain, context))
    return await respond(request, service, submitted)


async def _compile(service: Service, body: CompileRequest, owner: str) -> CompileResponse:
    spec, explanation = body.spec(), None
    sizes = await service.constraints.compile(spec, owner)
    if body.explain:
        explanation = await service.constraints.explanation(sizes.automaton, spec, owner)
    return CompileResponse.of(sizes, explanation, await service.constraints.warnings(spec))


async def respond(request: Request, service: Service, submitted: SubmittedJob) -> Response:
    """The response to a job of one caller. It is the result, or at once the job's state for an asynchronous request."""
    if submitted.context.respond_async:
        return await accepted_response(request, service, submitted.job_id)
    result = await while_connected(request, service.answer(submitted))
    body = answer_of(submitted.job_id, result)
    job = {"x-job-id": submitted.job_id}
    return Response(to_json(Answer, body), media_type="application/json", headers=job)


@router.post(
    "/decode", responses=_JOB | ACCEPTED | JOB_ERRORS | LOOKUP_ERRORS, response_model=DecodeResponse,
    summary="Decode labels: a matrix of log-probs, or what a scorer writes",
)
async def decode(
    request: Request, service: ServiceDependency, body: DecodeRequest, context_of: ContextDependency
) -> Response:
    context = context_of(body)
    submitted = await while_connected(request, service.begin(body.to_params(service.scorers), context))
    return await respond(request, service, submitted)


@router.post(
    "/check", responses=JOB_ERRORS, summary="Check a text or a conversation; no model takes part",
    response_model=CheckResponse | PolicyResponse,
)
async def check(request: Request, service: ServiceDependency, body: CheckRequest) -> Response:
    if policy := body.policy_params(key_policy_of(request)):
        return _json(PolicyResponse, await while_connected(request, service.apply_policy(policy)))
    checked = await while_connected(request, service.check(body.spec(), body.subject(), body.conjuncts))
    return _json(CheckResponse, checked)


def _json(kind: type, body: object) -> Response:
    return Response(to_exact_json(kind, body), media_type="application/json")


async def _automaton(
    models: ServedModels, response: Response, automaton: str
) -> tuple[Service, CompiledConstraint]:
    """A stored constraint, and the service of its model."""
    # Only a hash may become part of a key of the store.
    if not HASH.fullmatch(automaton):
        raise UnknownAutomaton("the hash must have 64 hexadecimal digits, as POST /compile returns it")
    service = await models.of_automaton(automaton)
    constraint = await service.constraints.picture(automaton)
    response.headers["cache-control"] = _CACHED
    response.headers["etag"] = f'"{automaton}"'
    return service, constraint


@router.get(
    "/automata/{automaton}.dot", responses=text(DOT_TYPE) | _PICTURE_ERRORS, response_class=Response, summary="As DOT"
)
async def automaton_dot(models: ModelsDependency, response: Response, automaton: str) -> Response:
    _, constraint = await _automaton(models, response, automaton)
    # Large automata take a while to render: a thread keeps the event loop free.
    dot = await asyncio.to_thread(as_dot, constraint)
    return Response(dot, media_type=DOT_TYPE, headers=dict(response.headers))


@router.get(
    "/automata/{automaton}.svg", responses=text(SVG_TYPE) | _PICTURE_ERRORS, response_class=Response,
    summary="As a picture",
)
async def automaton_svg(models: ModelsDependency, response: Response, automaton: str) -> Response:
    _, constraint = await _automaton(models, response, automaton)
    svg = await asyncio.to_thread(as_svg, constraint)
    return Response(svg, media_type=SVG_TYPE, headers=dict(response.headers))


@router.get(
    "/automata/{automaton}", responses=_PICTURE_ERRORS, response_model=AutomatonResponse,
    summary="States, distances and transitions",
)
async def automaton_json(
    request: Request, models: ModelsDependency, response: Response, automaton: str
) -> Response:
    service, constraint = await _automaton(models, response, automaton)
    explaining = service.constraints.explanation(automaton, constraint.spec, owner_of(request))
    explanation = await while_connected(request, explaining)
    if explanation is None:  # a later request may get one, so this answer must not be cached
        del response.headers["cache-control"], response.headers["etag"]

    def written() -> bytes:
        return to_exact_json(AutomatonResponse, as_json(automaton, constraint, explanation))

    content = await asyncio.to_thread(written)
    return Response(content, media_type="application/json", headers=dict(response.headers))
