"""Workers that die, hang and are poisoned under requests.

Generations are scripted (tests/servers/fake_worker.py), so that a test knows when one is in the middle. test_chaos.py
kills workers that run the model. The table of all faults is test_table.py.
"""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import psutil
import pytest

from tests.app.worker.test_bombs import BOMBS, COMPILES
from tests.servers import fake_worker
from tests.servers.cluster import FULL, LEASE_S, Cluster, Event, events
from tests.servers.processes import until

WORKERS = ("first", "second")
SLOTS = 2 * fake_worker.SLOTS  # of both together
BODY: dict[str, Any] = {  # with enough time that a slow machine refuses nothing
    "constraint": {"keywords": ["dog"]}, "max_tokens": 8, "beams": 2, "timeout_s": 280,
}
STOPPED_S = 60.0
SLOW = {"keywords": [f"slow{number}" for number in range(11)]}  # compiles for a second or so
TRIED_BOMBS = BOMBS if FULL else BOMBS[:1]


@pytest.fixture
def services(scripted: Cluster) -> Iterator[Cluster]:
    scripted.restore()
    yield scripted
    for part in scripted.parts.values():
        part.keep_alive = False


def begin(http: httpx2.Client, prompt: str, **options: Any) -> str:
    """Submits a job without waiting for it; its id."""
    response = http.post("/generate", json=BODY | {"prompt": prompt} | options, headers={"prefer": "respond-async"})
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


def final_status(http: httpx2.Client, job: str) -> dict[str, Any]:
    """What GET /jobs says once the job is over."""

    def over() -> dict[str, Any] | None:
        job_status: dict[str, Any] = http.get(f"/jobs/{job}").json()
        return job_status if job_status["state"] not in ("waiting", "running") else None

    job_status = until(over, f"the job {job} is over", 4 * LEASE_S + 120)
    assert isinstance(job_status, dict)
    return job_status


def read_on(http: httpx2.Client, job: str, last_id: str) -> list[Event]:
    """The events of a job after one."""
    with http.stream("GET", f"/jobs/{job}/events", headers={"last-event-id": last_id}) as response:
        return list(events(response))


def steps(stream_events: list[Event]) -> list[int]:
    return [event.data["step"] for event in stream_events if event.name == "step"]


def test_a_stream_continues_on_another_worker_after_a_kill(services: Cluster) -> None:
    stream_events: list[Event] = []
    with services.client() as http:
        with http.stream("POST", "/generate", json=BODY | {"prompt": "steps 30 0.1", "stream": True}) as response:
            for event in events(response):
                stream_events.append(event)
                if len(stream_events) == 3:
                    services.busy(*WORKERS).kill()
                elif event.name == "restarted":
                    assert event.data == {"attempt": 2}
        job_status = http.get(response.headers["location"]).json()
    restart_place = next(place for place, event in enumerate(stream_events) if event.name == "restarted")
    assert [event.name for event in stream_events].count("restarted") == 1
    assert steps(stream_events[restart_place:]) == list(range(1, 31)) and stream_events[-1].name == "done"
    assert (job_status["state"], job_status["attempt"]) == ("done", 2)
    assert job_status["result"]["choices"][0]["text"] == "dog" == stream_events[-1].data["choices"][0]["text"]


def test_a_compile_is_retried_when_its_worker_is_killed(services: Cluster) -> None:
    worker = services.parts["compile"]
    worker.keep_alive = True
    stored_keys = set(services.server.ask("KEYS", "{abs}:dfa:*").split())
    answers: list[httpx2.Response] = []
    with services.client() as http:
        caller = threading.Thread(target=lambda: answers.append(http.post("/compile", json={"constraint": SLOW})))
        caller.start()
        services.busy("compile", queue="compile")
        sandbox_tree = psutil.Process(worker.pid).children(recursive=True)
        worker.kill()
        caller.join(120)
        assert answers[0].status_code == 200, answers[0].text
        second_answer = http.post("/compile", json={"constraint": SLOW})
        assert second_answer.json()["automaton"] == answers[0].json()["automaton"]
    assert not psutil.wait_procs(sandbox_tree, timeout=30)[1], "the sandbox of the killed worker goes on"
    now = set(services.server.ask("KEYS", "{abs}:dfa:*").split())
    assert len([key for key in now - stored_keys if key.startswith("{abs}:dfa:")]) == 1


def require_compiles(cluster: Cluster, worker: psutil.Process, name: str) -> None:
    """The earlier compile worker still compiles, and leaves nothing behind."""
    with cluster.client() as http:
        assert http.post("/compile", json={"constraint": {"regex": f"after {name}"}}).status_code == 200
    assert worker.is_running() and cluster.parts["compile"].pid == worker.pid
    until(lambda: len(worker.children(recursive=True)) <= 2, "nothing is left of the bomb's process")


