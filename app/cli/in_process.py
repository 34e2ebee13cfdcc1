"""Runs the service inside this process for the command line. Routes and JSON are the same as over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2

from abs_client import AsyncClient, GenerateResult, Retry
from app.api.dependencies import components_of
from app.cli.render import ProgressEvent
from app.errors import NotReady
from app.messages import NotReadyCode
from app.models import queues_of
from app.service import JobClient
from app.settings import Settings

CreateApp = Callable[[Settings], Any]
Observer = Callable[[ProgressEvent], None]
POLL_S = 0.02
ONCE = Retry(tries=1)  # the user of a command sees its error and can retry it


async def followed(
    client: AsyncClient, observer: Observer, prompt: str | list[dict[str, Any]], **options: Any
) -> GenerateResult:
    """Generates over server-sent events, and passes each event to the observer.

    A broken connection is reopened, and the stream resumes.
    """
    async with client.stream(prompt, **options) as events:
        async for event in events:
            observer(event)
        return await events.until_done()


@contextlib.asynccontextmanager
async def in_process(
    create_app: CreateApp, settings: Settings, queues: tuple[str, ...], observer: Observer
) -> AsyncIterator[AsyncClient]:
    """A client of a service in this process. It has workers for `queues` only.

    Raises NotReady if a worker cannot start.
    """
    app = create_app(settings.changed(embedded_workers=queues, keys_file=""))
    try:
        async with app.router.lifespan_context(app):
            models = components_of(app).models
            assert models is not None  # the lifespan has started it
            models.jobs.observer = observer
            await _until_ready(models.jobs, queues_of(settings, queues))
            transport = httpx2.ASGITransport(app)
            async with AsyncClient("http://in-process", "", retry=ONCE, transport=transport) as client:
                yield client
    except BaseExceptionGroup as group:  # the lifespan's task group wraps all errors
        raise group.exceptions[0] from None


async def _until_ready(jobs: JobClient, queues: tuple[str, ...]) -> None:
    while reasons := await jobs.reasons_not_ready(queues):
        if not all(reason.code in (NotReadyCode.LOADING, NotReadyCode.NO_WORKER) for reason in reasons):
            raise NotReady(reasons)
        await asyncio.sleep(POLL_S)
