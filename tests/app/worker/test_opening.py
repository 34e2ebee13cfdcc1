"""An in-process worker is stopped while its handler opens."""

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


@pytest.mark.parametrize("ending", ["stopped", "cancelled"])
def test_a_handler_that_opens_after_the_stop_is_closed(ending: str) -> None:
    gate, open_event, close_event = threading.Event(), threading.Event(), threading.Event()

    def open_late(settings: Settings) -> Handler:
        open_event.set()
        assert gate.wait(S_MAX)
        return Handler(
            lambda job, context: fake_handlers.open_quick(settings).handle(job, context), close=close_event.set
        )

    async def scenario() -> None:
        stopping = asyncio.Event()
        storage = MemoryBroker(16), MemoryStore(1000)
        serving = asyncio.create_task(serve("q", open_late, *storage, Settings(), stopping))
        assert await asyncio.to_thread(open_event.wait, S_MAX)
        if ending == "stopped":
            stopping.set()
            await serving
        else:
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
        assert not close_event.is_set()

    asyncio.run(asyncio.wait_for(scenario(), S_MAX))
    gate.set()
    assert close_event.wait(S_MAX)
