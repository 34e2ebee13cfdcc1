"""Errors under /v1 in OpenAI's format.

The format is the same for errors of routes, of middleware and of body parsing.
"""

from __future__ import annotations

import json
from typing import Any

from fastapi import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.errors import PROBLEM_TYPE, Problem
from app.api.openapi import component_schemas
from app.openai.responses import ChatChunkBody, CompletionResponse, ErrorBody

PREFIX = "/v1/"
ERROR_TYPE = "application/json"
_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_PROBLEM_FIELDS = ("type", "title", "status", "detail", "code")  # translated; all others are copied
_CODE_PARAMS = {"budget_too_small": "max_tokens", "undecided": "max_tokens", "unknown_model": "model"}
_PATH_FIELDS = ("field", "path")  # name the parameter if there is no `errors`


def error_body(problem: bytes) -> bytes:
    """A problem document in OpenAI's format, with its further fields."""
    fields = json.loads(problem)
    status = int(fields["status"])
    kind = _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    error = {"message": fields["detail"], "type": kind, "param": _param(fields), "code": fields["code"]}
    further = {name: value for name, value in fields.items() if name not in _PROBLEM_FIELDS}
    return json.dumps({"error": {**error, **further}}, ensure_ascii=True).encode()


def _param(fields: dict[str, Any]) -> str | None:
    errors = fields.get("errors")
    path = errors[0].get("path") if errors else next((fields[name] for name in _PATH_FIELDS if fields.get(name)), None)
    return path if isinstance(path, str) else _CODE_PARAMS.get(fields["code"])


def error_response(problem: Problem) -> Response:
    """A problem as a response in OpenAI's format."""
    response = Response(error_body(problem.body), problem.status_code, media_type=ERROR_TYPE)
    for name, value in problem.headers.items():
        response.headers.setdefault(name, value)
    return response


class OpenAIErrors:
    """ASGI middleware that sets OpenAI's format for problems below /v1.

    It surrounds all other middleware, because those answer with problems too.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(PREFIX):
            scope.setdefault("state", {})["problem_format"] = error_response
        await self._app(scope, receive, send)


def document_errors(document: dict[str, Any]) -> None:
    """Adds OpenAI's errors and stream events to an OpenAPI document."""
    document["components"]["schemas"] |= component_schemas(ErrorBody, CompletionResponse, ChatChunkBody)
    for path, operations in document["paths"].items():
        if not path.startswith(PREFIX):
            continue
        for operation in operations.values():
            for response in operation["responses"].values():
                if PROBLEM_TYPE in response.get("content", {}):
                    schema = {"schema": {"$ref": f"#/components/schemas/{ErrorBody.__name__}"}}
                    response["content"] = {ERROR_TYPE: schema}
