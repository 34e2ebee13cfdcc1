"""A job of the sandbox ends within its limits.

The error names the reason, and the next job works.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
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
LIMITS = Limits(compile_s_max=1.0, compile_memory_bytes_max=64 * 2**20)
MIB = 2**20


@pytest.fixture(scope="module", autouse=True)
def short_grace() -> Iterator[None]:
    """Jobs get little time beyond their limit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "GRACE_S", 0.2)
        patch.setattr(process, "_LATE_S", 0.5)
        yield


def is_never_cancelled() -> bool:
    return False


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """A sandbox that every test leaves in order."""
    with closing(Sandbox(TARGET, b"", LIMITS)) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def patient_sandbox() -> Iterator[Sandbox]:
    """A sandbox whose limits no test reaches."""
    with closing(Sandbox(TARGET, b"", Limits(compile_s_max=300.0))) as sandbox:
        yield sandbox


def assert_works(sandbox: Sandbox) -> None:
    assert sandbox.run(b"echo a dog", is_never_cancelled) == b"a dog"


def job_of(sandbox: Sandbox) -> int:
    """The process of the running job, or of the next one."""
    pids: list[int] = []

    def has_one_child() -> bool:
        pids[:] = children(sandbox.pid)
        return len(pids) == 1

    until(has_one_child)
    return pids[0]


@pytest.mark.parametrize("size", [0, 1, 5 * MIB])
def test_requests_and_answers_of_any_size_pass(size: int) -> None:
    request = os.urandom(size)
    with closing(Sandbox(TARGET, b"before ", Limits())) as sandbox:
        for _ in range(3):
            assert sandbox.run(b"echo " + request, is_never_cancelled) == b"before " + request


@pytest.mark.parametrize(
    ("request_", "limit"),
    [
        (b"spin", "compile_s_max"),
        (b"sleep", "compile_s_max"),
        (b"start_others stay", "compile_s_max"),
        (b"eat_memory", "compile_memory_bytes_max"),
        (b"swallow_memory_errors", "compile_s_max"),
        (b"abort_for_memory %d" % (48 * MIB), "compile_memory_bytes_max"),
        (b"panic_for_memory %d" % (48 * MIB), "compile_memory_bytes_max"),
        (b"use_up_its_time", "compile_s_max"),
    ],
)
def test_a_job_over_a_limit_fails_alone(sandbox: Sandbox, request_: bytes, limit: str) -> None:
    server = sandbox.pid
    with pytest.raises(LimitExceeded) as caught:
        sandbox.run(request_, is_never_cancelled)
    assert (caught.value.limit, caught.value.cap) == (limit, getattr(LIMITS, limit))
    assert_works(sandbox)
    assert sandbox.pid == server


@pytest.mark.parametrize(
    "request_",
    [
        b"segfault", b"leave", b"raise_bug", b"recurse", b"write_a_large_file", b"abort_for_memory 8",
        b"panic_for_memory 8",
    ],
)
def test_a_job_that_dies_otherwise_is_an_internal_error(patient_sandbox: Sandbox, request_: bytes) -> None:
    server = patient_sandbox.pid
    with pytest.raises(InternalError):
        patient_sandbox.run(request_, is_never_cancelled)
    assert_works(patient_sandbox)
    assert patient_sandbox.pid == server


def test_a_cancelled_job_is_killed(patient_sandbox: Sandbox) -> None:
    spinning: list[int] = []  # the job's process; that of an earlier job may live for a moment beside it

    def is_cancelled() -> bool:
        spinning.extend(job for job in children(patient_sandbox.pid) if alive(job) and cpu_s(job) > 0.1)
        return bool(spinning)

    with pytest.raises(CompileCancelled):
        patient_sandbox.run(b"spin", is_cancelled)
    assert not any(map(alive, spinning))
    assert_works(patient_sandbox)


def test_a_job_cancelled_before_its_start_does_not_run(patient_sandbox: Sandbox) -> None:
    job = job_of(patient_sandbox)
    with pytest.raises(CompileCancelled):
        patient_sandbox.run(b"spin", lambda: True)
    assert job_of(patient_sandbox) == job


