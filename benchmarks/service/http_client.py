"""A minimal HTTP/1.1 client for load tests. It keeps connections and does little work per request."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import KW_ONLY, dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A response and its seconds. They go from the first byte sent to the last byte read.

    first_step_s  to the first event of a step; None where no such event came
    """

    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float
    _: KW_ONLY
    first_step_s: float | None = None

    def json(self) -> Any:
        """The body, or what the last event of a stream has."""
        is_stream = "event-stream" in self.headers.get("content-type", "")
        return json.loads(self.body.rsplit(b"data: ", 1)[1].split(b"\n")[0] if is_stream else self.body)


class HttpConnection:
    """A connection for one caller at a time. It opens at the first use and again after the server closes it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes) -> HttpReply:
        return await self._send("POST", path, body)

    async def get(self, path: str) -> HttpReply:
        return await self._send("GET", path, b"")

    def close(self) -> None:
        if self._streams:
            self._streams[1].close()
        self._streams = None

    async def _send(self, method: str, path: str, body: bytes) -> HttpReply:
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nContent-Length: {len(body)}\r\n"
        kind = "Content-Type: application/json\r\n" if body else ""
        if self._streams is not None and self._streams[0].at_eof():  # the server closed it while it was idle
            self.close()
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        try:
            start = time.perf_counter()
            writer.write(f"{head}{kind}\r\n".encode() + body)
            status, headers = await _head(reader)
            content, step_at = await _body(reader, headers)
            first_step_s = None if step_at is None else step_at - start
            reply = HttpReply(status, headers, content, time.perf_counter() - start, first_step_s=first_step_s)
        except BaseException:
            self.close()
            raise
        if headers.get("connection") == "close":
            self.close()
        return reply


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines[1:] if line)
    return int(lines[0].split(" ", 2)[1]), {name.lower(): value.strip() for name, _, value in pairs}


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> tuple[bytes, float | None]:
    """The body, and when the first event of a step was read."""
    if "chunked" not in headers.get("transfer-encoding", ""):
        return await reader.readexactly(int(headers.get("content-length", "0"))), None
    content, step_at = b"", None
    while size := int((await reader.readline()).split(b";")[0], 16):
        content += await reader.readexactly(size)
        if step_at is None and b"event: step" in content:
            step_at = time.perf_counter()
        await reader.readexactly(2)
    await reader.readline()
    return content, step_at
