"""Counters on the Redis server that all replicas share. Each operation is one script and uses the server's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from app.auth import counters
from app.auth.counters import MINUTE_S, Admission, AdmissionResult, Members
from app.auth.rate_limit import Limiter
from app.messages import charge_key, slots_key, tokens_key, window_key
from app.redis.connection import Connection
from app.settings import Settings

_NOW = """#!lua flags=allow-oom
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function integer(number) return string.format('%.0f', number) end
-- Caps scores at now + ms. Higher ones exist if the clock was set back.
local function cap_scores(zset, ms)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', zset, '(' .. integer(now + ms), '+inf')) do
    redis.call('ZADD', zset, integer(now + ms), member)
  end
end
"""
_ACQUIRE = (_NOW + """
-- KEYS: window, slots. ARGV: cap of the window, its length in ms, number of slots, lease in ms, the request, released
-- requests... -> the limit that rejects, requests in the window, ms until it allows one more
local window, slots = KEYS[1], KEYS[2]
local cap, span, slots_max, lease = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local count, oldest = 0, false
if cap > 0 then
  oldest = redis.call('LINDEX', window, 0)
  while oldest and (oldest + span <= now or tonumber(oldest) > now) do -- expired, or the clock was set back
    redis.call('LPOP', window)
    oldest = redis.call('LINDEX', window, 0)
  end
  count = redis.call('LLEN', window)
  if count >= cap then
    return {'requests', count, math.min(span, redis.call('LINDEX', window, count - cap) + span - now)}
  end
end
if slots_max > 0 then
  for index = 6, #ARGV do redis.call('ZREM', slots, ARGV[index]) end
  redis.call('ZREMRANGEBYSCORE', slots, '-inf', integer(now))
  cap_scores(slots, lease)
  if redis.call('ZCARD', slots) >= slots_max then return {'slots', count, 0} end
  redis.call('ZADD', slots, integer(now + lease), ARGV[5])
  redis.call('PEXPIRE', slots, integer(lease))
end
if cap == 0 then return {'', 0, 0} end
redis.call('RPUSH', window, integer(now))
redis.call('PEXPIRE', window, integer(span))
return {'', count + 1, (oldest or now) + span - now}
""")
_RENEW = (_NOW + """
-- KEYS: slots. ARGV: lease in ms, running requests...
for index = 2, #ARGV do redis.call('ZADD', KEYS[1], 'XX', integer(now + ARGV[1]), ARGV[index]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
""")
_RELEASE = ("""#!lua flags=allow-oom
-- KEYS: slots. ARGV: released requests...
for index = 1, #ARGV do redis.call('ZREM', KEYS[1], ARGV[index]) end
""")
_SPEND = _NOW + """
-- Counts tokens; a negative number is a refund. -> the tokens that remain if these exceed the cap, else nil
local function spend(key, tokens, cap, span)
  local minute = math.floor(now / span)
  local field = redis.call('HMGET', key, 'minute', 'current', 'before')
  local current, before = tonumber(field[2] or '0'), tonumber(field[3] or '0')
  if field[1] ~= integer(minute) then
    before = field[1] == integer(minute - 1) and current or 0
    current = 0
  end
  local remaining = cap - math.floor(before * (1 - now % span / span) + current)
  if tokens > 0 and tokens > remaining then return math.max(0, remaining) end
  current = current + tokens
  if current < 0 then
    before = math.max(0, before + current)
    current = 0
  end
  redis.call('HSET', key, 'minute', integer(minute), 'current', integer(current), 'before', integer(before))
  redis.call('PEXPIRE', key, integer(2 * span))
  return nil
end
"""
_CHARGE = (_SPEND + """
-- KEYS: tokens of a key. ARGV: tokens, cap of a minute, length of a minute in ms.
return spend(KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]))
""")
_SETTLE = (_SPEND + """
-- KEYS: mark of a job, tokens of a key. ARGV: TTL of the mark in ms, tokens, length of a minute in ms.
if not redis.call('SET', KEYS[1], '1', 'NX', 'PX', ARGV[1]) then
  spend(KEYS[2], -tonumber(ARGV[2]), 0, tonumber(ARGV[3]))
end
""")
_MINUTE_MS = MINUTE_S * 1000


class SharedCounters:
    """Counters on a Redis server. Every method raises StorageDown at once if the server is unreachable."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def acquire(self, admission: Admission) -> AdmissionResult:
        keys = [window_key(admission.window, admission.owner), slots_key(admission.owner)]
        missing, count, reset_ms = await self._run(
            _ACQUIRE, keys, admission.cap, _MINUTE_MS, admission.slots, _lease_ms(), admission.member,
            *admission.released,
        )
        return AdmissionResult(missing.decode(), count, reset_ms / 1000)

    async def release(self, released: Members) -> None:
        await asyncio.gather(
            *(self._run(_RELEASE, [slots_key(owner)], *members) for owner, members in released.items())
        )

    async def renew(self, running: Members) -> None:
        await asyncio.gather(
            *(self._run(_RENEW, [slots_key(owner)], _lease_ms(), *members) for owner, members in running.items())
        )

    async def charge(self, owner: str, tokens: int, cap: int) -> int | None:
        remaining: int | None = await self._run(_CHARGE, [tokens_key(owner)], tokens, cap, _MINUTE_MS)
        return remaining

    async def refund(self, owner: str, tokens: int) -> None:
        # The script checks no cap for a negative number.
        await self._run(_CHARGE, [tokens_key(owner)], -tokens, 0, _MINUTE_MS)

    async def settle(self, owner: str, tokens: int, job_id: str, ttl_s: float) -> None:
        keys = [charge_key(job_id), tokens_key(owner)]
        await self._run(_SETTLE, keys, max(1, round(ttl_s * 1000)), tokens, _MINUTE_MS)

    async def close(self) -> None:
        await self._connection.close()

    async def _run(self, script: str, keys: Sequence[str], *arguments: str | int) -> Any:
        return await self._connection.run("limits", script, keys, arguments, wait_s=0.0)


def _lease_ms() -> int:
    return round(counters.LEASE_S * 1000)


def shared_limiter(url: str, settings: Settings) -> Limiter:
    """A limiter that counts for all replicas at this URL. Raises SettingsInvalid."""
    return Limiter(settings, SharedCounters(Connection(url)))
