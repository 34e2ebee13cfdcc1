"""The supervisor of `abs up` with real processes of the shell."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.environment import environment_with
from app.local import supervisor as module
from app.local.folder import open_folder
from app.local.server import answers, find_server, server_conf
from app.local.supervisor import LocalFailed, Program, Supervisor
from tests.servers.abs_up import short_folder

S_MAX = 60.0
SLEEP = "exec sleep 300"
DEAF = "trap '' TERM; echo deaf; while true; do sleep 0.1; done"  # SIGTERM does not end it


@pytest.fixture
def data() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder / "data"


def shell(name: str, script: str, rank: int = 1, grace_s: float = S_MAX, **environment: str) -> Program:
    return Program(name, ("sh", "-c", script), rank, grace_s, environment)


@contextlib.asynccontextmanager
async def running_supervisor(path: Path, *programs: Program) -> AsyncIterator[tuple[Supervisor, list[dict[str, Any]]]]:
    """A supervisor that has started its programs, and its events. It restarts what ends."""
    folder, events = open_folder(path), list[dict[str, Any]]()
    supervisor = Supervisor(folder, programs, environment_with({}), lambda event: events.append(dict(event)))
    try:
        for program in programs:
            supervisor.start(program.name)
        supervisor.restarts = True
        yield supervisor, events
    finally:
        supervisor.kill()
        await supervisor.stop()
        os.close(folder.lock)


def log_text(data: Path, name: str) -> str:
    with contextlib.suppress(FileNotFoundError):
        return (data / "logs" / f"{name}.log").read_text()
    return ""


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(S_MAX):
        while not condition():
            await asyncio.sleep(0.02)


async def test_a_program_that_ends_is_restarted_with_growing_waits(data: Path) -> None:
    async with running_supervisor(data, shell("short", "date +%s.%N")) as (supervisor, events):
        log = data / "logs" / "short.log"
        await until(lambda: log.exists() and len(log.read_text().split()) >= 5)
        times = [float(line) for line in log.read_text().split()]
        waits = [after - before for before, after in itertools.pairwise(times)]
        assert waits[0] >= 0.2 and waits[2] >= 0.8
        assert {event["status"] for event in events if event["event"] == "ended"} == {0}
        supervisor.require_success()


async def test_a_program_that_exits_too_often_is_a_failure(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF_S_MAX", 0.001)
    faulty, lasting = shell("faulty", "echo the disk is full; exit 3"), shell("lasting", SLEEP)
    async with running_supervisor(data, faulty, lasting) as (supervisor, events):
        with pytest.raises(LocalFailed, match="with status 3 within 10 s of its start, 20 times") as caught:
            await asyncio.wait_for(supervisor.failure, S_MAX)
        assert str(caught.value).endswith("the disk is full")
        assert len([event for event in events if event["event"] == "ended"]) == 20
        assert list(supervisor.pids) == ["lasting"]


async def test_killed_programs_are_restarted_without_limit(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF_S", 0.001)
    monkeypatch.setattr(module, "QUICK_EXITS_MAX", 3)
    async with running_supervisor(data, shell("killed", "kill -9 $$")) as (supervisor, events):
        await until(lambda: len(events) >= 12)
        supervisor.require_success()


async def test_an_end_before_restarts_begin_is_a_failure(data: Path) -> None:
    async with running_supervisor(data, shell("faulty", "echo no model >&2; kill -ABRT $$")) as (supervisor, _):
        supervisor.restarts = False
        with pytest.raises(LocalFailed, match=r"faulty ended by SIGABRT at its start; its log:\nno model$"):
            await asyncio.wait_for(supervisor.failure, S_MAX)
        with pytest.raises(LocalFailed):
            supervisor.require_success()


async def test_programs_stop_by_rank_and_are_killed_after_their_grace(data: Path) -> None:
    programs = (shell("server", SLEEP, 10), shell("a", SLEEP, 20), shell("b", DEAF, 20, 0.5), shell("api", SLEEP, 30))
    async with running_supervisor(data, *programs) as (supervisor, events):
        await until(lambda: "deaf" in log_text(data, "b") and len(supervisor.pids) == 4)
        await until(lambda: all(psutil.Process(pid).name() in ("sleep", "sh") for pid in supervisor.pids.values()))
        events.clear()
        await asyncio.wait_for(supervisor.stop(), S_MAX)
        ends = {event["process"]: event["status"] for event in events}
        first, *_, last = (event["process"] for event in events)
        assert (first, last, len(events)) == ("api", "server", 4)
        assert ends == {"api": -15, "a": -15, "b": -9, "server": -15} and not supervisor.pids


async def test_a_second_signal_kills_what_remains(data: Path) -> None:
    async with running_supervisor(data, shell("deaf", DEAF)) as (supervisor, events):
        await until(lambda: "deaf" in log_text(data, "deaf"))
        stopping = asyncio.create_task(supervisor.stop())
        await asyncio.sleep(0.3)
        assert not stopping.done()
        supervisor.kill()
        await asyncio.wait_for(stopping, S_MAX)
        assert events[-1]["status"] == -signal.SIGKILL


async def test_output_is_passed_on_with_the_programs_name(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOG_BYTES", 1_000)
    long_line = "head -c 200000 /dev/zero | tr '\\0' x"
    script = f"echo one; printf two >&2; printf '\\377\\n'; echo $COLOUR; {long_line}; echo; {SLEEP}"
    async with running_supervisor(data, shell("api", script, COLOUR="blue")) as _:
        await until(lambda: "x" in log_text(data, "api"))
        # The long line did not fit the file with the others.
        assert (data / "logs" / "api.log.1").exists()
    output = capsys.readouterr().err.splitlines()
    assert output[:3] == ["api | one", "api | two\ufffd", "api | blue"] and "x" * 200_000 in output[3]


async def test_a_restart_does_not_wait_for_grandchildren(data: Path) -> None:
    """The child of a killed process holds its output open."""
    async with running_supervisor(data, shell("parent", f"sleep 300 & {SLEEP}")) as (supervisor, _):
        await until(lambda: supervisor.pids and psutil.Process(supervisor.pids["parent"]).children())
        (grandchild,) = psutil.Process(supervisor.pids["parent"]).children()
        killed_pid = supervisor.pids["parent"]
        os.kill(killed_pid, signal.SIGKILL)
        await until(lambda: supervisor.pids.get("parent", killed_pid) != killed_pid)
        grandchild.kill()


async def test_a_folder_may_have_any_name(data: Path) -> None:
    path = data.with_name("a;b #%s \"'")
    folder = open_folder(path)
    folder.write(folder.server_conf, server_conf(folder))
    os.close(folder.lock)
    async with running_supervisor(path, Program("server", (find_server().path, str(folder.server_conf)), 1, S_MAX)):
        await until(lambda: answers(folder.server_socket))
