"""Reads every body within its limits, and writes responses within theirs.

A body must be JSON that every parser reads alike.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.errors import problem
from app.api.middleware.request_log import id_of_request, response_headers
from app.api.near_misses import json_hint
from app.errors import (
    BodyTooLarge,
    CallerError,
    ClientGone,
    InternalError,
    InvalidJson,
    JobCancelled,
    RequestTimeout,
    UnsupportedMediaType,
    without_message,
)
from compiler.exact_json import read_float

WRITE_BYTES_MAX = 65_536  # of one write; the server buffers about as much before it waits for the client
DRAIN_BYTES_MAX, DRAIN_S_MAX = 64 * 2**20, 10.0  # how much of a body over the limit is still read
NESTING_MAX = 64
_SURROGATE = re.compile("[\ud800-\udfff]")
log = logging.getLogger(__name__)


class StrictBody:
    """ASGI middleware that gives each request an id and checks its body.

    It also ends responses that the client does not read within `write_timeout_s`.
    """

    def __init__(self, app: ASGIApp, body_bytes_max: int, body_timeout_s: float, write_timeout_s: float) -> None:
        self._app = app
        self._body_bytes_max = body_bytes_max
        self._body_s_max, self._write_s_max = body_timeout_s, write_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = id_of_request(scope)
        try:
            body = await self._read(scope, receive)
        except ClientDisconnect:
            return
        except CallerError as error:
            await problem(error, name, {"connection": "close"})(scope, receive, send)
            return
        await self._run(scope, _replay(body, receive), send, name)

    async def _run(self, scope: Scope, receive: Receive, send: Send, name: str) -> None:
        """Run the application. A bug in it is logged without its message, which may quote the request."""
        answering = _Answering(send, name, self._write_s_max)
        try:
            await self._app(scope, receive, answering)
        except asyncio.CancelledError:  # the server's shutdown grace is over
            if answering.started:
                raise
            await problem(JobCancelled("the service is stopping"), name)(scope, receive, send)
        except Exception as error:
            if answering.timed_out:  # the server then closes the connection
                log.info("a client did not read its response within %g s", self._write_s_max)
                return
            log.error("request %s failed: %s", name, without_message(error))
            if answering.started:  # the server then breaks the connection off
                raise InternalError("the response ended before it was complete") from None
            await problem(error, name)(scope, receive, send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body, counted and checked.

        What is over the limit is read on, within bounds, and thrown away: a client that is still sending when the
        connection closes would see a reset in place of its refusal.
        """
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._body_s_max) as clock:
                async for chunk in Request(scope, receive).stream():
                    within = size <= self._body_bytes_max
                    size += len(chunk)
                    if size <= self._body_bytes_max:
                        chunks.append(chunk)
                    elif within:
                        clock.reschedule(asyncio.get_running_loop().time() + DRAIN_S_MAX)
                    if size > DRAIN_BYTES_MAX:
                        break
        except TimeoutError:
            if size <= self._body_bytes_max:
                raise RequestTimeout(self._body_s_max) from None
        if size > self._body_bytes_max:
            raise BodyTooLarge(self._body_bytes_max)
        body = b"".join(chunks)
        if body:
            _require_json(Headers(scope=scope))
            # For `JsonRequest`: the reader of the framework would make each number a double.
            scope.setdefault("state", {})["json"] = read_json(body)
        return body


def _require_json(headers: Headers) -> None:
    if headers.get("content-encoding", "").strip().lower() not in ("", "identity"):  # may unpack to any size
        raise UnsupportedMediaType("send the body as it is, without Content-Encoding")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise UnsupportedMediaType("send the body with Content-Type: application/json")


def _replay(body: bytes, receive: Receive) -> Receive:
    """A receive function that returns the body in one message.

    Its later messages are those of the connection, such as the client's disconnect.
    """
    body_sent = False

    async def replayed() -> Message:
        nonlocal body_sent
        if body_sent:
            return await receive()
        body_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


class _Answering:
    """A send function that adds the request's id to the response.

    started    whether a response has started
    timed_out  whether the client did not read a part of it in time
    """

    def __init__(self, send: Send, name: str, write_s_max: float) -> None:
        self._send, self._name, self._write_s_max = send, name, write_s_max
        self.started = self.timed_out = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            response_headers(message)["x-request-id"] = self._name
        body = message.get("body", b"")
        if len(body) <= WRITE_BYTES_MAX:
            await self._write(message)
            return
        # One write of a long body would return at once, and the server would hold all of it for a slow reader.
        for start in range(0, len(body), WRITE_BYTES_MAX):
            more = message.get("more_body", False) or start + WRITE_BYTES_MAX < len(body)
            await self._write({**message, "body": body[start : start + WRITE_BYTES_MAX], "more_body": more})

    async def _write(self, message: Message) -> None:
        """Send a message once the client has read the earlier ones. Raises ClientGone."""
        try:
            async with asyncio.timeout(self._write_s_max):
                await self._send(message)
        except TimeoutError:
            self.timed_out = True
            raise ClientGone("the client did not read its response") from None


def read_json(data: bytes) -> object:
    """The value of a JSON text that every reader understands alike. Its numbers keep their decimals.

    Raises InvalidJson for what is no JSON, and for NaN, infinities, numbers beyond a double, keys given twice, half
    surrogate pairs and nesting deeper than 64. The message never quotes the text.
    """
    try:
        value: object = json.loads(
            data.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite, parse_int=_bounded,
            object_pairs_hook=_no_duplicates,
        )
    except UnicodeDecodeError as error:
        raise InvalidJson(f"the JSON is not UTF-8: byte {error.start}") from None
    except json.JSONDecodeError as error:
        position = f"line {error.lineno}, column {error.colno}"
        hint = json_hint(error.doc, error.pos)
        raise InvalidJson(f"this is not JSON: {error.msg.lower()} at {position}{hint}", position=error.pos) from None
    except RecursionError:
        raise InvalidJson(f"the JSON is nested deeper than {NESTING_MAX}") from None
    _check_values(value)
    return value


def _no_constant(name: str) -> object:
    raise InvalidJson(f"{name} is not JSON: write null, or leave the field out")


def _finite(text: str) -> float:
    return _within_double(read_float(text))


def _bounded(text: str) -> int:
    _within_double(float(text))  # so that it has few digits; a schema may name 2**64 - 1, and its digits are kept
    return int(text)


def _within_double(value: float) -> float:
    if not math.isfinite(value):
        raise InvalidJson("a number is beyond the range of a double")
    return value


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise InvalidJson("an object has the same key twice")
    return result


def _check_values(value: object) -> None:
    """Depth and surrogates, level by level, without recursion."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > NESTING_MAX:
            raise InvalidJson(f"the JSON is nested deeper than {NESTING_MAX}")
        following: list[object] = []
        for item in level:
            if isinstance(item, str) and _SURROGATE.search(item):
                raise InvalidJson("a string holds half of a surrogate pair")
            if isinstance(item, dict):
                following += [*item.keys(), *item.values()]
            elif isinstance(item, list):
                following += item
        level = following
