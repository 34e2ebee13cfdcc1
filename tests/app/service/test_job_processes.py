"""Jobs whose worker stops or whose deadline is too near. Other faults are caused in tests/app/faults."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.app.event_stream import Event, events, numbers
from tests.servers.cluster import API, COMPILE, SCRIPTED, Cluster, cluster
from tests.servers.processes import until

S_MAX = 60.0
BODY = {"prompt": "steps max 0.03", "constraint": {"keywords": ["dog"]}, "max_tokens": 60, "beams": 2}
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


def job_status(url: str, job: str) -> dict[str, Any]:
    return dict(httpx2.get(f"{url}/jobs/{job}", timeout=S_MAX, verify=False).json())


@contextlib.contextmanager
def open_stream(url: str) -> Iterator[tuple[str, list[Event], Iterator[Event]]]:
    """A stream after its first events: job, read and remaining events."""
    with httpx2.stream("POST", f"{url}/generate", json=STREAM, timeout=S_MAX) as response:
        assert response.is_success, response.read()
        stream_events = events(response.iter_lines())
        yield response.headers["x-job-id"], [next(stream_events) for _ in range(5)], stream_events


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


def test_a_job_is_refused_until_its_deadline_is_reachable(parts: Cluster, url: str) -> None:
    with httpx2.Client(base_url=url, timeout=S_MAX, verify=False) as http:
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
