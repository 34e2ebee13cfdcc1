"""Jobs while processes die: two APIs, workers and a server."""

from __future__ import annotations

import contextlib
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
LONG = BODY | {"prompt": "steps 1000 0.2"}  # longer than any test waits
STREAM = BODY | {"stream": True}
ASYNC = {"prefer": "respond-async"}


@pytest.fixture(scope="module")
def base() -> Iterator[Cluster]:
    """A server, a compile worker, and an API that stays."""
    with cluster() as running_cluster:
        running_cluster.add("compile", COMPILE)
        running_cluster.add("api", API).wait_until()
        yield running_cluster


@pytest.fixture
def parts(base: Cluster) -> Iterator[Cluster]:
    """The same service with a generate worker."""
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
    other_part = parts.add("other", API)
    other_part.wait_until("/ready")
    return other_part


def exit_status(part: Part) -> int:
    """The exit status of a part that is stopping."""
    until(lambda: not part.alive)
    return part.stop()


def job_count(server: RedisServer) -> int:
    """How many jobs of that queue wait or run."""
    queue = "{abs}:queue:generate:v7"
    ways = ("ZCARD", f"{queue}:waiting"), ("HLEN", f"{queue}:outside"), ("XLEN", f"{queue}:leases")
    return sum(int(reply.removeprefix(":")) for reply in server.ask_all(*ways))


def read(url: str, job: str, after: str = "") -> list[Event]:
    headers = {"last-event-id": after} if after else {}
    with httpx2.stream("GET", f"{url}/jobs/{job}/events", headers=headers, timeout=S_MAX) as response:
        assert response.is_success
        return list(events(response.iter_lines()))


def job_status(url: str, job: str) -> dict[str, Any]:
    return dict(httpx2.get(f"{url}/jobs/{job}", timeout=S_MAX).json())


@contextlib.contextmanager
def open_stream(url: str) -> Iterator[tuple[str, list[Event], Iterator[Event]]]:
    """A stream after its first events: job, read and remaining events."""
    with httpx2.stream("POST", f"{url}/generate", json=STREAM, timeout=S_MAX) as response:
        assert response.is_success, response.read()
        stream_events = events(response.iter_lines())
        yield response.headers["x-job-id"], [next(stream_events) for _ in range(5)], stream_events


def test_a_stream_resumes_at_another_api_after_a_kill(parts: Cluster, url: str) -> None:
    dying_api = other_api(parts)
    with open_stream(dying_api.url) as (job, first_events, rest):
        dying_api.kill()
        with contextlib.suppress(httpx2.TransportError):
            first_events += list(rest)
    stream_events = read(url, job, first_events[-1].id)
    assert numbers(first_events + stream_events) == list(range(1, 61))
    assert stream_events[-1].name == "done" and stream_events[-1].data["id"] == job
    assert job_status(url, job)["result"] == stream_events[-1].data


def test_a_stopping_api_hands_over_streams_and_finishes_requests(
    parts: Cluster, url: str, threads: ThreadPoolExecutor
) -> None:
    ending_part, server = other_api(parts), parts.server
    with open_stream(ending_part.url) as (job, first_events, rest):
        start_count = job_count(server)
        plain_answer = threads.submit(httpx2.post, f"{ending_part.url}/generate", json=BODY, timeout=S_MAX)
        until(lambda: job_count(server) > start_count)  # a request without a job would go elsewhere
        ending_part.signal(SIGTERM)
        first_events += list(rest)
    assert (first_events[-1].name, first_events[-1].id) == ("reconnect", "")
    stream_events = read(url, job, first_events[-2].id)
    assert numbers(first_events + stream_events) == list(range(1, 61))
    answer = plain_answer.result(S_MAX)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"]
    assert exit_status(ending_part) == 0


