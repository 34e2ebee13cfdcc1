"""The counts of keys on the server that all replicas share, by the server's own clock. A question is one script."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from app.auth import counters
from app.auth.counters import MINUTE_S, Admission, AdmissionResult, Names
from app.auth.rate_limit import Limiter
from app.messages import charged_key, places_key, tokens_key, window_key
from app.redis.connection import Connection
from app.redis.connection import script as lua
from app.settings import Settings

CONNECTIONS_MAX = 4
_NOW = """#!lua flags=allow-oom
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function whole(number) return string.format('%.0f', number) end
-- What lasts until later than so many ms from now, for the clock was put back, lasts as long as that.
local function no_later(zset, ms)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', zset, '(' .. whole(now + ms), '+inf')) do
    redis.call('ZADD', zset, whole(now + ms), member)
  end
end
"""
_ENTER = lua(_NOW + """
-- KEYS: the window, the places. ARGV: what the window may hold, its ms, how many places there are, the lease in ms, who
-- comes, and who has left. -> what was missing, how many the window holds, in how many ms it may hold one more
local window, places = KEYS[1], KEYS[2]
local cap, span, most, lease = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local held, oldest = 0, false
if cap > 0 then
  oldest = redis.call('LINDEX', window, 0)
  while oldest and (oldest + span <= now or tonumber(oldest) > now) do -- that is past, or the clock was put back
    redis.call('LPOP', window)
    oldest = redis.call('LINDEX', window, 0)
  end
  held = redis.call('LLEN', window)
  if held >= cap then
    return {'requests', held, math.min(span, redis.call('LINDEX', window, held - cap) + span - now)}
  end
end
if most > 0 then
  for place = 6, #ARGV do redis.call('ZREM', places, ARGV[place]) end
  redis.call('ZREMRANGEBYSCORE', places, '-inf', whole(now))
  no_later(places, lease)
  if redis.call('ZCARD', places) >= most then return {'places', held, 0} end
  redis.call('ZADD', places, whole(now + lease), ARGV[5])
  redis.call('PEXPIRE', places, whole(lease))
end
if cap == 0 then return {'', 0, 0} end
redis.call('RPUSH', window, whole(now))
redis.call('PEXPIRE', window, whole(span))
return {'', held + 1, (oldest or now) + span - now}
""")
_RENEW = lua(_NOW + """
-- KEYS: the places of a key. ARGV: the lease in ms, and who goes on.
for place = 2, #ARGV do redis.call('ZADD', KEYS[1], 'XX', whole(now + ARGV[1]), ARGV[place]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
""")
_LEAVE = lua("""#!lua flags=allow-oom
-- KEYS: the places of a key. ARGV: who leaves.
for place = 1, #ARGV do redis.call('ZREM', KEYS[1], ARGV[place]) end
""")
_SPEND = _NOW + """
-- Count tokens, fewer than none to take them back. -> how many may come where that would be too many, else nil
local function spend(key, tokens, cap, span)
  local minute = math.floor(now / span)
  local field = redis.call('HMGET', key, 'minute', 'current', 'before')
  local current, before = tonumber(field[2] or '0'), tonumber(field[3] or '0')
  if field[1] ~= whole(minute) then
    before = field[1] == whole(minute - 1) and current or 0
    current = 0
  end
  local left = cap - math.floor(before * (1 - now % span / span) + current)
  if tokens > 0 and tokens > left then return math.max(0, left) end
  current = current + tokens
  if current < 0 then
    before = math.max(0, before + current)
    current = 0
  end
  redis.call('HSET', key, 'minute', whole(minute), 'current', whole(current), 'before', whole(before))
  redis.call('PEXPIRE', key, whole(2 * span))
  return nil
end
"""
_CHARGE = lua(_SPEND + """
-- KEYS: the tokens of a key. ARGV: how many, what a minute may hold, its ms.
return spend(KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]))
""")
_SETTLE = lua(_SPEND + """
-- KEYS: the mark of a job, the tokens of a key. ARGV: how long the mark stays in ms, how many tokens, a minute's ms.
if not redis.call('SET', KEYS[1], '1', 'NX', 'PX', ARGV[1]) then
  spend(KEYS[2], -tonumber(ARGV[2]), 0, tonumber(ARGV[3]))
end
""")
_MINUTE_MS = MINUTE_S * 1000


class SharedCounters:
    """Counters on a Redis server. Every question raises StorageDown at once where the server is away."""

    def __init__(self, link: Connection) -> None:
        self._link = link

    async def enter(self, entry: Admission) -> AdmissionResult:
        keys = [window_key(entry.window, entry.owner), places_key(entry.owner)]
        missing, held, reset_ms = await self._run(
            _ENTER, keys, entry.cap, _MINUTE_MS, entry.places, _lease_ms(), entry.member, *entry.left
        )
        return AdmissionResult(missing.decode(), held, reset_ms / 1000)

    async def leave(self, left: Names) -> None:
        await asyncio.gather(
            *(self._run(_LEAVE, [places_key(owner)], *members) for owner, members in left.items())
        )

    async def renew(self, held: Names) -> None:
        await asyncio.gather(
            *(self._run(_RENEW, [places_key(owner)], _lease_ms(), *members) for owner, members in held.items())
        )

    async def charge(self, owner: str, tokens: int, cap: int) -> int | None:
        left: int | None = await self._run(_CHARGE, [tokens_key(owner)], tokens, cap, _MINUTE_MS)
        return left

    async def refund(self, owner: str, tokens: int) -> None:
        await self._run(_CHARGE, [tokens_key(owner)], -tokens, 0, _MINUTE_MS)

    async def settle(self, owner: str, tokens: int, job_id: str, remember_s: float) -> None:
        keys = [charged_key(job_id), tokens_key(owner)]
        await self._run(_SETTLE, keys, max(1, round(remember_s * 1000)), tokens, _MINUTE_MS)

    async def close(self) -> None:
        await self._link.close()

    async def _run(self, script: Any, keys: Sequence[str], *arguments: str | int) -> Any:
        return await self._link.run("limits", script, keys, arguments, wait_s=0.0)


def _lease_ms() -> int:
    return round(counters.LEASE_S * 1000)


class SharedLimiter(Limiter):
    """A limiter whose counts are those of all replicas."""

    @classmethod
    def from_url(cls, url: str, settings: Settings) -> Limiter:
        """One that counts on the server of that URL. Raises SettingsInvalid."""
        return cls(settings, SharedCounters(Connection(url, CONNECTIONS_MAX)))
