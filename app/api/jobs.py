"""The routes of jobs: state, result, events and cancellation."""

from __future__ import annotations

import json
import re
from typing import Annotated, Literal, cast

from fastapi import APIRouter, Header, Path, Request, Response
from pydantic import Field

from app.api.dependencies import RESPOND_ASYNC, ServiceDependency, owner_of
from app.api.errors import refusal
from app.api.openapi import Responses, errors, job_stream
from app.api.schemas import Answer, ProblemBody, answer_of, to_json
from app.api.sse import LAST_ID, JobEvents
from app.errors import UnknownJob
from app.messages import Failure, StrictModel
from app.service import Service

ID = re.compile(r"[0-9a-f]{32}")
JobId = Annotated[str, Path(description="As `Location`, `x-job-id` or the `id` of an answer gave it")]
LastEventId = Annotated[
    str | None, Header(description="The `id` of the last event that was read: the stream resumes after it")
]
_ERRORS = errors(404, 500, 503)
router = APIRouter()


Kind = Literal["generate", "decode", "compile"]


class JobResponse(StrictModel):
    """A job. `submitted` is Unix time in s; `attempt` says how often a worker took it; `ahead`, how many go before it.

    `result` is what the POST would have answered, `error` what it would have been refused by.
    """

    id: str
    kind: Kind
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    submitted: float
    attempt: int
    ahead: int
    result: Answer | None = Field(union_mode="left_to_right")
    error: ProblemBody | None


async def job_response(request: Request, service: Service, job_id: str) -> JobResponse:
    """A job as its caller sees it now. Raises UnknownJob."""
    state, result = await service.state(job_id, owner_of(request))
    failed = isinstance(result, Failure)
    error = None
    if isinstance(result, Failure):
        # The stored failure goes through the same function as an answer, so both show the same fields.
        error = ProblemBody(**json.loads(refusal(result.as_error(), request.state.request_id).body))
    return JobResponse(
        id=job_id, kind=cast(Kind, state.kind), state="failed" if failed else state.state, submitted=state.submitted,
        attempt=state.attempt, ahead=state.ahead, error=error,
        result=None if failed or result is None else answer_of(job_id, result),
    )  # fmt: skip


async def accepted_response(request: Request, service: Service, job_id: str) -> Response:
    """The response 202 to a caller that does not wait. It names the job and its location."""
    body = await job_response(request, service, job_id)
    headers = {"location": f"/jobs/{job_id}", "preference-applied": RESPOND_ASYNC, "x-job-id": job_id}
    return Response(to_json(JobResponse, body), 202, headers=headers, media_type="application/json")


def _valid_id(job_id: str) -> str:
    # An id of another form never reaches the broker, where it would become part of a key.
    if not ID.fullmatch(job_id):
        raise UnknownJob("no job has this id, or its result has expired")
    return job_id


@router.get("/jobs/{job_id}", responses=_ERRORS, summary="Where a job is, and its answer once it has one")
async def job(request: Request, service: ServiceDependency, response: Response, job_id: JobId) -> JobResponse:
    body = await job_response(request, service, _valid_id(job_id))
    response.headers["cache-control"] = "no-store"
    return body


_CANCELLED: Responses = {
    200: {"description": "It was over already"},
    202: {"description": "It is cancelled", "model": JobResponse},
}


@router.delete("/jobs/{job_id}", responses=_CANCELLED | _ERRORS, summary="Cancel a job")
async def cancel_job(request: Request, service: ServiceDependency, response: Response, job_id: JobId) -> JobResponse:
    response.status_code = 202 if await service.cancel(_valid_id(job_id), owner_of(request)) else 200
    return await job_response(request, service, job_id)


_READ: Responses = job_stream(("GenerateResponse", "DecodeResponse", "CompileResponse")) | {
    204: {"description": "The last event was read already: there is no more to come back for"}
}


@router.get(
    "/jobs/{job_id}/events", status_code=200, responses=_READ | _ERRORS, response_class=Response, response_model=None,
    summary="The events of a job, after the last one that was read",
)
async def job_events(
    request: Request, service: ServiceDependency, job_id: JobId, last_event_id: LastEventId = None
) -> Response:
    # Before a header is sent: the job may be another's.
    await service.state(_valid_id(job_id), owner_of(request))
    if last_event_id == LAST_ID:  # 204 tells an EventSource to stop reconnecting
        return Response(status_code=204)
    reader = await service.subscribe(job_id)
    return JobEvents(reader, request.state.request_id, after=last_event_id or "")
