"""The counts of keys on the server that all replicas share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from limits.aio.storage import RedisStorage

from app.access.limits import Counters, Limiter, counters
from app.access.places import Script, ServerPlaces
from app.redis.connection import Connection
from app.redis.connection import script as lua
from app.settings import Settings

T = TypeVar("T")
PREFIX = "abs:limits"
CONNECTIONS_MAX = 4


class SharedCounters:
    """Counters on a Redis server, made anew for each client that the connection opens."""

    def __init__(self, link: Connection) -> None:
        self._link = link
        self._client: Any = None  # a client of the server's library, which only `app.redis` names
        self._counters: Counters | None = None

    async def ask(self, question: Callable[[Counters], Awaitable[T]]) -> T:
        """The answer. Raises StorageDown at once where the server is away."""
        return await self._link.call("limits", lambda client: question(self._over(client)), wait_s=0.0)

    async def close(self) -> None:
        """Give the connections up."""
        await self._link.close()

    def _over(self, client: Any) -> Counters:
        if self._counters is None or self._client is not client:
            storage = RedisStorage("async+redis://", key_prefix=PREFIX, connection_pool=client.connection_pool)
            self._client, self._counters = client, counters(storage, ServerPlaces(_runner(client)))
        return self._counters


def _runner(client: Any) -> Script:
    """What runs Lua scripts by way of a client."""
    known: dict[str, Any] = {}

    async def run(script: str, keys: Sequence[str], arguments: Sequence[str]) -> object:
        if script not in known:
            known[script] = lua(script)
        return await known[script].execute(keys=keys, args=arguments, client=client)

    return run


class SharedLimiter(Limiter):
    """A limiter whose counts are those of all replicas."""

    @classmethod
    def from_url(cls, url: str, settings: Settings) -> Limiter:
        """One that counts on the server of that URL. Raises SettingsInvalid."""
        return cls(settings, SharedCounters(Connection(url, CONNECTIONS_MAX)))
