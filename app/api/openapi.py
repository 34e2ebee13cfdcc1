"""Adds errors, events and media types to the OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from app.api.errors import PROBLEM_TYPE

Responses = dict[int | str, dict[str, Any]]
_MEANING = {
    400: "invalid_json, unknown_field", 404: "unknown_automaton, unknown_model, unknown_job, not_found",
    405: "method_not_allowed",
    408: "request_timeout", 413: "body_too_large", 415: "unsupported_media_type",
    422: "invalid_request, constraint_syntax, constraint_unsatisfiable (of a policy with the rules in `conflict`, and "
    "the shortest `past` that leads there), constraint_too_large, unsupported, "
    "budget_too_small, undecided, prompt_too_long, prompt_violates, request_too_large, answer_too_large, "
    "idempotency_mismatch",
    429: "queue_full, deadline_unreachable, with Retry-After", 500: "internal, replay_rejected, worker_lost",
    503: "not_ready, model_unavailable, cancelled, draining, storage_down, memory_taken, all with Retry-After",
    504: "deadline", 507: "out_of_memory",
}
_HEADERS = {
    "X-Job-Id": "The id of the request's job, for `/jobs/{job_id}`; those of several prompts are separated by commas",
    "X-Ignored-Fields": "The paths of unknown fields, which had no effect; absent if there are none",
    "Deprecation": "When the request's spelling of a constraint became deprecated (RFC 9745); absent for other ones",
    "Location": "The path of the job",
    "Preference-Applied": "`respond-async`",
}
_EVENT = {  # one of the stream
    "type": "object", "properties": {name: {"type": "string"} for name in ("event", "id", "data")},
    "required": ["event", "data"],
}


def headers(*names: str) -> dict[str, Any]:
    """The headers of a response, as the document describes them."""
    return {"headers": {name: {"description": _HEADERS[name], "schema": {"type": "string"}} for name in names}}


EVENT_STREAM: Responses = {
    200: {
        "description": "The events `compiled` (as CompiledEventBody), `step` (as StepEventBody), "
        "`restarted` (as RestartEventBody), `reconnect`, and `done` (the answer) or `error` (as Problem)",
        "content": {"text/event-stream": {"schema": _EVENT}},
        **headers("X-Job-Id", "Location"),
    }
}


def errors(*statuses: int) -> Responses:
    """The problems that a path answers with these statuses."""
    return {status: problem_response(_MEANING[status]) for status in statuses}


def problem_response(description: str) -> dict[str, Any]:
    """The answer of a path that is a problem."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": description, "content": {PROBLEM_TYPE: {"schema": schema}}}


def component_schemas(*models: type) -> dict[str, Any]:
    """The schemas of bodies and their parts, by name."""
    pairs = [(model, "serialization") for model in models]
    _, document = models_json_schema(pairs, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    return dict(document["$defs"])


def text(media_type: str) -> Responses:
    """An answer that is a text of this type."""
    return {200: {"content": {media_type: {"schema": {"type": "string"}}}}}
