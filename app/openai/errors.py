"""Errors under /v1 in OpenAI's format.

The format is the same for errors of routes, of middleware and of body parsing.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from app.api.errors import PROBLEM_TYPE
from app.api.middleware.asgi import App, Message, Receive, Send
from app.openai.responses import ChatChunk, Completion, ErrorBody

PREFIX = "/v1/"
ERROR_TYPE = "application/json"
_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_OURS = ("type", "title", "status", "detail", "code")  # of a problem: said in OpenAI's words
_AT_FAULT = {"budget_too_small": "max_tokens", "unknown_model": "model"}
_WHERE = ("field", "path")  # that name the parameter at fault, beside `errors`


def error_body(problem: bytes) -> bytes:
    """A problem as OpenAI's clients read it; what else it says goes along."""
    said = json.loads(problem)
    status = int(said["status"])
    kind = _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    error = {"message": said["detail"], "type": kind, "param": _param(said), "code": said["code"]}
    further = {name: value for name, value in said.items() if name not in _OURS}
    return json.dumps({"error": {**error, **further}}, ensure_ascii=True).encode()


def _param(said: dict[str, Any]) -> str | None:
    faults = said.get("errors")
    named = faults[0].get("path") if faults else next((said[name] for name in _WHERE if said.get(name)), None)
    return named if isinstance(named, str) else _AT_FAULT.get(said["code"])


class OpenAIErrors:
    """ASGI middleware around all that refuse: below /v1 their problems leave in OpenAI's shape."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        asked = scope["type"] == "http" and scope["path"].startswith(PREFIX)
        await self._app(scope, receive, _Turned(send) if asked else send)


class _Turned:
    """A send that holds a problem back until it is whole, and sends it in the other shape."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_problem(message):
            self._start = message
        elif self._start is None:
            await self._send(message)
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._turn(self._start)

    async def _turn(self, start: Message) -> None:
        body = error_body(self._body)
        replaced = (b"content-type", b"content-length")
        headers = [pair for pair in start["headers"] if pair[0].lower() not in replaced]
        own = [(b"content-type", ERROR_TYPE.encode()), (b"content-length", str(len(body)).encode())]
        await self._send({**start, "headers": headers + own})
        await self._send({"type": "http.response.body", "body": body})


def _is_problem(start: Message) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(PROBLEM_TYPE.encode())
        for name, value in start.get("headers", ())
    )


def document_errors(document: dict[str, Any]) -> None:
    """Have an OpenAPI document say which shape errors have here, and what the events of a stream hold."""
    schemas = document["components"]["schemas"]
    for model in (ErrorBody, Completion, ChatChunk):
        _add(schemas, model)
    for path, operations in document["paths"].items():
        if not path.startswith(PREFIX):
            continue
        for operation in operations.values():
            for response in operation["responses"].values():
                if PROBLEM_TYPE in response.get("content", {}):
                    schema = {"schema": {"$ref": f"#/components/schemas/{ErrorBody.__name__}"}}
                    response["content"] = {ERROR_TYPE: schema}


def _add(schemas: dict[str, Any], model: type[BaseModel]) -> None:
    schema = model.model_json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
    schemas |= schema.pop("$defs", {}) | {model.__name__: schema}
