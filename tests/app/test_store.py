"""The contract of every store: add a store to STORES and it is held to the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from app.store.base import Store
from app.store.memory import MemoryStore
from tests.app.clock import Clock

STORES: dict[str, Callable[[int, Clock], Store]] = {"memory": MemoryStore}


@pytest.fixture(params=STORES)
def open_store(request: pytest.FixtureRequest) -> Callable[[int, Clock], Store]:
    return STORES[request.param]


OpenStore = Callable[[int, Clock], Store]


def test_what_was_put_is_got_unchanged(open_store: OpenStore) -> None:
    async def story() -> None:
        store = open_store(1000, Clock())
        assert await store.get("a") is None
        await store.put("a", b"\x00\xff", 10)
        await store.put("b", b"", 10)
        assert (await store.get("a"), await store.get("b")) == (b"\x00\xff", b"")
        await store.put("a", b"new", 10)
        assert await store.get("a") == b"new"

    asyncio.run(story())


def test_a_value_is_gone_after_its_time(open_store: OpenStore) -> None:
    async def story() -> None:
        clock = Clock()
        store = open_store(1000, clock)
        await store.put("short", b"1", 5)
        await store.put("long", b"2", 50)
        clock.now = 4.9
        assert await store.get("short") == b"1"
        clock.now = 5.0
        assert (await store.get("short"), await store.get("long")) == (None, b"2")

    asyncio.run(story())


def test_the_least_recently_used_goes_first_when_space_runs_out(open_store: OpenStore) -> None:
    async def story() -> None:
        store = open_store(30, Clock())
        for key in "abc":
            await store.put(key, bytes(10), 100)
        await store.get("a")
        await store.put("d", bytes(10), 100)
        assert [key for key in "abcd" if await store.get(key) is not None] == ["a", "c", "d"]

    asyncio.run(story())


def test_a_value_larger_than_the_store_is_not_kept_and_evicts_nothing(open_store: OpenStore) -> None:
    async def story() -> None:
        store = open_store(30, Clock())
        await store.put("a", bytes(10), 100)
        await store.put("huge", bytes(31), 100)
        assert (await store.get("huge"), await store.get("a")) == (None, bytes(10))

    asyncio.run(story())


def test_deleting_leaves_a_value_that_someone_replaced(open_store: OpenStore) -> None:
    async def story() -> None:
        store = open_store(1000, Clock())
        await store.put("a", b"new", 100)
        await store.delete("a", b"damaged")
        assert await store.get("a") == b"new"
        await store.delete("a", b"new")
        await store.delete("absent", b"x")
        assert await store.get("a") is None

    asyncio.run(story())


def test_replacing_and_deleting_give_their_space_back(open_store: OpenStore) -> None:
    async def story() -> None:
        store = open_store(30, Clock())
        for _ in range(10):
            await store.put("a", bytes(20), 100)
            await store.delete("a", bytes(20))
        await store.put("b", bytes(30), 100)
        assert await store.get("b") == bytes(30)

    asyncio.run(story())
