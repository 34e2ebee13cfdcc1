"""A loopback server with one scripted reply per request.

It records the requests.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.servers.processes import served_by_thread

RESET = struct.pack("ii", 1, 0)
ANSWER: dict[str, Any] = {
    "id": "0" * 32, "model": "m", "automaton": "a" * 64, "seed": None, "newer": {"field": 1},
    "choices": [
        {"text": "a dog", "finish_reason": "eos", "log_prob": -1.5, "score": -1.0, "satisfied": True, "trace": None,
         "words": [{"text": "a", "propositions": [], "state": 0}, {"text": "dog", "propositions": ["dog"], "state": 1}],
         "newer": True}
    ],
    "usage": {"prompt_tokens": 2, "completion_tokens": 3, "sequences": 16},
    "timings": {"compile_ms": 1, "queue_ms": 0.5, "decode_ms": 2.0, "total_ms": 4.0, "cached": False},
}  # fmt: skip
ROW = {"text": "a", "parent": 0, "state": 0, "distance": 1, "alpha": 0.5, "score": -1.0, "log_prob": -1.0,
       "finished": False}  # fmt: skip


@dataclass(frozen=True)
class Reply:
    """A reply; with `truncated`, the connection is reset before its end."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    truncated: bool = False


@dataclass(frozen=True)
class ReceivedRequest:
    """A received request; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


def answer(body: Any = ANSWER, status: int = 200, **headers: str) -> Reply:
    return Reply(status, json.dumps(body).encode(), {"content-type": "application/json", **_header_names(headers)})


def problem(status: int, code: str, fields: Mapping[str, Any] | None = None, **headers: str) -> Reply:
    body = {"type": f"urn:abs-server:error:{code}", "title": code, "status": status, "code": code, "detail": "no",
            "request_id": "r1", **(fields or {})}  # fmt: skip
    return Reply(
        status, json.dumps(body).encode(), {"content-type": "application/problem+json", **_header_names(headers)}
    )


def event(name: str, data: Any, number: str = "", retry: int | None = None) -> bytes:
    lines = [f"event: {name}", f"data: {json.dumps(data)}"]
    lines += [f"id: {number}"] if number else []
    lines += [f"retry: {retry}"] if retry is not None else []
    return ("\n".join(lines) + "\n\n").encode()


def step(number: int) -> bytes:
    return event("step", {"step": number, "budget_after": 8 - number, "rows": [ROW]}, str(number))


def stream_reply(*events: bytes, truncated: bool = False, job: str = "1" * 32) -> Reply:
    return Reply(
        200, b"".join(events), {"content-type": "text/event-stream; charset=utf-8", "x-job-id": job}, truncated
    )


NO_REPLY = Reply(truncated=True)  # the connection ends before an answer


def _header_names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


class ScriptedServer:
    """A server with a script of replies.

    `requests` are the received ones, `in_flight_max` of them at the same time. Requests after the end of the script
    get a 500.

    hold_s  the seconds from a request to its reply
    """

    url: str

    def __init__(self, *script: Reply, hold_s: float = 0.0) -> None:
        self.requests: list[ReceivedRequest] = []
        self.in_flight_max = self._in_flight = 0
        self._hold_s = hold_s
        self._script = list(script)
        self._lock = threading.Lock()
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                scripted.serve(self)

            do_GET = do_POST = do_DELETE = answer

            def log_message(self, *_: Any) -> None:
                """Logs nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        text = handler.rfile.read(int(handler.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        body = json.loads(text) if text else None
        with self._lock:
            self.requests.append(ReceivedRequest(handler.command, handler.path, headers, body))
            reply = self._script.pop(0) if self._script else Reply(500)
            self._in_flight += 1
            self.in_flight_max = max(self.in_flight_max, self._in_flight)
        time.sleep(self._hold_s)
        with self._lock:  # before the reply, because the next request may follow it at once
            self._in_flight -= 1
        handler.close_connection = True
        if not (reply.truncated and not reply.body):
            handler.send_response(reply.status)
            length = len(reply.body) + (100 if reply.truncated else 0)
            for name, value in {"content-length": str(length), "connection": "close", **reply.headers}.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(reply.body)
        if reply.truncated and not reply.body:
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


@contextlib.contextmanager
def scripted_server(*script: Reply, hold_s: float = 0.0) -> Iterator[ScriptedServer]:
    """Runs a server with this script."""
    server = ScriptedServer(*script, hold_s=hold_s)
    with served_by_thread(server.server) as server.url:
        yield server
