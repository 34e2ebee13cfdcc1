"""A connection to a Redis server that waits for an unreachable server.

The scripts that callers run in one turn of the event loop are sent together, in one pipeline on a connection of their
own; other commands use a pool.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from redis.asyncio import BlockingConnectionPool, Redis, Sentinel
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import TimeoutError as ReplyTimeoutError

from app.errors import SettingsInvalid, StorageDown
from app.observability import metrics

CONNECT_S_MAX = 2.0
REPLY_S_MAX = 5.0  # a dead connection may raise no error
ONCE_S_MIN = 1.0  # minimum time for a reply, even if wait_s is 0
PAUSE_S, PAUSE_S_MAX = 0.05, 1.0  # between two attempts, doubled each time
REPLICA_MS_MAX = 500  # for one WAIT; less than an attempt may take
CANCEL_RETRY_S = 0.1
_AWAY = ("OOM", "MISCONF", "MASTERDOWN", "NOREPLICAS", "BUSY", "LOADING")  # prefixes of errors that may go away
Argument = str | bytes | int
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Script:
    """A Lua script. It is sent once to each server and called by its hash."""

    text: str

    @cached_property
    def sha(self) -> str:
        """The name of the script on the server."""
        return hashlib.sha1(self.text.encode()).hexdigest()


class ReplicasMissingError(ConnectionError):
    """Too few replicas have acknowledged a change."""


def without_password(url: str) -> str:
    """A server's URL without its password."""
    scheme, _, address = url.partition("://")
    return f"{scheme}://{address.rpartition('@')[2].partition('?')[0]}"


def is_away(error: BaseException) -> bool:
    """Whether a later attempt may succeed: the server is unreachable or full."""
    if isinstance(error, ResponseError):
        return isinstance(error, ReadOnlyError | NoScriptError | OutOfMemoryError) or str(error).startswith(_AWAY)
    return isinstance(error, StorageDown | ConnectionError | ReplyTimeoutError | OSError)


def _is_full(error: BaseException) -> bool:
    return isinstance(error, OutOfMemoryError) or str(error).startswith("OOM")


def storage_down(error: BaseException) -> StorageDown:
    """The error for callers of the API."""
    if _is_full(error):
        return StorageDown("is full")
    if isinstance(error, ReadOnlyError) or str(error).startswith("MISCONF"):
        return StorageDown("cannot be written to")
    if isinstance(error, ReplicasMissingError):
        return StorageDown("has too few replicas")
    if isinstance(error.__cause__, AuthenticationError):
        return StorageDown("rejects our name or password")
    return StorageDown()


class Connection:
    """A client of one server, which connects on first use. Used from one event loop.

    replicas_min  replicas that must have the changes of a script before `run` returns
    Raises SettingsInvalid for an invalid URL.
    """

    def __init__(self, url: str, connections_max: int = 8, replicas_min: int = 0) -> None:
        self._url, self._replicas_min = url, replicas_min
        self.client, self._script_client = open_client(url, connections_max), open_client(url, 1)
        self._stop_waiting = self._away = False
        self._unsent: list[_ScriptCall] = []
        self._sender: asyncio.Task[None] | None = None

    async def call(
        self, op: str, command: Callable[[Redis], Awaitable[T]], wait_s: float | None, keep_full: bool = True
    ) -> T:
        """The reply to a command. It is repeated while the server is unreachable.

        op         name of the call in metrics
        wait_s     time for repetitions; None is unlimited, 0 is one attempt
        keep_full  whether to repeat while the server is full
        Raises StorageDown after that time, and redis-py's errors for invalid commands.
        """
        return await self._with_retries(op, lambda: command(self.client), wait_s, keep_full)

    async def run(
        self, op: str, script: Script, keys: Sequence[str], arguments: Sequence[Argument], wait_s: float | None,
        keep_full: bool = True,
    ) -> Any:
        """The result of a script; waits and raises as `call`.

        All scripts of one turn of the event loop are sent together.
        """
        return await self._with_retries(op, partial(self._run_once, script, keys, arguments), wait_s, keep_full)

    async def _with_retries(
        self, op: str, once: Callable[[], Awaitable[T]], wait_s: float | None, keep_full: bool
    ) -> T:
        deadline = None if wait_s is None else time.monotonic() + max(wait_s, ONCE_S_MIN)
        pause, last_error = PAUSE_S, None
        while True:
            try:
                async with asyncio.timeout(None if deadline is None else max(0.0, deadline - time.monotonic())):
                    reply = await once()
            except Exception as error:
                if not is_away(error):
                    raise
                metrics.redis_failed(op)
                self._note(error)
                # The last attempt may be too short to learn the cause.
                if last_error is None or not isinstance(error, TimeoutError):
                    last_error = error
                remaining_s = math.inf if deadline is None else deadline - time.monotonic()
                give_up = self._stop_waiting or wait_s == 0 or (not keep_full and _is_full(error))
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
        if self._sender is not None:
            await cancel_tasks([self._sender])
        for client in (self.client, self._script_client):
            await client.aclose()
            sentinel = getattr(client.connection_pool, "sentinel_manager", None)
            for watcher in sentinel.sentinels if sentinel else ():
                await watcher.aclose()

    def _note(self, last_error: Exception | None) -> None:
        """Logs when the server becomes unreachable, and when it is back."""
        if last_error is not None and not self._away:
            log.warning("the server %s is away: %s", without_password(self._url), type(last_error).__name__)
        elif last_error is None and self._away:
            log.warning("the server %s is back", without_password(self._url))
        self._away = last_error is not None

    def _run_once(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> asyncio.Future[Any]:
        # A task of its own sends the calls, so a cancelled caller leaves the replies of the others in order.
        call = _ScriptCall(script, len(keys), (*keys, *arguments), asyncio.get_running_loop().create_future())
        self._unsent.append(call)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_forever())
        return call.reply

    async def _send_forever(self) -> None:
        """Sends the collected calls until none is left."""
        while self._unsent:
            calls, self._unsent = self._unsent, []
            try:
                replies = await self._send(calls)
                missing = [call for call, reply in zip(calls, replies, strict=True) if isinstance(reply, NoScriptError)]
                for script in {call.script for call in missing}:
                    await self._script_client.script_load(script.text)
                again = iter(await self._send(missing))
                replies = [next(again) if isinstance(reply, NoScriptError) else reply for reply in replies]
            except Exception as error:
                replies = [error] * len(calls)
            for call, reply in zip(calls, replies, strict=True):
                if call.reply.done():  # its caller was cancelled
                    continue
                call.reply.set_exception(reply) if isinstance(reply, Exception) else call.reply.set_result(reply)

    async def _send(self, calls: Sequence[_ScriptCall]) -> list[Any]:
        if not calls:
            return []
        async with self._script_client.pipeline(transaction=False) as pipeline:
            for call in calls:
                pipeline.evalsha(call.script.sha, call.keys, *call.arguments)
            if self._replicas_min:
                pipeline.wait(self._replicas_min, REPLICA_MS_MAX)
            replies: list[Any] = await pipeline.execute(raise_on_error=False)
        if self._replicas_min and replies[-1] < self._replicas_min:
            raise ReplicasMissingError(f"fewer than {self._replicas_min} replicas have the changes")
        return replies[: len(calls)]


