from __future__ import annotations

import asyncio

import pytest

from app.tasks import SharedTasks


async def test_simultaneous_callers_share_a_call() -> None:
    calls: list[str] = []

    async def call(key: str) -> str:
        calls.append(key)
        await asyncio.sleep(0.01)
        return key

    shared: SharedTasks[str] = SharedTasks()
    keys = ["a", "b", "a", "a"]
    assert await asyncio.gather(*(shared.result(key, call) for key in keys)) == keys
    assert calls == ["a", "b"]
    assert await shared.result("a", call) == "a"
    assert calls == ["a", "b", "a"]  # a call that has ended is not shared


async def test_all_callers_receive_the_error_of_their_call() -> None:
    async def fail(key: str) -> None:
        raise ValueError(key)

    shared: SharedTasks[None] = SharedTasks()
    outcomes = await asyncio.gather(*(shared.result("a", fail) for _ in range(3)), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["a"] * 3


async def test_a_call_survives_the_caller_that_began_it() -> None:
    done = asyncio.Event()

    async def call(key: str) -> str:
        await done.wait()
        return key

    shared: SharedTasks[str] = SharedTasks()
    first, second = (asyncio.create_task(shared.result("a", call)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    done.set()
    assert await second == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_cancel_ends_running_calls() -> None:
    async def forever(key: str) -> None:
        await asyncio.Event().wait()

    shared: SharedTasks[None] = SharedTasks()
    caller = asyncio.create_task(shared.result("a", forever))
    await asyncio.sleep(0)
    shared.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
