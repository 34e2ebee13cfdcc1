"""A worker that is stopped while its handler opens, inside the test's process."""

from __future__ import annotations

import asyncio
import threading

import pytest

from app.broker.memory import MemoryBroker
from app.settings import Settings
from app.store.memory import MemoryStore
from app.worker.handlers.base import Handler
from app.worker.loop import serve
from tests.app import fake_handlers

S_MAX = 90.0


@pytest.mark.parametrize("how", ["stopped", "cancelled"])
def test_a_handler_that_opens_after_the_stop_is_closed(how: str) -> None:
    may_open, opening, closed = threading.Event(), threading.Event(), threading.Event()

    def open_late(settings: Settings) -> Handler:
        opening.set()
        assert may_open.wait(S_MAX)
        return Handler(lambda job, context: fake_handlers.open_quick(settings).handle(job, context), close=closed.set)

    async def scenario() -> None:
        stopping = asyncio.Event()
        storage = MemoryBroker(16), MemoryStore(1000)
        serving = asyncio.create_task(serve("q", open_late, *storage, Settings(), stopping))
        assert await asyncio.to_thread(opening.wait, S_MAX)
        if how == "stopped":
            stopping.set()
            await serving
        else:
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
        assert not closed.is_set()

    asyncio.run(asyncio.wait_for(scenario(), S_MAX))
    may_open.set()
    assert closed.wait(S_MAX)