@dataclass(frozen=True, slots=True)
class _ScriptCall:
    """A script, the number of its keys, its arguments and its reply."""

    script: Script
    keys: int
    arguments: tuple[Argument, ...]
    reply: asyncio.Future[Any]


async def cancel_tasks(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait for their end.

    A breaking connection may swallow the cancellation of its task, so the cancellation is repeated.
    """
    while pending := {task for task in tasks if not task.done()}:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=CANCEL_RETRY_S)
    await asyncio.gather(*tasks, return_exceptions=True)


def open_client(url: str, connections_max: int) -> Redis:
    """A client of at most `connections_max` connections, opened on first use.

    url  `redis://`, `rediss://` or `unix://`; `redis+sentinel://` and `rediss+sentinel://` with the addresses of the
         sentinels, separated by commas, and the name of the service as the path: the client finds its master
    Raises SettingsInvalid for an invalid URL.
    """
    options: dict[str, Any] = {
        "socket_connect_timeout": CONNECT_S_MAX, "socket_timeout": REPLY_S_MAX, "retry": Retry(NoBackoff(), 0),
        "protocol": 2, "max_connections": connections_max,
    }
    try:
        if "+sentinel://" in url:
            return _sentinel_client(url, options)
        return Redis.from_pool(BlockingConnectionPool.from_url(url, timeout=None, **options))
    except (RedisError, ValueError, RuntimeError, TypeError):
        message = f"{without_password(url)} is not the URL of a Redis server"
        raise SettingsInvalid(message) from None


def _sentinel_client(url: str, options: dict[str, Any]) -> Redis:
    """A client of the master that the sentinels of a URL name. Raises ValueError for an invalid URL."""
    parts = urlsplit(url)
    user, _, addresses = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    service, _, database = parts.path.strip("/").partition("/")
    query = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    if not service:
        raise ValueError("the URL names no service")
    options |= {"username": unquote(name) or None, "password": unquote(password) or None, "db": int(database or 0)}
    sentinel_options: dict[str, Any] = {"socket_connect_timeout": CONNECT_S_MAX, "socket_timeout": CONNECT_S_MAX}
    sentinel_options |= {word: query.pop(f"sentinel_{word}", None) for word in ("username", "password")}
    if parts.scheme == "rediss+sentinel":
        options |= {"ssl": True, **query}
        sentinel_options |= {"ssl": True, **query}
    hosts = [(host.strip("[]"), int(port)) for host, _, port in (each.rpartition(":") for each in addresses.split(","))]
    sentinel = Sentinel(hosts, sentinel_kwargs=sentinel_options)  # type: ignore[no-untyped-call]
    return cast(Redis, sentinel.master_for(service, **options))
