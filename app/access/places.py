"""Who is at work for a key just now. A place that nobody renews is free again after its lease: its holder died.

`Script` is what this needs of a Redis server: its library is named elsewhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol

LEASE_S = 60.0
PREFIX = "abs:running:"

# KEYS: the places of a key. ARGV: how many there are, the lease in ms, who wants one.
TAKE = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
"""
# KEYS: the places of a key. ARGV: the lease in ms, and who goes on. One who has left meanwhile, or whom another has
# followed after his lease, gets no place by it: nobody would ever give it up.
RENEW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for place = 2, #ARGV do redis.call('ZADD', KEYS[1], 'XX', now + ARGV[1], ARGV[place]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
"""
# KEYS: the places of a key. ARGV: who leaves.
LEAVE = "return redis.call('ZREM', KEYS[1], ARGV[1])"


class Places(Protocol):
    """The places of all keys."""

    async def take(self, name: str, member: str, cap: int) -> bool:
        """True where one of `cap` places was free, which `member` then has."""

    async def renew(self, held: Mapping[str, Sequence[str]]) -> None:
        """The leases of those of these members that have a place begin anew."""

    async def leave(self, name: str, member: str) -> None:
        """The member's place is free."""


class MemoryPlaces:
    """The places in this process."""

    def __init__(self) -> None:
        self._ends: dict[str, dict[str, float]] = {}

    async def take(self, name: str, member: str, cap: int) -> bool:
        now = time.monotonic()
        ends = {one: end for one, end in self._ends.get(name, {}).items() if end > now}
        free = len(ends) < cap
        if free:
            ends[member] = now + LEASE_S
        self._ends[name] = ends
        return free

    async def renew(self, held: Mapping[str, Sequence[str]]) -> None:
        for name, members in held.items():
            ends = self._ends.get(name, {})
            ends.update({member: time.monotonic() + LEASE_S for member in members if member in ends})

    async def leave(self, name: str, member: str) -> None:
        ends = self._ends.get(name, {})
        ends.pop(member, None)
        if not ends:
            self._ends.pop(name, None)


class Script(Protocol):
    """Runs a Lua script on the server, all at once."""

    def __call__(self, script: str, keys: Sequence[str], arguments: Sequence[str]) -> Awaitable[object]:
        """What the script returns."""


class ServerPlaces:
    """The places on the server that all replicas share, by the server's own clock."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def take(self, name: str, member: str, cap: int) -> bool:
        return await self._script(TAKE, [PREFIX + name], [str(cap), _LEASE_MS, member]) == 1

    async def renew(self, held: Mapping[str, Sequence[str]]) -> None:
        renewals = [self._script(RENEW, [PREFIX + name], [_LEASE_MS, *members]) for name, members in held.items()]
        await asyncio.gather(*renewals)

    async def leave(self, name: str, member: str) -> None:
        await self._script(LEAVE, [PREFIX + name], [member])


_LEASE_MS = str(round(LEASE_S * 1000))
