"""A process with our HTTP server and security middleware around six paths.

Run as a module it prints its port and serves until it is stopped. Settings come from the environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from app.api.middleware.body import StrictBody
from app.api.middleware.security import SecurityMiddleware
from app.api.sse import STREAM_HEADERS
from app.errors import ClientGone
from app.http_server import serve
from app.settings import read_settings
from tests.servers.forkserver import DEV_NULL, Child, spawn, start_process
from tests.servers.processes import until

S_MAX = 60.0
STREAM = STREAM_HEADERS.items()
BIG_BYTES = 32 * 2**20


class SmallApp:
    """Six paths: /health, /big (32 MiB), /frozen, /events (endless), /event and /slow.

    The path /slow answers when its client has gone, or after a second. The path /event sends one event and waits until
    its client has gone. The path /frozen answers with the number of objects that garbage collection leaves out.
    """

    def __init__(self) -> None:
        self.state = SimpleNamespace(components=SimpleNamespace(models=SimpleNamespace(jobs=self)))
        settings = read_settings()
        body = StrictBody(self.answer, 2**20, settings.server.body_timeout_s, settings.server.write_timeout_s)
        self.middleware = SecurityMiddleware(body, settings, None, None)

    def drain(self) -> None:
        print("draining", flush=True)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": f"{message['type']}.complete"})
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await self.middleware(scope, receive, send)

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        await receive()
        if path == "/slow":
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    print((await receive())["type"], flush=True)
        fields = [(b"content-type", b"text/plain"), *((name.encode(), value.encode()) for name, value in STREAM)]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        if path == "/event":
            await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
            print((await receive())["type"], flush=True)
        elif path == "/events":
            await self.tell(receive, send)
        else:
            body = {"/big": b"x" * BIG_BYTES, "/frozen": b"%d" % gc.get_freeze_count()}.get(path, b"ok")
            await send({"type": "http.response.body", "body": body})

    async def tell(self, receive: Any, send: Any) -> None:
        """Events until the client has gone or does not read."""
        disconnect = asyncio.ensure_future(receive())
        try:
            while not disconnect.done():
                await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
                await asyncio.sleep(0)
            print(disconnect.result()["type"], flush=True)
        except ClientGone:
            print("client gone", flush=True)
            raise
        finally:
            disconnect.cancel()


class Address:
    """A port of this machine to which requests are sent."""

    def __init__(self, port: int) -> None:
        self.port = port

    def connect(self, receive_bytes: int | None = None, source: str = "127.0.0.1") -> socket.socket:
        """A connection with a small buffer or another local address."""
        connection = socket.socket()
        connection.settimeout(S_MAX)
        if receive_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        try:
            connection.bind((source, 0))
            connection.connect(("127.0.0.1", self.port))
        except OSError:
            connection.close()
            raise
        return connection

    def ask(self, request: bytes) -> bytes:
        """The whole reply on a new connection, until the server closes it."""
        with self.connect() as connection:
            connection.sendall(request)
            return read_all(connection)


class Server(Address):
    """The process as its tests see it."""

    def __init__(self, process: subprocess.Popen[bytes] | Child, out: Path) -> None:
        self.process = process
        self._out = out
        self._lines_read = 0
        super().__init__(int(self.line()))

    def line(self) -> str:
        """The next line that it prints; empty if it has ended."""
        text = until(lambda: self._unread() or (self.process.poll() is not None and "\n"), "a line", S_MAX)
        self._lines_read += 1
        return str(text.partition("\n")[0])

    def _unread(self) -> str:
        """The printed lines after those that were read, the last one complete."""
        printed = self._out.read_text(encoding="utf-8").splitlines(keepends=True) if self._out.exists() else []
        unread = printed[self._lines_read :]
        return "".join(unread) if unread and unread[0].endswith("\n") else ""


def read_all(connection: socket.socket) -> bytes:
    """All bytes until the other side closes."""
    chunks = []
    with contextlib.suppress(ConnectionResetError):
        while chunk := connection.recv(65_536):
            chunks.append(chunk)
    return b"".join(chunks)


@contextlib.contextmanager
def small_server(forked: bool = False, **settings: object) -> Iterator[Server]:
    """A server of its own, with these settings.

    A forked one starts sooner, but the fork server has frozen its objects already.
    """
    environment = os.environ | {f"ABS_{name.upper()}": str(value) for name, value in settings.items()}
    start = start_process if forked else spawn
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        process = start(["tests.servers.small_server"], environment, DEV_NULL, out)
        try:
            yield Server(process, out)
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        print(listener.getsockname()[1], flush=True)
        assert serve(SmallApp(), listener, read_settings())
    sys.exit(0)
