"""The API as a client sees it: over HTTP, or inside this process by the same paths and the same JSON."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import httpx2

from app.errors import NotReady
from app.jobs import Progress, Step
from app.pieces import StepRow
from app.service import Service
from app.settings import Settings
from app.worker import LOADING

CreateApp = Callable[[Settings], Any]
Observer = Callable[[Progress | Step], None]
CONNECT_S_MAX = 10.0
POLL_S = 0.02
RESUME_S_MAX = 60.0  # how long a client tries to come back to a stream that broke


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
        """The same by server-sent events; the observer is told of each step. Where the connection breaks, or the
        process that answers stops, it is read on by the job's id."""
        stream = _Stream(self._observer)
        request = self._http.stream("POST", path, json={**body, "stream": True})
        ends = time.monotonic() + RESUME_S_MAX
        while True:
            before = stream.last_id
            try:
                async with request as response:
                    if response.is_error:
                        await response.aread()
                        return _answer(response)
                    if (answer := await stream.read(response)) is not None:
                        return answer
            except httpx2.TransportError as error:
                if stream.job is None or time.monotonic() >= ends:
                    raise Unreachable(f"no answer from {self._http.base_url} ({type(error).__name__})") from error
            if stream.job is None or time.monotonic() >= ends:
                raise Unreachable(f"{self._http.base_url} broke its answer off")
            if stream.last_id != before:  # it moves: patience begins anew
                ends = time.monotonic() + RESUME_S_MAX
            await asyncio.sleep(stream.retry_s)
            headers = {"last-event-id": stream.last_id} if stream.last_id else {}
            request = self._http.stream("GET", f"/jobs/{stream.job}/events", headers=headers)


class _Stream:
    """What has been read of a job's events, over however many connections."""

    def __init__(self, observer: Observer | None) -> None:
        self._observer = observer
        self.job: str | None = None
        self.last_id, self.retry_s = "", 1.0

    async def read(self, response: httpx2.Response) -> dict[str, Any] | None:
        """The answer, None where the connection ends before. Raises Refused."""
        self.job = response.headers.get("x-job-id", self.job)
        async for fields in _events(response):
            self.last_id = fields.get("id", self.last_id)
            self.retry_s = int(fields.get("retry", self.retry_s * 1000)) / 1000
            data, name = json.loads(fields.get("data", "null")), fields.get("event")
            if name == "error":
                raise Refused(data["status"], data)
            if name == "done":
                answer: dict[str, Any] = data
                return answer
            if name == "step" and self._observer:
                self._observer(_step(data))
        return None


async def _events(response: httpx2.Response) -> AsyncIterator[dict[str, str]]:
    """The fields of each event, as this service writes them: a line for each."""
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        name, colon, value = line.partition(": ")
        if not line and fields:
            yield fields
            fields = {}
        elif colon and name:
            fields[name] = value


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
async def over_http(url: str, observer: Observer, api_key: str = "") -> AsyncIterator[Client]:
    """A client of a service that runs elsewhere, with a key where one is needed."""
    timeout = httpx2.Timeout(None, connect=CONNECT_S_MAX)  # the service keeps its own deadlines
    try:
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        http = httpx2.AsyncClient(base_url=url, timeout=timeout, headers=headers)
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
    app = create_app(dataclasses.replace(settings, embedded_workers=queues, keys_file=""))
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
