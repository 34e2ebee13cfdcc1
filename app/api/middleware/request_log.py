"""The request log: names, counts and times each request.

`RequestLogMiddleware` wraps the access checks, so it also logs and measures the requests that they refuse. It names a
request's route by its template, never by its path. From a refusal it reads only the code.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.errors import PROBLEM_TYPE
from app.auth import template_of
from app.messages import request_id
from app.observability import logs, metrics, tracing

METHODS = ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS")
PROBES = ("/health", "/ready", "/metrics")  # called every few seconds, so successes are logged at debug level only
OTHER = "other"  # in place of a path or method that is none of ours
PROBLEM_BYTES_MAX = 65_536
_NO_RESPONSE = 499  # the client left before there was an answer
_CODE = re.compile(r"[a-z_]{1,40}")
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
                _record(method, route, recorder, time.perf_counter() - started, str(state.get("owner", "")))


class _ResponseRecorder:
    """A send that notes what passes. `status` stays as it is where no answer begins."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status, self.bytes = _NO_RESPONSE, 0
        self._problem: bytearray | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if response_headers(message).get("content-type") == PROBLEM_TYPE:
                self._problem = bytearray()
        elif message["type"] == "http.response.body":
            body = message.get("body", b"")
            self.bytes += len(body)
            if self._problem is not None and len(self._problem) < PROBLEM_BYTES_MAX:
                self._problem += body
        await self._send(message)

    @property
    def code(self) -> str:
        """The code of a refusal, empty for other answers."""
        if not self._problem:
            return ""
        with contextlib.suppress(ValueError, AttributeError):
            code = json.loads(self._problem).get("code")
            if isinstance(code, str) and _CODE.fullmatch(code):
                return code
        return ""


def _record(method: str, route: str, recorder: _ResponseRecorder, seconds: float, owner: str) -> None:
    """Count and log a request after its end."""
    metrics.HTTP_REQUESTS.labels(route, method, str(recorder.status)).inc()
    metrics.HTTP_SECONDS.labels(route).observe(seconds)
    code = recorder.code
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
