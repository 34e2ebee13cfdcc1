"""What a key may ask for in a minute and at once, counted here or on a server, and what holds while that is away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest
from coredis import Redis
from limits.aio.storage import MemoryStorage

from app.access import limits as limits_module
from app.access import places as places_module
from app.access.doors import door_to
from app.access.keys import Key
from app.access.limits import Counters, Limiter, counters
from app.access.places import MemoryPlaces, Places, ServerPlaces
from app.errors import RateLimited, RequestOverLimit
from app.settings import Settings
from app.wiring import open_limiter
from tests.app.redis_server import RedisServer

T = TypeVar("T")
WORK, LOOKUP = door_to("POST", "/generate"), door_to("GET", "/jobs/a")


def key(name: str = "anna", **limits: int) -> Key:
    return Key("0" * 12, name, "0" * 64, ("generate",), **limits)


class FakeServer:
    """Counters that limiters share, which may be away."""

    def __init__(self) -> None:
        self.counters = counters(MemoryStorage(), MemoryPlaces())
        self.away, self.asked = False, 0

    async def ask(self, question: Callable[[Counters], Awaitable[T]]) -> T:
        self.asked += 1
        if self.away:
            raise OSError("away")
        return await question(self.counters)

    async def close(self) -> None:
        pass


async def refused(work: Awaitable[object]) -> RateLimited:
    with pytest.raises(RateLimited) as caught:
        await work
    return caught.value


def test_a_key_has_so_many_requests_a_minute_and_another_key_its_own() -> None:
    async def scenario() -> None:
        limiter = Limiter(Settings(key_requests_per_minute=3))
        left = []
        for _ in range(3):
            standing = await limiter.count(key(), WORK)
            assert standing is not None
            left.append(standing.left)
        assert left == [2, 1, 0]
        error = await refused(limiter.count(key(), WORK))
        assert (error.limit, error.cap) == ("requests_per_minute", 3)
        assert 1 <= error.retry_after_s <= 60
        assert await limiter.count(key("ben"), WORK)
        await limiter.close()

    asyncio.run(scenario())


def test_what_only_looks_something_up_counts_a_tenth() -> None:
    async def scenario() -> None:
        limiter = Limiter(Settings(key_requests_per_minute=2))
        for _ in range(20):
            await limiter.count(key(), LOOKUP)
        await refused(limiter.count(key(), LOOKUP))
        assert await limiter.count(key(), WORK)

    asyncio.run(scenario())


def test_a_key_s_own_limit_goes_before_the_service_s_and_0_is_none() -> None:
    async def scenario() -> None:
        limiter = Limiter(Settings(key_requests_per_minute=1, key_beam_tokens_per_minute=10, key_at_once_max=1))
        assert await limiter.count(key(requests_per_minute=0), WORK) is None
        for _ in range(3):
            await limiter.charge(key("free", beam_tokens_per_minute=0), 10_000_000)
        async with limiter.place(key("free", at_once_max=0), WORK), limiter.place(key("free", at_once_max=0), WORK):
            pass
        await limiter.charge(key(beam_tokens_per_minute=30), 30)
        unlimited = Limiter(Settings(key_requests_per_minute=0, key_beam_tokens_per_minute=0, key_at_once_max=0))
        assert await unlimited.count(key(), WORK) is None
        await unlimited.charge(key(), 10**9)
        await limiter.close()

    asyncio.run(scenario())


def test_beam_tokens_are_counted_by_what_a_request_may_write() -> None:
    async def scenario() -> None:
        limiter = Limiter(Settings(key_beam_tokens_per_minute=1_000))
        await limiter.charge(key(), 900)
        error = await refused(limiter.charge(key(), 200))
        assert (error.limit, error.cap) == ("beam_tokens_per_minute", 1_000)
        assert 1 <= error.retry_after_s <= 60
        await limiter.charge(key(), 100)
        with pytest.raises(RequestOverLimit, match="beam_tokens_per_minute"):
            await limiter.charge(key(), 1_001)

    asyncio.run(scenario())


def test_so_many_requests_run_at_once_and_a_place_is_free_when_one_ends_however_it_ends() -> None:
    async def scenario() -> None:
        limiter = Limiter(Settings(key_at_once_max=2))
        async with limiter.place(key(), WORK):
            with contextlib.suppress(ZeroDivisionError):
                async with limiter.place(key(), WORK):
                    error = await refused(limiter.place(key(), WORK).__aenter__())
                    assert (error.limit, error.cap) == ("at_once_max", 2)
                    async with limiter.place(key(), LOOKUP), limiter.place(key("ben"), WORK):
                        pass
                    raise ZeroDivisionError
            async with limiter.place(key(), WORK):
                pass
        await limiter.close()

    asyncio.run(scenario())


def test_a_place_of_a_process_that_died_is_free_after_its_lease_and_one_in_use_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (limits_module, places_module):
        monkeypatch.setattr(module, "LEASE_S", 0.3)

    async def scenario() -> None:
        server, settings = FakeServer(), Settings(key_at_once_max=2)
        lost, limiter, other = (Limiter(settings, server) for _ in range(3))
        await lost.place(key(), WORK).__aenter__()
        assert lost._renewing is not None
        lost._renewing.cancel()
        async with limiter.place(key(), WORK):
            await refused(other.place(key(), WORK).__aenter__())
            await asyncio.sleep(0.7)
            async with other.place(key(), WORK):
                await refused(limiter.place(key(), WORK).__aenter__())
        await limiter.close()
        await other.close()

    asyncio.run(scenario())


def test_who_has_left_gets_no_place_by_a_renewal_that_was_on_its_way(redis_server: RedisServer) -> None:
    async def scenario(places: Places) -> None:
        assert await places.take("anna", "stays", 2)
        assert await places.take("anna", "leaves", 2)
        await places.leave("anna", "leaves")
        await places.renew({"anna": ("stays", "leaves"), "ben": ("never came",)})
        assert await places.take("anna", "another", 2)
        assert not await places.take("anna", "one more", 2)
        assert await places.take("ben", "another", 1)

    async def on_a_server() -> None:
        async with Redis.from_url(redis_server.url) as client:
            async def script(text: str, keys: Sequence[str], arguments: Sequence[str]) -> object:
                return await client.eval(text, keys, arguments)

            await scenario(ServerPlaces(script))

    asyncio.run(scenario(MemoryPlaces()))
    asyncio.run(on_a_server())


def test_replicas_count_together_and_each_for_itself_while_the_server_is_away(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits_module, "SERVER_AGAIN_S", 0.2)

    async def scenario() -> None:
        server, settings = FakeServer(), Settings(key_requests_per_minute=4, key_at_once_max=3)
        one, two = Limiter(settings, server), Limiter(settings, server)
        for limiter in (one, two, one, two):
            await limiter.count(key(), WORK)
        await refused(one.count(key(), WORK))
        server.away = True
        with caplog.at_level(logging.WARNING):
            for _ in range(4):
                await one.count(key(), WORK)
            asked = server.asked
            await refused(one.count(key(), WORK))
        assert server.asked == asked, "a server that failed is not asked again at once"
        assert "alone" in caplog.text
        async with one.place(key(), WORK):
            server.away = False
            await asyncio.sleep(0.3)
        await refused(one.count(key(), WORK))
        async with two.place(key(), WORK):
            pass
        await one.close()
        await two.close()

    asyncio.run(scenario())


def test_a_server_that_hangs_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_module, "SERVER_S_MAX", 0.05)

    class Hanging(FakeServer):
        async def ask(self, question: Any) -> Any:
            await asyncio.sleep(60)

    async def scenario() -> None:
        limiter = Limiter(Settings(), Hanging())
        async with asyncio.timeout(5):
            assert await limiter.count(key(), WORK)
            async with limiter.place(key(), WORK):
                await limiter.charge(key(), 10)
        await limiter.close()

    asyncio.run(scenario())


def test_on_a_real_server_replicas_count_together_and_leave_nothing_for_ever(redis_server: RedisServer) -> None:
    settings = Settings(
        broker=redis_server.url, key_requests_per_minute=4, key_beam_tokens_per_minute=100, key_at_once_max=2
    )

    async def scenario() -> None:
        one, two = open_limiter(settings), open_limiter(settings)
        standings = [await limiter.count(key(), WORK) for limiter in (one, two, one, two)]
        assert [standing and standing.left for standing in standings] == [3, 2, 1, 0]
        assert 1 <= (await refused(one.count(key(), WORK))).retry_after_s <= 60
        await one.charge(key(), 60)
        assert (await refused(two.charge(key(), 60))).limit == "beam_tokens_per_minute"
        async with one.place(key(), WORK), two.place(key(), WORK):
            await refused(one.place(key(), WORK).__aenter__())
            await refused(two.place(key(), WORK).__aenter__())
        async with two.place(key(), WORK), two.place(key(), WORK):
            pass
        await one.close()
        await two.close()

    asyncio.run(scenario())
    kept = re.findall(r"abs:\S+", redis_server.ask("KEYS", "*"))
    assert len(kept) >= 2 and all(name.startswith(("abs:limits", "abs:running")) for name in kept)
    assert all(int(redis_server.ask("TTL", name)[1:]) > 0 for name in kept)


def test_on_a_real_server_a_place_of_a_process_that_died_is_free_after_its_lease(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits_module, "LEASE_S", 0.6)
    monkeypatch.setattr(places_module, "_LEASE_MS", "600")
    settings = Settings(broker=redis_server.url, key_at_once_max=2)

    async def scenario() -> None:
        lost, limiter, other = (open_limiter(settings) for _ in range(3))
        await lost.place(key(), WORK).__aenter__()
        await lost.close()
        async with limiter.place(key(), WORK):
            await refused(other.place(key(), WORK).__aenter__())
            await asyncio.sleep(1.5)
            async with other.place(key(), WORK):
                await refused(limiter.place(key(), WORK).__aenter__())
        await limiter.close()
        await other.close()

    asyncio.run(scenario())


def test_while_a_real_server_is_dead_each_process_counts_for_itself(
    own_redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits_module, "SERVER_AGAIN_S", 0.2)
    settings = Settings(broker=own_redis_server.url, key_requests_per_minute=2, key_at_once_max=1)

    async def scenario() -> None:
        limiter = open_limiter(settings)
        for _ in range(2):
            await limiter.count(key(), WORK)
        await refused(limiter.count(key(), WORK))
        async with limiter.place(key(), WORK):
            own_redis_server.kill()
            async with asyncio.timeout(20):
                await limiter.count(key("ben"), WORK)
        async with asyncio.timeout(20), limiter.place(key(), WORK):
            pass
        own_redis_server.start()
        ends = asyncio.get_running_loop().time() + 20
        while limiter._server_again > time.monotonic() or not await back(limiter):
            assert asyncio.get_running_loop().time() < ends
            await asyncio.sleep(0.1)
        await limiter.close()

    async def back(limiter: Limiter) -> bool:
        """Whether the server counts again: one that others have used up is refused."""
        await limiter.count(key("carl"), LOOKUP)
        return "carl" in str(own_redis_server.ask("KEYS", "*"))

    asyncio.run(scenario())
