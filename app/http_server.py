"""How the API is put on a socket: for how long a client may keep a connection busy, and how the server stops.

The server library knows no time limit for headers and none for readers; the protocol here adds both.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.api.errors import problem
from app.api.middleware.security import is_loopback
from app.errors import AppError, HeadersTooLarge, MalformedRequest, RequestTimeout, SettingsInvalid, TooManyConnections
from app.messages import request_id
from app.settings import Settings

LINGER_S = 2.0  # for how long what comes after a refusal is read and dropped: else a reset would overtake the refusal
READER_BYTES_MIN = 16_384  # what a reader must take of his answer in `write_timeout_s`, if there is as much
GATHERED_BYTES_MAX = 65_536  # that wait for the end of a turn of the event loop
FILES_BESIDE = 256  # open files that are no connections
log = logging.getLogger(__name__)


def require_guarded(settings: Settings) -> None:
    """Raise SettingsInvalid if the service would listen on a network without keys.

    ABS_ALLOW_UNAUTHENTICATED permits it.
    """
    if settings.keys_file or settings.allow_unauthenticated or is_loopback(settings.host):
        return
    raise SettingsInvalid(
        f"ABS_HOST={settings.host} lets in whoever reaches this machine. Set ABS_KEYS_FILE to a file and make a key "
        "(abs keys new NAME --scope generate --scope compile); or bind to 127.0.0.1; or, on a network where everyone "
        "is trusted, set ABS_ALLOW_UNAUTHENTICATED=yes"
    )


def serve(app: Any, listener: socket.socket, settings: Settings) -> bool:
    """Serve an application until SIGINT or SIGTERM.

    Returns False if the server could not start. After the signal the application's service, if it has one, drains.
    Open requests have `shutdown_grace_s`; then they are cancelled. A second SIGINT does not wait.
    """
    _allow_files(settings.connections_max + FILES_BESIDE)
    config = uvicorn.Config(
        app, http=functools.partial(TimeoutProtocol, settings), ws="none", loop="asyncio", lifespan="on",  # type: ignore[arg-type]
        log_config=None, log_level=settings.log_level, access_log=False, server_header=False, proxy_headers=False,
        timeout_keep_alive=settings.keep_alive_s, timeout_graceful_shutdown=settings.shutdown_grace_s,  # type: ignore[arg-type]
        h11_max_incomplete_event_size=settings.header_bytes_max,
    )
    server = GracefulServer(config)
    server.run(sockets=[listener])
    return server.started


class GracefulServer(uvicorn.Server):
    """A server that has the application drain before it waits for it, and that ends by itself, not by the signal."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and leave what is there now out of all collections of garbage: it stays, and makes them long."""
        await super().startup(sockets)
        gc.collect()
        gc.freeze()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop: the service first."""
        components = getattr(getattr(self.config.app, "state", None), "components", None)  # of another app: none
        if components is not None and components.service is not None:
            components.service.jobs.drain()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle the signals without raising them again at the end.

        The library would raise them again, and the exit status would be lost.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Timer:
    """Calls something once, some seconds after its last start, unless it is stopped."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None

    @property
    def running(self) -> bool:
        """Whether it was started and has not called yet."""
        return self._handle is not None

    def start(self, delay_s: float, call: Callable[[], None]) -> None:
        """Start or restart the timer."""
        self.stop()
        self._handle = self._loop.call_later(delay_s, self._over, call)

    def stop(self) -> None:
        """Call nothing."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _over(self, call: Callable[[], None]) -> None:
        self._handle = None
        call()


class CoalescingTransport:
    """A transport that sends together what is written within one turn of the event loop, a header and its body say.

    Else each would be a packet, and would wake its reader, by itself.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._written: list[bytes] = []
        self._bytes = 0
        self.abort, self.is_closing = transport.abort, transport.is_closing
        self.can_write_eof, self.get_extra_info = transport.can_write_eof, transport.get_extra_info
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading

    def write(self, data: bytes) -> None:
        """Send soon; at once what is much, lest it pile up here, where no reader is seen to lag."""
        if data and not self._written:
            self._loop.call_soon(self.flush)
        self._written.append(data)
        self._bytes += len(data)
        if self._bytes >= GATHERED_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Send it now."""
        data, self._written, self._bytes = b"".join(self._written), [], 0
        if data:
            self._transport.write(data)

    def write_eof(self) -> None:
        """Send the last of it, and that it was the last."""
        self.flush()
        self._transport.write_eof()

    def close(self) -> None:
        """Close once all is sent."""
        self.flush()
        self._transport.close()

    def get_write_buffer_size(self) -> int:
        """The bytes that are yet to be sent."""
        return self._bytes + self._transport.get_write_buffer_size()


class TimeoutProtocol(H11Protocol):
    """A connection on which a client who owes us a header, or does not take his answer, has only so long.

    While a request is answered he owes nothing here: its body is timed where it is read.
    """

    def __init__(self, settings: Settings, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._settings = settings
        self._owing, self._blocking = Timer(self.loop), Timer(self.loop)
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        transport.set_write_buffer_limits(high=0)  # so that any lag of a reader calls pause_writing
        super().connection_made(cast(asyncio.Transport, CoalescingTransport(transport, self.loop)))
        if len(self.connections) > self._settings.connections_max:
            self._refuse(TooManyConnections(self._settings.connections_max))
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Some of what a client sends has come."""
        if not self._refused:
            super().data_received(data)
            self._watch()

    def on_response_complete(self) -> None:
        """An answer has been written."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._owing.stop()
        self._blocking.stop()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Some of an answer waits for its reader."""
        super().pause_writing()
        self._let_read(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """All has been taken."""
        super().resume_writing()
        self._blocking.stop()

    def shutdown(self) -> None:
        """The server stops."""
        if self._refused:
            self.transport.close()
        else:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """Called while the error is handled that reading the request met."""
        settings, hint = self._settings, getattr(sys.exc_info()[1], "error_status_hint", 400)
        if hint == 431:
            self._refuse(HeadersTooLarge("header_bytes_max", settings.header_bytes_max))
        else:
            self._refuse(MalformedRequest("this is not an HTTP request that reads in one way"))

    def _should_upgrade(self) -> bool:
        return False  # we know no other protocols

    def _watch(self) -> None:
        """The client's time begins where he owes us something, and ends where he does not."""
        answering = self.cycle is not None and not self.cycle.response_complete
        idle = self.timeout_keep_alive_task is not None  # the library's own timer runs
        if answering or idle or self._refused:
            self._owing.stop()
        elif not self._owing.running:
            self._owing.start(self._settings.header_timeout_s, self._give_up)

    def _give_up(self) -> None:
        """A header did not arrive in time, or the rest of a body whose answer was sent already."""
        begun, _ = self.conn.trailing_data
        if begun and (self.cycle is None or not self.cycle.more_body):
            self._refuse(RequestTimeout(self._settings.header_timeout_s, "the header"))
        else:
            self.transport.close()

    def _let_read(self, unread: int) -> None:
        self._blocking.start(self._settings.write_timeout_s, lambda: self._require_read(unread))

    def _require_read(self, unread: int) -> None:
        """Close the connection of a reader who has hardly taken anything since so much was unread."""
        left = self.transport.get_write_buffer_size()
        if unread - left >= min(unread, READER_BYTES_MIN):
            self._let_read(left)
        else:
            log.info("a client did not take its answer within %g s", self._settings.write_timeout_s)
            self.transport.abort()

    def _refuse(self, error: AppError) -> None:
        """Answer without the application, and close."""
        self._refused = True
        self._unset_keepalive_if_required()
        self._owing.stop()
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:  # the fault is in the body of a request that is under way
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.close()
                return
        self.transport.write(_raw(error))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)


def _raw(error: AppError) -> bytes:
    """An error as the bytes of an answer that ends its connection."""
    answer = problem(error, request_id(), {"connection": "close", "cache-control": "no-store"})
    fields = {**answer.headers, "content-length": str(len(answer.body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}\r\n{head}\r\n".encode() + answer.body


def _allow_files(wanted: int) -> None:
    """Let this process open as many files as it may need, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
