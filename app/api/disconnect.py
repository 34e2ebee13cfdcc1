"""How a path reaches the service, and leaves off when the client has gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from fastapi import Request

from app.errors import ClientGone, NotReady
from app.service import Service

T = TypeVar("T")


def service_of(request: Request) -> Service:
    """The service of the application. Raises NotReady until the application has started it."""
    service = getattr(request.app.state, "service", None)
    if service is None:
        raise NotReady(("the service is starting",))
    return cast(Service, service)


async def until_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client closes the connection. Raises ClientGone then."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone("the client closed the connection")
        return task.result()
    finally:
        for pending in (task, gone):
            if not pending.done():
                pending.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await pending


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
