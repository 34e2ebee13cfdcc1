"""The API as a client sees it: over HTTP, or inside this process by the same paths and the same JSON."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import httpx2

from app.errors import NotReady
from app.jobs import Progress, Step, StepRow
from app.service import Service
from app.settings import Settings
from app.worker import LOADING

CreateApp = Callable[[Settings], Any]
Observer = Callable[[Progress | Step], None]
CONNECT_S_MAX = 10.0
POLL_S = 0.02


class Refused(Exception):
    """The service answered with an error. `problem` is the body of the answer."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem.get("detail", f"HTTP status {status}")))
        self.status = status
        self.problem = dict(problem)


class Unreachable(Exception):
    """No service answers at the URL."""


class Client:
    """Sends requests. Raises Refused for an error of the service, Unreachable where there is none."""

    def __init__(self, http: httpx2.AsyncClient, observer: Observer | None = None) -> None:
        self._http = http
        self._observer = observer

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON of a successful answer."""
        try:
            response = await self._http.post(path, json=dict(body))
        except httpx2.TransportError as error:
            raise Unreachable(f"no answer from {self._http.base_url} ({type(error).__name__})") from error
        return _answer(response)

    async def follow(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The same by server-sent events; the observer is told of each step."""
        try:
            async with self._http.stream("POST", path, json={**body, "stream": True}) as response:
                if response.is_error:
                    await response.aread()
                    return _answer(response)
                async for name, data in _events(response):
                    if name == "error":
                        raise Refused(data["status"], data)
                    if name == "done":
                        return data
                    if name == "step" and self._observer:
                        self._observer(_step(data))
        except httpx2.TransportError as error:
            raise Unreachable(f"no answer from {self._http.base_url} ({type(error).__name__})") from error
        raise Unreachable(f"{self._http.base_url} broke its answer off")


async def _events(response: httpx2.Response) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """The name and the data of each event, as this service writes them: a line for each."""
    name = ""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def _step(data: Mapping[str, Any]) -> Step:
    return Step(data["step"], data["budget_after"], tuple(StepRow(**row) for row in data["rows"]))


def _answer(response: httpx2.Response) -> dict[str, Any]:
    try:
        answer = response.json()
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Refused(response.status_code, {"detail": f"not a JSON object (status {response.status_code})"})
    if response.status_code >= 400:
        raise Refused(response.status_code, answer)
    return answer


@contextlib.asynccontextmanager
async def over_http(url: str, observer: Observer) -> AsyncIterator[Client]:
    """A client of a service that runs elsewhere."""
    timeout = httpx2.Timeout(None, connect=CONNECT_S_MAX)  # the service keeps its own deadlines
    try:
        http = httpx2.AsyncClient(base_url=url, timeout=timeout)
    except httpx2.InvalidURL as error:
        raise Unreachable(f"{url!r} is not a URL ({error})") from error
    async with http:
        yield Client(http, observer)


@contextlib.asynccontextmanager
async def in_process(
    create_app: CreateApp, settings: Settings, queues: tuple[str, ...], observer: Observer
) -> AsyncIterator[Client]:
    """A client of a service that this process runs for as long as it is needed, with the workers of `queues` alone.

    Raises NotReady where a worker cannot start.
    """
    app = create_app(dataclasses.replace(settings, embedded_workers=queues))
    try:
        async with app.router.lifespan_context(app):
            service: Service = app.state.service
            service.observer = observer
            await _until_ready(service, queues)
            transport = httpx2.ASGITransport(app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://in-process", timeout=None) as http:
                yield Client(http)
    except BaseExceptionGroup as group:  # the lifespan's task group wraps whatever passes through it
        raise group.exceptions[0] from None


async def _until_ready(service: Service, queues: tuple[str, ...]) -> None:
    while reasons := await service.reasons_not_ready(queues):
        if not all(reason.endswith((LOADING, "is alive")) for reason in reasons):
            raise NotReady(reasons)
        await asyncio.sleep(POLL_S)
