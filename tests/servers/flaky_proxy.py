"""A proxy between clients and Redis whose connections break at random. Nothing may be lost by it.

While it is `flaky`, some replies are cut in the middle, lost with their connection, or never forwarded although the
connection stays; some requests are lost with their connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from pathlib import Path
from typing import Self

from app.tasks import cancel_tasks

CHANCE = {"request lost": 0.01, "reply cut": 0.01, "reply lost": 0.01, "line dead": 0.002}  # of each piece of data
PIECE_BYTES = 65_536
RESET = struct.pack("ii", 1, 0)  # close with a reset, even while data is on its way


class FlakyProxy:
    """Listens on a port and forwards to the server with this socket. `broken` counts the faults by kind."""

    def __init__(self, server: Path, flaky: bool = True) -> None:
        self.flaky = flaky
        self.broken: Counter[str] = Counter()
        self._server, self._rng = server, random.Random(1)
        self._silent_count = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._listen(),))
        self._closing = asyncio.Event()
        self._lines: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def stop_replies(self) -> None:
        """Open connections stay open but get no more replies; new connections do."""
        self._silent_count += 1

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> None:
        async with await asyncio.start_server(self._carry, sock=self._listener):
            await self._closing.wait()
            for line in self._lines:
                line.cancel()
            await asyncio.gather(*self._lines, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carries one connection until either side closes it."""
        line = asyncio.current_task()
        assert line is not None
        self._lines.add(line)
        try:
            theirs, ours = await self._connect()
            try:
                requests = asyncio.create_task(self._requests(reader, ours))
                replies = asyncio.create_task(self._replies(theirs, writer, self._silent_count))
                try:
                    await asyncio.wait({requests, replies}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    await cancel_tasks(requests, replies)
            finally:
                ours.transport.abort()
        except (OSError, asyncio.CancelledError):
            pass  # the server is down, or the test has ended
        finally:
            connection = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()
            self._lines.discard(line)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self._server)

    async def _requests(self, reader: asyncio.StreamReader, ours: asyncio.StreamWriter) -> None:
        while piece := await reader.read(PIECE_BYTES):
            if self._breaks("request lost"):
                return
            ours.write(piece)
            await ours.drain()

    async def _replies(self, theirs: asyncio.StreamReader, writer: asyncio.StreamWriter, silences: int) -> None:
        while piece := await theirs.read(PIECE_BYTES):
            if self._breaks("reply lost"):
                return
            if silences < self._silent_count or self._breaks("line dead"):
                await asyncio.Event().wait()
            cut = self._breaks("reply cut")
            writer.write(piece[: len(piece) // 2] if cut else piece)
            await writer.drain()
            if cut:
                return

    def _breaks(self, kind: str) -> bool:
        breaks = self.flaky and self._rng.random() < CHANCE[kind]
        self.broken[kind] += breaks
        return breaks
