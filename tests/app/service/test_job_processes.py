"""Jobs while processes die and stop: two APIs, workers and a server, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.app.event_stream import Event, events, numbers
from tests.servers.forkserver import Child, start_process
from tests.servers.processes import until
from tests.servers.redis_server import RedisServer, running_server
from tests.servers.service_process import first_line

S_MAX = 60.0
BODY = {"prompt": "steps max 0.03", "constraint": {"keywords": ["dog"]}, "max_tokens": 60, "beams": 2}
Process = subprocess.Popen[bytes] | Child
LONG = BODY | {"prompt": "steps max 0.2", "max_tokens": 250}
STREAM = BODY | {"stream": True}
WORKER = ("tests.servers.fake_worker", "scripted")


@dataclass
class Cluster:
    """The processes of one service. Whatever is still alive in the end is killed."""

    server: RedisServer
    folder: Path
    started: list[Process] = field(default_factory=list)

    def start(self, *arguments: str, **settings: str) -> Process:
        own = {
            "ABS_BROKER": self.server.url, "ABS_STORE": self.server.url, "ABS_SECRET": "s" * 32, "OMP_NUM_THREADS": "1",
            "ABS_EMBEDDED_WORKERS": "", "ABS_LOG_LEVEL": "warning", "ABS_SHUTDOWN_GRACE_S": "10", **settings,
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ABS_")}
        process = start_process(arguments, kept | own, self.folder / "log", self.said(len(self.started)))
        self.started.append(process)
        return process

    def said(self, place: int) -> Path:
        """Where the standard output of a process is."""
        return self.folder / f"{place}.out"

    def api(self, **settings: str) -> tuple[Process, str]:
        """An API process, and its URL once requests are served there."""
        process = self.start("app.main", "serve", "--port", "0", **settings)
        url = first_line(process, self.said(len(self.started) - 1)).partition("listening on ")[2].strip()
        until(lambda: _answers(url))
        return process, url

    def generations(self) -> int:
        """How many jobs of that queue wait or run."""
        queue = "abs:queue:generate"
        ways = (("ZCARD", "waiting"), ("SCARD", "outside"), ("ZCARD", "running"))
        replies = self.server.ask_all(*((count, f"{queue}:{place}") for count, place in ways))
        return sum(int(reply.removeprefix(":")) for reply in replies)

    def end(self) -> None:
        """Let all stop by themselves, so that none is thought to be alive for a while, then kill what has not."""
        for process in self.started:
            process.terminate()
        for process in self.started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    with contextlib.suppress(httpx2.TransportError):
        return httpx2.get(f"{url}/health").is_success
    return False


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, str]]:
    """A server, a compile worker, and an API that stays."""
    with running_server() as server:
        cluster = Cluster(server, tmp_path_factory.mktemp("processes"))
        try:
            cluster.start("app.main", "worker", "compile")
            _, url = cluster.api()
            yield cluster, url
        finally:
            cluster.end()


@pytest.fixture
def cluster(base: tuple[Cluster, str], tmp_path: Path) -> Iterator[Cluster]:
    """The same service, for processes that end with the test."""
    own = Cluster(base[0].server, tmp_path)
    yield own
    own.end()


@pytest.fixture
def url(base: tuple[Cluster, str]) -> str:
    """The API that stays."""
    return base[1]


def ready(url: str) -> None:
    """Until workers of both kinds take jobs."""
    ends = time.monotonic() + S_MAX
    while not (answer := httpx2.get(f"{url}/ready")).is_success:
        assert time.monotonic() < ends, answer.text
        time.sleep(0.05)


def read(url: str, job: str, after: str = "") -> list[Event]:
    headers = {"last-event-id": after} if after else {}
    with httpx2.stream("GET", f"{url}/jobs/{job}/events", headers=headers, timeout=S_MAX) as response:
        assert response.is_success
        return list(events(response.iter_lines()))


def shown(url: str, job: str) -> dict[str, Any]:
    answer: dict[str, Any] = httpx2.get(f"{url}/jobs/{job}", timeout=S_MAX).json()
    return answer


@contextlib.contextmanager
def begun(url: str) -> Iterator[tuple[str, list[Event], Iterator[Event]]]:
    """A stream after its first events: the job, these events and the others."""
    with httpx2.stream("POST", f"{url}/generate", json=STREAM, timeout=S_MAX) as response:
        assert response.is_success, response.read()
        stream_events = events(response.iter_lines())
        yield response.headers["x-job-id"], [next(stream_events) for _ in range(5)], stream_events


def test_a_stream_resumes_at_another_api_after_a_kill(cluster: Cluster, url: str) -> None:
    cluster.start(*WORKER)
    dying, its_url = cluster.api()
    ready(url)
    with begun(its_url) as (job, first, rest):
        dying.send_signal(signal.SIGKILL)
        with contextlib.suppress(httpx2.TransportError):
            first += list(rest)
    stream_events = read(url, job, first[-1].id)
    assert numbers(first + stream_events) == list(range(1, 61))
    assert stream_events[-1].name == "done" and stream_events[-1].data["id"] == job
    assert shown(url, job)["result"] == stream_events[-1].data


def test_a_stopping_api_hands_over_streams_and_finishes_requests(
    cluster: Cluster, url: str
) -> None:
    cluster.start(*WORKER)
    ending, its_url = cluster.api()
    ready(url)
    answers: list[httpx2.Response] = []
    plain = threading.Thread(
        target=lambda: answers.append(httpx2.post(f"{its_url}/generate", json=BODY, timeout=S_MAX))
    )
    with begun(its_url) as (job, first, rest):
        before = cluster.generations()
        plain.start()
        until(lambda: cluster.generations() > before)  # a request that is no job yet would be sent to another process
        ending.terminate()
        first += list(rest)
    assert (first[-1].name, first[-1].id) == ("reconnect", "")
    stream_events = read(url, job, first[-2].id)
    assert numbers(first + stream_events) == list(range(1, 61))
    plain.join(S_MAX)
    assert answers[0].status_code == 200, answers[0].text
    assert answers[0].json()["choices"]
    assert ending.wait(S_MAX) == 0


def test_a_stopping_worker_requeues_unfinished_jobs(cluster: Cluster, url: str) -> None:
    ending = cluster.start(*WORKER, ABS_SHUTDOWN_GRACE_S="0.3")
    ready(url)
    with begun(url) as (job, first, rest):
        ending.terminate()
        assert ending.wait(S_MAX) == 0
        cluster.start(*WORKER)
        first += list(rest)
    names = [event.name for event in first]
    assert names.count("restarted") == 1 and names[-1] == "done"
    assert numbers(first[names.index("restarted"):]) == list(range(1, 61))
    assert shown(url, job)["state"] == "done"


def test_a_stopping_worker_finishes_jobs_within_its_grace(cluster: Cluster, url: str) -> None:
    ending = cluster.start(*WORKER)
    ready(url)
    with begun(url) as (job, first, rest):
        ending.terminate()
        first += list(rest)
    assert numbers(first) == list(range(1, 61))
    assert first[-1].name == "done" and shown(url, job)["attempt"] == 1
    assert ending.wait(S_MAX) == 0


def test_a_disconnect_cancels_the_job_on_any_worker(cluster: Cluster, url: str) -> None:
    cluster.start(*WORKER)
    ready(url)
    with pytest.raises(httpx2.TimeoutException):
        pytest.fail(httpx2.post(f"{url}/generate", json=LONG, timeout=1.0).text)
    job = httpx2.post(f"{url}/generate", json=LONG, headers={"prefer": "respond-async"}).json()
    until(lambda: shown(url, job["id"])["state"] == "running")
    for _ in range(2):
        deleted = httpx2.delete(f"{url}/jobs/{job['id']}")
        assert deleted.json()["state"] == "cancelled"
    started = time.monotonic()
    jobs = [
        httpx2.post(f"{url}/generate", json=BODY | {"max_tokens": 2}, headers={"prefer": "respond-async"}).json()["id"]
        for _ in range(4)  # as many as there are slots: all are free
    ]
    for one in jobs:
        until(lambda one=one: shown(url, one)["state"] == "done")  # type: ignore[misc]
    assert time.monotonic() - started < 25  # all steps would take 50 s


def test_a_key_leads_to_one_job_on_all_apis(cluster: Cluster, url: str) -> None:
    cluster.start(*WORKER)
    _, other = cluster.api()
    ready(url)
    answers: list[httpx2.Response] = []
    threads = [
        threading.Thread(
            target=lambda one=one: answers.append(
                httpx2.post(
                    f"{one}/generate", json=BODY | {"max_tokens": 20}, headers={"idempotency-key": "k"}, timeout=S_MAX
                )
            )
        )
        for one in (url, other) * 10
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(S_MAX)
    assert {answer.status_code for answer in answers} == {200} and len(answers) == 20
    assert len({answer.text for answer in answers}) == 1


def test_a_job_is_refused_until_its_deadline_is_reachable(
    cluster: Cluster, url: str
) -> None:
    cluster.start(*WORKER)
    ready(url)
    with httpx2.Client(base_url=url, timeout=S_MAX) as http:
        long = BODY | {"max_tokens": 120, "timeout_s": 300}  # 4 s each, four at a time
        jobs = [http.post("/generate", json=long, headers={"prefer": "respond-async"}) for _ in range(20)]
        assert [job.status_code for job in jobs] == [202] * 20
        short, refused = BODY | {"max_tokens": 2, "timeout_s": 4}, None
        ends = time.monotonic() + S_MAX
        while refused is None or refused.status_code != 429:  # until the pace is known they are let in, in vain
            assert time.monotonic() < ends, refused and refused.text
            refused = http.post("/generate", json=short)
        for headers in ({}, {"prefer": "respond-async"}, {"idempotency-key": "in-no-time"}):
            for stream in (False, True):
                began = time.monotonic()
                refused = http.post("/generate", json=short | {"stream": stream}, headers=headers)
                problem = refused.json()
                assert (refused.status_code, problem["code"]) == (429, "deadline_unreachable"), problem
                assert time.monotonic() - began < 3, "at once, not when its time is over"
                assert 1 <= int(refused.headers["retry-after"]) == problem["retry_after_s"] <= 60
                assert problem["wait_s"] > 0.5 * problem["timeout_s"] > 1.5
        waits = http.post("/generate", json=short | {"timeout_s": 300}, headers={"prefer": "respond-async"})
        assert waits.status_code == 202, waits.text
        for job in (*jobs, waits):
            http.delete(job.headers["location"])
        until(lambda: http.post("/generate", json=short).status_code == 200)
