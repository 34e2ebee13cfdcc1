"""The request log: names, counts and times each request.

`RequestLogMiddleware` wraps the access checks, so it also logs and measures the requests that they refuse. It names a
request's route by its template, never by its path. From a refusal it reads only the code.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.auth import template_of
from app.messages import request_id
from app.observability import logs, metrics, tracing

METHODS = ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS")
PROBES = ("/health", "/ready", "/metrics")  # called every few seconds, so successes are logged at debug level only
OTHER = "other"  # in place of a path or method that is none of ours
_NO_RESPONSE = 499  # the client left before there was an answer
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
log = logging.getLogger("app.http")


def id_of_request(scope: Scope) -> str:
    """The request's id. It is the caller's `x-request-id` if that has a permitted form, otherwise a new one."""
    state = scope.setdefault("state", {})
    if "request_id" not in state:
        sent = Headers(scope=scope).get("x-request-id", "")
        state["request_id"] = sent if _REQUEST_ID.fullmatch(sent) else request_id()
    return str(state["request_id"])


def response_headers(message: Message) -> MutableHeaders:
    """The header fields at the start of a response. Changes to them are sent. Their names become lower case."""
    # ASGI permits a start without fields, and not every application keeps to names in lower case.
    message["headers"] = [(name.lower(), value) for name, value in message.get("headers", ())]
    return MutableHeaders(raw=message["headers"])


class RequestLogMiddleware:
    """ASGI middleware that gives each request an id and logs it. It also counts and times the request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name, state = id_of_request(scope), scope["state"]
        recorder, started = _ResponseRecorder(send), time.perf_counter()
        method = scope["method"] if scope["method"] in METHODS else OTHER
        with (
            logs.bound(request_id=name),
            tracing.span(method, Headers(scope=scope).get("traceparent", ""), tracing.SERVER, request_id=name) as span,
            metrics.HTTP_IN_FLIGHT.track_inprogress(),
        ):
            try:
                await self._app(scope, receive, recorder)
            except Exception:
                recorder.status = 500 if recorder.status == _NO_RESPONSE else recorder.status
                raise
            finally:
                route = _route(scope)
                span.update_name(f"{method} {route}")
                tracing.note(span, status=recorder.status, route=route)
                _record(method, route, recorder, time.perf_counter() - started, state)


class _ResponseRecorder:
    """A send that notes what passes. `status` stays as it is where no answer begins."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status, self.bytes = _NO_RESPONSE, 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["type"] == "http.response.body":
            self.bytes += len(message.get("body", b""))
        await self._send(message)


def _record(method: str, route: str, recorder: _ResponseRecorder, seconds: float, state: Mapping[str, Any]) -> None:
    """Count and log a request after its end. A problem has left its code in the request's state."""
    metrics.HTTP_REQUESTS.labels(route, method, str(recorder.status)).inc()
    metrics.HTTP_SECONDS.labels(route).observe(seconds)
    code, owner = state.get("code", ""), state.get("owner", "")
    if recorder.status in metrics.REJECTED_CODES:
        metrics.REJECTED.labels(code or OTHER).inc()
    status = recorder.status
    fields = {"method": method, "route": route, "status": status, "ms": seconds * 1000, "bytes": recorder.bytes}
    fields |= {name: value for name, value in (("code", code), ("key", owner)) if value}
    level = logging.DEBUG if route in PROBES and recorder.status == 200 else logging.INFO
    log.log(level, "request", extra=fields)


def _route(scope: Scope) -> str:
    """The template of the request's path. It is also found for a request that was refused before routing."""
    template = getattr(scope.get("route"), "path", None)
    return template if isinstance(template, str) else template_of(scope["path"]) or OTHER
