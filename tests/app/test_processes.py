"""What only real processes and sockets show."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import uvicorn

from app import wiring
from app.main import create_app
from app.settings import Settings
from tests.app import fake_handlers

S_MAX = 90.0


def test_the_api_loads_no_model_code() -> None:
    code = (
        "import sys; from starlette.testclient import TestClient; from app.main import create_app; "
        "from app.settings import Settings\n"
        "with TestClient(create_app(Settings(embedded_workers=()))) as client:\n"
        "    assert client.get('/health').status_code == 200\n"
        "assert not {'torch', 'transformers', 'sympy', 'decoding'} & set(sys.modules), 'loaded'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=S_MAX)


@contextmanager
def listening(settings: Settings, shutdown_grace_s: int = 5) -> Iterator[int]:
    """A real server on a free port."""
    server = uvicorn.Server(
        uvicorn.Config(create_app(settings), log_config=None, timeout_graceful_shutdown=shutdown_grace_s)
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(S_MAX)
    assert not thread.is_alive()


def ask(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=S_MAX) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def wait_until_ready(port: int) -> None:
    ends = time.monotonic() + S_MAX
    while b" 200 " not in ask(port, b"GET /ready HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")[:20]:
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_a_client_that_hangs_up_stops_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(wiring.HANDLERS, "generate", "tests.app.fake_handlers:open_patient")
    fake_handlers.reset()
    body = json.dumps({"prompt": "a", "constraint": {"regex": "a+"}}).encode()
    kind = "Host: a\r\nContent-Type: application/json"
    head = f"POST /generate HTTP/1.1\r\n{kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    with listening(Settings()) as port:
        wait_until_ready(port)
        connection = socket.create_connection(("127.0.0.1", port), timeout=S_MAX)
        connection.sendall(head.encode() + body)
        assert fake_handlers.started.wait(S_MAX)
        assert not fake_handlers.stopped.is_set()
        connection.close()
        assert fake_handlers.stopped.wait(S_MAX)
        wait_until_ready(port)


@pytest.mark.parametrize("path", ["/generate", "/v1/completions"])
@pytest.mark.parametrize("stream", [False, True])
def test_unfinished_requests_are_reported_when_the_server_stops(
    path: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(wiring.HANDLERS, "generate", "tests.app.fake_handlers:open_patient")
    fake_handlers.reset()
    body = json.dumps({"prompt": "a", "constraint": {"regex": "a+"}, "stream": stream}).encode()
    kind = f"Host: a\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    answers: list[bytes] = []
    with listening(Settings(), shutdown_grace_s=1) as port:
        wait_until_ready(port)
        request = f"POST {path} HTTP/1.1\r\n{kind}\r\n\r\n".encode() + body
        client = threading.Thread(target=lambda: answers.append(ask(port, request)))
        client.start()
        assert fake_handlers.started.wait(S_MAX)
    client.join(S_MAX)
    assert fake_handlers.stopped.is_set()
    assert answers[0].startswith(b"HTTP/1.1 200 " if stream else b"HTTP/1.1 503 ")
    assert re.search(rb'"code": ?"cancelled"', answers[0])
    assert answers[0].endswith(b"0\r\n\r\n") == stream and b"[DONE]" not in answers[0]
    assert (b"event: error" in answers[0]) == (stream and path == "/generate")


def test_a_client_that_sends_too_much_receives_the_error() -> None:
    head = b"POST /check HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    with listening(Settings(embedded_workers=())) as port:
        answer = ask(port, head + chunk * 320 + b"0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"body_too_large" in answer
