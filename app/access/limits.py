"""How much each key may ask for: requests a minute, requests at once, beams times tokens a minute.

Where the broker is a server its counts are those of all replicas. While that server is away each process counts for
itself: nobody is locked out, and nobody let loose.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from limits import RateLimitItemPerMinute, RateLimitItemPerSecond
from limits.aio.storage import MemoryStorage, Storage
from limits.aio.strategies import MovingWindowRateLimiter, SlidingWindowCounterRateLimiter

from app.access.doors import Door, Standing
from app.access.keys import Key
from app.access.places import LEASE_S, MemoryPlaces, Places
from app.errors import RateLimited, RequestOverLimit
from app.keys import request_id
from app.settings import Settings

T = TypeVar("T")
MINUTE_S = 60
LOOKUPS = 10  # what only looks something up counts as a tenth of a request
SERVER_S_MAX = 1.0  # how long a count on the server may take
SERVER_AGAIN_S = 5.0  # for how long a server that failed is not asked
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Counters:
    """Where it is counted. Tokens by two counters, as a window of single entries would hold 50,000 of them."""

    requests: MovingWindowRateLimiter
    tokens: SlidingWindowCounterRateLimiter
    places: Places


def counters(storage: Storage, places: Places) -> Counters:
    """Counters over a storage of the library `limits`."""
    return Counters(MovingWindowRateLimiter(storage), SlidingWindowCounterRateLimiter(storage), places)


class Server(Protocol):
    """A server with counters that all replicas share."""

    async def ask(self, question: Callable[[Counters], Awaitable[T]]) -> T:
        """The answer, or whatever error says that there is none."""

    async def close(self) -> None:
        """Give the connections up."""


class Limiter:
    """Counts, here or on a server, and refuses what is too much. `close` ends what it has begun."""

    @classmethod
    def from_url(cls, url: str, settings: Settings) -> Limiter:
        """One that counts in this process, whatever the URL."""
        return cls(settings)

    def __init__(self, settings: Settings, server: Server | None = None) -> None:
        self._settings = settings
        self._here = counters(MemoryStorage(), MemoryPlaces())
        self._server = server
        self._server_again = 0.0
        self._held: dict[str, set[str]] = defaultdict(set)
        self._renewing: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Renew no leases any more, and let the server go."""
        if self._renewing:
            self._renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewing
        if self._server:
            await self._server.close()

    async def count(self, key: Key, door: Door) -> Standing | None:
        """One request more; None where there is no limit. Raises RateLimited."""
        cap = self._cap(key, "requests_per_minute")
        if not cap:
            return None
        item = RateLimitItemPerMinute(cap if door.works else cap * LOOKUPS)
        names = ("requests" if door.works else "lookups", key.name)

        async def hit(counters: Counters) -> tuple[bool, float, int]:
            taken = await counters.requests.hit(item, *names)
            return taken, *await counters.requests.get_window_stats(item, *names)

        taken, reset, left = await self._ask(hit)
        reset_s = min(MINUTE_S, max(1, math.ceil(reset - time.time())))
        if not taken:
            raise RateLimited("requests_per_minute", item.amount, reset_s)
        return Standing(item.amount, max(0, left), reset_s)

    async def charge(self, key: Key, beam_tokens: int) -> None:
        """So many beams times tokens. Raises RateLimited, and RequestOverLimit for more than a minute's worth."""
        cap = self._cap(key, "beam_tokens_per_minute")
        if not cap:
            return
        if beam_tokens > cap:
            raise RequestOverLimit("beams * max_tokens", "beam_tokens_per_minute", cap)
        item = RateLimitItemPerMinute(cap)

        async def hit(counters: Counters) -> tuple[bool, int]:
            taken = await counters.tokens.hit(item, "beam_tokens", key.name, cost=beam_tokens)
            return taken, 0 if taken else (await counters.tokens.get_window_stats(item, "beam_tokens", key.name))[1]

        taken, left = await self._ask(hit)
        if not taken:
            raise RateLimited("beam_tokens_per_minute", cap, math.ceil(MINUTE_S * max(1, beam_tokens - left) / cap))

    async def refund(self, key: Key, beam_tokens: int) -> None:
        """Take a charge back: nothing came of it."""
        cap = self._cap(key, "beam_tokens_per_minute")
        if cap:
            item = RateLimitItemPerMinute(cap)
            await self._ask(lambda counters: counters.tokens.hit(item, "beam_tokens", key.name, cost=-beam_tokens))

    async def is_first(self, key: Key, job_id: str) -> bool:
        """Whether nobody asked this of the job yet, as long as an Idempotency-Key may lead to it."""
        if not self._cap(key, "beam_tokens_per_minute"):
            return True
        once = RateLimitItemPerSecond(1, math.ceil(self._settings.idempotency_ttl_s))
        return await self._ask(lambda counters: counters.requests.hit(once, "charged", job_id))

    @contextlib.asynccontextmanager
    async def place(self, key: Key, door: Door) -> AsyncIterator[None]:
        """One of the key's places for requests at once, while the body runs. Raises RateLimited."""
        cap = self._cap(key, "at_once_max")
        if not cap or not door.works:
            yield
            return
        member = request_id()
        taken = await self._ask(lambda counters: counters.places.take(key.name, member, cap))
        if not taken:
            raise RateLimited("at_once_max", cap, 1)
        self._held[key.name].add(member)
        self._renewing = self._renewing or asyncio.create_task(self._renew_forever())
        try:
            yield
        finally:
            self._held[key.name].discard(member)
            await asyncio.shield(self._leave(key.name, member))

    async def _leave(self, name: str, member: str) -> None:
        if not self._held[name]:
            del self._held[name]
        await self._here.places.leave(name, member)
        if self._server:
            await self._ask(lambda counters: counters.places.leave(name, member))

    async def _renew_forever(self) -> None:
        while True:
            await asyncio.sleep(LEASE_S / 3)
            held = {name: tuple(members) for name, members in self._held.items() if members}
            if held:
                await self._ask(lambda counters, held=held: counters.places.renew(held))  # type: ignore[misc]

    async def _ask(self, question: Callable[[Counters], Awaitable[T]]) -> T:
        """The answer of the server, and where it fails, of the counters here."""
        if self._server and time.monotonic() >= self._server_again:
            try:
                async with asyncio.timeout(SERVER_S_MAX):
                    return await self._server.ask(question)
            except Exception as error:
                self._server_again = time.monotonic() + SERVER_AGAIN_S
                log.warning("the limits of keys are counted by this process alone: %s", type(error).__name__)
        return await question(self._here)

    def _cap(self, key: Key, name: str) -> int:
        """The key's own limit, or that of all keys."""
        own: int | None = getattr(key, name)
        return int(getattr(self._settings, f"key_{name}")) if own is None else own
