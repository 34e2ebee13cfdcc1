"""Adds errors, events and media types to the OpenAPI document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.api.errors import PROBLEM_TYPE

Responses = dict[int | str, dict[str, Any]]
EVENT_TYPE = "text/event-stream"
_MEANING = {
    400: "invalid_json, unknown_field, context_length_exceeded",
    404: "unknown_automaton, unknown_model, unknown_job, not_found", 405: "method_not_allowed",
    408: "request_timeout", 413: "body_too_large", 415: "unsupported_media_type",
    422: "invalid_request, constraint_syntax, constraint_unsatisfiable (of a policy with the rules in `conflict`, and "
    "the shortest `past` that leads there), constraint_too_large, unsupported, "
    "budget_too_small, undecided, prompt_violates, request_too_large, answer_too_large, "
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
_JSON = "application/json"


def headers(*names: str) -> dict[str, Any]:
    """The headers of a response, as the document describes them."""
    return {"headers": {name: {"description": _HEADERS[name], "schema": {"type": "string"}} for name in names}}


def event(schema: str | Sequence[str], *names: str, **fields: Any) -> dict[str, Any]:
    """The schema of an event whose data is JSON.

    schema  the schema of the data, or several of which it has one
    names   of the event; an unnamed one without any
    fields  the schemas of other fields that it has
    """
    schemas = (schema,) if isinstance(schema, str) else schema
    references = [{"$ref": f"#/components/schemas/{each}"} for each in schemas]
    content = references[0] if len(references) == 1 else {"anyOf": references}
    data = {"type": "string", "contentMediaType": _JSON, "contentSchema": content}
    name = {"event": {"enum": list(names)}} if names else {}
    return _object({**name, **fields, "data": data})


def bare_event(data: str, **fields: Any) -> dict[str, Any]:
    """The schema of an event that always has this data."""
    return _object({**fields, "data": {"const": data}})


def typed_events(*models: type[BaseModel]) -> list[dict[str, Any]]:
    """The schemas of events whose names are the `type` in their data."""
    return [event(model.__name__, *get_args(model.model_fields["type"].annotation)) for model in models]


def stream_of(description: str, events: Sequence[dict[str, Any]], *header_names: str) -> Responses:
    """A response that is a stream of such events. Each schema is that of one event."""
    description = f"{description}. Comments (`: ping`) keep the connection open"
    content = {EVENT_TYPE: {"schema": {"anyOf": list(events)}}}
    return {200: {"description": description, "content": content, **headers(*header_names)}}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False
    }


def job_stream(answers: Sequence[str], *header_names: str) -> Responses:
    """The stream of a job's events. The answer at its end is one of these."""
    id_schema = {"type": "string"}
    return stream_of(
        "The events `compiled`, `step`, `restarted` and `reconnect`, and at the end `done` (the answer) or `error`",
        (
            _object({"retry": {"type": "integer"}}),
            event("CompiledEventBody", "compiled", id=id_schema), event("StepEventBody", "step", id=id_schema),
            event("RestartEventBody", "restarted", id=id_schema),
            bare_event("{}", event={"enum": ["reconnect"]}, retry={"type": "integer"}),
            event(answers, "done", id={"const": "end"}), event("Problem", "error", id={"const": "end"}),
        ),
        *header_names,
    )  # fmt: skip


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
