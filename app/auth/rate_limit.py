"""Rate limits of each key: requests a minute, concurrent requests, beams times tokens a minute.

If the broker is a server, it counts for all replicas. While that server is unreachable each process counts by itself,
so requests are still served and still limited.
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
from typing import TypeVar

from app.auth import counters
from app.auth.counters import MINUTE_S, Admission, AdmissionResult, Counters, MemoryCounters, Names
from app.auth.keys import Key
from app.auth.route_scopes import RateLimitStatus, RouteScope
from app.errors import RateLimited, RequestOverLimit
from app.messages import request_id
from app.settings import Settings

T = TypeVar("T")
LOOKUPS = 10  # what only looks something up counts as a tenth of a request
SERVER_S_MAX = 1.0  # how long a count on the server may take
SERVER_AGAIN_S = 5.0  # for how long a server that failed is not asked
log = logging.getLogger(__name__)


@dataclass
class Charge:
    """A charge that is kept if the job that it is for gets an id."""

    job_id: str = ""


@dataclass(frozen=True, slots=True)
class KeyCharges:
    """Charges beams times tokens to one API key."""

    limiter: Limiter
    key: Key

    @contextlib.asynccontextmanager
    async def charged(self, beam_tokens: int, repeatable: bool) -> AsyncIterator[Charge]:
        """Charge the key; the body sets the `job_id` that it submits. A body that fails costs nothing.

        repeatable  the same request may lead to the same job again, for which the key is charged once
        Raises RateLimited, RequestOverLimit.
        """
        charge = Charge()
        await self.limiter.charge(self.key, beam_tokens)
        try:
            yield charge
        except Exception:  # not a cancellation: the job may be submitted nevertheless
            await self.limiter.refund(self.key, beam_tokens)
            raise
        if repeatable:
            await asyncio.shield(self.limiter.settle(self.key, beam_tokens, charge.job_id))


class Limiter:
    """Counts, here or on a server, and refuses what is too much. `close` ends what it has begun."""

    @classmethod
    def from_url(cls, url: str, settings: Settings) -> Limiter:
        """One that counts in this process, whatever the URL."""
        return cls(settings)

    def __init__(self, settings: Settings, server: Counters | None = None) -> None:
        self._settings = settings
        self._here = MemoryCounters()
        self._server = server
        self._server_again = 0.0
        self._held: defaultdict[str, set[str]] = defaultdict(set)
        self._left: defaultdict[str, set[str]] = defaultdict(set)  # of which the server may not know yet
        self._renewing: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Renew no leases any more, say who has left, and let the server go."""
        if self._renewing:
            self._renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewing
        if self._leaving:
            await self._leaving
        if self._server:
            await self._server.close()

    @contextlib.asynccontextmanager
    async def admitted(self, key: Key, door: RouteScope) -> AsyncIterator[RateLimitStatus | None]:
        """One request more; while the body runs it has one of the key's places for requests at once, if it is work.

        How the key stands; None where there is no limit. Raises RateLimited; what is refused counts nothing.
        """
        cap = self._cap(key, "requests_per_minute") * (1 if door.works else LOOKUPS)
        places = self._cap(key, "concurrency_max") if door.works else 0
        if not cap and not places:
            yield None
            return
        window, left = "requests" if door.works else "lookups", tuple(self._left.get(key.name, ()))
        entry = Admission(key.name, request_id(), window, cap, places, left)  # type: ignore[arg-type]
        entered = await self._ask(lambda counters: counters.enter(entry))
        standing = _standing(entry, entered)
        if not places:
            yield standing
            return
        self._held[key.name].add(entry.member)
        self._renewing = self._renewing or asyncio.create_task(self._renew_forever())
        try:
            yield standing
        finally:
            await self._leave(key.name, entry.member)

    async def charge(self, key: Key, beam_tokens: int) -> None:
        """Charge beams times tokens to the key's limit.

        Raises RateLimited, and RequestOverLimit if the charge alone exceeds a minute's limit.
        """
        cap = self._cap(key, "beam_tokens_per_minute")
        if not cap:
            return
        if beam_tokens > cap:
            raise RequestOverLimit("beams * max_tokens", "beam_tokens_per_minute", cap)
        left = await self._ask(lambda counters: counters.charge(key.name, beam_tokens, cap))
        if left is not None:
            raise RateLimited("beam_tokens_per_minute", cap, math.ceil(MINUTE_S * max(1, beam_tokens - left) / cap))

    async def refund(self, key: Key, beam_tokens: int) -> None:
        """Take a charge back: nothing came of it."""
        if self._cap(key, "beam_tokens_per_minute"):
            await self._ask(lambda counters: counters.refund(key.name, beam_tokens))

    async def settle(self, key: Key, beam_tokens: int, job_id: str) -> None:
        """A charge was for this job, to which an Idempotency-Key leads: it is charged for once, however often asked."""
        if self._cap(key, "beam_tokens_per_minute"):
            remember_s = self._settings.idempotency_ttl_s
            await self._ask(lambda counters: counters.settle(key.name, beam_tokens, job_id, remember_s))

    async def _leave(self, owner: str, member: str) -> None:
        """Give a place up.

        The key's next request or a background task reports it to the server, so this call does not wait for it.
        """
        self._held[owner].discard(member)
        if not self._held[owner]:
            del self._held[owner]
        await self._here.leave({owner: (member,)})
        if self._server:
            self._left[owner].add(member)
            if self._leaving is None or self._leaving.done():
                self._leaving = asyncio.create_task(self._tell_who_left())

    async def _tell_who_left(self) -> None:
        while self._left:
            left = _listed(self._left)
            await self._ask(lambda counters, left=left: counters.leave(left))  # type: ignore[misc]
            for owner, members in left.items():
                self._left[owner] -= set(members)
                if not self._left[owner]:
                    del self._left[owner]

    async def _renew_forever(self) -> None:
        while True:
            await asyncio.sleep(counters.LEASE_S / 3)
            held = _listed(self._held)
            if held:
                await self._ask(lambda counters, held=held: counters.renew(held))  # type: ignore[misc]

    async def _ask(self, question: Callable[[Counters], Awaitable[T]]) -> T:
        """The answer of the server, and where it fails, of the counters here."""
        if self._server and time.monotonic() >= self._server_again:
            try:
                async with asyncio.timeout(SERVER_S_MAX):
                    return await question(self._server)
            except Exception as error:
                self._server_again = time.monotonic() + SERVER_AGAIN_S
                log.warning("the limits of keys are counted by this process alone: %s", type(error).__name__)
        return await question(self._here)

    def _cap(self, key: Key, name: str) -> int:
        """The key's own limit, or that of all keys."""
        own: int | None = getattr(key, name)
        return int(getattr(self._settings, f"key_{name}")) if own is None else own


def _standing(entry: Admission, entered: AdmissionResult) -> RateLimitStatus | None:
    """How a key stands after a request. Raises RateLimited."""
    reset_s = min(MINUTE_S, max(1, math.ceil(entered.reset_s)))
    if entered.missing == "requests":
        raise RateLimited("requests_per_minute", entry.cap, reset_s)
    if entered.missing == "places":
        raise RateLimited("concurrency_max", entry.places, 1)
    return RateLimitStatus(entry.cap, max(0, entry.cap - entered.held), reset_s) if entry.cap else None


def _listed(members: Names | dict[str, set[str]]) -> Names:
    """The same, as it stands now."""
    return {owner: tuple(some) for owner, some in members.items() if some}
