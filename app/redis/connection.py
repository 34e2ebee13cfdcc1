"""A connection to a Redis server that retries commands while the server is unreachable.

Commands share a few sockets: the next command is sent before the reply to the last one arrives.
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
from app.redis.protocol import CONNECT_S_MAX, CONNECTION_CLASSES, REPLY_S_MAX, Argument, PipelinedConnection

ONCE_S_MIN = 1.0  # minimum time for a reply, even if wait_s is 0
PAUSE_S, PAUSE_S_MAX = 0.05, 1.0  # between two attempts, doubled each time
FULL = "OOM"
_AWAY = (FULL, "MISCONF", "MASTERDOWN", "NOREPLICAS", "BUSY")  # prefixes of errors that may go away
_CUT = {"ClosedResourceError", "BrokenResourceError", "EndOfStream"}  # errors of anyio inside the client
T = TypeVar("T")
log = logging.getLogger(__name__)


def without_password(url: str) -> str:
    """A server's URL without its password."""
    scheme, _, address = url.partition("://")
    return f"{scheme}://{address.rpartition('@')[2].partition('?')[0]}"


def is_away(error: BaseException) -> bool:
    """Whether a later attempt may succeed: the server is unreachable or full."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_away(inner) for inner in error.exceptions)
    if isinstance(error, StorageDown):
        return True
    if isinstance(error, ResponseError):
        return isinstance(error, AuthenticationError | ReadOnlyError | NoScriptError) or str(error).startswith(_AWAY)
    return isinstance(error, ConnectionError | TimeoutError | OSError) or type(error).__name__ in _CUT


def storage_down(error: BaseException) -> StorageDown:
    """The error for callers of the API."""
    if str(error).startswith(FULL):
        return StorageDown("is full")
    if isinstance(error, ReadOnlyError) or str(error).startswith("MISCONF"):
        return StorageDown("cannot be written to")
    if isinstance(error, AuthenticationError):
        return StorageDown("rejects our name or password")
    return StorageDown()


class Connection:
    """A client of one server, opened on first use. Used from one event loop.

    Raises SettingsInvalid for an invalid URL.
    """

    def __init__(self, url: str, connections_max: int = 8) -> None:
        open_client(url, connections_max)
        self._url = url
        self._connections_max = connections_max
        self._client: Redis[bytes] | None = None
        self._owner: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._stop_waiting = self._away = False
        self._ready = asyncio.Event()
        self._running: set[asyncio.Future[object]] = set()
        self._line: PipelinedConnection | None = None
        self._line_pool: ConnectionPool[Any]
        self._opening_line: asyncio.Task[PipelinedConnection] | None = None

    async def client(self) -> Redis[bytes]:
        """The client, which connects on first use."""
        if self._owner is None:
            self._owner = asyncio.create_task(self._hold_client())
        while self._client is None:
            await self._ready.wait()
        return self._client

    async def call(
        self, op: str, command: Callable[[Redis[bytes]], Awaitable[T]], wait_s: float | None, keep_full: bool = True
    ) -> T:
        """The reply to a command, which is repeated while the server is unreachable.

        op         name of the call in metrics
        wait_s     time for repetitions; None is unlimited, 0 is one attempt
        keep_full  whether to repeat while the server is full
        Raises StorageDown after that time, and coredis's errors for invalid commands.
        """
        return await self._with_retries(op, partial(self._once, command), wait_s, keep_full)

    async def run(
        self, op: str, script: Script[bytes], keys: Sequence[str], arguments: Sequence[Argument], wait_s: float | None,
        keep_full: bool = True,
    ) -> Any:
        """The result of a script, as `call`, at a quarter of its cost."""
        return await self._with_retries(op, partial(self._run_once, script, keys, arguments), wait_s, keep_full)

    async def _with_retries(
        self, op: str, once: Callable[[float | None], Awaitable[T]], wait_s: float | None, keep_full: bool
    ) -> T:
        deadline = None if wait_s is None else time.monotonic() + max(wait_s, ONCE_S_MIN)
        pause, last_error = PAUSE_S, None
        while True:
            try:
                reply = await once(deadline)
            except Exception as error:
                if not is_away(error):
                    raise
                metrics.redis_failed(op)
                self._note(error)
                # The last attempt may be too short to learn the cause.
                if last_error is None or not isinstance(error, TimeoutError):
                    last_error = error
                remaining_s = math.inf if deadline is None else deadline - time.monotonic()
                give_up = self._stop_waiting or wait_s == 0 or (not keep_full and str(error).startswith(FULL))
                if give_up or remaining_s <= 0:
                    raise storage_down(last_error) from last_error
            else:
                self._note(None)
                return reply
            await asyncio.sleep(min(remaining_s, pause * random.uniform(0.5, 1.0)))
            pause = min(2 * pause, PAUSE_S_MAX)

    def stop_waiting(self) -> None:
        """Stop waiting for an unreachable server. Called before this process closes its connections."""
        self._stop_waiting = True

    async def close(self) -> None:
        """Closes the sockets."""
        self._closing.set()
        if self._opening_line is not None:
            self._opening_line.cancel()
        if self._owner is not None:
            self._owner.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._owner

    def _note(self, last_error: Exception | None) -> None:
        """Logs when the server becomes unreachable, and when it is back."""
        if last_error is not None and not self._away:
            log.warning("the server %s is away: %s", without_password(self._url), type(last_error).__name__)
        elif last_error is None and self._away:
            log.warning("the server %s is back", without_password(self._url))
        self._away = last_error is not None

    async def _once(self, command: Callable[[Redis[bytes]], Awaitable[T]], deadline: float | None) -> T:
        """Attempt a command once.

        A cancelled caller leaves the command running, because coredis loses a place of its pool to each cancellation.
        """
        client = await self.client()

        async def run() -> T:
            return await command(client)

        task = asyncio.create_task(run())
        self._running.add(task)  # type: ignore[arg-type]
        task.add_done_callback(self._ran)
        async with _until(deadline):
            return await asyncio.shield(task)

    async def _run_once(
        self, script: Script[bytes], keys: Sequence[str], arguments: Sequence[Argument], deadline: float | None
    ) -> Any:
        """One attempt. The script is loaded if the server does not know it yet."""
        async with _until(deadline):
            line = self._line if self._line is not None and self._line.usable else await self._next_line()
            try:
                return await line.send(b"EVALSHA", script.sha, len(keys), *keys, *arguments)
            except NoScriptError:
                await line.send(b"SCRIPT LOAD", script.script)
                return await line.send(b"EVALSHA", script.sha, len(keys), *keys, *arguments)

    async def _next_line(self) -> PipelinedConnection:
        """A new connection for all scripts, after the last one broke.

        It is opened once, even if a waiting caller is cancelled.
        """
        if self._opening_line is None or self._opening_line.done():
            self._opening_line = asyncio.create_task(self._open_line())
            self._opening_line.add_done_callback(self._ran)
        return await asyncio.shield(self._opening_line)

    async def _open_line(self) -> PipelinedConnection:
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

    async def _hold_client(self) -> None:
        """Keeps the client open: one task must enter and exit it."""
        while not self._closing.is_set():
            client = open_client(self._url, self._connections_max + 1)  # one more for the scripts
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


def _until(deadline: float | None) -> asyncio.Timeout:
    return asyncio.timeout(None if deadline is None else max(0.0, deadline - time.monotonic()))


class Pool(ConnectionPool[Any]):
    """A pool of our connections that frees the slot of a connection that breaks in use.

    In coredis each broken subscription or pipeline would keep its slot, until all commands wait for ever. Idle
    connections are closed with it: if a network path is lost all of them are silent, and each would need `REPLY_S_MAX`
    to time out, one after another.
    """

    def __init__(self, *, connection_class: Any = None, **options: Any) -> None:
        super().__init__(connection_class=CONNECTION_CLASSES.get(connection_class, connection_class), **options)

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
    """A client that is not entered yet. Raises SettingsInvalid for an invalid URL."""
    try:
        return Redis(connection_pool=open_pool(url, connections_max), retry_policy=NoRetryPolicy())
    except (RedisError, ValueError, RuntimeError, TypeError):
        raise SettingsInvalid(f"{without_password(url)} is not the URL of a Redis server") from None


def script(text: str) -> Script[bytes]:
    """A Lua script, sent once to each server and called by its hash from then on."""
    return Script(None, text)
