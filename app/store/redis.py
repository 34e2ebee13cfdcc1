"""A store on a Redis server. Its writers sign the values, because the server is not trusted."""

from __future__ import annotations

import asyncio
from typing import Any

from app.messages import store_share_key
from app.redis.connection import Connection
from app.settings import Settings
from app.store.base import ENTRY_BYTES

_PUT = """#!lua
-- key share sizes. ARGV: value ttl_ms share_bytes_max entry_bytes. The share is a zset of keys, the oldest first. In
-- `sizes` is the size of each key, of all together under '', and under '@' the number of the last key.
-- -> the keys that the share is too small for, which the caller deletes
local key, share, sizes, size, dropped = KEYS[1], KEYS[2], KEYS[3], #ARGV[1] + ARGV[4], {}
redis.call('SET', key, ARGV[1], 'PX', ARGV[2])
local bytes = redis.call('HINCRBY', sizes, '', size - (redis.call('HGET', sizes, key) or 0))
redis.call('ZADD', share, redis.call('HINCRBY', sizes, '@', 1), key)
redis.call('HSET', sizes, key, size)
while bytes > tonumber(ARGV[3]) and redis.call('ZCARD', share) > 1 do
  local oldest = redis.call('ZPOPMIN', share)[1]
  bytes = redis.call('HINCRBY', sizes, '', 0 - redis.call('HGET', sizes, oldest))
  redis.call('HDEL', sizes, oldest)
  dropped[#dropped + 1] = oldest
end
for _, name in ipairs({share, sizes}) do
  if redis.call('PTTL', name) < tonumber(ARGV[2]) then redis.call('PEXPIRE', name, ARGV[2]) end
end
return dropped
"""
_DELETE = """#!lua flags=allow-oom
-- key value
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
"""


class RedisStore:
    """Implements app.store.base.Store. It is used from one event loop."""

    def __init__(self, url: str, settings: Settings) -> None:
        self._link = Connection(url)
        self._value_bytes_max = settings.retention.store_value_bytes_max
        self._owner_bytes_max = settings.auth.key_store_bytes_max
        self._wait_s = settings.storage.redis_wait_s

    async def get(self, key: str, renew_s: float = 0.0) -> bytes | None:
        commands = [self._command("GET", key)]
        if renew_s:  # GT never shortens the time to live
            commands.append(self._command("PEXPIRE", key, round(renew_s * 1000), "GT"))
        value: bytes | None = (await asyncio.gather(*commands))[0]  # sent together
        return value

    async def put(self, key: str, value: bytes, ttl_s: float, owner: str = "") -> None:
        if len(value) > self._value_bytes_max:
            return
        ttl_ms = max(1, round(ttl_s * 1000))  # the server rejects a time to live of 0
        if not (owner and self._owner_bytes_max):  # without a share there are no counts to keep
            await self._command("SET", key, value, "PX", ttl_ms)
            return
        arguments = (value, ttl_ms, self._owner_bytes_max, ENTRY_BYTES)
        keys = [key, store_share_key(owner), store_share_key(owner) + ":sizes"]
        dropped = await self._link.run("store", _PUT, keys, arguments, self._wait_s, keep_full=False)
        if dropped:
            await self._command("DEL", *dropped)

    async def delete(self, key: str, value: bytes) -> None:
        await self._link.run("store", _DELETE, [key], [value], self._wait_s, keep_full=False)

    async def used_bytes(self) -> int:
        # Of the whole server, because it does not count the bytes of single keys.
        return int((await self._command("INFO", "memory")).partition(b"used_memory:")[2].split()[0])

    async def close(self) -> None:
        await self._link.close()

    async def _command(self, *words: str | bytes | int) -> Any:
        return await self._link.command("store", *words, wait_s=self._wait_s, keep_full=False)
