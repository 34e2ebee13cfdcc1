"""The request log, and the routes GET /metrics, /health, /ready and /version.

`RequestLogMiddleware` wraps the access checks, so it also logs and measures the requests that they refuse. It names a
request's route by its template, never by its path. From a refusal it reads only the code.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import platform
import re
import secrets
import time
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel

from app import __version__
from app.api.dependencies import Components, ComponentsDependency
from app.api.errors import PROBLEM_TYPE
from app.api.middleware.asgi import App, Message, Receive, Send, header, id_of_request
from app.api.schemas import Status
from app.auth import template_of
from app.broker import Broker
from app.errors import NotReady, StorageDown
from app.messages import FORMAT, probe_key
from app.observability import logs, metrics, tracing
from app.settings import QUEUES
from app.store import Store

METHODS = ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS")
PROBES = ("/health", "/ready", "/metrics")  # called every few seconds, so successes are logged at debug level only
OTHER = "other"  # in place of a path or method that is none of ours
STORAGE_S_MAX = 2.0  # that the storage may take to answer a probe
PROBE_TTL_S = 30.0
PROBLEM_BYTES_MAX = 65_536
_NOT_BEGUN = 499  # the client left before there was an answer
_CODE = re.compile(r"[a-z_]{1,40}")
log = logging.getLogger("app.http")
_NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {
        "description": "not_ready, with the reasons",
        "content": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}
_EXPOSITION: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
router = APIRouter()


class Version(BaseModel):
    """The service's versions. Automata of another format are compiled again."""

    version: str
    automata_format: int
    python: str


class RequestLogMiddleware:
    """ASGI middleware: names each request, counts and times it, and logs one line."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name, state = id_of_request(scope), scope["state"]
        seen, started = _ResponseRecorder(send), time.perf_counter()
        method = scope["method"] if scope["method"] in METHODS else OTHER
        with (
            logs.bound(request_id=name),
            tracing.span(method, header(scope, b"traceparent"), "SERVER", request_id=name) as span,
            metrics.HTTP_IN_FLIGHT.track_inprogress(),
        ):
            try:
                await self._app(scope, receive, seen)
            except Exception:
                seen.status = 500 if seen.status == _NOT_BEGUN else seen.status
                raise
            finally:
                route = _route(scope)
                span.rename(f"{method} {route}")
                span.note(status=seen.status, route=route)
                _tell(method, route, seen, time.perf_counter() - started, str(state.get("owner", "")))


class _ResponseRecorder:
    """A send that notes what passes. `status` stays as it is where no answer begins."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status, self.bytes = _NOT_BEGUN, 0
        self._problem: bytearray | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            kinds = [value for name, value in message.get("headers", ()) if name.lower() == b"content-type"]
            if PROBLEM_TYPE.encode() in kinds:
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


def _tell(method: str, route: str, seen: _ResponseRecorder, seconds: float, owner: str) -> None:
    """Count a request that is over, and log it."""
    metrics.HTTP_REQUESTS.labels(route, method, str(seen.status)).inc()
    metrics.HTTP_SECONDS.labels(route).observe(seconds)
    code = seen.code
    if seen.status in metrics.REJECTED_CODES:
        metrics.REJECTED.labels(code or OTHER).inc()
    fields = {"method": method, "route": route, "status": seen.status, "ms": seconds * 1000, "bytes": seen.bytes}
    fields |= {name: value for name, value in (("code", code), ("key", owner)) if value}
    level = logging.DEBUG if route in PROBES and seen.status == 200 else logging.INFO
    logs.event(log, level, "request", **fields)


def _route(scope: Message) -> str:
    """The template of the path, also where a request was refused before it found its route."""
    template = getattr(scope.get("route"), "path", None)
    return template if isinstance(template, str) else template_of(scope["path"]) or OTHER


class StorageProbe:
    """Reads the state of the storage for /ready and /metrics. One for each application."""

    def __init__(self, broker: Broker, store: Store) -> None:
        self._broker, self._store = broker, store
        self._key = probe_key(secrets.token_hex(8))

    async def keeps(self) -> bool:
        """Whether what is written to the storage can be read back. Raises StorageDown."""
        value = secrets.token_bytes(8)  # a new value each time: an old one could be read from a store that is full
        await self._store.put(self._key, value, PROBE_TTL_S)
        return await self._store.get(self._key) == value

    async def refresh(self) -> None:
        """Set the gauges that are read, not counted; where the storage does not answer they are absent."""
        # Cleared first: a gauge that cannot be read now must not show its last value.
        metrics.QUEUE_REQUESTS.clear()
        metrics.QUEUE_TOKENS.clear()
        with contextlib.suppress(StorageDown, TimeoutError):
            async with asyncio.timeout(STORAGE_S_MAX):
                for queue in QUEUES:
                    backlog = await self._broker.backlog(queue)
                    metrics.QUEUE_REQUESTS.labels(queue, "interactive").set(backlog.interactive)
                    metrics.QUEUE_REQUESTS.labels(queue, "batch").set(backlog.batch)
                    metrics.QUEUE_TOKENS.labels(queue).set(backlog.weight)
                metrics.CACHE_BYTES.set(await self._store.used_bytes())


async def reasons_not_ready(components: Components) -> tuple[object, ...]:
    """Everything that keeps requests from being served now; answers within `STORAGE_S_MAX` s whatever is wrong."""
    service, probe = components.service, components.probe
    if service is None or probe is None:
        return ("the service is starting or has stopped",)
    reasons = ("the service is draining",) if service.jobs.stopping.is_set() else ()
    try:
        async with asyncio.timeout(STORAGE_S_MAX):
            if await probe.keeps():
                return (*reasons, *await service.jobs.reasons_not_ready())
            return (*reasons, "the storage does not keep what is written")
    except StorageDown as error:
        return (*reasons, str(error))
    except TimeoutError:
        return (*reasons, f"the storage does not answer within {STORAGE_S_MAX:g} s")


@router.get("/metrics", response_class=Response, responses=_EXPOSITION, summary="Measurements, for Prometheus")
async def show_metrics(components: ComponentsDependency) -> Response:
    if components.probe is not None:
        await components.probe.refresh()
    return Response(metrics.exposition(), media_type=metrics.CONTENT_TYPE)


@router.get("/version", summary="What runs here")
async def version() -> Version:
    return Version(version=__version__, automata_format=FORMAT, python=platform.python_version())


@router.get("/health", summary="The process is alive")
async def health() -> Status:
    return Status(status="ok")


@router.get("/ready", responses=_NOT_READY, summary="Requests would be served now")
async def ready(components: ComponentsDependency) -> Status:
    reasons = await reasons_not_ready(components)
    if reasons:
        raise NotReady(reasons)
    return Status(status="ready")
