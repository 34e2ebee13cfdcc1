"""A store on a Redis server. Its writers sign the values, because the server is not trusted."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from redis.asyncio import Redis

from app.messages import store_share_key
from app.redis.connection import Connection, Script
from app.settings import Settings
from app.store.base import ENTRY_BYTES

_GET = Script("""#!lua flags=allow-oom
-- key renew_ms -> the value
local value = redis.call('GET', KEYS[1])
if value and tonumber(ARGV[1]) > redis.call('PTTL', KEYS[1]) then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return value
""")
_PUT = Script("""#!lua
-- key share value ttl_ms share_bytes_max entry_bytes. The share is a hash: what was put, numbered from `first` to
-- `last`, as its size and key; how many bytes that is; and of each key the number under which it was put last.
-- -> the keys that the share is too small for, which the caller deletes
local share, key = KEYS[2], KEYS[1]
local ttl, most, size = tonumber(ARGV[2]), tonumber(ARGV[3]), #ARGV[1] + tonumber(ARGV[4])
redis.call('SET', key, ARGV[1], 'PX', ARGV[2])
local last = redis.call('HINCRBY', share, 'last', 1)
local bytes = redis.call('HINCRBY', share, 'bytes', size)
redis.call('HSET', share, last, size .. ' ' .. key, '@' .. key, last)
local first, dropped = tonumber(redis.call('HGET', share, 'first') or '1'), {}
while bytes > most and first < last do
  local old = redis.call('HGET', share, first) or ''
  local its, name = string.match(old, '^(%d+) (.*)$')
  if name and redis.call('HGET', share, '@' .. name) == tostring(first) then
    dropped[#dropped + 1] = name
    redis.call('HDEL', share, '@' .. name)
  end
  redis.call('HDEL', share, first)
  bytes = redis.call('HINCRBY', share, 'bytes', 0 - tonumber(its or '0')) -- Redis 7.0 has no number -0
  first = first + 1
end
redis.call('HSET', share, 'first', first)
if redis.call('PTTL', share) < ttl then redis.call('PEXPIRE', share, ARGV[2]) end
return dropped
""")
_DELETE = Script("""#!lua flags=allow-oom
-- key value
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
""")


class RedisStore:
    """Implements app.store.base.Store. It is used from one event loop."""

    def __init__(self, url: str, value_bytes_max: int, wait_s: float, owner_bytes_max: int = 0) -> None:
        self._link = Connection(url)  # connects at the first call
        self._value_bytes_max, self._owner_bytes_max = value_bytes_max, owner_bytes_max
        self._wait_s = wait_s

    @classmethod
    def from_url(cls, url: str, settings: Settings) -> RedisStore:
        """The store of a `redis://`, `rediss://` or `unix://` URL. It connects when it is used."""
        return cls(
            url, settings.retention.store_value_bytes_max, settings.storage.redis_wait_s,
            owner_bytes_max=settings.auth.key_store_bytes_max,
        )

    async def get(self, key: str, renew_s: float = 0.0) -> bytes | None:
        value: bytes | None = await self._run("get", _GET, [key], round(renew_s * 1000))
        return value

    async def put(self, key: str, value: bytes, ttl_s: float, owner: str = "") -> None:
        if len(value) > self._value_bytes_max:
            return
        # The server rejects a time to live of 0.
        ttl_ms = max(1, round(ttl_s * 1000))
        if owner and self._owner_bytes_max:
            keys = [key, store_share_key(owner)]
            dropped = await self._run("put", _PUT, keys, value, ttl_ms, self._owner_bytes_max, ENTRY_BYTES)
            if dropped:
                await self._link.call("delete", lambda client: client.delete(*dropped), self._wait_s)
            return

        # Without a share there are no counts to keep, so one plain command suffices.
        def command(client: Redis) -> Awaitable[Any]:
            return client.set(key, value, px=ttl_ms)

        await self._link.call("put", command, self._wait_s, keep_full=False)

    async def delete(self, key: str, value: bytes) -> None:
        await self._run("delete", _DELETE, [key], value)

    async def used_bytes(self) -> int:
        # Of the whole server, because it does not count the bytes of single keys.
        memory = await self._link.call("info", lambda client: client.info("memory"), self._wait_s)
        return int(str(memory["used_memory"]))

    async def close(self) -> None:
        await self._link.close()

    async def _run(self, op: str, script: Script, keys: list[str], *arguments: str | bytes | int) -> Any:
        return await self._link.run(op, script, keys, arguments, self._wait_s, keep_full=False)
