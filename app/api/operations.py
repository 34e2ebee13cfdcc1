"""The routes GET /metrics, /health, /ready and /version."""

from __future__ import annotations

import asyncio
import contextlib
import platform
import secrets

from fastapi import APIRouter, Response
from pydantic import BaseModel

from app import __version__
from app.api.dependencies import Components, ComponentsDependency
from app.api.openapi import Responses, errors, text
from app.api.schemas import GroupBody, ReadyResponse, StatusResponse
from app.broker import Broker
from app.errors import NotReady, StorageDown
from app.messages import FORMAT, probe_key
from app.observability import metrics
from app.store import Store

STORAGE_S_MAX = 2.0  # that the storage may take to answer a probe
PROBE_TTL_S = 30.0
_NOT_READY: Responses = {503: errors(503)[503] | {"description": "not_ready, with the reasons"}}
router = APIRouter()


class VersionResponse(BaseModel):
    """The service's versions. Automata of another format are compiled again."""

    version: str
    automata_format: int
    python: str


class StorageProbe:
    """Reads the state of the storage for /ready and /metrics. One for each application."""

    def __init__(self, broker: Broker, store: Store, queues: tuple[str, ...]) -> None:
        self._broker, self._store, self._queues = broker, store, queues
        self._key = probe_key(secrets.token_hex(8))

    async def keeps(self) -> bool:
        """Whether the storage returns a value that was written. Raises StorageDown."""
        value = secrets.token_bytes(8)  # a new value each time: an old one could be read from a store that is full
        await self._store.put(self._key, value, PROBE_TTL_S)
        return await self._store.get(self._key) == value

    async def refresh(self) -> None:
        """Set the gauges that are measured, not counted. They are absent while the storage does not respond."""
        # Cleared first: a gauge that cannot be read now must not show its last value.
        metrics.QUEUE_REQUESTS.clear()
        metrics.QUEUE_TOKENS.clear()
        with contextlib.suppress(StorageDown, TimeoutError):
            async with asyncio.timeout(STORAGE_S_MAX):
                for queue in self._queues:
                    backlog = await self._broker.backlog(queue)
                    metrics.QUEUE_REQUESTS.labels(queue, "interactive").set(backlog.interactive)
                    metrics.QUEUE_REQUESTS.labels(queue, "batch").set(backlog.batch)
                    metrics.QUEUE_TOKENS.labels(queue).set(backlog.weight)
                metrics.CACHE_BYTES.set(await self._store.used_bytes())


async def reasons_not_ready(components: Components) -> tuple[object, ...]:
    """Everything that keeps requests from being served now. Returns within `STORAGE_S_MAX` s in every case."""
    models, probe = components.models, components.probe
    if models is None or probe is None:
        return ("the service is starting or has stopped",)
    reasons = ("the service is draining",) if models.jobs.stopping.is_set() else ()
    try:
        async with asyncio.timeout(STORAGE_S_MAX):
            if await probe.keeps():
                return (*reasons, *await models.jobs.reasons_not_ready())
            return (*reasons, "the storage does not keep what is written")
    except StorageDown as error:
        return (*reasons, str(error))
    except TimeoutError:
        return (*reasons, f"the storage does not answer within {STORAGE_S_MAX:g} s")


@router.get("/metrics", response_class=Response, responses=text("text/plain"), summary="Measurements, for Prometheus")
async def show_metrics(components: ComponentsDependency) -> Response:
    if components.probe is not None:
        await components.probe.refresh()
    return Response(metrics.exposition(), media_type=metrics.CONTENT_TYPE)


@router.get("/version", summary="What runs here")
async def version() -> VersionResponse:
    return VersionResponse(version=__version__, automata_format=FORMAT, python=platform.python_version())


@router.get("/health", summary="The process is alive")
async def health() -> StatusResponse:
    return StatusResponse(status="ok")


@router.get(
    "/ready", responses=_NOT_READY, response_model_exclude_defaults=True, summary="Requests would be served now"
)
async def ready(components: ComponentsDependency) -> ReadyResponse:
    reasons = await reasons_not_ready(components)
    if reasons:
        raise NotReady(reasons)
    groups = {model: GroupBody(size=group.size, alive=group.alive) for model, group in metrics.GROUPS.status().items()}
    return ReadyResponse(status="ready", groups=groups)
