"""The sandbox: whatever a job does, it ends within its limits, the reason is named, and the next job works."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.errors import InternalError
from app.worker.sandbox import client as process
from app.worker.sandbox.client import Sandbox
from compiler.errors import CompileCancelled, LimitExceeded
from compiler.limits import Limits
from tests.servers.processes import alive, children, cpu_s, resident_bytes, until

TARGET = "tests.app.worker.hostile_jobs:open_job"
LIMITS = Limits(compile_s_max=2.0, compile_memory_bytes_max=64 * 2**20)
MIB = 2**20


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs here write down little: they get little time beyond their limit."""
    monkeypatch.setattr(process, "GRACE_S", 0.2)
    monkeypatch.setattr(process, "_LATE_S", 0.5)


def never() -> bool:
    return False


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with closing(Sandbox(TARGET, b"", LIMITS)) as sandbox:
        yield sandbox


@pytest.fixture
def patient() -> Iterator[Sandbox]:
    """A sandbox whose jobs end by no limit while a test lasts."""
    with closing(Sandbox(TARGET, b"", Limits(compile_s_max=300.0))) as sandbox:
        yield sandbox


def assert_works(sandbox: Sandbox) -> None:
    assert sandbox.run(b"echo a dog", never) == b"a dog"


def job_of(sandbox: Sandbox) -> int:
    """The process that does the job, or stands by for the next."""
    found: list[int] = []

    def stands_by() -> bool:
        found[:] = children(sandbox.pid)
        return len(found) == 1

    until(stands_by)
    return found[0]


@pytest.mark.parametrize("size", [0, 1, 5 * MIB])
def test_requests_and_answers_of_any_size_pass(size: int) -> None:
    request = os.urandom(size)
    with closing(Sandbox(TARGET, b"before ", Limits())) as sandbox:
        for _ in range(3):
            assert sandbox.run(b"echo " + request, never) == b"before " + request


@pytest.mark.parametrize(
    ("request_", "limit"),
    [
        (b"spin", "compile_s_max"),
        (b"sleep", "compile_s_max"),
        (b"start_others stay", "compile_s_max"),
        (b"eat_memory", "compile_memory_bytes_max"),
        (b"swallow_memory_errors", "compile_s_max"),
        (b"abort_for_memory %d" % (48 * MIB), "compile_memory_bytes_max"),
        (b"use_up_its_time", "compile_s_max"),
    ],
)
def test_a_job_over_a_limit_fails_alone(sandbox: Sandbox, request_: bytes, limit: str) -> None:
    server = sandbox.pid
    with pytest.raises(LimitExceeded) as caught:
        sandbox.run(request_, never)
    assert (caught.value.limit, caught.value.cap) == (limit, getattr(LIMITS, limit))
    assert_works(sandbox)
    assert sandbox.pid == server


@pytest.mark.parametrize(
    "request_", [b"segfault", b"leave", b"raise_bug", b"recurse", b"write_a_large_file", b"abort_for_memory 8"]
)
def test_a_job_that_dies_otherwise_is_an_internal_error(patient: Sandbox, request_: bytes) -> None:
    server = patient.pid
    with pytest.raises(InternalError):
        patient.run(request_, never)
    assert_works(patient)
    assert patient.pid == server


def test_a_cancelled_job_is_killed(patient: Sandbox) -> None:
    called_off, job = threading.Event(), job_of(patient)

    def cancelled() -> bool:
        if alive(job) and cpu_s(job) > 0.1:
            called_off.set()
        return called_off.is_set()

    with pytest.raises(CompileCancelled):
        patient.run(b"spin", cancelled)
    assert not alive(job)
    assert_works(patient)


def test_a_job_cancelled_before_its_start_does_not_run(patient: Sandbox) -> None:
    job = job_of(patient)
    with pytest.raises(CompileCancelled):
        patient.run(b"spin", lambda: True)
    assert job_of(patient) == job


