"""Errors below /v1/messages in Anthropic's format."""

from __future__ import annotations

import json
from typing import Literal

from fastapi import Response
from pydantic import BaseModel, ConfigDict

from app.api.errors import Problem
from app.openai.errors import error_fields, error_response

MESSAGES = "/v1/messages"
_KINDS = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large",
    429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error",
}  # fmt: skip


class MessagesErrorDetailBody(BaseModel):
    """An error. `code` is stable and the same as outside /v1; further fields depend on it."""

    model_config = ConfigDict(extra="allow")

    type: Literal[
        "invalid_request_error", "authentication_error", "permission_error", "not_found_error", "request_too_large",
        "rate_limit_error", "overloaded_error", "timeout_error", "api_error",
    ]  # fmt: skip
    message: str
    code: str
    param: str | None


class MessagesErrorBody(BaseModel):
    """The body of every error below /v1/messages."""

    type: Literal["error"] = "error"
    error: MessagesErrorDetailBody
    request_id: str


def messages_error(problem: bytes) -> bytes:
    """A problem document in Anthropic's format, with its further fields."""
    status, fields = error_fields(problem)
    kind = _KINDS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    number = fields.pop("request_id")
    return json.dumps({"type": "error", "error": {"type": kind, **fields}, "request_id": number}).encode()


def messages_error_response(problem: Problem) -> Response:
    """A problem as a response in Anthropic's format."""
    return error_response(problem, messages_error)
