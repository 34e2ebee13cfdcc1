"""Limits each key's requests a minute, concurrent requests and beam-tokens a minute.

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
from app.auth.counters import MINUTE_S, Admission, AdmissionResult, Counters, Members, MemoryCounters
from app.auth.keys import Key
from app.auth.route_scopes import RateLimitStatus, RouteScope
from app.errors import RateLimited, RequestOverLimit
from app.messages import request_id
from app.settings import Settings
from app.tasks import cancel_tasks

T = TypeVar("T")
LOOKUPS = 10  # look-ups allowed for each request of the rate limit
SERVER_S_MAX = 1.0  # how long a count on the server may take
SERVER_RETRY_S = 5.0  # pause before a failed server is tried again
log = logging.getLogger(__name__)


@dataclass
class Charge:
    """A charge of beam-tokens. Its `job_id` names the job that it pays for."""

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
    """Counts requests and tokens, and rejects those over a limit. It counts in this process or on a server."""

    @classmethod
    def from_url(cls, url: str, settings: Settings) -> Limiter:
        """A limiter that counts in this process; the URL is not used."""
        return cls(settings)

    def __init__(self, settings: Settings, server: Counters | None = None) -> None:
        self._settings = settings
        self._local = MemoryCounters()
        self._server = server
        self._server_from = 0.0  # the time from which the server is used
        self._running: defaultdict[str, set[str]] = defaultdict(set)  # owner: requests with a slot
        self._released: defaultdict[str, set[str]] = defaultdict(set)  # owner: releases the server may not know yet
        self._renewing: asyncio.Task[None] | None = None
        self._releasing: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Stops the renewal of leases and closes the server's connections. Released slots are reported first."""
        await cancel_tasks(self._renewing)
        if self._releasing:
            await self._releasing
        if self._server:
            await self._server.close()

    @contextlib.asynccontextmanager
    async def admitted(self, key: Key, scope: RouteScope) -> AsyncIterator[RateLimitStatus | None]:
        """Admits a request. While the body runs, it has a concurrency slot if its route counts as work.

        Yields the key's rate limit, None if it has none. Raises RateLimited; a rejected request is not counted.
        """
        cap = self._cap(key, "requests_per_minute") * (1 if scope.counts_as_work else LOOKUPS)
        slots = self._cap(key, "concurrency_max") if scope.counts_as_work else 0
        if not cap and not slots:
            yield None
            return
        window = "requests" if scope.counts_as_work else "lookups"
        released = tuple(self._released.get(key.name, ()))
        admission = Admission(key.name, request_id(), window, cap, slots, released)  # type: ignore[arg-type]
        result = await self._count(lambda counters: counters.acquire(admission))
        status = _rate_limit_status(admission, result)
        if not slots:
            yield status
            return
        self._running[key.name].add(admission.member)
        self._renewing = self._renewing or asyncio.create_task(self._renew_forever())
        try:
            yield status
        finally:
            await self._release(key.name, admission.member)

    async def charge(self, key: Key, beam_tokens: int) -> None:
        """Charge beams times tokens to the key's limit.

        Raises RateLimited, and RequestOverLimit if the charge alone exceeds a minute's limit.
        """
        cap = self._cap(key, "beam_tokens_per_minute")
        if not cap:
            return
        if beam_tokens > cap:
            raise RequestOverLimit("beams * max_tokens", "beam_tokens_per_minute", cap)
        remaining = await self._count(lambda counters: counters.charge(key.name, beam_tokens, cap))
        if remaining is not None:
            # At least the missing tokens' share of a minute.
            wait_s = math.ceil(MINUTE_S * max(1, beam_tokens - remaining) / cap)
            raise RateLimited("beam_tokens_per_minute", cap, wait_s)

    async def refund(self, key: Key, beam_tokens: int) -> None:
        """Takes back the charge of a request that failed."""
        if self._cap(key, "beam_tokens_per_minute"):
            await self._count(lambda counters: counters.refund(key.name, beam_tokens))

    async def settle(self, key: Key, beam_tokens: int, job_id: str) -> None:
        """Assigns a charge to a job. Repeated requests with one Idempotency-Key are charged once."""
        if self._cap(key, "beam_tokens_per_minute"):
            ttl_s = self._settings.retention.idempotency_ttl_s
            await self._count(lambda counters: counters.settle(key.name, beam_tokens, job_id, ttl_s))

    async def _release(self, owner: str, member: str) -> None:
        """Releases a slot.

        The key's next request or a background task reports it to the server, so this call does not wait for it.
        """
        self._running[owner].discard(member)
        if not self._running[owner]:
            del self._running[owner]
        await self._local.release({owner: (member,)})
        if self._server:
            self._released[owner].add(member)
            if self._releasing is None or self._releasing.done():
                self._releasing = asyncio.create_task(self._report_released())

    async def _report_released(self) -> None:
        while self._released:
            released = _snapshot(self._released)
            await self._count(lambda counters, released=released: counters.release(released))  # type: ignore[misc]
            for owner, members in released.items():
                self._released[owner] -= set(members)
                if not self._released[owner]:
                    del self._released[owner]

    async def _renew_forever(self) -> None:
        while True:
            await asyncio.sleep(counters.LEASE_S / 3)
            running = _snapshot(self._running)
            if running:
                await self._count(lambda counters, running=running: counters.renew(running))  # type: ignore[misc]

    async def _count(self, operation: Callable[[Counters], Awaitable[T]]) -> T:
        """Runs an operation on the server. If the server fails, this process runs it."""
        if self._server and time.monotonic() >= self._server_from:
            try:
                async with asyncio.timeout(SERVER_S_MAX):
                    return await operation(self._server)
            except Exception as error:
                self._server_from = time.monotonic() + SERVER_RETRY_S
                log.warning("rate limits are counted by this process only: %s", type(error).__name__)
        return await operation(self._local)

    def _cap(self, key: Key, name: str) -> int:
        """The key's limit, or the setting for all keys."""
        limit: int | None = getattr(key, name)
        return int(getattr(self._settings.auth, f"key_{name}")) if limit is None else limit


def _rate_limit_status(admission: Admission, result: AdmissionResult) -> RateLimitStatus | None:
    """The key's rate limit after a request. Raises RateLimited."""
    reset_s = min(MINUTE_S, max(1, math.ceil(result.reset_s)))
    if result.missing == "requests":
        raise RateLimited("requests_per_minute", admission.cap, reset_s)
    if result.missing == "slots":
        raise RateLimited("concurrency_max", admission.slots, 1)
    return RateLimitStatus(admission.cap, max(0, admission.cap - result.count), reset_s) if admission.cap else None


def _snapshot(members: dict[str, set[str]]) -> Members:
    # A copy, because the sets change while a call to the server runs.
    return {owner: tuple(ids) for owner, ids in members.items() if ids}
