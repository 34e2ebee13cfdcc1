"""What the middleware of this package shares: the types of ASGI, headers, and an error as an answer."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from app.api.errors import Problem
from app.messages import request_id

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


def headers_named(scope: Message, name: bytes) -> list[str]:
    """The values of all fields of that name, which is in lower case."""
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def header(scope: Message, name: bytes) -> str:
    """The value of the first field of that name, or nothing."""
    return next(iter(headers_named(scope, name)), "")


def id_of_request(scope: Message) -> str:
    """The id that the request has, or now gets: the caller's own where it is a plain one, else a fresh one."""
    state = scope.setdefault("state", {})
    if "request_id" not in state:
        given = header(scope, b"x-request-id")
        state["request_id"] = given if _REQUEST_ID.fullmatch(given) else request_id()
    return str(state["request_id"])


async def send_problem(send: Send, answer: Problem) -> None:
    """Send an error as the whole answer."""
    headers = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
    headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
