"""The door every request comes through: bodies are counted as they arrive and must be JSON that reads in one way."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from app.api.errors import Problem, problem
from app.errors import BodyTooLarge, ClientGone, InvalidJson, RequestError, UnsupportedMediaType
from app.keys import request_id

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

NESTING_MAX = 64
INTEGER_DIGITS_MAX = 18
DRAIN_BYTES_MAX, DRAIN_S_MAX = 64 * 2**20, 10.0  # how much of a body over the limit is still read
_SURROGATE = re.compile("[\ud800-\udfff]")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class StrictBody:
    """ASGI middleware: an id for every request, and a strict reading of every body before anyone else sees it."""

    def __init__(self, app: App, body_bytes_max: int) -> None:
        self._app = app
        self._body_bytes_max = body_bytes_max

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = name
        try:
            body = await self._read(scope, receive)
        except ClientGone:
            return
        except RequestError as error:
            await _answer(send, problem(error, name, {"connection": "close"}))
            return
        await self._app(scope, _replay(body, receive), _with_id(send, name))

    async def _read(self, scope: Message, receive: Receive) -> bytes:
        """The whole body, counted and checked.

        What is over the limit is read on, within bounds, and thrown away: a client that is still sending when the
        connection closes would see a reset in place of its refusal.
        """
        chunks, size, more, ends = [], 0, True, math.inf
        while more and size <= DRAIN_BYTES_MAX and time.monotonic() < ends:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone("the client left while it was sending")
            size += len(message.get("body", b""))
            more = message.get("more_body", False)
            if size <= self._body_bytes_max:
                chunks.append(message.get("body", b""))
            elif math.isinf(ends):
                ends = time.monotonic() + DRAIN_S_MAX
        if size > self._body_bytes_max:
            raise BodyTooLarge(self._body_bytes_max)
        body = b"".join(chunks)
        if body:
            _require_json(_header(scope, b"content-type"))
            read_json(body)
        return body


def read_json(body: bytes) -> object:
    """The value of a JSON text that every reader understands alike.

    Raises InvalidJson for what is no JSON, and for NaN, infinities, numbers beyond a double, integers beyond
    18 digits, keys given twice, half surrogate pairs and nesting deeper than 64. The message never quotes the body.
    """
    try:
        value: object = json.loads(
            body.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite, parse_int=_bounded,
            object_pairs_hook=_no_duplicates,
        )
    except UnicodeDecodeError as error:
        raise InvalidJson(f"the body is not UTF-8: byte {error.start}") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InvalidJson(f"the body is not JSON: {error.msg.lower()} at {place}") from None
    except RecursionError:
        raise InvalidJson(f"the JSON is nested deeper than {NESTING_MAX}") from None
    _check_values(value)
    return value


def _no_constant(name: str) -> object:
    raise InvalidJson(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise InvalidJson("a number is beyond the range of a double")
    return value


def _bounded(text: str) -> int:
    if len(text.lstrip("-")) > INTEGER_DIGITS_MAX:
        raise InvalidJson(f"an integer has more than {INTEGER_DIGITS_MAX} digits")
    return int(text)


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidJson("an object has the same key twice")
    return found


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


def _require_json(content_type: str) -> None:
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise UnsupportedMediaType("send the body with Content-Type: application/json")


def _header(scope: Message, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def _request_id(scope: Message) -> str:
    """The caller's own id of the request where it is a plain one, else a fresh one."""
    given = _header(scope, b"x-request-id")
    return given if _REQUEST_ID.fullmatch(given) else request_id()


def _replay(body: bytes, receive: Receive) -> Receive:
    """A receive that gives the body in one piece, and then what the connection says (that the client left)."""
    given = False

    async def replayed() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


def _with_id(send: Send, name: str) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [pair for pair in message.get("headers", []) if pair[0].lower() != b"x-request-id"]
            message["headers"] = [*headers, (b"x-request-id", name.encode())]
        await send(message)

    return sending


async def _answer(send: Send, answer: Problem) -> None:
    headers = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
    headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
