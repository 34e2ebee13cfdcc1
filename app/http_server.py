"""Serves the API on a socket, with timeouts and a graceful shutdown.

uvicorn has no timeouts for receiving headers and for writing responses; the protocol here adds both.
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

LINGER_S = 2.0  # input after an error is read and dropped for so long, because a reset could overtake the error
READ_BYTES_MIN = 16_384  # bytes of the response that a client must read in `write_timeout_s`, if that many wait
COALESCED_BYTES_MAX = 65_536  # held back until the end of a turn of the event loop
OTHER_FILES = 256  # open files besides connections
log = logging.getLogger(__name__)


def require_guarded(settings: Settings) -> None:
    """Raise SettingsInvalid if the service would listen on a network without keys.

    ABS_ALLOW_UNAUTHENTICATED permits it.
    """
    if settings.auth.keys_file or settings.auth.allow_unauthenticated or is_loopback(settings.server.host):
        return
    raise SettingsInvalid(
        f"ABS_HOST={settings.server.host} accepts requests from the network without a key. Set ABS_KEYS_FILE to "
        "a file and make a key (abs keys new NAME --scope generate --scope compile), or set ABS_HOST=127.0.0.1, or, on "
        "a trusted network, set ABS_ALLOW_UNAUTHENTICATED=yes"
    )


def serve(app: Any, listener: socket.socket, settings: Settings) -> bool:
    """Serve an application until SIGINT or SIGTERM.

    Returns False if the server could not start. After the signal the application's service, if it has one, drains.
    Open requests have `shutdown_grace_s`; then they are cancelled. A second SIGINT does not wait.
    """
    _allow_files(settings.server.connections_max + OTHER_FILES)
    config = uvicorn.Config(
        app, http=functools.partial(TimeoutProtocol, settings), ws="none", loop="asyncio", lifespan="on",  # type: ignore[arg-type]
        log_config=None, log_level=settings.telemetry.log_level, access_log=False, server_header=False,
        proxy_headers=False, timeout_keep_alive=settings.server.keep_alive_s,  # type: ignore[arg-type]
        timeout_graceful_shutdown=settings.process.shutdown_grace_s,  # type: ignore[arg-type]
        h11_max_incomplete_event_size=settings.server.header_bytes_max,
    )
    server = GracefulServer(config)
    server.run(sockets=[listener])
    return server.started


class GracefulServer(uvicorn.Server):
    """A uvicorn server that drains the service on shutdown. It keeps its exit status."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts the server and freezes the heap.

        Garbage collection excludes all present objects, which shortens its pauses.
        """
        await super().startup(sockets)
        gc.collect()
        gc.freeze()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drains the service, then stops the server."""
        components = getattr(getattr(self.config.app, "state", None), "components", None)  # of another app: none
        if components is not None and components.service is not None:
            components.service.jobs.drain()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handles the signals for the body.

        uvicorn would raise them again at the end, and the exit status would be lost.
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
    """Calls a function once after a delay. It can be stopped or restarted before."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None

    @property
    def running(self) -> bool:
        """Whether a call is pending."""
        return self._handle is not None

    def start(self, delay_s: float, call: Callable[[], None]) -> None:
        """Starts or restarts the timer."""
        self.stop()
        self._handle = self._loop.call_later(delay_s, self._run, call)

    def stop(self) -> None:
        """Cancels the call."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _run(self, call: Callable[[], None]) -> None:
        self._handle = None
        call()


class CoalescingTransport:
    """A transport that joins the writes of one event-loop turn. So a header and its body leave together.

    Otherwise each write would be a packet of its own and would wake the reader.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._buffer: list[bytes] = []
        self._bytes = 0
        self.abort, self.is_closing = transport.abort, transport.is_closing
        self.can_write_eof, self.get_extra_info = transport.can_write_eof, transport.get_extra_info
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading

    def write(self, data: bytes) -> None:
        """Buffers the data until the end of the turn.

        Much data is sent at once, because a slow reader shows only in the transport's own buffer.
        """
        if data and not self._buffer:
            self._loop.call_soon(self.flush)
        self._buffer.append(data)
        self._bytes += len(data)
        if self._bytes >= COALESCED_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Sends the buffered data."""
        data, self._buffer, self._bytes = b"".join(self._buffer), [], 0
        if data:
            self._transport.write(data)

    def write_eof(self) -> None:
        """Sends the buffered data and the end of the stream."""
        self.flush()
        self._transport.write_eof()

    def close(self) -> None:
        """Closes the connection after all data is sent."""
        self.flush()
        self._transport.close()

    def get_write_buffer_size(self) -> int:
        """The number of bytes that are not sent yet."""
        return self._bytes + self._transport.get_write_buffer_size()


