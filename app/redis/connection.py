"""A connection to a Redis server that waits for an unreachable server.

All callers of a process share it. Each command is written at once, while earlier ones wait for their replies.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import random
import re
import time
from collections import deque
from collections.abc import Sequence
from functools import cache
from typing import Any, cast

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis, Sentinel
from redis.asyncio import Connection as Socket
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from app.errors import SettingsInvalid, StorageDown
from app.observability import metrics
from app.tasks import cancel_tasks

CONNECTIONS_MAX = 2  # one for commands, one for a subscription
CONNECT_S_MAX = 2.0
REPLY_S_MAX = 5.0  # a dead connection may raise no error
ONCE_S_MIN = 1.0  # minimum time for a reply, even if wait_s is 0
PAUSE_S, PAUSE_S_MAX = 0.05, 1.0  # between two attempts, doubled each time
REPLICA_MS_MAX = 500  # for one WAIT; less than an attempt may take
_AWAY = ("MISCONF", "MASTERDOWN", "NOREPLICAS", "BUSY", "LOADING")  # prefixes of errors that may go away
_SENTINEL_URL = re.compile(r"(rediss?)\+sentinel://(?:(.*)@)?([^/]+)/([^/?]+)/?([^?]*)(\?.*)?")
Argument = str | bytes | int
_sha_of = cache(lambda script: hashlib.sha1(script.encode()).hexdigest())  # the name of a script on the server
log = logging.getLogger(__name__)


class ReplicasMissingError(exceptions.ConnectionError):
    """Too few replicas have acknowledged a change."""


def without_password(url: str) -> str:
    """A server's URL without its password."""
    scheme, _, address = url.partition("://")
    return f"{scheme}://{address.rpartition('@')[2].partition('?')[0]}"


def is_away(error: BaseException) -> bool:
    """Whether a later attempt may succeed: the server is unreachable or full."""
    if isinstance(error, exceptions.ResponseError):
        return isinstance(error, exceptions.ReadOnlyError | exceptions.OutOfMemoryError) or str(error).startswith(_AWAY)
    return isinstance(error, StorageDown | exceptions.ConnectionError | exceptions.TimeoutError | OSError)


def storage_down(error: BaseException) -> StorageDown:
    """The error for callers of the API."""
    if isinstance(error, exceptions.OutOfMemoryError):
        return StorageDown("is full")
    if isinstance(error, exceptions.ReadOnlyError) or str(error).startswith("MISCONF"):
        return StorageDown("cannot be written to")
    if isinstance(error, ReplicasMissingError):
        return StorageDown("has too few replicas")
    if isinstance(error.__cause__, exceptions.AuthenticationError):
        return StorageDown("rejects our name or password")
    return StorageDown()


class Connection:
    """A client of one server, which connects on first use. Used from one event loop.

    replicas_min  replicas that must have the changes of a command before its reply is returned
    Raises SettingsInvalid for an invalid URL.
    """

    def __init__(self, url: str, replicas_min: int = 0) -> None:
        self._url, self._replicas_min = url, replicas_min
        self.client = open_client(url)
        self._stop_waiting = self._away = False
        self._texts: dict[str, str] = {}  # of scripts, by their hash
        self._opening = asyncio.Lock()
        self._socket: Socket | None = None
        self._replies: deque[asyncio.Future[Any]] = deque()  # that callers wait for, in the order of their commands
        self._reader: asyncio.Task[None] | None = None

    async def run(
        self, op: str, script: str, keys: Sequence[str], arguments: Sequence[Argument], wait_s: float | None,
        keep_full: bool = True,
    ) -> Any:
        """The result of a script; waits and raises as `command`."""
        sha = _sha_of(script)
        self._texts[sha] = script
        words = ("EVALSHA", sha, len(keys), *keys, *arguments)
        return await self.command(op, *words, wait_s=wait_s, keep_full=keep_full)

    async def command(self, op: str, *words: Argument, wait_s: float | None, keep_full: bool = True) -> Any:
        """The reply to a command. It is repeated while the server is unreachable.

        op         name of the call in metrics
        wait_s     time for repetitions; None is unlimited, 0 is one attempt
        keep_full  whether to repeat while the server is full
        Raises StorageDown after that time, and redis-py's errors for invalid commands.
        """
        deadline = None if wait_s is None else time.monotonic() + max(wait_s, ONCE_S_MIN)
        pause, last_error = PAUSE_S, None
        while True:
            try:
                async with asyncio.timeout(None if deadline is None else max(0.0, deadline - time.monotonic())):
                    reply = await self._send(words)
            except Exception as error:
                if not is_away(error):
                    raise
                metrics.redis_failed(op)
                self._note(error)
                # The last attempt may be too short to learn the cause.
                if last_error is None or not isinstance(error, TimeoutError):
                    last_error = error
                remaining_s = math.inf if deadline is None else deadline - time.monotonic()
                full = isinstance(error, exceptions.OutOfMemoryError)
                if self._stop_waiting or wait_s == 0 or (full and not keep_full) or remaining_s <= 0:
                    raise storage_down(last_error) from last_error
            else:
                self._note(None)
                return reply
            await asyncio.sleep(min(remaining_s, pause * random.uniform(0.5, 1.0)))
            pause = min(2 * pause, PAUSE_S_MAX)

    async def close(self) -> None:
        """Closes the sockets. Calls no longer wait for an unreachable server."""
        self._stop_waiting = True
        await cancel_tasks(self._reader)
        await self.client.aclose()
        sentinel = getattr(self.client.connection_pool, "sentinel_manager", None)
        for watcher in sentinel.sentinels if sentinel else ():
            await watcher.aclose()

    def _note(self, last_error: Exception | None) -> None:
        """Logs when the server becomes unreachable, and when it is back."""
        if (last_error is not None) != self._away:
            state = "back" if last_error is None else f"away: {type(last_error).__name__}"
            log.warning("the server %s is %s", without_password(self._url), state)
        self._away = last_error is not None

    async def _send(self, words: tuple[Argument, ...]) -> Any:
        """The reply to a command. A script that the server lacks is loaded. Raises redis-py's errors, TimeoutError."""
        commands = [words, ("WAIT", self._replicas_min, REPLICA_MS_MAX)] if self._replicas_min else [words]
        waiting = [asyncio.get_running_loop().create_future() for _ in commands]
        async with self._opening, asyncio.timeout(REPLY_S_MAX):
            if self._socket is None:
                self._socket = await self.client.connection_pool.get_connection()  # type: ignore[no-untyped-call]
                self._replies = deque()
                self._reader = asyncio.create_task(self._read_replies(self._socket, self._replies))
        if not self._socket.is_connected:  # redis-py would connect again, beside the reader of the old one
            raise exceptions.ConnectionError("the connection broke")
        self._replies += waiting  # without a pause before the commands are written, so the order is the same
        await self._socket.send_packed_command(self._socket.pack_commands(commands))
        reply, *replicas = [await each for each in waiting]
        if isinstance(reply, exceptions.NoScriptError):
            await self._send(("SCRIPT", "LOAD", self._texts[str(words[1])]))
            return await self._send(words)
        for each in (reply, *replicas):
            if isinstance(each, Exception):
                raise each
        if replicas and replicas[0] < self._replicas_min:
            raise ReplicasMissingError(f"fewer than {self._replicas_min} replicas have the changes")
        return reply

    async def _read_replies(self, socket: Socket, waiting: deque[asyncio.Future[Any]]) -> None:
        """Passes replies and errors to their callers, until the connection breaks."""
        broken: Exception = exceptions.ConnectionError("the connection was closed")
        watcher = asyncio.create_task(_cancel_when_silent(asyncio.current_task(), waiting))
        try:
            while True:
                try:
                    reply = await socket.read_response()
                except exceptions.ResponseError as error:
                    reply = error
                caller = waiting.popleft()
                if not caller.cancelled():
                    caller.set_result(reply)
        except exceptions.RedisError as error:
            broken = error
        finally:
            watcher.cancel()
            self._socket = None
            for caller in waiting:
                if not caller.cancelled():
                    caller.set_result(broken)
            await socket.disconnect(nowait=True)
            await self.client.connection_pool.release(socket)


