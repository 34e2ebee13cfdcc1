"""The contract of every store. STORES has one for each kind of broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from app.messages import store_share_key
from app.settings import Settings
from app.store import Store
from app.store.base import ENTRY_BYTES
from app.store.memory import MemoryStore
from app.store.redis import RedisStore
from tests.app.broker.brokers import ManualTime, RealTime, Time
from tests.app.manual_clock import Clock
from tests.servers.redis_server import RedisServer

VALUE_BYTES_MAX = 1_000
OWNER_BYTES_MAX = 3 * (100 + ENTRY_BYTES)
REDIS_SETTINGS = Settings.of(
    store_value_bytes_max=VALUE_BYTES_MAX, redis_wait_s=20.0, key_store_bytes_max=OWNER_BYTES_MAX
)  # fmt: skip


def in_memory(url: str, time: ManualTime) -> Store:
    return MemoryStore(VALUE_BYTES_MAX, time.clock, OWNER_BYTES_MAX)


def on_redis(url: str, time: RealTime) -> Store:
    return RedisStore(url, REDIS_SETTINGS)


STORES: dict[str, Callable[..., Store]] = {"memory": in_memory, "redis": on_redis}


@pytest.fixture
async def store(kind: str, time: Time, redis_server: RedisServer) -> AsyncIterator[Store]:
    """A fresh store of each kind, for values up to 1,000 bytes."""
    opened = STORES[kind](redis_server.url, time)
    yield opened
    await opened.close()


async def test_a_stored_value_is_returned_unchanged(store: Store) -> None:
    assert await store.get("a") is None
    await store.put("a", b"\x00\xff", 10)
    await store.put("b", b"", 10)
    assert (await store.get("a"), await store.get("b")) == (b"\x00\xff", b"")
    await store.put("a", b"new", 10)
    assert await store.get("a") == b"new"


async def test_an_owner_over_its_share_displaces_its_oldest_values(store: Store) -> None:
    async def kept(store: Store, *keys: str) -> str:
        return "".join([key for key in keys if await store.get(key) is not None])
    value = bytes(100)
    await store.put("x", value, 10, "ben")
    await store.put("y", value, 10)
    for key in "abc":
        await store.put(key, value, 10, "anna")
    assert await kept(store, *"abcxy") == "abcxy"
    await store.put("d", value, 10, "anna")
    assert await kept(store, *"abcdxy") == "bcdxy"
    await store.put("b", value, 10, "anna")  # put again it is the newest
    await store.put("e", value, 10, "anna")
    assert "b" in await kept(store, *"bcdexy") and await kept(store, "c", "x", "y") == "xy"
    await store.delete("e", value)
    await store.put("f", bytes(101), 10, "anna")
    assert await store.get("f") == bytes(101)
    for _ in range(20):
        await store.put("f", value, 10, "anna")
    assert await kept(store, "f", "x", "y") == "fxy"


async def test_a_value_over_the_owners_share_is_stored_alone(store: Store) -> None:
    await store.put("small", b"1", 10, "owner")
    for _ in range(4):
        await store.put("large", bytes(900), 10, "owner")
    assert await store.get("large") == bytes(900)


async def test_a_value_expires_after_its_ttl(store: Store, time: Time) -> None:
    await store.put("short", b"1", time.to_real(5))
    await store.put("long", b"2", time.to_real(500))
    await time.advance(2)
    assert await store.get("short") == b"1"
    await time.advance(3.1)
    assert (await store.get("short"), await store.get("long")) == (None, b"2")


async def test_a_renewal_extends_and_never_shortens_a_ttl(store: Store, time: Time) -> None:
    await store.put("used", b"1", time.to_real(5))
    await store.put("long", b"2", time.to_real(500))
    assert await store.get("used", renew_s=time.to_real(500)) == b"1"
    assert await store.get("long", renew_s=time.to_real(1)) == b"2"
    await time.advance(6)
    assert (await store.get("used"), await store.get("long")) == (b"1", b"2")


async def test_an_oversized_value_is_not_stored_and_evicts_nothing(store: Store) -> None:
    await store.put("a", bytes(10), 100)
    await store.put("huge", bytes(VALUE_BYTES_MAX + 1), 100)
    assert (await store.get("huge"), await store.get("a")) == (None, bytes(10))


async def test_delete_leaves_a_replaced_value(store: Store) -> None:
    await store.put("a", b"new", 100)
    await store.delete("a", b"damaged")
    assert await store.get("a") == b"new"
    await store.delete("a", b"new")
    await store.delete("absent", b"x")
    assert await store.get("a") is None


async def test_a_store_reports_its_size(store: Store) -> None:
    before = await store.used_bytes()
    await store.put("a", bytes(VALUE_BYTES_MAX), 100)
    assert await store.used_bytes() >= before + VALUE_BYTES_MAX


async def test_the_memory_store_evicts_the_least_recently_used() -> None:
    store = MemoryStore(30, Clock())
    for key in "abc":
        await store.put(key, bytes(10), 100)
    await store.get("a")
    await store.put("d", bytes(10), 100)
    assert [key for key in "abcd" if await store.get(key) is not None] == ["a", "c", "d"]


async def test_the_memory_store_frees_replaced_and_deleted_values() -> None:
    store = MemoryStore(30, Clock())
    for _ in range(10):
        await store.put("a", bytes(20), 100)
        await store.delete("a", bytes(20))
    await store.put("b", bytes(30), 100)
    assert await store.get("b") == bytes(30)


async def test_a_corrupt_share_record_does_not_block_storing(redis_server: RedisServer) -> None:
    store = RedisStore(redis_server.url, REDIS_SETTINGS)
    await store.put("a", b"1", 10, "anna")
    for field, text in (("1", "nonsense"), ("first", "1"), ("bytes", "999999999")):
        redis_server.ask("HSET", store_share_key("anna"), field, text)
    for key in "bcd":
        await store.put(key, b"1", 10, "anna")
        assert await store.get(key) == b"1"
    await store.close()
