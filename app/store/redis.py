"""A store on a Redis server. Trusts nothing that it holds: values are signed by whoever writes them."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from coredis import Redis
from coredis.commands.script import Script

from app.redis.connection import Connection, script
from app.settings import Settings

_GET = script("""#!lua flags=allow-oom
-- key renew_ms -> the value
local value = redis.call('GET', KEYS[1])
if value and tonumber(ARGV[1]) > redis.call('PTTL', KEYS[1]) then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return value
""")
_DELETE = script("""#!lua flags=allow-oom
-- key value
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
""")


class RedisStore:
    """Obeys app.store.base.Store. Used from one event loop."""

    def __init__(self, url: str, value_bytes_max: int, wait_s: float) -> None:
        self._link = Connection(url)
        self._value_bytes_max = value_bytes_max
        self._wait_s = wait_s

    @classmethod
    def from_url(cls, url: str, settings: Settings) -> RedisStore:
        """The store of a `redis://`, `rediss://` or `unix://` URL. It connects when it is used."""
        return cls(url, settings.store_value_bytes_max, settings.storage_wait_s)

    async def get(self, key: str, renew_s: float = 0.0) -> bytes | None:
        found: bytes | None = await self._ask("get", _GET, key, round(renew_s * 1000))
        return found

    async def put(self, key: str, value: bytes, ttl_s: float) -> None:
        if len(value) > self._value_bytes_max:
            return

        def command(client: Redis[bytes]) -> Awaitable[Any]:
            return client.set(key, value, px=max(1, round(ttl_s * 1000)))

        await self._link.call("put", command, self._wait_s, keep_full=False)

    async def delete(self, key: str, value: bytes) -> None:
        await self._ask("delete", _DELETE, key, value)

    async def used_bytes(self) -> int:
        told = await self._link.call("info", lambda client: client.info("memory"), self._wait_s)
        return int(str(told["used_memory"]))

    async def close(self) -> None:
        await self._link.close()

    async def _ask(self, op: str, ask: Script[bytes], key: str, *arguments: str | bytes | int) -> Any:
        def command(client: Redis[bytes]) -> Awaitable[Any]:
            return ask(keys=[key], args=arguments, client=client)

        return await self._link.call(op, command, self._wait_s, keep_full=False)
