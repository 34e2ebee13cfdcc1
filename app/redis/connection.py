"""A connection to a Redis server that outlives the server's absences. Knows nothing of jobs or automata.

Commands share few sockets: a reply is waited for after the socket has been handed on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from coredis import Redis
from coredis.commands.script import Script
from coredis.exceptions import (
    AuthenticationError,
    ConnectionError,
    NoScriptError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from coredis.pool import ConnectionPool
from coredis.retry import NoRetryPolicy

from app.errors import SettingsInvalid, StorageDown
from app.observability import metrics
from app.redis.protocol import CONNECT_S_MAX, LINES, REPLY_S_MAX, Argument, PipelinedConnection

ONCE_S_MIN = 1.0  # for which even who will not wait gives the server to answer
PAUSE_S, PAUSE_S_MAX = 0.05, 1.0  # between two tries, doubled each time
FULL = "OOM"
_AWAY = (FULL, "MISCONF", "MASTERDOWN", "NOREPLICAS", "BUSY")  # what replies begin with that time may change
_CUT = {"ClosedResourceError", "BrokenResourceError", "EndOfStream"}  # of anyio, from under the client
T = TypeVar("T")
log = logging.getLogger(__name__)


def without_password(url: str) -> str:
    """A server's URL as it may be shown, whatever its password holds."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"