@pytest.mark.parametrize(
    ("constraint", "limits"), [row[1:] for row in TRIED_BOMBS], ids=[name for name, *_ in TRIED_BOMBS]
)
def test_a_bomb_ends_its_sandbox_and_not_its_worker(
    services: Cluster, constraint: dict[str, Any], limits: tuple[str, ...]
) -> None:
    worker = psutil.Process(services.parts["compile"].pid)
    with services.client() as http:
        answer = http.post("/compile", json={"constraint": constraint})
    if not (answer.status_code == 200 and COMPILES in limits):
        assert answer.status_code == 422 and answer.json()["code"] == "constraint_too_large", answer.text
        assert answer.json()["limit"] in limits and answer.json()["cap"] > 0
    require_compiles(services, worker, f"a bomb {len(str(constraint))}")


def standing_by(server: psutil.Process) -> psutil.Process:
    """The process that is ready for the next compilation."""
    last_reading: tuple[psutil.Process | None, float] = (None, 0.0)

    def sandbox_process() -> psutil.Process | None:
        nonlocal last_reading
        (process,) = server.children() or (None,)
        now = process, process.cpu_times().user if process else 0.0
        is_same, last_reading = now == last_reading, now
        return process if is_same else None

    process = until(sandbox_process, "a process stands by", poll_s=0.2)
    assert isinstance(process, psutil.Process)
    return process


def starve(pid: int) -> None:
    """Let a process have no more memory than it has."""
    resource.prlimit(pid, resource.RLIMIT_AS, (1, 1))


@pytest.mark.parametrize(
    ("how", "fault", "limit"),
    [
        ("hangs", lambda pid: os.kill(pid, signal.SIGSTOP), "compile_s_max"),
        ("starves", starve, "compile_memory_bytes_max"),
        ("is_killed", lambda pid: os.kill(pid, signal.SIGKILL), "compile_memory_bytes_max"),  # as by a full system
    ],
)
def test_a_hanging_or_memoryless_sandbox_meets_its_limit(
    services: Cluster, how: str, fault: Callable[[int], None], limit: str
) -> None:
    worker = psutil.Process(services.parts["compile"].pid)
    (server,) = worker.children()
    answers: list[httpx2.Response] = []
    far_apart = " & ".join(f"F({how} & {'X' * number} b)" for number in range(60))  # works for seconds, for nothing

    def ask() -> None:
        with services.client() as http:
            answers.append(http.post("/compile", json={"constraint": {"ltlf": far_apart}}))

    sandbox = standing_by(server)
    cpu_before = sandbox.cpu_times().user
    caller = threading.Thread(target=ask)
    caller.start()
    until(lambda: sandbox.cpu_times().user > cpu_before + 0.2, "the compilation is in its middle", poll_s=0.01)
    fault(sandbox.pid)
    caller.join(120)
    assert answers[0].status_code == 422 and answers[0].json()["limit"] == limit, answers[0].text
    require_compiles(services, worker, how)


def test_a_job_that_kills_three_workers_is_failed(services: Cluster) -> None:
    for name in WORKERS:
        services.parts[name].keep_alive = True
    with services.client() as http:
        poison = begin(http, "die")
        job_status = final_status(http, poison)
        assert job_status["state"] == "failed" and job_status["error"]["code"] == "worker_lost", job_status
        assert job_status["error"]["status"] == 500 and job_status["attempt"] == 3
        last_answer = http.post("/generate", json=BODY | {"prompt": "well"})
        assert last_answer.status_code == 200 and last_answer.json()["choices"][0]["text"] == "dog"


def test_a_resumed_worker_cannot_change_a_reassigned_job(services: Cluster) -> None:
    count = 600 if FULL else 60
    with services.client() as http:
        job = begin(http, f"steps {count} 0.1")
        paused, began = services.busy(*WORKERS), time.monotonic()
        paused.signal(signal.SIGSTOP)
        until(lambda: http.get(f"/jobs/{job}").json()["attempt"] == 2, "another worker has the job", LEASE_S + 60)
        if FULL:
            time.sleep(max(0.0, began + STOPPED_S - time.monotonic()))
        paused.signal(signal.SIGCONT)  # in the middle of the other's steps
        assert http.get(f"/jobs/{job}").json()["state"] == "running"
        job_status = final_status(http, job)
        assert job_status["state"] == "done" and job_status["attempt"] == 2
        with http.stream("GET", f"/jobs/{job}/events") as response:
            stream_events = list(events(response))
    restart_place = next(place for place, event in enumerate(stream_events) if event.name == "restarted")
    numbers, names = steps(stream_events[restart_place:]), [event.name for event in stream_events]
    assert numbers == sorted(set(numbers)), "a step was repeated, or out of order"
    assert names.count("done") == names.count("restarted") == 1
    until(lambda: paused.metric("abs_running_requests", queue="generate") == 0, "the woken worker lets go of the job")


def test_a_stopping_worker_finishes_its_running_jobs(services: Cluster) -> None:
    with services.client() as http:
        job = begin(http, "steps 20 0.1")
        worker = services.busy(*WORKERS)
        assert worker.stop() == 0
        job_status = final_status(http, job)
        assert steps(read_on(http, job, "")) == list(range(1, 21))
    assert (job_status["state"], job_status["attempt"]) == ("done", 1)