def test_a_job_has_its_session_and_directory_and_no_secrets(
    patient_sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABS_SECRET", "MARKER of a secret")
    with closing(Sandbox(TARGET, b"", LIMITS)) as sandbox:
        descriptions = [sandbox.run(b"describe", is_never_cancelled).decode().split("|") for _ in range(2)]
    for pid, session, directory, files, environment, descriptors in descriptions:
        assert pid == session
        assert directory != os.getcwd() and files == "[]"
        assert set(environment.split()) <= {
            "PATH", "LD_LIBRARY_PATH", "LC_CTYPE", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",
        }  # fmt: skip
        assert len(descriptors.split(",")) <= 7  # three of /dev/null, the socket, two files, the listed folder
    until(lambda: not any(os.path.exists(directory) for _, _, directory, *_ in descriptions))
    assert descriptions[0][0] != descriptions[1][0]


def test_child_processes_of_a_job_do_not_outlive_it(patient_sandbox: Sandbox) -> None:
    child = int(patient_sandbox.run(b"start_others", is_never_cancelled))
    assert_works(patient_sandbox)
    assert not alive(child)


def test_child_processes_are_killed_with_a_timed_out_job(sandbox: Sandbox) -> None:
    job = job_of(sandbox)
    pids: set[int] = set()

    def watch() -> bool:
        pids.update(children(job) if alive(job) else [])
        return False

    with pytest.raises(LimitExceeded):
        sandbox.run(b"start_others stay", watch)
    assert pids
    assert not any(map(alive, pids))


def test_a_job_that_is_killed_from_outside_fails_alone(patient_sandbox: Sandbox) -> None:
    job = job_of(patient_sandbox)

    def kill() -> bool:
        if alive(job) and cpu_s(job) > 0.1:
            os.kill(job, signal.SIGKILL)
        return False

    with pytest.raises(LimitExceeded, match="compile_memory_bytes_max"):
        patient_sandbox.run(b"spin", kill)
    assert_works(patient_sandbox)


def test_a_standby_process_that_is_killed_is_replaced(patient_sandbox: Sandbox) -> None:
    for _ in range(3):
        os.kill(job_of(patient_sandbox), signal.SIGKILL)
        assert_works(patient_sandbox)


def test_a_server_that_is_killed_between_two_jobs_is_replaced(patient_sandbox: Sandbox) -> None:
    server, standby = patient_sandbox.pid, job_of(patient_sandbox)
    os.kill(server, signal.SIGKILL)
    until(lambda: not alive(server))
    assert_works(patient_sandbox)
    assert patient_sandbox.pid != server
    assert not alive(standby)


def test_a_job_is_retried_when_its_server_is_killed(sandbox: Sandbox) -> None:
    server, job = sandbox.pid, job_of(sandbox)
    pids: set[int] = set()

    def kill_once() -> bool:
        pids.update(children(job) if alive(job) else [])
        if pids and alive(server):
            os.kill(server, signal.SIGKILL)
        return False

    with pytest.raises(LimitExceeded, match="compile_s_max"):  # the retry runs into the time limit
        sandbox.run(b"start_others stay, in one session", kill_once)
    assert sandbox.pid != server
    until(lambda: not alive(job) and not any(map(alive, pids)))
    assert_works(sandbox)


def test_a_server_that_does_not_answer_is_replaced(sandbox: Sandbox) -> None:
    server, job = sandbox.pid, job_of(sandbox)
    os.kill(server, signal.SIGSTOP)
    assert_works(sandbox)  # in the process that it forked before
    assert_works(sandbox)
    assert sandbox.pid != server
    until(lambda: not alive(server) and not alive(job))


def test_a_job_whose_server_dies_twice_is_an_internal_error(patient_sandbox: Sandbox) -> None:
    def kill_always() -> bool:
        if patient_sandbox.pid not in pids and cpu_of_job(patient_sandbox.pid) > 0.1:
            pids.add(patient_sandbox.pid)
            os.kill(patient_sandbox.pid, signal.SIGKILL)
        return False

    pids: set[int] = set()
    with pytest.raises(InternalError):
        patient_sandbox.run(b"spin", kill_always)
    assert len(pids) == 2
    assert_works(patient_sandbox)


def cpu_of_job(server: int) -> float:
    return sum(cpu_s(child) for child in children(server)) if alive(server) else 0.0


def test_a_large_job_frees_its_memory_when_it_ends(sandbox: Sandbox) -> None:
    assert_works(sandbox)
    bytes_before = resident_bytes(os.getpid()), resident_bytes(sandbox.pid)
    for request in (b"eat_memory", b"swallow_memory_errors"):
        with pytest.raises(LimitExceeded):
            sandbox.run(request, is_never_cancelled)
    assert_works(sandbox)
    gc.collect()
    bytes_after = resident_bytes(os.getpid()), resident_bytes(sandbox.pid)
    assert all(after - before < 8 * MIB for before, after in zip(bytes_before, bytes_after, strict=True))


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
