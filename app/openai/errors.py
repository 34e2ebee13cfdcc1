"""Errors under /v1 in OpenAI's format.

The format is the same for errors of routes, of middleware and of body parsing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fastapi import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.errors import PROBLEM_TYPE, Problem
from app.api.openapi import component_schemas
from app.openai.response_events import RESPONSE_EVENTS
from app.openai.responses import ChatChunkBody, CompletionResponse, ErrorBody

PREFIX = "/v1/"
ERROR_TYPE = "application/json"
_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_PROBLEM_FIELDS = ("type", "title", "status", "detail", "code")  # translated; all others are copied
_CODE_PARAMS = {"budget_too_small": "max_tokens", "undecided": "max_tokens", "unknown_model": "model"}
_PATH_FIELDS = ("field", "path")  # name the parameter if there is no `errors`


def error_body(problem: bytes) -> bytes:
    """A problem document in OpenAI's format, with its further fields."""
    status, fields = error_fields(problem)
    kind = _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return json.dumps({"error": {"message": fields.pop("message"), "type": kind, **fields}}, ensure_ascii=True).encode()


def error_fields(problem: bytes) -> tuple[int, dict[str, Any]]:
    """The status of a problem document, and its fields below /v1."""
    fields = json.loads(problem)
    error = {"message": fields["detail"], "param": _param(fields), "code": fields["code"]}
    further = {name: value for name, value in fields.items() if name not in _PROBLEM_FIELDS}
    return int(fields["status"]), {**error, **further}


def _param(fields: dict[str, Any]) -> str | None:
    errors = fields.get("errors")
    path = errors[0].get("path") if errors else next((fields[name] for name in _PATH_FIELDS if fields.get(name)), None)
    return path if isinstance(path, str) else _CODE_PARAMS.get(fields["code"])


def error_response(problem: Problem, body: Callable[[bytes], bytes] = error_body) -> Response:
    """A problem as a response, by default in OpenAI's format."""
    response = Response(body(problem.body), problem.status_code, media_type=ERROR_TYPE)
    for name, value in problem.headers.items():
        response.headers.setdefault(name, value)
    return response


class ErrorFormat:
    """ASGI middleware that sets the format of problems below a path.

    It surrounds all other middleware, because those answer with problems too.
    """

    def __init__(self, app: ASGIApp, prefix: str, render: Callable[[Problem], Response]) -> None:
        self._app, self._prefix, self._render = app, prefix, render

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(self._prefix):
            scope.setdefault("state", {})["problem_format"] = self._render
        await self._app(scope, receive, send)


def document_errors(document: dict[str, Any]) -> None:
    """Adds OpenAI's errors and stream events to an OpenAPI document."""
    document["components"]["schemas"] |= component_schemas(CompletionResponse, ChatChunkBody, *RESPONSE_EVENTS)
    document_error_body(document, PREFIX, ErrorBody)


def document_error_body(document: dict[str, Any], prefix: str, body: type) -> None:
    """Puts the body of errors below a path into an OpenAPI document."""
    document["components"]["schemas"] |= component_schemas(body)
    for path, operations in document["paths"].items():
        if not path.startswith(prefix):
            continue
        for operation in operations.values():
            for response in operation["responses"].values():
                if PROBLEM_TYPE in response.get("content", {}):
                    schema = {"schema": {"$ref": f"#/components/schemas/{body.__name__}"}}
                    response["content"] = {ERROR_TYPE: schema}