class TimeoutProtocol(H11Protocol):
    """HTTP/1.1 connection with a timeout for receiving headers and for writing responses.

    The body of a request has its own timeout where it is read, so no timer runs while a request is answered.
    """

    def __init__(self, settings: Settings, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._settings = settings
        self._header_timer, self._write_timer = Timer(self.loop), Timer(self.loop)
        self._rejected = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the timers of a new connection. If there are too many, it is rejected."""
        transport.set_write_buffer_limits(high=0)  # any unread byte calls pause_writing
        super().connection_made(cast(asyncio.Transport, CoalescingTransport(transport, self.loop)))
        if len(self.connections) > self._settings.server.connections_max:
            self._reject(TooManyConnections(self._settings.server.connections_max))
        self._update_header_timer()

    def data_received(self, data: bytes) -> None:
        """Handles received data; ignores it after an error."""
        if not self._rejected:
            super().data_received(data)
            self._update_header_timer()

    def on_response_complete(self) -> None:
        """Restarts the header timer after a response."""
        super().on_response_complete()
        self._update_header_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timers of a closed connection."""
        self._header_timer.stop()
        self._write_timer.stop()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Starts the write timer: the client does not read."""
        super().pause_writing()
        self._start_write_timer(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Stops the write timer: the client has read everything."""
        super().resume_writing()
        self._write_timer.stop()

    def shutdown(self) -> None:
        """Closes the connection when the server stops."""
        if self._rejected:
            self.transport.close()
        else:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """Rejects an invalid request; h11's error is the one being handled."""
        settings, hint = self._settings, getattr(sys.exc_info()[1], "error_status_hint", 400)
        if hint == 431:
            self._reject(HeadersTooLarge("header_bytes_max", settings.server.header_bytes_max))
        else:
            self._reject(MalformedRequest("the request is not valid HTTP/1.1"))

    def _should_upgrade(self) -> bool:
        return False  # no other protocol is supported

    def _update_header_timer(self) -> None:
        """Runs the header timer while the server waits for a request."""
        answering = self.cycle is not None and not self.cycle.response_complete
        idle = self.timeout_keep_alive_task is not None  # uvicorn's keep-alive timer runs
        if answering or idle or self._rejected:
            self._header_timer.stop()
        elif not self._header_timer.running:
            self._header_timer.start(self._settings.server.header_timeout_s, self._on_header_timeout)

    def _on_header_timeout(self) -> None:
        """Ends a connection whose data is late.

        It waits for a header, or for the remaining body of an answered request.
        """
        received, _ = self.conn.trailing_data
        if received and (self.cycle is None or not self.cycle.more_body):
            self._reject(RequestTimeout(self._settings.server.header_timeout_s, "the header"))
        else:
            self.transport.close()

    def _start_write_timer(self, unread: int) -> None:
        self._write_timer.start(self._settings.server.write_timeout_s, lambda: self._require_read(unread))

    def _require_read(self, unread: int) -> None:
        """Closes the connection if the client reads too slowly.

        It must have read `READ_BYTES_MIN` bytes since the last check, or all `unread` bytes if these are fewer.
        """
        remaining = self.transport.get_write_buffer_size()
        if unread - remaining >= min(unread, READ_BYTES_MIN):
            self._start_write_timer(remaining)
        else:
            log.info("a client did not read its response within %g s", self._settings.server.write_timeout_s)
            self.transport.abort()

    def _reject(self, error: AppError) -> None:
        """Sends an error without the application and closes the connection."""
        self._rejected = True
        self._unset_keepalive_if_required()
        self._header_timer.stop()
        cycle = self.cycle
        # The error is in the body of a request that the application is handling.
        if cycle is not None and not cycle.response_complete:
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
    """The bytes of an error response that closes the connection."""
    response = problem(error, request_id(), {"connection": "close", "cache-control": "no-store"})
    fields = {**response.headers, "content-length": str(len(response.body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}\r\n{head}\r\n".encode() + response.body


def _allow_files(count: int) -> None:
    """Raises the limit of open files towards `count`. The system may permit fewer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        count = min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