def test_a_stopping_worker_requeues_unfinished_jobs(parts: Cluster, url: str) -> None:
    parts.parts["worker"].stop()
    ending_part = parts.add("worker", SCRIPTED, ABS_SHUTDOWN_GRACE_S="0.3")
    parts.parts["api"].wait_until("/ready")
    with open_stream(url) as (job, first_events, rest):
        assert ending_part.stop() == 0
        ending_part.start()
        first_events += list(rest)
    names = [event.name for event in first_events]
    assert names.count("restarted") == 1 and names[-1] == "done"
    assert numbers(first_events[names.index("restarted"):]) == list(range(1, 61))
    assert job_status(url, job)["state"] == "done"


def test_a_stopping_worker_finishes_jobs_within_its_grace(parts: Cluster, url: str) -> None:
    ending_part = parts.parts["worker"]
    with open_stream(url) as (job, first_events, rest):
        ending_part.signal(SIGTERM)
        first_events += list(rest)
    assert numbers(first_events) == list(range(1, 61))
    assert first_events[-1].name == "done" and job_status(url, job)["attempt"] == 1
    assert exit_status(ending_part) == 0


def test_a_disconnect_cancels_the_job_on_any_worker(parts: Cluster, url: str) -> None:
    with pytest.raises(httpx2.TimeoutException):
        pytest.fail(httpx2.post(f"{url}/generate", json=LONG, timeout=1.0).text)
    job = httpx2.post(f"{url}/generate", json=LONG, headers=ASYNC).json()
    until(lambda: job_status(url, job["id"])["state"] == "running")
    for _ in range(2):
        deletion = httpx2.delete(f"{url}/jobs/{job['id']}")
        assert deletion.json()["state"] == "cancelled"
    jobs = [
        httpx2.post(f"{url}/generate", json=BODY | {"max_tokens": 2}, headers=ASYNC).json()["id"]
        for _ in range(4)  # as many as there are slots: all are free
    ]
    for one in jobs:
        until(lambda one=one: job_status(url, one)["state"] == "done")  # type: ignore[misc]


def test_a_key_leads_to_one_job_on_all_apis(parts: Cluster, url: str, threads: ThreadPoolExecutor) -> None:
    def ask(one: str) -> httpx2.Response:
        body, headers = BODY | {"max_tokens": 20}, {"idempotency-key": "k"}
        return httpx2.post(f"{one}/generate", json=body, headers=headers, timeout=S_MAX)

    answers = list(threads.map(ask, (url, other_api(parts).url) * 10))
    assert {answer.status_code for answer in answers} == {200} and len(answers) == 20
    assert len({answer.text for answer in answers}) == 1


def test_a_job_is_refused_until_its_deadline_is_reachable(parts: Cluster, url: str) -> None:
    with httpx2.Client(base_url=url, timeout=S_MAX) as http:
        long_body = BODY | {"max_tokens": 120, "timeout_s": 300}  # 4 s each, four at a time
        jobs = [http.post("/generate", json=long_body, headers=ASYNC) for _ in range(20)]
        assert [job.status_code for job in jobs] == [202] * 20
        short_body = BODY | {"max_tokens": 2, "timeout_s": 4}
        # Until the pace is known they are let in, in vain.
        until(lambda: http.post("/generate", json=short_body).status_code == 429, "the deadline is unreachable")
        for headers in ({}, ASYNC, {"idempotency-key": "in-no-time"}):
            for stream in (False, True):
                refusal = http.post("/generate", json=short_body | {"stream": stream}, headers=headers)
                problem = refusal.json()
                assert (refusal.status_code, problem["code"]) == (429, "deadline_unreachable"), problem
                assert 1 <= int(refusal.headers["retry-after"]) == problem["retry_after_s"] <= 60
                assert problem["wait_s"] > 0.5 * problem["timeout_s"] > 1.5
        waits = http.post("/generate", json=short_body | {"timeout_s": 300}, headers=ASYNC)
        assert waits.status_code == 202, waits.text
        for job in (*jobs, waits):
            http.delete(job.headers["location"])
        until(lambda: http.post("/generate", json=short_body).status_code == 200)
