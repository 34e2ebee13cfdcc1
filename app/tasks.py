"""Ends asyncio tasks, and shares one task between callers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

CANCEL_RETRY_S = 0.1
T = TypeVar("T")


class SharedTasks(Generic[T]):
    """Runs one task for all simultaneous callers of a key.

    A task goes on when its callers are cancelled. Used from one event loop.
    """

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[T]] = {}

    async def result(self, key: str, call: Callable[[str], Coroutine[Any, Any, T]]) -> T:
        """The result of `call(key)`. A running call for this key is joined. Raises what the call raises."""
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(call(key))
            task.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(task)

    def cancel(self) -> None:
        """Cancels the running tasks."""
        for task in self._running.values():
            task.cancel()

    def _forget(self, key: str, task: asyncio.Task[T]) -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # marks it as seen, because all callers may have left


async def cancel_tasks(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks and wait for their end, whatever their outcome.

    A breaking connection may swallow the cancellation of its task, so the cancellation is repeated.
    """
    given = [task for task in tasks if task is not None]
    while pending := {task for task in given if not task.done()}:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=CANCEL_RETRY_S)
    await asyncio.gather(*given, return_exceptions=True)
