"""Counters of keys on a real server.

A request needs one command, every counter expires, and a server may be down.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import pytest

from app.auth import Limiter
from app.auth import rate_limit as limits_module
from app.auth.redis_counters import SharedCounters
from app.errors import StorageDown
from app.redis.connection import Connection
from app.settings import Settings
from app.wiring import open_limiter
from tests.app.auth.test_rate_limit import LOOKUP, WORK, count, expect_refusal, key
from tests.servers.redis_server import RedisServer


async def test_a_request_waits_for_one_reply_of_a_real_server(redis_server: RedisServer) -> None:
    first_keys: list[str] = []

    class RecordingCounters(SharedCounters):
        async def _run(self, script: Any, keys: Any, *arguments: Any) -> Any:
            first_keys.append(keys[0])
            return await super()._run(script, keys, *arguments)
    limiter = Limiter(Settings(), RecordingCounters(Connection(redis_server.url)))
    for _ in range(3):
        first_keys.clear()
        async with limiter.admitted(key(), WORK):
            assert [name for name in first_keys if name != "{abs}:running:anna"] == ["{abs}:limits:requests:anna"]
    await limiter.close()


async def test_every_counter_on_a_real_server_expires(redis_server: RedisServer) -> None:
    settings = Settings.of(broker=redis_server.url, key_requests_per_minute=4, key_beam_tokens_per_minute=100)
    limiter = open_limiter(settings)
    async with limiter.admitted(key(), WORK), limiter.admitted(key(), LOOKUP):
        await limiter.charge(key(), 60)
        await limiter.settle(key(), 60, "job")
        names = re.findall(r"\{abs\}:\S+", redis_server.ask("KEYS", "*"))
        assert sorted(names) == [
            "{abs}:limits:charged:job", "{abs}:limits:lookups:anna", "{abs}:limits:requests:anna",
            "{abs}:limits:tokens:anna", "{abs}:running:anna",
        ]
        assert all(int(redis_server.ask("PTTL", name)[1:]) > 0 for name in names)
    await limiter.close()
    assert "{abs}:running:anna" not in redis_server.ask("KEYS", "*")


async def test_keys_are_counted_on_a_full_server(own_redis_server: RedisServer) -> None:
    counters = SharedCounters(Connection(own_redis_server.url))
    limiter = Limiter(Settings.of(key_requests_per_minute=2, key_concurrency_max=1), counters)
    await count(limiter, key())
    for server_setting in (("maxmemory-policy", "noeviction"), ("maxmemory", "1")):
        assert own_redis_server.ask("CONFIG", "SET", *server_setting) == "+OK"
    await count(limiter, key())
    await expect_refusal(limiter, key())
    await limiter.charge(key(), 10)
    assert limiter._server_from == 0.0, "the server was never marked as down"
    await limiter.close()


async def test_each_process_counts_locally_while_the_server_is_down(
    own_redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits_module, "SERVER_RETRY_S", 0.2)

    async def server_counts(limiter: Limiter) -> bool:
        """Whether the server counts again."""
        await count(limiter, key("carl"), LOOKUP)
        return "carl" in str(own_redis_server.ask("KEYS", "*"))

    limiter = open_limiter(Settings.of(broker=own_redis_server.url, key_requests_per_minute=2, key_concurrency_max=1))
    for _ in range(2):
        await count(limiter, key())
    await expect_refusal(limiter, key())
    async with limiter.admitted(key("ben"), WORK):
        own_redis_server.kill()
        async with asyncio.timeout(20):
            await count(limiter, key())
    async with asyncio.timeout(20), limiter.admitted(key("ben"), WORK):
        pass
    own_redis_server.start()
    async with asyncio.timeout(20):
        while limiter._server_from > time.monotonic() or not await server_counts(limiter):
            await asyncio.sleep(0.1)
    await limiter.close()


async def test_an_unreachable_counter_server_is_reported_at_once(own_redis_server: RedisServer) -> None:
    own_redis_server.kill()
    counters = SharedCounters(Connection(own_redis_server.url))
    with pytest.raises(StorageDown):
        async with asyncio.timeout(20):
            await counters.charge("anna", 1, 1)
    await counters.close()
