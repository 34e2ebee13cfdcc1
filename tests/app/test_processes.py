"""Tests that need real processes and sockets."""

from __future__ import annotations

import re
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.settings import Settings
from tests.app import fake_handlers
from tests.app.real_server import S_MAX, ask, listening, post, wait_until_ready

BODY = {"prompt": "a", "constraint": {"regex": "a+"}}


def test_a_client_that_hangs_up_stops_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_handlers.install(monkeypatch, compile="open_compiling", generate="open_blocking")
    with listening(Settings()) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=S_MAX) as connection:
            connection.sendall(post("/generate", BODY))
            assert fake_handlers.start_event.wait(S_MAX)
            assert not fake_handlers.stop_event.is_set()
        assert fake_handlers.stop_event.wait(S_MAX)
        wait_until_ready(port)


@pytest.mark.parametrize("path", ["/generate", "/v1/completions"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.sample(2)
def test_unfinished_requests_are_reported_when_the_server_stops(
    path: str, stream: bool, monkeypatch: pytest.MonkeyPatch, threads: ThreadPoolExecutor
) -> None:
    fake_handlers.install(monkeypatch, compile="open_compiling", generate="open_blocking")
    request = post(path, BODY | {"stream": stream}, "Connection: close\r\n")
    with listening(Settings(), shutdown_grace_s=1) as port:
        future = threads.submit(ask, port, request)
        assert fake_handlers.start_event.wait(S_MAX)
    answer = future.result(S_MAX)
    assert fake_handlers.stop_event.is_set()
    assert answer.startswith(b"HTTP/1.1 200 " if stream else b"HTTP/1.1 503 ")
    assert re.search(rb'"code": ?"cancelled"', answer)
    assert answer.endswith(b"0\r\n\r\n") == stream and b"[DONE]" not in answer
    assert (b"event: error" in answer) == (stream and path == "/generate")


def test_a_client_that_sends_too_much_receives_the_error() -> None:
    head = b"POST /check HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    with listening(Settings.of(embedded_workers=())) as port:
        answer = ask(port, head + chunk * 320 + b"0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"body_too_large" in answer