async def _cancel_when_silent(reader: asyncio.Task[Any] | None, waiting: deque[asyncio.Future[Any]]) -> None:
    """Cancels the reader once a command waits for `REPLY_S_MAX` or longer.

    A caller with less time gives up before it can tell a dead connection from a slow server.
    """
    while True:
        first = waiting[0] if waiting else None
        await asyncio.sleep(REPLY_S_MAX)
        if reader and waiting and waiting[0] is first:
            reader.cancel()


def open_client(url: str) -> Redis:
    """A client that connects on first use.

    url  `redis://`, `rediss://` or `unix://`; `redis+sentinel://` and `rediss+sentinel://` with the addresses of the
         sentinels, separated by commas, and the name of the service as the path: the client finds its master
    Raises SettingsInvalid for an invalid URL.
    """
    options: dict[str, Any] = {
        "socket_connect_timeout": CONNECT_S_MAX, "socket_timeout": None, "retry": Retry(NoBackoff(), 0),
        "protocol": 2, "max_connections": CONNECTIONS_MAX,
    }  # fmt: skip
    try:
        if "+sentinel://" in url:
            return _sentinel_client(url, options)
        return Redis.from_pool(BlockingConnectionPool.from_url(url, timeout=None, **options))
    except (exceptions.RedisError, ValueError, RuntimeError, TypeError):
        raise SettingsInvalid(f"{without_password(url)} is not the URL of a Redis server") from None


def _sentinel_client(url: str, options: dict[str, Any]) -> Redis:
    """A client of the master that the sentinels of a URL name. Raises ValueError for an invalid URL."""
    match = _SENTINEL_URL.fullmatch(url)
    if match is None:
        raise ValueError("the URL names no sentinels or no service")
    scheme, user, addresses, service, database, query = match.groups(default="")
    # redis-py reads the name, the password, the database and the options of an ordinary URL.
    options |= parse_url(f"{scheme}://{user}@sentinel/{database}{query}")
    watcher_options: dict[str, Any] = {name: value for name, value in options.items() if name.startswith("ssl")}
    watcher_options |= {word: options.pop(f"sentinel_{word}", None) for word in ("username", "password")}
    if scheme == "rediss":
        del options["connection_class"]
        options["ssl"] = watcher_options["ssl"] = True
    watcher_options |= {"socket_connect_timeout": CONNECT_S_MAX, "socket_timeout": CONNECT_S_MAX}
    hosts = [(host.strip("[]"), int(port)) for host, _, port in (each.rpartition(":") for each in addresses.split(","))]
    sentinel = Sentinel(hosts, sentinel_kwargs=watcher_options)  # type: ignore[no-untyped-call]
    return cast(Redis, sentinel.master_for(service, **options))
