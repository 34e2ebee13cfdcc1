"""An in-process service on a real socket, and raw requests to it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from app.main import create_app
from app.settings import Settings
from tests.servers.processes import until

S_MAX = 90.0


@contextmanager
def listening(settings: Settings, shutdown_grace_s: int = 5) -> Iterator[int]:
    """Yields the port of a real server.

    The server is ready if it has workers.
    """
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(settings), log_config=None, access_log=False, timeout_graceful_shutdown=shutdown_grace_s
        )
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            if settings.process.embedded_workers:
                wait_until_ready(port)
            yield port
        finally:
            server.should_exit = True
            thread.join(S_MAX)
    assert not thread.is_alive()


def ask(port: int, request: bytes) -> bytes:
    """All bytes of the answer, until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=S_MAX) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def wait_until_ready(port: int) -> None:
    """Wait until the service at the port is ready."""
    request = b"GET /ready HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    until(lambda: b" 200 " in ask(port, request)[:20], "the service is ready")


def post(path: str, body: object, fields: str = "") -> bytes:
    """A POST request with a JSON body and further header fields."""
    content = json.dumps(body).encode()
    content_fields = f"Content-Type: application/json\r\nContent-Length: {len(content)}"
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{fields}{content_fields}\r\n\r\n".encode() + content
