"""Rate and concurrency limits of a key.

They are counted in the process or on a server, and locally while the server is down.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from app.auth import Key, Limiter, RateLimitStatus, scope_of
from app.auth import counters as counters_module
from app.auth import rate_limit as limits_module
from app.auth import redis_counters as server_module
from app.auth.counters import Admission, AdmissionResult, Counters, MemoryCounters
from app.auth.redis_counters import SharedCounters
from app.auth.route_scopes import RouteScope
from app.errors import RateLimited, RequestOverLimit
from app.redis.connection import Connection
from app.settings import Settings
from tests.servers.redis_server import RedisServer

WORK, LOOKUP = scope_of("POST", "/generate"), scope_of("GET", "/jobs/a")


def key(name: str = "anna", **limits: int) -> Key:
    return Key("0" * 12, name, "0" * 64, ("generate",), **limits)


class FakeServer(MemoryCounters):
    """Shared counters of a server that may be down."""

    is_down, calls = False, 0

    async def acquire(self, entry: Admission) -> AdmissionResult:
        self.calls += 1
        if self.is_down:
            raise OSError("down")
        return await super().acquire(entry)


async def count(limiter: Limiter, key: Key, scope: RouteScope = WORK) -> RateLimitStatus | None:
    """Admit one request that ends at once."""
    async with limiter.admitted(key, scope) as status:
        return status


async def expect_refusal(limiter: Limiter, key: Key, scope: RouteScope = WORK) -> RateLimited:
    """The error of a request that is not admitted."""
    with pytest.raises(RateLimited) as limit_error:
        await count(limiter, key, scope)
    return limit_error.value


@pytest.fixture
async def counters(kind: str, redis_server: RedisServer) -> AsyncIterator[Counters]:
    """Fresh counters of each kind."""
    counters: Counters = SharedCounters(Connection(redis_server.url)) if kind == "redis" else MemoryCounters()
    yield counters
    await counters.close()


async def test_request_limits_are_counted_per_key_across_replicas(counters: Counters) -> None:
    first_limiter, second_limiter = (Limiter(Settings.of(key_requests_per_minute=3), counters) for _ in range(2))
    statuses = [await count(limiter, key()) for limiter in (first_limiter, second_limiter, first_limiter)]
    assert [status and (status.cap, status.remaining) for status in statuses] == [(3, 2), (3, 1), (3, 0)]
    for limiter in (first_limiter, second_limiter):
        error = await expect_refusal(limiter, key())
        assert (error.limit, error.cap) == ("requests_per_minute", 3)
        assert 1 <= error.retry_after_s <= 60
    assert await count(first_limiter, key("ben"))
    assert await count(second_limiter, key(requests_per_minute=4)), "the key has a higher limit"


async def test_a_lookup_counts_a_tenth_of_a_request(counters: Counters) -> None:
    limiter = Limiter(Settings.of(key_requests_per_minute=2), counters)
    for _ in range(20):
        await count(limiter, key(), LOOKUP)
    assert (await expect_refusal(limiter, key(), LOOKUP)).cap == 20
    assert await count(limiter, key(), WORK)


async def test_a_keys_limit_overrides_the_default_and_0_disables_it(counters: Counters) -> None:
    settings = Settings.of(key_requests_per_minute=1, key_beam_tokens_per_minute=10, key_concurrency_max=1)
    limiter, unlimited_key = Limiter(settings, counters), key("free", requests_per_minute=0, concurrency_max=0)
    for _ in range(3):
        assert await count(limiter, unlimited_key) is None
        assert await count(limiter, key("ben", requests_per_minute=0)) is None
        await limiter.charge(key("free", beam_tokens_per_minute=0), 10_000_000)
    async with limiter.admitted(unlimited_key, WORK), limiter.admitted(unlimited_key, WORK):
        pass
    await limiter.charge(key(beam_tokens_per_minute=30), 30)
    unlimited = Limiter(Settings.of(key_requests_per_minute=0, key_beam_tokens_per_minute=0), counters)
    assert await count(unlimited, key()) is None
    await unlimited.charge(key(), 10**9)


async def test_beam_tokens_are_charged_by_the_requests_maximum(counters: Counters) -> None:
    limiter = Limiter(Settings.of(key_beam_tokens_per_minute=1_000), counters)
    await limiter.charge(key(), 900)
    with pytest.raises(RateLimited) as limit_error:
        await limiter.charge(key(), 300)
    assert (limit_error.value.limit, limit_error.value.cap) == ("beam_tokens_per_minute", 1_000)
    assert limit_error.value.retry_after_s == 12  # 200 tokens are missing
    await limiter.charge(key(), 50)
    with pytest.raises(RequestOverLimit, match="beam_tokens_per_minute"):
        await limiter.charge(key(), 1_001)
    await limiter.refund(key(), 900)
    await limiter.charge(key(), 850)


async def test_a_job_is_charged_once_per_key(counters: Counters) -> None:
    limiter = Limiter(Settings.of(key_beam_tokens_per_minute=100), counters)
    for _ in range(4):
        await limiter.charge(key(), 40)
        await limiter.settle(key(), 40, "job")
    await limiter.charge(key(), 60)
    await limiter.settle(key(), 60, "another")
    with pytest.raises(RateLimited):
        await limiter.charge(key(), 1)


async def test_rate_limits_use_a_moving_window(counters: Counters, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (counters_module, limits_module):
        monkeypatch.setattr(module, "MINUTE_S", 2)
    monkeypatch.setattr(server_module, "_MINUTE_MS", 2000)

    async def until_admitted(call: Callable[[], Awaitable[object]]) -> float:
        while True:  # bounded by the time limit of the scenario
            with contextlib.suppress(RateLimited):
                await call()
                return time.monotonic()
            await asyncio.sleep(0.02)

    limiter = Limiter(Settings.of(key_requests_per_minute=2, key_beam_tokens_per_minute=100), counters)
    start = time.monotonic()
    await limiter.charge(key(), 100)
    for _ in range(2):
        await count(limiter, key())
    await expect_refusal(limiter, key())
    assert await until_admitted(lambda: count(limiter, key())) - start > 1.9
    assert await until_admitted(lambda: limiter.charge(key(), 100)) - start > 1.9


async def test_a_concurrency_slot_is_released_when_its_request_ends(counters: Counters) -> None:
    limiter = Limiter(Settings.of(key_concurrency_max=2), counters)
    async with limiter.admitted(key(), WORK):
        with contextlib.suppress(ZeroDivisionError):
            async with limiter.admitted(key(), WORK):
                error = await expect_refusal(limiter, key())
                assert (error.limit, error.cap) == ("concurrency_max", 2)
                async with limiter.admitted(key(), LOOKUP), limiter.admitted(key("ben"), WORK):
                    pass
                raise ZeroDivisionError
        for _ in range(20):
            assert await count(limiter, key())


async def test_a_request_over_the_concurrency_limit_is_not_counted(counters: Counters) -> None:
    limiter = Limiter(Settings.of(key_requests_per_minute=3, key_concurrency_max=1), counters)
    async with limiter.admitted(key(), WORK):
        for _ in range(5):
            assert (await expect_refusal(limiter, key())).limit == "concurrency_max"
    status = await count(limiter, key())
    assert status and status.remaining == 1


async def test_replicas_soon_see_a_released_slot(counters: Counters) -> None:
    first_limiter, second_limiter = (Limiter(Settings.of(key_concurrency_max=1), counters) for _ in range(2))
    async with first_limiter.admitted(key(), WORK):
        await expect_refusal(second_limiter, key())
    while True:  # bounded by the time limit of the scenario
        with contextlib.suppress(RateLimited):
            await count(second_limiter, key())
            return
        await asyncio.sleep(0.01)


async def test_a_dead_process_loses_its_slots_after_its_lease(
    counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters_module, "LEASE_S", 0.6)
    dead_limiter, limiter, other_limiter = (Limiter(Settings.of(key_concurrency_max=2), counters) for _ in range(3))
    leaked_slot = dead_limiter.admitted(key(), WORK)
    await leaked_slot.__aenter__()
    assert dead_limiter._renewing is not None
    dead_limiter._renewing.cancel()
    async with limiter.admitted(key(), WORK):
        await expect_refusal(other_limiter, key())
        await asyncio.sleep(1.5)
        async with other_limiter.admitted(key(), WORK):
            await expect_refusal(limiter, key())
    assert leaked_slot


async def test_a_late_renewal_does_not_reacquire_a_released_slot(counters: Counters) -> None:
    def entry(owner: str, member: str, *releases: str) -> Admission:
        return Admission(owner, member, "requests", 0, 2 if owner == "anna" else 1, releases)
    assert not (await counters.acquire(entry("anna", "stays"))).missing
    assert not (await counters.acquire(entry("anna", "leaves"))).missing
    await counters.release({"anna": ("leaves",)})
    await counters.renew({"anna": ("stays", "leaves"), "ben": ("never acquired",)})
    assert not (await counters.acquire(entry("anna", "another"))).missing
    assert (await counters.acquire(entry("anna", "one more"))).missing == "slots"
    assert not (await counters.acquire(entry("anna", "one more", "another"))).missing, "freed by this call"
    assert not (await counters.acquire(entry("ben", "another"))).missing


async def test_replicas_share_counts_and_fall_back_to_local_ones(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits_module, "SERVER_RETRY_S", 0.2)
    server, settings = FakeServer(), Settings.of(key_requests_per_minute=4, key_concurrency_max=3)
    first_limiter, second_limiter = Limiter(settings, server), Limiter(settings, server)
    for limiter in (first_limiter, second_limiter, first_limiter, second_limiter):
        await count(limiter, key())
    await expect_refusal(first_limiter, key())
    server.is_down = True
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            await count(first_limiter, key())
        calls = server.calls
        await expect_refusal(first_limiter, key())
    assert server.calls == calls, "a server that failed is not called again at once"
    assert "this process only" in caplog.text
    async with first_limiter.admitted(key("ben"), WORK):
        server.is_down = False
        await asyncio.sleep(0.3)
    await expect_refusal(first_limiter, key())
    await first_limiter.close()
    await second_limiter.close()


async def test_a_hanging_counter_server_does_not_delay_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_module, "SERVER_S_MAX", 0.05)

    class HangingCounters(MemoryCounters):
        async def acquire(self, entry: Any) -> Any:
            await asyncio.sleep(600)
    limiter = Limiter(Settings(), HangingCounters())
    async with asyncio.timeout(60), limiter.admitted(key(), WORK) as status:
        assert status
        await limiter.charge(key(), 10)
    await limiter.close()
