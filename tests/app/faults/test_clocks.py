"""Clocks that step by an hour while jobs run and wait.

Generations are scripted (tests/servers/fake_worker.py). The table of all faults is test_table.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx2
import pytest

from tests.app.faults.test_workers import BODY, SLOTS, WORKERS, begin, final_status
from tests.servers.clocks import Clocks, clocks
from tests.servers.cluster import API, COMPILE, LEASE_S, SCRIPTED, SLACK_S, Cluster, cluster
from tests.servers.processes import until

HOUR = 3_600
MINUTES = 240  # less than the clocks of API and workers may differ by (CLOCKS_S_MAX)
SERVER, APIS, OF_WORKERS = "server", "apis", "workers"  # the clocks
WHOSE = ((SERVER,), (APIS,), (OF_WORKERS,), (SERVER, APIS, OF_WORKERS))
SEEN_S = 1.5  # in which a worker that has nothing to do looks for what others have left
CLOCK_READ_S = 0.5  # in which a server looks at its clock


@pytest.fixture(scope="module")
def clock_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Clocks]]:
    """The service, each kind of its processes with its own clock."""
    with clocks(tmp_path_factory.mktemp("clocks")) as times, cluster(clocks=times) as parts:
        for name, command in {"api": API, "compile": COMPILE, **dict.fromkeys(WORKERS, SCRIPTED)}.items():
            parts.add(name, command, **times.of(APIS if command == API else OF_WORKERS))
        yield parts, times


@pytest.fixture
def clock_pair(clock_cluster: tuple[Cluster, Clocks]) -> Iterator[tuple[Cluster, Clocks]]:
    parts, times = clock_cluster
    parts.restore()
    yield clock_cluster
    times.set_right()
    time.sleep(CLOCK_READ_S)


def generate(http: httpx2.Client, body: dict[str, object], headers: dict[str, str] | None = None) -> httpx2.Response:
    """The answer, once workers count as alive again.

    Their heartbeats are measured by the server's clock, too.
    """
    answers: list[httpx2.Response] = []

    def ready() -> bool:
        answers.append(http.post("/generate", json=BODY | body, headers=headers))
        return answers[-1].status_code != 503 or answers[-1].json()["code"] != "not_ready"

    until(ready, "the service is ready again")
    return answers[-1]


def tries(http: httpx2.Client, jobs: list[str]) -> set[tuple[str, int]]:
    """The states of the jobs and their attempts."""
    job_status = [http.get(f"/jobs/{job}").json() for job in jobs]
    return {(job["state"], job["attempt"]) for job in job_status}


@pytest.mark.long  # test_a_clock_leap_repeats_no_job and broker/test_redis_clock.py are the short form
@pytest.mark.parametrize("whose", WHOSE, ids="-".join)
def test_a_clock_step_moves_no_lease_or_deadline(clock_pair: tuple[Cluster, Clocks], whose: tuple[str, ...]) -> None:
    """A job runs while clocks step ahead, then back."""
    parts, times = clock_pair
    ahead = HOUR if SERVER in whose else MINUTES
    with parts.client() as http:
        long_job = begin(http, "steps 300 0.2")
        parts.busy(*WORKERS)
        for step in (ahead, -2 * ahead):
            times.step(step, *whose)
            answer = generate(http, {"prompt": "steps 2 0.1"})
            assert answer.status_code == 200, answer.text
            assert 0 <= answer.json()["timings"]["queue_ms"] < ahead * 500, answer.text
            time.sleep(CLOCK_READ_S)
            slow = generate(http, {"prompt": "steps 300 0.2", "timeout_s": SEEN_S})
            assert (slow.status_code, slow.json()["code"]) == (504, "deadline"), slow.text
            assert slow.elapsed.total_seconds() > 0.9 * SEEN_S
            assert tries(http, [long_job]) == {("running", 1)}


@pytest.mark.long  # broker/test_redis_clock.py is the short form
@pytest.mark.parametrize("whose", (WHOSE[-1], WHOSE[0]), ids="-".join)
def test_waiting_jobs_run_once_and_in_time(clock_pair: tuple[Cluster, Clocks], whose: tuple[str, ...]) -> None:
    parts, times = clock_pair
    ahead = MINUTES if OF_WORKERS in whose else HOUR
    with parts.client() as http:
        for step in (ahead, -2 * ahead):
            until(lambda: http.get("/ready").is_success, "the service is ready")
            running_jobs = [begin(http, "steps 300 0.2") for _ in range(SLOTS)]
            until(lambda busy=running_jobs: tries(http, busy) == {("running", 1)}, "all workers are busy")
            waiting_jobs = [begin(http, "steps 2 0.1") for _ in range(4)]
            times.step(step, *whose)
            time.sleep(CLOCK_READ_S)
            for job in running_jobs:
                http.delete(f"/jobs/{job}")
            over = [final_status(http, job) for job in waiting_jobs]
            assert {(job_status["state"], job_status["attempt"]) for job_status in over} == {("done", 1)}, over
            assert all(0 <= job_status["result"]["timings"]["queue_ms"] < ahead * 500 for job_status in over), over


@pytest.mark.parametrize("step", (HOUR, -HOUR))
@pytest.mark.sample(1)
def test_a_clock_step_does_not_hide_a_dead_workers_job(clock_pair: tuple[Cluster, Clocks], step: int) -> None:
    parts, times = clock_pair
    with parts.client() as http:
        job = begin(http, "steps 300 0.2")
        dead = parts.busy(*WORKERS)
        attempt = http.get(f"/jobs/{job}").json()["attempt"]
        dead.kill()
        times.step(step, SERVER)
        until(lambda: http.get(f"/jobs/{job}").json()["attempt"] > attempt, "another has it", 3 * LEASE_S + SLACK_S)
        assert tries(http, [job]) == {("running", attempt + 1)}


def test_a_worker_an_hour_ahead_runs_nothing(clock_pair: tuple[Cluster, Clocks]) -> None:
    """Jobs are signed with the time of their expiry."""
    parts, times = clock_pair
    with parts.client() as http:
        times.step(HOUR, OF_WORKERS)
        answer = generate(http, {"prompt": "steps 2 0.1"})
        assert (answer.status_code, answer.json()["code"]) == (504, "deadline"), answer.text
        times.step(-HOUR, OF_WORKERS)
        assert generate(http, {"prompt": "steps 2 0.1"}).is_success


def test_a_clock_leap_repeats_no_job(clock_pair: tuple[Cluster, Clocks]) -> None:
    """Keys are kept for a day. A running job keeps its worker."""
    parts, times = clock_pair
    key = {"idempotency-key": f"leap-{time.time()}"}
    with parts.client() as http:
        answer = generate(http, {"prompt": "x"}, key).json()
        long_job = begin(http, "steps 300 0.2")
        parts.busy(*WORKERS)
        times.step(HOUR, SERVER)
        time.sleep(SEEN_S + CLOCK_READ_S)
        repetition = generate(http, {"prompt": "x"}, key)
        assert repetition.is_success and repetition.json()["id"] == answer["id"], repetition.text
        assert tries(http, [long_job]) == {("running", 1)}
