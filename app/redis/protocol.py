"""A connection with the protocol of coredis over a transport of asyncio.

coredis runs two tasks for each connection, which wake for every command, and waits on the event loop for every read.
Here the commands of one turn of the loop are sent together, and replies are parsed as soon as they arrive. A server
that owes a reply and sends nothing for `REPLY_S_MAX` counts as unreachable, because a dead connection may raise no
error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from coredis.connection import BaseConnection, TCPConnection, UnixDomainSocketConnection
from coredis.exceptions import ConnectionError

CONNECT_S_MAX = 2.0
REPLY_S_MAX = 5.0
Argument = str | bytes | int


class Reply:
    """The reply to a command, in the form that coredis fills. The waiting caller may be cancelled at any time."""

    current_decode = False
    current_encoding = None

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.coming: asyncio.Future[Any] = loop.create_future()
        self.complete = False

    def consume(self, response: object) -> None:
        """It is there."""
        self.complete = True
        if self.coming.done():
            return
        if isinstance(response, BaseException):
            self.coming.set_exception(response)
        else:
            self.coming.set_result(response)

    def fail(self, error: BaseException) -> None:
        """It will never be there."""
        self.consume(error)


class _Wire(asyncio.Protocol):
    """The transport's side of a connection: what coredis takes for its stream, and for the buffer of what it sends."""

    def __init__(self, heard: Callable[[bytes], None], lost: Callable[[], None], owes: Callable[[], bool]) -> None:
        self._loop = asyncio.get_running_loop()
        self._heard, self._lost, self._owes = heard, lost, owes
        self._transport: asyncio.Transport | None = None
        self._outbox: list[bytes] = []
        self._owing_since: float | None = None
        self._watch: asyncio.TimerHandle | None = None
        self.over: asyncio.Future[Exception | None] = self._loop.create_future()

    async def __aenter__(self) -> None:
        """The connection is in use."""

    async def __aexit__(self, *_: object) -> None:
        self.end(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._heard(data)
        except Exception as error:  # no server of ours speaks so
            self.end(error)
        self._owing_since = self._loop.time() if self._owes() else None

    def connection_lost(self, exc: Exception | None) -> None:
        self.end(exc)

    def end(self, error: Exception | None) -> None:
        """Nothing more is sent or read."""
        if not self.over.done():
            self._lost()
            self.over.set_result(error)
        if self._watch is not None:
            self._watch.cancel()
        if self._transport is not None:
            self._transport.abort()

    def send(self, data: bytes) -> None:
        """Send it with all else of this turn of the loop."""
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox.append(data)
        if self._owing_since is None:
            self._owing_since = self._loop.time()
        if self._watch is None:
            self._watch = self._loop.call_later(REPLY_S_MAX, self._look)

    def _flush(self) -> None:
        data, self._outbox = b"".join(self._outbox), []
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _look(self) -> None:
        """Give the connection up where it owes replies and is silent for too long; else look again when it may be."""
        self._watch = None
        if self._owing_since is None or self.over.done():
            return
        silent_s = self._loop.time() - self._owing_since
        if silent_s < REPLY_S_MAX:
            self._watch = self._loop.call_later(REPLY_S_MAX - silent_s, self._look)
        elif self._owes():
            self.end(TimeoutError(f"no reply within {REPLY_S_MAX:g} s"))


class _Outbox:
    """Stands where coredis keeps what its writing task is to send."""

    def __init__(self, send: Callable[[list[Any]], None]) -> None:
        self.send_nowait = send

    async def __aenter__(self) -> None:
        """coredis opens it with the connection."""

    async def __aexit__(self, *_: object) -> None:
        """And closes it."""


class PipelinedConnection(BaseConnection):
    """What our connections have in common. The methods with an underscore are those that coredis calls."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._loop = asyncio.get_running_loop()
        self._write_buffer_in = self._write_buffer_out = cast(Any, _Outbox(self._pack))

    def ask(self, command: bytes, *arguments: Argument) -> asyncio.Future[Any]:
        """The reply to a command, in bytes. Raises ConnectionError where the connection is not usable."""
        if not self.usable:
            raise ConnectionError("the connection is not usable")
        reply = Reply(self._loop)
        self._requests.append(cast(Any, reply))
        self._pack([(command, arguments)])
        return reply.coming

    def _pack(self, commands: list[tuple[bytes, tuple[Any, ...]]]) -> None:
        wire = cast("_Wire | None", self.stream)
        if wire is not None:
            wire.send(b"".join(self._packer.pack_commands([(name, *given) for name, given in commands])))

    async def _connect(self) -> Any:
        async with asyncio.timeout(self._connect_timeout):
            return await self._wired(lambda: _Wire(self._data_received, self._lost, lambda: bool(self._requests)))

    async def _wired(self, make: Callable[[], _Wire]) -> _Wire:
        """A transport to where the server is."""
        raise NotImplementedError

    def _lost(self) -> None:
        self._transport_failed = True

    async def _reader_task(self) -> None:
        """Ends with the connection: reading needs no task."""
        wire = cast(_Wire, self.stream)
        error = await wire.over
        raise ConnectionError("the connection to the server broke") from error

    async def _writer_task(self) -> None:
        """Writing needs no task."""


class UnixLine(PipelinedConnection, UnixDomainSocketConnection):
    """One over a unix socket."""

    async def _wired(self, make: Callable[[], _Wire]) -> _Wire:
        _, wire = await self._loop.create_unix_connection(make, self.location.path)
        return wire


class TcpLine(PipelinedConnection, TCPConnection):
    """One over TCP, with TLS where the URL asks for it."""

    async def _wired(self, make: Callable[[], _Wire]) -> _Wire:
        where = self.location
        _, wire = await self._loop.create_connection(make, where.host, where.port, ssl=self._ssl_context)
        return wire


LINES: dict[type[BaseConnection], type[PipelinedConnection]] = {
    UnixDomainSocketConnection: UnixLine,
    TCPConnection: TcpLine,
}