def is_away(error: BaseException) -> bool:
    """Whether a server that comes back, or gets room, may do what it did not do now."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_away(one) for one in error.exceptions)
    if isinstance(error, StorageDown):
        return True
    if isinstance(error, ResponseError):
        return isinstance(error, AuthenticationError | ReadOnlyError | NoScriptError) or str(error).startswith(_AWAY)
    return isinstance(error, ConnectionError | TimeoutError | OSError) or type(error).__name__ in _CUT


def storage_down(error: BaseException) -> StorageDown:
    """What to tell a caller of ours."""
    if str(error).startswith(FULL):
        return StorageDown("is full")
    if isinstance(error, ReadOnlyError) or str(error).startswith("MISCONF"):
        return StorageDown("cannot be written to")
    if isinstance(error, AuthenticationError):
        return StorageDown("refuses our name or password")
    return StorageDown()


class Connection:
    """A client of one server, opened on first use. Used from one event loop.

    Raises SettingsInvalid for what is no URL of a server.
    """

    def __init__(self, url: str, connections_max: int = 8) -> None:
        open_client(url, connections_max)
        self._url = url
        self._connections_max = connections_max
        self._client: Redis[bytes] | None = None
        self._owner: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._hurried = self._away = False
        self._ready = asyncio.Event()
        self._running: set[asyncio.Future[object]] = set()
        self._line: PipelinedConnection | None = None
        self._line_pool: ConnectionPool[Any]
        self._line_coming: asyncio.Task[PipelinedConnection] | None = None

    async def client(self) -> Redis[bytes]:
        """The client, which connects when it is used."""
        if self._owner is None:
            self._owner = asyncio.create_task(self._own())
        while self._client is None:
            await self._ready.wait()
        return self._client

    async def call(
        self, op: str, command: Callable[[Redis[bytes]], Awaitable[T]], wait_s: float | None, keep_full: bool = True
    ) -> T:
        """The reply to a command, which is sent again while the server is away.

        op         names the call in metrics
        wait_s     for how long it may be sent again; None is for ever, 0 is once
        keep_full  whether a server that is full is waited for too
        Raises StorageDown when the time is over; what the server objects to, as coredis does.
        """
        return await self._patiently(op, partial(self._once, command), wait_s, keep_full)

    async def run(
        self, op: str, script: Script[bytes], keys: Sequence[str], arguments: Sequence[Argument], wait_s: float | None,
        keep_full: bool = True,
    ) -> Any:
        """What a script returns. As `call`, at a quarter of its cost."""
        return await self._patiently(op, partial(self._run_once, script, keys, arguments), wait_s, keep_full)

    async def _patiently(
        self, op: str, once: Callable[[float | None], Awaitable[T]], wait_s: float | None, keep_full: bool
    ) -> T:
        ends = None if wait_s is None else time.monotonic() + max(wait_s, ONCE_S_MIN)
        pause, trouble = PAUSE_S, None
        while True:
            try:
                reply = await once(ends)
            except Exception as error:
                if not is_away(error):
                    raise
                metrics.redis_failed(op)
                self._note(error)
                if trouble is None or not isinstance(error, TimeoutError):  # at the end the time is too short to learn
                    trouble = error
                left = math.inf if ends is None else ends - time.monotonic()
                hopeless = self._hurried or wait_s == 0 or (not keep_full and str(error).startswith(FULL))
                if hopeless or left <= 0:
                    raise storage_down(trouble) from trouble
            else:
                self._note(None)
                return reply
            await asyncio.sleep(min(left, pause * random.uniform(0.5, 1.0)))
            pause = min(2 * pause, PAUSE_S_MAX)

    def hurry(self) -> None:
        """Stop waiting for an unreachable server. Called before this process closes its connections."""
        self._hurried = True

    async def close(self) -> None:
        """Give the sockets up."""
        self._closing.set()
        if self._line_coming is not None:
            self._line_coming.cancel()
        if self._owner is not None:
            self._owner.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._owner

    def _note(self, trouble: Exception | None) -> None:
        """Say once that the server is away, and once that it is back."""
        if trouble is not None and not self._away:
            log.warning("the server %s is away: %s", without_password(self._url), type(trouble).__name__)
        elif trouble is None and self._away:
            log.warning("the server %s is back", without_password(self._url))
        self._away = trouble is not None

    async def _once(self, command: Callable[[Redis[bytes]], Awaitable[T]], ends: float | None) -> T:
        """Attempt a command once.

        A cancelled caller leaves the command running, because coredis loses a place of its pool to each cancellation.
        """
        client = await self.client()

        async def run() -> T:
            return await command(client)

        task = asyncio.create_task(run())
        self._running.add(task)  # type: ignore[arg-type]
        task.add_done_callback(self._ran)
        async with _until(ends):
            return await asyncio.shield(task)

    async def _run_once(
        self, script: Script[bytes], keys: Sequence[str], arguments: Sequence[Argument], ends: float | None
    ) -> Any:
        """One try. A server that does not know the script yet is sent it whole."""
        async with _until(ends):
            line = self._line if self._line is not None and self._line.usable else await self._next_line()
            try:
                return await line.ask(b"EVALSHA", script.sha, len(keys), *keys, *arguments)
            except NoScriptError:
                await line.ask(b"SCRIPT LOAD", script.script)
                return await line.ask(b"EVALSHA", script.sha, len(keys), *keys, *arguments)

    async def _next_line(self) -> PipelinedConnection:
        """A new connection for all scripts, after the last one broke.

        It is opened once, even if a waiting caller is cancelled.
        """
        if self._line_coming is None or self._line_coming.done():
            self._line_coming = asyncio.create_task(self._make_line())
            self._line_coming.add_done_callback(self._ran)
        return await asyncio.shield(self._line_coming)

    async def _make_line(self) -> PipelinedConnection:
        pool = (await self.client()).connection_pool
        if self._line is not None:
            self._line_pool.release(self._line)
        self._line, self._line_pool = None, pool
        self._line = line = cast(PipelinedConnection, await pool.get_connection())
        return line

    def _ran(self, task: asyncio.Future[T]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved here, because the caller may be gone

    async def _own(self) -> None:
        """Hold the client open: it must be entered and left by one task."""
        while not self._closing.is_set():
            client = open_client(self._url, self._connections_max + 1)  # one for the scripts
            try:
                async with client:
                    self._client = client
                    self._ready.set()
                    await self._closing.wait()
            except Exception as error:
                log.warning("the connections to %s broke: %s", without_password(self._url), type(error).__name__)
            finally:
                self._client = None
                self._ready.clear()
            await asyncio.sleep(PAUSE_S)


def _until(ends: float | None) -> asyncio.Timeout:
    return asyncio.timeout(None if ends is None else max(0.0, ends - time.monotonic()))


class Pool(ConnectionPool[Any]):
    """coredis's, but that its connections are ours, and that the place of one that breaks in use is free again.

    Else each subscription and each pipeline that a server leaves behind would take one place with it, until none is
    left and all commands wait for ever. What is idle when one broke is given up too: where a way through the network is
    forgotten all of them are silent, which each would take `REPLY_S_MAX` to show, one after the other.
    """

    def __init__(self, *, connection_class: Any = None, **options: Any) -> None:
        super().__init__(connection_class=LINES.get(connection_class, connection_class), **options)

    def release(self, connection: Any) -> None:
        super().release(connection)
        if connection.usable:
            return
        for idle in list(self._available_connections._queue):
            if idle is not None:
                idle.invalidate()
        if not self._available_connections.full():
            self._available_connections.append_nowait(None)


def open_pool(url: str, connections_max: int, decode_responses: bool = False) -> Pool:
    """A pool of at most `connections_max` connections, opened on first use.

    Raises the errors of coredis for an invalid URL.
    """
    pool = Pool.from_url(
        url, db=None, decode_components=True, max_connections=connections_max, connect_timeout=CONNECT_S_MAX,
        stream_timeout=REPLY_S_MAX, decode_responses=decode_responses,
    )
    assert isinstance(pool, Pool)
    return pool


def open_client(url: str, connections_max: int) -> Redis[bytes]:
    """A client that is yet to be entered. Raises SettingsInvalid for what is no URL of a server."""
    try:
        return Redis(connection_pool=open_pool(url, connections_max), retry_policy=NoRetryPolicy())
    except (RedisError, ValueError, RuntimeError, TypeError):
        raise SettingsInvalid(f"{without_password(url)} is not the URL of a Redis server") from None


def script(text: str) -> Script[bytes]:
    """A Lua script, sent once to each server and called by its hash from then on."""
    return Script(None, text)
