"""POST /generate. Its messages are read as those of a chat: both have the same prompts, tools and policies."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from fastapi import APIRouter, Request, Response

from app.api.dependencies import ContextDependency, ModelsDependency, require_no_key_policy, while_connected
from app.api.json_route import JsonRoute
from app.api.openapi import errors, job_stream
from app.api.routes import ACCEPTED, JOB_ERRORS, LOOKUP_ERRORS, respond
from app.api.schemas import GenerateRequest, GenerateResponse
from app.api.sse import JobEvents
from app.formats import AUTO, AnswerReader
from app.messages import constraint_warnings
from app.models import ModelFiles
from app.openai.chats.chat_turn import answer_constraint, chat_turn
from app.openai.chats.policies import AppliedPolicy, applied_policy
from app.openai.constraints import ParsedConstraint
from app.openai.fields import validated
from app.openai.requests import ChatRequest, MessageBody
from app.openai.tool_bodies import ToolBody
from app.openai.translate import check_chat, constraint_with_stops, request_paths
from app.requests import GenerateParams
from app.service import EventSubscription, Service
from compiler.spec import spec_from_json

_TEXT_READER = AnswerReader(calls=None, tools=(), reply="", thinking=None)
_STREAM = job_stream(("GenerateResponse",), "X-Job-Id", "Location")
router = APIRouter(route_class=JsonRoute)


@dataclass(frozen=True, slots=True)
class NativeRequest:
    """A request for the service.

    constraint  of the whole answer, which has the request's own one for a reply to messages; None without any
    """

    params: GenerateParams
    constraint: ParsedConstraint | None


@router.post(
    "/generate", responses=_STREAM | ACCEPTED | JOB_ERRORS | LOOKUP_ERRORS | errors(507),
    response_model=GenerateResponse, summary="Continue a prompt or a conversation under a constraint",
)
async def generate(
    request: Request, models: ModelsDependency, body: GenerateRequest, context_of: ContextDependency
) -> Response:
    context, service = context_of(body), models.of(body.model)
    if body.messages is None:
        require_no_key_policy(request, "send `messages` in its place")
        translated, renamed = translate_prompt(body), None
    else:
        translated, renamed = await _translated(request, service, body), {"prompt": "messages"}
    with request_paths(translated.constraint, renamed):
        submitted = await while_connected(request, service.begin(translated.params, context))
        reader = EventSubscription(service, submitted)
        if not context.respond_async:
            # An earlier failure gets a plain response instead of events. Its paths are those of the whole constraint,
            # unlike the paths in a failure of the job.
            await while_connected(request, reader.wait_until_begun())
    if context.respond_async or not body.stream:
        return await respond(request, service, submitted)
    headers = {"x-job-id": submitted.job_id, "location": f"/jobs/{submitted.job_id}"}
    return JobEvents(reader, request.state.request_id, headers=headers)


async def _translated(request: Request, service: Service, body: GenerateRequest) -> NativeRequest:
    """Translates a request with messages, to which its policy is applied first."""
    chat = await asyncio.to_thread(chat_of, body)
    check_chat(chat)
    policy = await applied_policy(request, service, chat)
    form = service.settings.inference.chat_format
    # In a thread: reading a large constraint would block the event loop.
    return await asyncio.to_thread(translate_messages, body, chat, service.files, form=form, policy=policy)


def chat_of(body: GenerateRequest) -> ChatRequest:
    """The chat that a request means. Raises InvalidRequest for tools and messages that chats do not take."""
    messages = [
        validated(MessageBody, message.model_dump(exclude_none=True), f"messages.{number}")
        for number, message in enumerate(body.messages or ())
    ]
    tools = None if body.tools is None else [
        validated(ToolBody, tool.model_dump(exclude_none=True), f"tools.{number}")
        for number, tool in enumerate(body.tools)
    ]
    return ChatRequest.model_construct(
        messages=messages, tools=tools, tool_choice=body.tool_choice, parallel_tool_calls=body.parallel_tool_calls,
        policy=body.policy, constraint=body.constraint, automaton=body.automaton,
    )  # fmt: skip


def translate_prompt(body: GenerateRequest) -> NativeRequest:
    """Translates a request with a prompt. Raises SpecSyntaxError."""
    params = body.to_params()
    parsed = None if body.constraint is None else ParsedConstraint(body.constraint, "", "")
    if body.stop and parsed is not None and params.spec is not None:
        # What is probably a mistake is said in the terms of the constraint as it is written.
        warnings = constraint_warnings(params.spec)
        constraint, removable = constraint_with_stops(body.stop, parsed, is_chat=False)
        params = replace(
            params, spec=spec_from_json(constraint), stops=removable, excludes_stops=True, warnings=warnings
        )
    return NativeRequest(params, parsed)


def translate_messages(
    body: GenerateRequest, chat: ChatRequest, files: ModelFiles, *, form: str = AUTO,
    policy: AppliedPolicy | None = None,
) -> NativeRequest:
    """Translates a request with messages. Raises what `chat_turn` raises, and SpecSyntaxError."""
    turn = chat_turn(chat, files, form=form, policy=policy)
    written, stops = body.constraint, body.stop
    free_stops: tuple[str, ...] = ()
    parsed = None if written is None else ParsedConstraint(written, "", "")
    reader = _TEXT_READER
    if turn.answer is not None and body.automaton is None:
        if written is None:
            stops, free_stops = (), body.stop  # those of any text bind the reply alone
        answer = replace(turn.answer, reply_spec=written, stops=free_stops)
        parsed, reader = answer_constraint(answer, parsed), answer.reader
    removable: tuple[str, ...] = ()
    with request_paths(parsed):
        if body.automaton is None:
            constraint, removable = constraint_with_stops(stops, parsed, is_chat=True)
            body = body.model_copy(update={"constraint": constraint})
        params = body.to_params()
    places = None if parsed is None or not parsed.path else parsed.places
    warnings = () if written is None else constraint_warnings(spec_from_json(written))
    params = replace(
        params, prompt=turn.prompt.text, markers=turn.prompt.markers, answer=reader.as_dict(), messages=True,
        places=places, warnings=warnings, stops=free_stops or removable, excludes_stops=bool(stops),
    )  # fmt: skip
    return NativeRequest(params, parsed)
