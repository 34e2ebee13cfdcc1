"""Jobs that wait, run, are read along with and called off, on real sockets. What runs them is a fake handler."""

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
    """A client of a service whose generations are those of a fake handler."""
    with fake_service(monkeypatch, handler, **settings) as url, httpx2.Client(base_url=url, timeout=S_MAX) as http:
        yield http


def begin(http: httpx2.Client, headers: dict[str, str] = ASYNC, **options: Any) -> str:
    response = http.post("/generate", json=BODY | options, headers=headers)
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


def state(http: httpx2.Client, job: str) -> tuple[str, int]:
    shown = http.get(f"/jobs/{job}").json()
    return shown["state"], shown["ahead"]


def read(http: httpx2.Client, job: str, after: str = "") -> list[Event]:
    """All events of a job, or those after one."""
    headers = {"last-event-id": after} if after else {}
    with http.stream("GET", f"/jobs/{job}/events", headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        return list(events(response.iter_lines()))


def test_cancel_works_in_every_state_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(monkeypatch, "open_stepping") as http:
        first = begin(http)
        # A job that arrives while the compilation ends waits for none, so it could go before the first.
        until(lambda: state(http, first) == ("running", 0))
        second, third = begin(http), begin(http)
        assert (state(http, second), state(http, third)) == (("waiting", 0), ("waiting", 1))
        answers = [(http.delete(f"/jobs/{job}"), http.delete(f"/jobs/{job}")) for job in (second, first)]
        fake_handlers.go_on.set()
        until(lambda: state(http, third) == ("done", 0))
        for called_off, again in answers:
            assert (called_off.status_code, called_off.json()["state"]) == (202, "cancelled")
            assert (again.status_code, again.json()["state"]) == (200, "cancelled")
        assert state(http, first) == state(http, second) == ("cancelled", 0)
        assert http.delete(f"/jobs/{third}").status_code == 200
        last = read(http, second)[-1]
        assert (last.name, last.data["code"], last.id) == ("error", "cancelled", "end")


def test_a_request_that_waits_for_a_cancelled_job_fails(
    monkeypatch: pytest.MonkeyPatch, threads: ThreadPoolExecutor
) -> None:
    joined = threading.Event()
    share = memory_parts.QueuedJob.subscribe

    def recorded_share(job: memory_parts.QueuedJob, detached: bool) -> None:
        share(job, detached)
        joined.set()

    with serving(monkeypatch, "open_patient") as http:
        job = begin(http, ASYNC | {"idempotency-key": "k"})
        assert fake_handlers.started.wait(S_MAX)
        monkeypatch.setattr(memory_parts.QueuedJob, "subscribe", recorded_share)
        waiting = threads.submit(http.post, "/generate", json=BODY, headers={"idempotency-key": "k"})
        assert joined.wait(S_MAX)
        assert http.delete(f"/jobs/{job}").status_code == 202
        answer = waiting.result(S_MAX)
        assert (answer.status_code, answer.json()["code"]) == (503, "cancelled")
        assert fake_handlers.stopped.wait(S_MAX)
        assert begin(http, ASYNC | {"idempotency-key": "k"}) != job  # a cancelled job has no answer


def test_interactive_jobs_run_before_batch_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(monkeypatch, "open_stepping") as http:
        running = begin(http)
        until(lambda: state(http, running) == ("running", 0))
        batch = begin(http, priority="batch")
        assert state(http, batch) == ("waiting", 0)
        other = begin(http, priority="interactive")
        assert (state(http, other), state(http, batch)) == (("waiting", 0), ("waiting", 1))


def test_events_resume_after_last_event_id(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(monkeypatch, "open_stepping") as http:
        fake_handlers.go_on.set()
        with http.stream("POST", "/generate", json=BODY | {"stream": True}) as response:
            job = response.headers["x-job-id"]
            stream_events = list(events(response.iter_lines()))
        assert numbers(stream_events) == [1, 2, 3]
        assert read(http, job) == stream_events
        for place, event in enumerate(stream_events[:-1], 1):
            assert read(http, job, event.id) == stream_events[place:]
        for junk in ("nonsense", "99", "-1", "9" * 400):
            assert read(http, job, junk) == stream_events
        assert http.get(f"/jobs/{job}/events", headers={"last-event-id": "end"}).status_code == 204


def test_a_reader_resumes_after_a_broken_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(monkeypatch, "open_stepping", stream_grace_s=1.0) as http:
        with http.stream("POST", "/generate", json=BODY | {"stream": True}) as response:
            job = response.headers["x-job-id"]
            first = next(events(response.iter_lines()))
        assert state(http, job)[0] == "running"
        threading.Timer(2.0, fake_handlers.go_on.set).start()  # the client is back, so the grace period does not end it
        stream_events = read(http, job, first.id)
        assert numbers([first, *stream_events]) == [1, 2, 3]
        assert stream_events[-1].name == "done"


def test_a_job_without_readers_is_cancelled_after_the_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(monkeypatch, "open_patient_teller", stream_grace_s=1.0) as http:
        with http.stream("POST", "/generate", json=BODY | {"stream": True}) as response:
            job = response.headers["x-job-id"]
            next(events(response.iter_lines()))
        left = time.monotonic()
        assert state(http, job) == ("running", 0)
        assert fake_handlers.stopped.wait(S_MAX)
        assert time.monotonic() - left > 0.8
        until(lambda: state(http, job) == ("cancelled", 0))


@pytest.mark.parametrize("stream", [False, True])
def test_a_job_with_a_key_survives_its_client(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(monkeypatch, "open_stepping", stream_grace_s=0.0) as http:
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
    with serving(monkeypatch, "open_stepping", stream_grace_s=0.0) as http:
        job = begin(http, stream=True)
        with http.stream("GET", f"/jobs/{job}/events") as response:
            assert next(events(response.iter_lines())).data["step"] == 1
        time.sleep(0.3)
        fake_handlers.go_on.set()
        assert numbers(read(http, job)) == [1, 2, 3]
        assert state(http, job) == ("done", 0)


def test_the_client_resumes_a_broken_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(monkeypatch, "open_stepping") as http:
        breaking = _Breaking(str(http.base_url))
        seen: list[object] = []

        async def scenario() -> str:
            url = f"http://127.0.0.1:{await breaking.start()}"
            async with asyncio.timeout(S_MAX), AsyncClient(url) as own:
                answer = await followed(own, seen.append, **BODY)
            await breaking.stop()
            return answer.text

        assert asyncio.run(scenario()) == "dog"
    assert [step.step for step in seen if isinstance(step, Step)] == [1, 2, 3]
    assert breaking.connections == 2


class _Breaking:
    """A proxy that breaks its first connection off as soon as an event has passed."""

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
        first = self.connections == 1
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        sending = asyncio.create_task(_pass(reader, back))
        self._ends += [sending.cancel, back.close, writer.close]
        while data := await there.read(65_536):
            writer.write(data)
            if first and b"event: step" in data:
                fake_handlers.go_on.set()
                writer.close()
                break

    async def stop(self) -> None:
        for end in self._ends:
            end()
        self._server.close()
        await asyncio.sleep(0.1)  # for what was closed to be gone


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)


def test_a_request_past_its_deadline_never_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(monkeypatch, "open_stepping") as http:
        begin(http)
        until(lambda: bool(fake_handlers.progress_kinds))
        job = begin(http, timeout_s=0.3)
        plain = http.post("/generate", json=BODY | {"timeout_s": 0.3})
        streamed = http.post("/generate", json=BODY | {"timeout_s": 0.3, "stream": True})
        assert (plain.status_code, plain.json()["code"], plain.json()["timeout_s"]) == (504, "deadline", 0.3)
        last = list(events(iter(streamed.text.split("\n"))))[-1]
        assert (last.name, last.data["code"], last.data["timeout_s"]) == ("error", "deadline", 0.3)
        fake_handlers.go_on.set()
        until(lambda: state(http, job)[0] == "failed")
        error = http.get(f"/jobs/{job}").json()["error"]
        assert (error["status"], error["code"], error["timeout_s"]) == (504, "deadline", 0.3)
        assert fake_handlers.progress_kinds == ["nothing"]


def test_a_queue_over_its_weight_returns_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(monkeypatch, "open_stepping", queue_weight_max=40) as http:
        begin(http)
        until(lambda: bool(fake_handlers.progress_kinds))
        for _ in range(2):
            begin(http)  # 2 beams times 8 tokens
        for headers in ({}, ASYNC, {"idempotency-key": "k"}):
            for stream in (False, True):
                refused = http.post("/generate", json=BODY | {"stream": stream}, headers=headers)
                problem = refused.json()
                assert (refused.status_code, problem["code"]) == (429, "queue_full")
                assert (problem["limit"], problem["cap"]) == ("queue_weight_max", 40)
                assert 1 <= int(refused.headers["retry-after"]) == problem["retry_after_s"] <= 60
        begin(http, max_tokens=4)  # a lighter job still fits


def test_a_draining_process_refuses_requests_and_shows_its_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_handlers.install(monkeypatch, generate="open_stepping", compile="open_compiling")
    with service_client() as client:
        job = client.post("/generate", json=BODY, headers=ASYNC).json()["id"]
        client.app.state.components.service.jobs.drain()  # type: ignore[attr-defined]
        constraint = {"constraint": {"regex": "a"}}
        requests = {"/generate": BODY, "/compile": constraint, "/check": {**constraint, "text": "a"}}
        for path, body in requests.items():
            for headers in ({}, ASYNC):
                refused = client.post(path, json=body, headers=headers)
                assert (refused.status_code, refused.json()["code"]) == (503, "draining"), path
                assert int(refused.headers["retry-after"]) >= 1
        fake_handlers.go_on.set()
        until(lambda: client.get(f"/jobs/{job}").json()["state"] == "done")
        assert "about to stop" in client.get("/ready").text or "draining" in client.get("/ready").text
        assert client.get("/health").status_code == 200
