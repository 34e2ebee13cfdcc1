"""Ends asyncio tasks."""

from __future__ import annotations

import asyncio
from typing import Any

CANCEL_RETRY_S = 0.1


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
