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
    """The reply to a command, as coredis fills it. The waiting caller may be cancelled at any time."""

    current_decode = False
    current_encoding = None

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[Any] = loop.create_future()
        self.complete = False

    def consume(self, response: object) -> None:
        """Sets the reply."""
        self.complete = True
        if self.future.done():
            return
        if isinstance(response, BaseException):
            self.future.set_exception(response)
        else:
            self.future.set_result(response)

    def fail(self, error: BaseException) -> None:
        """Sets the error in place of a reply."""
        self.consume(error)


class _Transport(asyncio.Protocol):
    """The asyncio protocol of a connection; coredis uses it as its stream."""

    def __init__(
        self, on_data: Callable[[bytes], None], on_lost: Callable[[], None], has_pending: Callable[[], bool]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_data, self._on_lost, self._has_pending = on_data, on_lost, has_pending
        self._transport: asyncio.Transport | None = None
        self._outbox: list[bytes] = []
        self._waiting_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.over: asyncio.Future[Exception | None] = self._loop.create_future()

    async def __aenter__(self) -> None:
        """Nothing to open: coredis enters the stream of a connection."""

    async def __aexit__(self, *_: object) -> None:
        self.end(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._on_data(data)
        except Exception as error:  # not a valid reply
            self.end(error)
        self._waiting_since = self._loop.time() if self._has_pending() else None

    def connection_lost(self, exc: Exception | None) -> None:
        self.end(exc)

    def end(self, error: Exception | None) -> None:
        """Ends the connection."""
        if not self.over.done():
            self._on_lost()
            self.over.set_result(error)
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    def send(self, data: bytes) -> None:
        """Sends data together with all other data of this turn of the loop."""
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox.append(data)
        if self._waiting_since is None:
            self._waiting_since = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(REPLY_S_MAX, self._check_timeout)

    def _flush(self) -> None:
        data, self._outbox = b"".join(self._outbox), []
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _check_timeout(self) -> None:
        """Ends the connection if replies are pending and nothing arrived for too long."""
        self._timer = None
        if self._waiting_since is None or self.over.done():
            return
        silent_s = self._loop.time() - self._waiting_since
        if silent_s < REPLY_S_MAX:
            self._timer = self._loop.call_later(REPLY_S_MAX - silent_s, self._check_timeout)
        elif self._has_pending():
            self.end(TimeoutError(f"no reply within {REPLY_S_MAX:g} s"))


class _Outbox:
    """Replaces the buffer of coredis's writer task."""

    def __init__(self, send: Callable[[list[Any]], None]) -> None:
        self.send_nowait = send

    async def __aenter__(self) -> None:
        """Nothing to open."""

    async def __aexit__(self, *_: object) -> None:
        """Nothing to close."""


class PipelinedConnection(BaseConnection):
    """Common parts of our connections. coredis calls the methods with an underscore."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._loop = asyncio.get_running_loop()
        self._write_buffer_in = self._write_buffer_out = cast(Any, _Outbox(self._pack))

    def send(self, command: bytes, *arguments: Argument) -> asyncio.Future[Any]:
        """The reply to a command, in bytes. Raises ConnectionError if the connection is not usable."""
        if not self.usable:
            raise ConnectionError("the connection is not usable")
        reply = Reply(self._loop)
        self._requests.append(cast(Any, reply))
        self._pack([(command, arguments)])
        return reply.future

    def _pack(self, commands: list[tuple[bytes, tuple[Any, ...]]]) -> None:
        transport = cast("_Transport | None", self.stream)
        if transport is not None:
            transport.send(b"".join(self._packer.pack_commands([(name, *arguments) for name, arguments in commands])))

    async def _connect(self) -> Any:
        async with asyncio.timeout(self._connect_timeout):
            return await self._open(lambda: _Transport(self._data_received, self._on_lost, self._has_pending))

    async def _open(self, make: Callable[[], _Transport]) -> _Transport:
        """Opens a transport to the server."""
        raise NotImplementedError

    def _on_lost(self) -> None:
        self._transport_failed = True

    def _has_pending(self) -> bool:
        return bool(self._requests)

    async def _reader_task(self) -> None:
        """Ends with the connection: reading needs no task."""
        transport = cast(_Transport, self.stream)
        error = await transport.over
        raise ConnectionError("the connection to the server broke") from error

    async def _writer_task(self) -> None:
        """Writing needs no task."""


class UnixPipelinedConnection(PipelinedConnection, UnixDomainSocketConnection):
    """A connection over a unix socket."""

    async def _open(self, make: Callable[[], _Transport]) -> _Transport:
        _, transport = await self._loop.create_unix_connection(make, self.location.path)
        return transport


class TcpPipelinedConnection(PipelinedConnection, TCPConnection):
    """A connection over TCP, with TLS if the URL has it."""

    async def _open(self, make: Callable[[], _Transport]) -> _Transport:
        where = self.location
        _, transport = await self._loop.create_connection(make, where.host, where.port, ssl=self._ssl_context)
        return transport


CONNECTION_CLASSES: dict[type[BaseConnection], type[PipelinedConnection]] = {
    UnixDomainSocketConnection: UnixPipelinedConnection,
    TCPConnection: TcpPipelinedConnection,
}