def test_a_job_has_its_session_and_directory_and_no_secrets(
    patient: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABS_SECRET", "MARKER of a secret")
    with closing(Sandbox(TARGET, b"", LIMITS)) as sandbox:
        seen = [sandbox.run(b"describe", never).decode().split("|") for _ in range(2)]
    for pid, session, directory, files, environment, descriptors in seen:
        assert pid == session
        assert directory != os.getcwd() and files == "[]"
        assert set(environment.split()) <= {
            "PATH", "LD_LIBRARY_PATH", "LC_CTYPE", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",
        }  # fmt: skip
        assert len(descriptors.split(",")) <= 7  # three of /dev/null, the socket, two files, the listed folder
    until(lambda: not any(os.path.exists(directory) for _, _, directory, *_ in seen))
    assert seen[0][0] != seen[1][0]


def test_child_processes_of_a_job_do_not_outlive_it(patient: Sandbox) -> None:
    left = int(patient.run(b"start_others", never))
    assert_works(patient)
    assert not alive(left)


def test_child_processes_are_killed_with_a_timed_out_job(sandbox: Sandbox) -> None:
    job = job_of(sandbox)
    seen: set[int] = set()

    def watch() -> bool:
        seen.update(children(job) if alive(job) else [])
        return False

    with pytest.raises(LimitExceeded):
        sandbox.run(b"start_others stay", watch)
    assert seen
    assert not any(map(alive, seen))


def test_a_job_that_is_killed_from_outside_fails_alone(patient: Sandbox) -> None:
    job = job_of(patient)

    def kill() -> bool:
        if alive(job) and cpu_s(job) > 0.1:
            os.kill(job, signal.SIGKILL)
        return False

    with pytest.raises(LimitExceeded, match="compile_memory_bytes_max"):
        patient.run(b"spin", kill)
    assert_works(patient)


def test_a_standby_process_that_is_killed_is_replaced(patient: Sandbox) -> None:
    for _ in range(3):
        os.kill(job_of(patient), signal.SIGKILL)
        assert_works(patient)


def test_a_server_that_is_killed_between_two_jobs_is_replaced(patient: Sandbox) -> None:
    server, standing_by = patient.pid, job_of(patient)
    os.kill(server, signal.SIGKILL)
    until(lambda: not alive(server))
    assert_works(patient)
    assert patient.pid != server
    assert not alive(standing_by)


def test_a_job_is_retried_when_its_server_is_killed(sandbox: Sandbox) -> None:
    server, job = sandbox.pid, job_of(sandbox)
    left: set[int] = set()

    def kill_once() -> bool:
        left.update(children(job) if alive(job) else [])
        if left and alive(server):
            os.kill(server, signal.SIGKILL)
        return False

    with pytest.raises(LimitExceeded, match="compile_s_max"):  # the second time it ran its full time
        sandbox.run(b"start_others stay, in one session", kill_once)
    assert sandbox.pid != server
    until(lambda: not alive(job) and not any(map(alive, left)))
    assert_works(sandbox)


def test_a_server_that_does_not_answer_is_replaced(sandbox: Sandbox) -> None:
    server, job = sandbox.pid, job_of(sandbox)
    os.kill(server, signal.SIGSTOP)
    assert_works(sandbox)
    assert sandbox.pid != server
    until(lambda: not alive(server) and not alive(job))


def test_a_job_whose_server_dies_twice_is_an_internal_error(patient: Sandbox) -> None:
    def kill_always() -> bool:
        if patient.pid not in killed and cpu_of_job(patient.pid) > 0.1:
            killed.add(patient.pid)
            os.kill(patient.pid, signal.SIGKILL)
        return False

    killed: set[int] = set()
    with pytest.raises(InternalError):
        patient.run(b"spin", kill_always)
    assert len(killed) == 2
    assert_works(patient)


def cpu_of_job(server: int) -> float:
    return sum(cpu_s(child) for child in children(server)) if alive(server) else 0.0


def test_a_large_job_frees_its_memory_when_it_ends(sandbox: Sandbox) -> None:
    assert_works(sandbox)
    before = resident_bytes(os.getpid()), resident_bytes(sandbox.pid)
    for request in (b"eat_memory", b"swallow_memory_errors"):
        with pytest.raises(LimitExceeded):
            sandbox.run(request, never)
    assert_works(sandbox)
    gc.collect()
    after = resident_bytes(os.getpid()), resident_bytes(sandbox.pid)
    assert all(now - then < 8 * MIB for then, now in zip(before, after, strict=True))


def test_the_processes_end_when_the_sandbox_is_closed_or_forgotten() -> None:
    for forget in (False, True):
        sandbox = Sandbox(TARGET, b"", LIMITS)
        processes = [sandbox.pid, job_of(sandbox)]
        if not forget:
            sandbox.close()
        del sandbox
        gc.collect()
        until(lambda processes=processes: not any(map(alive, processes)))  # type: ignore[misc]


def test_the_processes_end_when_the_worker_is_killed() -> None:
    code = (
        "import sys, time; from app.worker.sandbox.client import Sandbox; from compiler.limits import Limits\n"
        f"sandbox = Sandbox({TARGET!r}, b'', Limits())\n"
        "print(sandbox.pid, flush=True)\n"
        "sandbox.run(b'start_others stay', lambda: False)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as worker:
        assert worker.stdout is not None
        server = int(worker.stdout.readline())
        until(lambda: bool(children(server)) and bool(children(children(server)[0])))
        processes = [server, *children(server), *children(children(server)[0])]
        worker.kill()
    until(lambda: not any(map(alive, processes)))


def test_no_directory_is_left_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for kill in (False, True):
        sandbox = Sandbox(TARGET, b"", LIMITS)
        assert_works(sandbox)
        assert len(list(tmp_path.iterdir())) == 1
        if kill:
            os.kill(sandbox.pid, signal.SIGKILL)
        sandbox.close()
        assert not list(tmp_path.iterdir())


def test_a_sandbox_that_cannot_be_opened_raises_an_error() -> None:
    with pytest.raises(InternalError, match="does not start"):
        Sandbox("tests.app.worker.hostile_jobs:open_never", b"", LIMITS)
