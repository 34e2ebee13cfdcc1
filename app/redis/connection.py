"""A connection to a Redis server that waits for an unreachable server.

The commands that callers send in one turn of the event loop go together, in one pipeline.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import random
import re
import time
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any, cast

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis, Sentinel
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from app.errors import SettingsInvalid, StorageDown
from app.observability import metrics

CONNECTIONS_MAX = 2  # one for commands, one for a subscription
CONNECT_S_MAX = 2.0
REPLY_S_MAX = 5.0  # a dead connection may raise no error
ONCE_S_MIN = 1.0  # minimum time for a reply, even if wait_s is 0
PAUSE_S, PAUSE_S_MAX = 0.05, 1.0  # between two attempts, doubled each time
REPLICA_MS_MAX = 500  # for one WAIT; less than an attempt may take
CANCEL_RETRY_S = 0.1
_AWAY = ("OOM", "MISCONF", "MASTERDOWN", "NOREPLICAS", "BUSY", "LOADING")  # prefixes of errors that may go away
_SENTINEL_URL = re.compile(r"(rediss?)\+sentinel://(?:(.*)@)?([^/]+)/([^/?]+)/?([^?]*)(\?.*)?")
Argument = str | bytes | int
log = logging.getLogger(__name__)


@cache
def _sha_of(script: str) -> str:
    """The name of a script on the server."""
    return hashlib.sha1(script.encode()).hexdigest()


class ReplicasMissingError(exceptions.ConnectionError):
    """Too few replicas have acknowledged a change."""


def without_password(url: str) -> str:
    """A server's URL without its password."""
    scheme, _, address = url.partition("://")
    return f"{scheme}://{address.rpartition('@')[2].partition('?')[0]}"


def is_away(error: BaseException) -> bool:
    """Whether a later attempt may succeed: the server is unreachable or full."""
    if isinstance(error, exceptions.ResponseError):
        temporary = exceptions.ReadOnlyError | exceptions.NoScriptError | exceptions.OutOfMemoryError
        return isinstance(error, temporary) or str(error).startswith(_AWAY)
    return isinstance(error, StorageDown | exceptions.ConnectionError | exceptions.TimeoutError | OSError)


def _is_full(error: BaseException) -> bool:
    return isinstance(error, exceptions.OutOfMemoryError) or str(error).startswith("OOM")


def storage_down(error: BaseException) -> StorageDown:
    """The error for callers of the API."""
    if _is_full(error):
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
        self._unsent: list[tuple[tuple[Argument, ...], asyncio.Future[Any]]] = []
        self._sender: asyncio.Task[None] | None = None

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
                    reply = await self._send_once(words)
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

    async def close(self) -> None:
        """Closes the sockets. Calls no longer wait for an unreachable server."""
        self._stop_waiting = True
        await cancel_tasks([self._sender] if self._sender else [])
        await self.client.aclose()
        sentinel = getattr(self.client.connection_pool, "sentinel_manager", None)
        for watcher in sentinel.sentinels if sentinel else ():
            await watcher.aclose()

    def _note(self, last_error: Exception | None) -> None:
        """Logs when the server becomes unreachable, and when it is back."""
        if last_error is not None and not self._away:
            log.warning("the server %s is away: %s", without_password(self._url), type(last_error).__name__)
        elif last_error is None and self._away:
            log.warning("the server %s is back", without_password(self._url))
        self._away = last_error is not None

    def _send_once(self, words: tuple[Argument, ...]) -> asyncio.Future[Any]:
        # A task of its own sends the commands, so a cancelled caller leaves the replies of the others in order.
        reply = asyncio.get_running_loop().create_future()
        self._unsent.append((words, reply))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_forever())
        return reply

    async def _send_forever(self) -> None:
        """Sends the collected commands until none is left."""
        while self._unsent:
            unsent, self._unsent = self._unsent, []
            try:
                replies = await self._send([words for words, _ in unsent])
            except Exception as error:
                replies = [error] * len(unsent)
            for (_, waiting), reply in zip(unsent, replies, strict=True):
                if waiting.done():  # its caller was cancelled
                    continue
                waiting.set_exception(reply) if isinstance(reply, Exception) else waiting.set_result(reply)

    async def _send(self, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        """The replies to commands, or their errors. A script that the server lacks is loaded."""
        async with self.client.pipeline(transaction=False) as pipeline:
            for words in commands:
                pipeline.execute_command(*words)
            if self._replicas_min:
                pipeline.wait(self._replicas_min, REPLICA_MS_MAX)
            replies: list[Any] = await pipeline.execute(raise_on_error=False)
        if self._replicas_min and replies.pop() < self._replicas_min:
            raise ReplicasMissingError(f"fewer than {self._replicas_min} replicas have the changes")
        lacking = [number for number, reply in enumerate(replies) if isinstance(reply, exceptions.NoScriptError)]
        for sha in {str(commands[number][1]) for number in lacking}:
            await self.client.script_load(self._texts[sha])
        if lacking:
            again = await self._send([commands[number] for number in lacking])
            replies = [again.pop(0) if number in lacking else reply for number, reply in enumerate(replies)]
        return replies


async def cancel_tasks(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait for their end.

    A breaking connection may swallow the cancellation of its task, so the cancellation is repeated.
    """
    while pending := {task for task in tasks if not task.done()}:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=CANCEL_RETRY_S)
    await asyncio.gather(*tasks, return_exceptions=True)


def open_client(url: str) -> Redis:
    """A client that connects on first use.

    url  `redis://`, `rediss://` or `unix://`; `redis+sentinel://` and `rediss+sentinel://` with the addresses of the
         sentinels, separated by commas, and the name of the service as the path: the client finds its master
    Raises SettingsInvalid for an invalid URL.
    """
    options: dict[str, Any] = {
        "socket_connect_timeout": CONNECT_S_MAX, "socket_timeout": REPLY_S_MAX, "retry": Retry(NoBackoff(), 0),
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
