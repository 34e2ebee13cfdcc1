"""Jobs while processes die and stop: two APIs, workers and a server, each a process of its own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from signal import SIGTERM
from typing import Any

import httpx2
import pytest

from tests.app.event_stream import Event, events, numbers
from tests.servers.cluster import API, COMPILE, SCRIPTED, Cluster, Part, cluster
from tests.servers.processes import until
from tests.servers.redis_server import RedisServer

S_MAX = 60.0
BODY = {"prompt": "steps max 0.03", "constraint": {"keywords": ["dog"]}, "max_tokens": 60, "beams": 2}
LONG = BODY | {"prompt": "steps max 0.2", "max_tokens": 250}
STREAM = BODY | {"stream": True}
ASYNC = {"prefer": "respond-async"}


@pytest.fixture(scope="module")
def base() -> Iterator[Cluster]:
    """A server, a compile worker, and an API that stays."""
    with cluster() as running:
        running.add("compile", COMPILE)
        running.add("api", API).wait_until()
        yield running


@pytest.fixture
def parts(base: Cluster) -> Iterator[Cluster]:
    """The same service with a generate worker, whose further parts end with the test."""
    permanent = set(base.parts)
    base.add("worker", SCRIPTED)
    base.parts["api"].wait_until("/ready")
    yield base
    for name in set(base.parts) - permanent:
        base.parts.pop(name).stop()


@pytest.fixture
def url(base: Cluster) -> str:
    """The API that stays."""
    return base.parts["api"].url


def other_api(parts: Cluster) -> Part:
    """A second API, once it is ready."""
    other = parts.add("other", API)
    other.wait_until("/ready")
    return other


def exit_status(part: Part) -> int:
    """The exit status of a part that is stopping."""
    until(lambda: not part.alive)
    return part.stop()


def generations(server: RedisServer) -> int:
    """How many jobs of that queue wait or run."""
    queue = "{abs}:queue:generate"
    ways = ("ZCARD", f"{queue}:waiting"), ("HLEN", f"{queue}:outside"), ("XLEN", f"{queue}:leases")
    return sum(int(reply.removeprefix(":")) for reply in server.ask_all(*ways))


def read(url: str, job: str, after: str = "") -> list[Event]:
    headers = {"last-event-id": after} if after else {}
    with httpx2.stream("GET", f"{url}/jobs/{job}/events", headers=headers, timeout=S_MAX) as response:
        assert response.is_success
        return list(events(response.iter_lines()))


def shown(url: str, job: str) -> dict[str, Any]:
    return dict(httpx2.get(f"{url}/jobs/{job}", timeout=S_MAX).json())


@contextlib.contextmanager
def open_stream(url: str) -> Iterator[tuple[str, list[Event], Iterator[Event]]]:
    """A stream after its first events: the job, these events and the others."""
    with httpx2.stream("POST", f"{url}/generate", json=STREAM, timeout=S_MAX) as response:
        assert response.is_success, response.read()
        stream_events = events(response.iter_lines())
        yield response.headers["x-job-id"], [next(stream_events) for _ in range(5)], stream_events


def test_a_stream_resumes_at_another_api_after_a_kill(parts: Cluster, url: str) -> None:
    dying = other_api(parts)
    with open_stream(dying.url) as (job, first, rest):
        dying.kill()
        with contextlib.suppress(httpx2.TransportError):
            first += list(rest)
    stream_events = read(url, job, first[-1].id)
    assert numbers(first + stream_events) == list(range(1, 61))
    assert stream_events[-1].name == "done" and stream_events[-1].data["id"] == job
    assert shown(url, job)["result"] == stream_events[-1].data


def test_a_stopping_api_hands_over_streams_and_finishes_requests(
    parts: Cluster, url: str, threads: ThreadPoolExecutor
) -> None:
    ending, server = other_api(parts), parts.server
    with open_stream(ending.url) as (job, first, rest):
        before = generations(server)
        plain = threads.submit(httpx2.post, f"{ending.url}/generate", json=BODY, timeout=S_MAX)
        until(lambda: generations(server) > before)  # a request that is no job yet would be sent to another process
        ending.signal(SIGTERM)
        first += list(rest)
    assert (first[-1].name, first[-1].id) == ("reconnect", "")
    stream_events = read(url, job, first[-2].id)
    assert numbers(first + stream_events) == list(range(1, 61))
    answer = plain.result(S_MAX)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"]
    assert exit_status(ending) == 0


def test_a_stopping_worker_requeues_unfinished_jobs(parts: Cluster, url: str) -> None:
    parts.parts["worker"].stop()
    ending = parts.add("worker", SCRIPTED, ABS_SHUTDOWN_GRACE_S="0.3")
    parts.parts["api"].wait_until("/ready")
    with open_stream(url) as (job, first, rest):
        assert ending.stop() == 0
        ending.start()
        first += list(rest)
    names = [event.name for event in first]
    assert names.count("restarted") == 1 and names[-1] == "done"
    assert numbers(first[names.index("restarted"):]) == list(range(1, 61))
    assert shown(url, job)["state"] == "done"


def test_a_stopping_worker_finishes_jobs_within_its_grace(parts: Cluster, url: str) -> None:
    ending = parts.parts["worker"]
    with open_stream(url) as (job, first, rest):
        ending.signal(SIGTERM)
        first += list(rest)
    assert numbers(first) == list(range(1, 61))
    assert first[-1].name == "done" and shown(url, job)["attempt"] == 1
    assert exit_status(ending) == 0


def test_a_disconnect_cancels_the_job_on_any_worker(parts: Cluster, url: str) -> None:
    with pytest.raises(httpx2.TimeoutException):
        pytest.fail(httpx2.post(f"{url}/generate", json=LONG, timeout=1.0).text)
    job = httpx2.post(f"{url}/generate", json=LONG, headers=ASYNC).json()
    until(lambda: shown(url, job["id"])["state"] == "running")
    for _ in range(2):
        deleted = httpx2.delete(f"{url}/jobs/{job['id']}")
        assert deleted.json()["state"] == "cancelled"
    started = time.monotonic()
    jobs = [
        httpx2.post(f"{url}/generate", json=BODY | {"max_tokens": 2}, headers=ASYNC).json()["id"]
        for _ in range(4)  # as many as there are slots: all are free
    ]
    for one in jobs:
        until(lambda one=one: shown(url, one)["state"] == "done")  # type: ignore[misc]
    assert time.monotonic() - started < 25  # all steps would take 50 s


def test_a_key_leads_to_one_job_on_all_apis(parts: Cluster, url: str, threads: ThreadPoolExecutor) -> None:
    def ask(one: str) -> httpx2.Response:
        body, headers = BODY | {"max_tokens": 20}, {"idempotency-key": "k"}
        return httpx2.post(f"{one}/generate", json=body, headers=headers, timeout=S_MAX)

    answers = list(threads.map(ask, (url, other_api(parts).url) * 10))
    assert {answer.status_code for answer in answers} == {200} and len(answers) == 20
    assert len({answer.text for answer in answers}) == 1


def test_a_job_is_refused_until_its_deadline_is_reachable(parts: Cluster, url: str) -> None:
    with httpx2.Client(base_url=url, timeout=S_MAX) as http:
        long = BODY | {"max_tokens": 120, "timeout_s": 300}  # 4 s each, four at a time
        jobs = [http.post("/generate", json=long, headers=ASYNC) for _ in range(20)]
        assert [job.status_code for job in jobs] == [202] * 20
        short, refused = BODY | {"max_tokens": 2, "timeout_s": 4}, None
        ends = time.monotonic() + S_MAX
        while refused is None or refused.status_code != 429:  # until the pace is known they are let in, in vain
            assert time.monotonic() < ends, refused and refused.text
            refused = http.post("/generate", json=short)
        for headers in ({}, ASYNC, {"idempotency-key": "in-no-time"}):
            for stream in (False, True):
                began = time.monotonic()
                refused = http.post("/generate", json=short | {"stream": stream}, headers=headers)
                problem = refused.json()
                assert (refused.status_code, problem["code"]) == (429, "deadline_unreachable"), problem
                assert time.monotonic() - began < 3, "at once, not when its time is over"
                assert 1 <= int(refused.headers["retry-after"]) == problem["retry_after_s"] <= 60
                assert problem["wait_s"] > 0.5 * problem["timeout_s"] > 1.5
        waits = http.post("/generate", json=short | {"timeout_s": 300}, headers=ASYNC)
        assert waits.status_code == 202, waits.text
        for job in (*jobs, waits):
            http.delete(job.headers["location"])
        until(lambda: http.post("/generate", json=short).status_code == 200)
