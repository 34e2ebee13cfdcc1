"""Runs the same call with the sync and the async client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from abs_client import AsyncClient, AsyncStream, Client, Retry, Stream

KINDS = ("sync", "async")
with_both_clients = pytest.mark.parametrize("kind", KINDS)
NO_JITTER = Retry(random=lambda: 0.0)


def ask(kind: str, url: str, call: Callable[[Any], Any], waits: list[float] | None = None, **options: Any) -> Any:
    """The result of `call(client)`; for a stream, the list of its events.

    With `waits`, the client records its waits there and does not sleep.
    """
    return _blocking(url, call, waits, options) if kind == "sync" else asyncio.run(_async(url, call, waits, options))


def _blocking(url: str, call: Callable[[Any], Any], waits: list[float] | None, options: dict[str, Any]) -> Any:
    if waits is not None:
        options["sleep"] = waits.append
    with Client(url, **options) as client:
        answer = call(client)
        return list(answer) if isinstance(answer, Stream) else answer


async def _async(url: str, call: Callable[[Any], Any], waits: list[float] | None, options: dict[str, Any]) -> Any:
    async def sleep(seconds: float) -> None:
        assert waits is not None
        waits.append(seconds)

    if waits is not None:
        options["sleep"] = sleep
    async with AsyncClient(url, **options) as client:
        answer = call(client)
        if isinstance(answer, AsyncStream):
            return [event async for event in answer]
        return await answer


def unreachable_url() -> httpx2.URL:
    """An address without a server."""
    return httpx2.URL("http://127.0.0.1:9")
