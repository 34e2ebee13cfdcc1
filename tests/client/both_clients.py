"""Runs the same call with the sync and the async client, so that each test covers both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from abs_client import AsyncClient, AsyncStream, Client, Retry, Stream

KINDS = ("sync", "async")
both = pytest.mark.parametrize("kind", KINDS)
EVENLY = Retry(random=lambda: 0.0)


def ask(kind: str, url: str, what: Callable[[Any], Any], waits: list[float] | None = None, **options: Any) -> Any:
    """The result of `what(client)`, of a stream the list of its events. Waits are recorded in `waits`, not waited."""
    return _blocking(url, what, waits, options) if kind == "sync" else asyncio.run(_async(url, what, waits, options))


def _blocking(url: str, what: Callable[[Any], Any], waits: list[float] | None, options: dict[str, Any]) -> Any:
    if waits is not None:
        options["sleep"] = waits.append
    with Client(url, **options) as client:
        answer = what(client)
        return list(answer) if isinstance(answer, Stream) else answer


async def _async(url: str, what: Callable[[Any], Any], waits: list[float] | None, options: dict[str, Any]) -> Any:
    async def sleep(seconds: float) -> None:
        assert waits is not None
        waits.append(seconds)

    if waits is not None:
        options["sleep"] = sleep
    async with AsyncClient(url, **options) as client:
        answer = what(client)
        if isinstance(answer, AsyncStream):
            return [event async for event in answer]
        return await answer


def unreachable_url() -> httpx2.URL:
    """An address without a server."""
    return httpx2.URL("http://127.0.0.1:9")
