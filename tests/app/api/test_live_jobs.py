"""The life of jobs over real sockets, with a fake handler."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from abs_client import AsyncClient, Step
from app.broker import memory_queue as memory_parts
from app.cli.in_process import followed
from tests.app import fake_handlers
from tests.app.conftest import service_client
from tests.app.event_stream import Event, events, numbers
from tests.app.fake_service import fake_service
from tests.servers.processes import until

S_MAX = 60.0
BODY = {"prompt": "a", "constraint": {"keywords": ["dog"]}, "max_tokens": 8, "beams": 2}
ASYNC = {"prefer": "respond-async"}


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch, handler: str, **settings: Any) -> Iterator[httpx2.Client]:
    """A client of a service with a fake generate handler."""
    with fake_service(monkeypatch, handler, **settings) as url, httpx2.Client(base_url=url, timeout=S_MAX) as http:
        yield http


def begin(http: httpx2.Client, headers: dict[str, str] = ASYNC, **options: Any) -> str:
    response = http.post("/generate", json=BODY | options, headers=headers)
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


def state(http: httpx2.Client, job: str) -> tuple[str, int]:
    view = http.get(f"/jobs/{job}").json()
    return view["state"], view["ahead"]


def read_events(http: httpx2.Client, job: str, last_event_id: str = "") -> list[Event]:
    """All events of a job, or those after an event id."""
    headers = {"last-event-id": last_event_id} if last_event_id else {}
    with http.stream("GET", f"/jobs/{job}/events", headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        return list(events(response.iter_lines()))


def test_cancel_works_in_every_state_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(monkeypatch, "open_three_steps") as http:
        running_job = begin(http)
        # Without this wait, a later job could overtake the first one at the end of the compilation.
        until(lambda: state(http, running_job) == ("running", 0))
        cancelled_job, waiting_job = begin(http), begin(http)
        assert (state(http, cancelled_job), state(http, waiting_job)) == (("waiting", 0), ("waiting", 1))
        answers = [(http.delete(f"/jobs/{job}"), http.delete(f"/jobs/{job}")) for job in (cancelled_job, running_job)]
        fake_handlers.go_on.set()
        until(lambda: state(http, waiting_job) == ("done", 0))
        for cancellation, repeat in answers:
            assert (cancellation.status_code, cancellation.json()["state"]) == (202, "cancelled")
            assert (repeat.status_code, repeat.json()["state"]) == (200, "cancelled")
        assert state(http, running_job) == state(http, cancelled_job) == ("cancelled", 0)
        assert http.delete(f"/jobs/{waiting_job}").status_code == 200
        last_event = read_events(http, cancelled_job)[-1]
        assert (last_event.name, last_event.data["code"], last_event.id) == ("error", "cancelled", "end")


def test_a_request_that_waits_for_a_cancelled_job_fails(
    monkeypatch: pytest.MonkeyPatch, threads: ThreadPoolExecutor
) -> None:
    subscribed = threading.Event()
    original_subscribe = memory_parts.QueuedJob.subscribe

    def recording_subscribe(job: memory_parts.QueuedJob, detached: bool) -> None:
        original_subscribe(job, detached)
        subscribed.set()

    with serving(monkeypatch, "open_blocking") as http:
        job = begin(http, ASYNC | {"idempotency-key": "k"})
        assert fake_handlers.start_event.wait(S_MAX)
        monkeypatch.setattr(memory_parts.QueuedJob, "subscribe", recording_subscribe)
        future = threads.submit(http.post, "/generate", json=BODY, headers={"idempotency-key": "k"})
        assert subscribed.wait(S_MAX)
        assert http.delete(f"/jobs/{job}").status_code == 202
        answer = future.result(S_MAX)
        assert (answer.status_code, answer.json()["code"]) == (503, "cancelled")
        assert fake_handlers.stop_event.wait(S_MAX)
        assert begin(http, ASYNC | {"idempotency-key": "k"}) != job  # a cancelled job has no answer


def test_interactive_jobs_run_before_batch_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(monkeypatch, "open_three_steps") as http:
        running_job = begin(http)
        until(lambda: state(http, running_job) == ("running", 0))
        batch_job = begin(http, priority="batch")
        assert state(http, batch_job) == ("waiting", 0)
        interactive_job = begin(http, priority="interactive")
        assert (state(http, interactive_job), state(http, batch_job)) == (("waiting", 0), ("waiting", 1))


def test_events_resume_after_last_event_id(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(monkeypatch, "open_three_steps") as http:
        fake_handlers.go_on.set()
        with http.stream("POST", "/generate", json=BODY | {"stream": True}) as response:
            job = response.headers["x-job-id"]
            stream_events = list(events(response.iter_lines()))
        assert numbers(stream_events) == [1, 2, 3]
        assert read_events(http, job) == stream_events
        for count, event in enumerate(stream_events[:-1], 1):
            assert read_events(http, job, event.id) == stream_events[count:]
        for junk in ("nonsense", "99", "-1", "9" * 400):
            assert read_events(http, job, junk) == stream_events
        assert http.get(f"/jobs/{job}/events", headers={"last-event-id": "end"}).status_code == 204


def test_a_reader_resumes_after_a_broken_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(monkeypatch, "open_three_steps", stream_grace_s=1.0) as http:
        with http.stream("POST", "/generate", json=BODY | {"stream": True}) as response:
            job = response.headers["x-job-id"]
            first = next(events(response.iter_lines()))
        assert state(http, job)[0] == "running"
        # The grace period has no effect, since the client reconnects within it.
        threading.Timer(2.0, fake_handlers.go_on.set).start()
        stream_events = read_events(http, job, first.id)
        assert numbers([first, *stream_events]) == [1, 2, 3]
        assert stream_events[-1].name == "done"


def test_a_job_without_readers_is_cancelled_after_the_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(monkeypatch, "open_endless_steps", stream_grace_s=1.0) as http:
        with http.stream("POST", "/generate", json=BODY | {"stream": True}) as response:
            job = response.headers["x-job-id"]
            next(events(response.iter_lines()))
            disconnect_time = time.monotonic()
        assert state(http, job) == ("running", 0)
        assert fake_handlers.stop_event.wait(S_MAX)
        assert time.monotonic() - disconnect_time > 0.8
        until(lambda: state(http, job) == ("cancelled", 0))


@pytest.mark.parametrize("stream", [False, True])
def test_a_job_with_a_key_survives_its_client(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(monkeypatch, "open_three_steps", stream_grace_s=0.0) as http:
        headers = {"idempotency-key": "mine"}
        with pytest.raises(httpx2.TimeoutException), http.stream(
            "POST", "/generate", json=BODY | {"stream": stream}, headers=headers, timeout=0.7
        ) as response:
            response.read()
        until(lambda: bool(fake_handlers.progress_kinds))
        fake_handlers.go_on.set()
        answer = http.post("/generate", json=BODY | {"stream": stream}, headers=headers)
        assert answer.is_success and "dog" in answer.text
        assert len(fake_handlers.progress_kinds) == 1


def test_an_asynchronous_job_runs_with_or_without_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(monkeypatch, "open_three_steps", stream_grace_s=0.0) as http:
        job = begin(http, stream=True)
        with http.stream("GET", f"/jobs/{job}/events") as response:
            assert next(events(response.iter_lines())).data["step"] == 1
        time.sleep(0.3)
        fake_handlers.go_on.set()
        assert numbers(read_events(http, job)) == [1, 2, 3]
        assert state(http, job) == ("done", 0)


async def test_the_client_resumes_a_broken_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    client_events: list[object] = []
    with serving(monkeypatch, "open_three_steps") as http:
        proxy = _BreakingProxy(str(http.base_url))
        url = f"http://127.0.0.1:{await proxy.start()}"
        async with asyncio.timeout(S_MAX), AsyncClient(url) as client:
            assert (await followed(client, client_events.append, **BODY)).text == "dog"
        await proxy.stop()
    assert [step.step for step in client_events if isinstance(step, Step)] == [1, 2, 3]
    assert proxy.connections == 2


class _BreakingProxy:
    """A proxy that closes its first connection after one step event."""

    def __init__(self, url: str) -> None:
        self._port = int(url.rstrip("/").rpartition(":")[2])
        self.connections = 0
        self._ends: list[Callable[[], object]] = []

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        is_first = self.connections == 1
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self._port)
        forwarding = asyncio.create_task(_pass(reader, upstream_writer))
        self._ends += [forwarding.cancel, upstream_writer.close, writer.close]
        while data := await upstream_reader.read(65_536):
            writer.write(data)
            if is_first and b"event: step" in data:
                fake_handlers.go_on.set()
                writer.close()
                break

    async def stop(self) -> None:
        for end in self._ends:
            end()
        self._server.close()
        await asyncio.sleep(0.1)  # until the event loop has closed the connections


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)


def test_a_request_past_its_deadline_never_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(monkeypatch, "open_three_steps") as http:
        begin(http)
        until(lambda: bool(fake_handlers.progress_kinds))
        job = begin(http, timeout_s=0.3)
        response = http.post("/generate", json=BODY | {"timeout_s": 0.3})
        stream_response = http.post("/generate", json=BODY | {"timeout_s": 0.3, "stream": True})
        for refused in (response, stream_response):
            assert (refused.status_code, refused.json()["code"], refused.json()["timeout_s"]) == (504, "deadline", 0.3)
        fake_handlers.go_on.set()
        until(lambda: state(http, job)[0] == "failed")
        error = http.get(f"/jobs/{job}").json()["error"]
        assert (error["status"], error["code"], error["timeout_s"]) == (504, "deadline", 0.3)
        assert fake_handlers.progress_kinds == ["nothing"]


def test_a_queue_over_its_weight_returns_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(monkeypatch, "open_three_steps", queue_weight_max=40) as http:
        begin(http)
        until(lambda: bool(fake_handlers.progress_kinds))
        for _ in range(2):
            begin(http)  # 2 beams times 8 tokens
        for headers in ({}, ASYNC, {"idempotency-key": "k"}):
            for stream in (False, True):
                refusal = http.post("/generate", json=BODY | {"stream": stream}, headers=headers)
                problem = refusal.json()
                assert (refusal.status_code, problem["code"]) == (429, "queue_full")
                assert (problem["limit"], problem["cap"]) == ("queue_weight_max", 40)
                assert 1 <= int(refusal.headers["retry-after"]) == problem["retry_after_s"] <= 60
        begin(http, max_tokens=4)  # a lighter job still fits


def test_a_draining_process_refuses_requests_and_shows_its_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_handlers.install(monkeypatch, generate="open_three_steps", compile="open_compiling")
    with service_client() as client:
        job = client.post("/generate", json=BODY, headers=ASYNC).json()["id"]
        client.app.state.components.models.jobs.drain()  # type: ignore[attr-defined]
        constraint = {"constraint": {"regex": "a"}}
        requests = {"/generate": BODY, "/compile": constraint, "/check": {**constraint, "text": "a"}}
        for path, body in requests.items():
            for headers in ({}, ASYNC):
                refusal = client.post(path, json=body, headers=headers)
                assert (refusal.status_code, refusal.json()["code"]) == (503, "draining"), path
                assert int(refusal.headers["retry-after"]) >= 1
        fake_handlers.go_on.set()
        until(lambda: client.get(f"/jobs/{job}").json()["state"] == "done")
        assert "about to stop" in client.get("/ready").text or "draining" in client.get("/ready").text
        assert client.get("/health").status_code == 200
