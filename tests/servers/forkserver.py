"""A fork server that starts Python processes within hundredths of a second.

Python's start and the service's imports take one to two seconds of processor time in each process, and tests of faults
start dozens. The fork server has imported what they need. Otherwise a process is as after `python -m MODULE ARGUMENTS`:
environment, arguments, log and signals belong to it, and it is forked before any file is opened and before any thread
starts. It ends with the fork server, which ends with its owner. In a run of several test processes, a fork server is
itself forked from the process of preforked.py, which has imported everything.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.servers.processes import die_with_parent, until

IMPORTED = (
    "app.auth.redis_counters", "app.broker.redis.broker", "app.cli.main", "app.worker.handlers.compile", "app.main",
    "app.redis.server_checks", "app.http_server", "app.store.redis", "app.cli.worker_process", "uvicorn",
)
WITH_MODEL = (*IMPORTED, "tests.servers.preloaded_model")
PREFORKED = "TESTS_PREFORKED"  # environment variable: the folder of the sockets of the preforked process
PREFORKED_S_MAX = 180.0
DEV_NULL = Path(os.devnull)
_RUNNING: set[ForkServer] = set()


class Child:
    """A fork server's process with the Popen methods that tests call."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = threading.Event()

    def set_status(self, status: int) -> None:
        """The fork server reports the exit status here."""
        self.returncode = status
        self._ended.set()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The process that all others are forked from. `environment` is added to ours."""

    def __init__(
        self, imported: Sequence[str] = IMPORTED, environment: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if PREFORKED in os.environ and not environment:
            self._line = _connection_to_preforked(imported)
        else:
            self._line, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.servers.forkserver", *imported], env={**os.environ, **environment},
                    stdin=theirs, stdout=theirs,
                )
        self._children: dict[int, Child] = {}
        self._started = threading.Condition()
        self._newest: Child | None = None
        self.pid: int | None = None  # once it takes orders
        _RUNNING.add(self)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], log: Path, out: Path | None = None,
        stdin: Path = DEV_NULL, folder: Path | None = None,
    ) -> Child:
        """Starts `python -m ARGUMENTS` in this environment, logging to a file.

        out     the file of its standard output, where that is not the log
        folder  its working directory, where that is not ours
        """
        order = {
            "arguments": arguments, "environment": dict(environment), "log": str(log), "out": str(out or log),
            "stdin": str(stdin), "folder": str(folder or Path.cwd()),
        }
        with self._started:
            self._newest = None
            self._line.sendall(json.dumps(order).encode() + b"\n")
            assert self._started.wait_for(lambda: self._newest is not None, 180), "the fork server does not answer"
            assert self._newest is not None
            return self._newest

    def _read(self) -> None:
        with self._line.makefile("r") as lines:
            for line in lines:
                event = json.loads(line)
                if event["event"] == "serving":
                    self.pid = event["pid"]
                    continue
                if event["event"] == "ended":
                    self._children.pop(event["pid"]).set_status(event["status"])
                    continue
                with self._started:
                    self._newest = self._children[event["pid"]] = Child(event["pid"])
                    self._started.notify_all()

    def close(self) -> None:
        """Ends it and all processes that it started."""
        with contextlib.suppress(OSError):  # it has ended
            self._line.shutdown(socket.SHUT_WR)
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._reader.join()  # returns when the fork server has closed its end
        self._line.close()
        _RUNNING.discard(self)


def pids() -> list[int]:
    """The fork servers of this process that are not its children."""
    return [server.pid for server in _RUNNING if server.pid is not None and server._process is None]


def _connection_to_preforked(imported: Sequence[str]) -> socket.socket:
    """The connection to a new fork server. The server first imports the missing modules of `imported`."""
    line, path = socket.socket(socket.AF_UNIX), str(Path(os.environ[PREFORKED]) / "socket")
    until(lambda: not line.connect_ex(path), "the preforked process starts", PREFORKED_S_MAX)
    line.sendall(json.dumps(imported).encode() + b"\n")
    return line


@functools.cache
def _own_fork_server() -> ForkServer:
    """The fork server of this process, until it ends."""
    running = ForkServer()
    atexit.register(running.close)
    return running


def spawn(
    arguments: Sequence[str], environment: Mapping[str, str], log: Path, out: Path | None = None,
    stdin: Path = DEV_NULL, folder: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Starts python -m ARGUMENTS as a new process. The parameters are those of `ForkServer.start`."""
    with stdin.open("rb") as source, log.open("ab") as errors, (out or log).open("ab") as output:
        command = [sys.executable, "-m", *arguments]
        return subprocess.Popen(command, env=environment, stdin=source, stdout=output, stderr=errors, cwd=folder)


def start_process(
    arguments: Sequence[str], environment: Mapping[str, str], log: Path, out: Path, stdin: Path = DEV_NULL,
    folder: Path | None = None,
) -> Child | subprocess.Popen[bytes]:
    """Starts `python -m ARGUMENTS` in this environment, forked if possible. Otherwise it starts a new process.

    Forking is possible if this run has a preforked process and only our settings differ from its environment: the
    imported modules have read all other variables.
    """
    other_variables = (
        {name: value for name, value in all_of.items() if not name.startswith("ABS_")}
        for all_of in (environment, os.environ)
    )
    if PREFORKED in os.environ and next(other_variables) == next(other_variables):
        return _own_fork_server().start(arguments, environment, log, out, stdin, folder)
    return spawn(arguments, environment, log, out, stdin, folder)


def run_process(
    arguments: Sequence[str], environment: Mapping[str, str], s_max: float, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Starts such a process and waits for its end. Kills it after `s_max` seconds."""
    with tempfile.TemporaryDirectory() as folder:
        source, out, log = (Path(folder) / name for name in ("stdin", "stdout", "stderr"))
        source.write_text(stdin, encoding="utf-8")
        process = start_process(arguments, environment, log, out, source)
        try:
            status = process.wait(s_max)
        finally:
            process.kill()
            process.wait()
        output = [file.read_text(encoding="utf-8") for file in (out, log)]
        return subprocess.CompletedProcess(arguments, status, *output)


def _report(**event: Any) -> None:
    print(json.dumps(event), flush=True)


def read_line() -> bytes:
    """Reads one line of standard input without buffering; empty at the end. `select` thus sees the next line."""
    line = b""
    while not line.endswith(b"\n"):
        if not (byte := os.read(0, 1)):
            return b""
        line += byte
    return line


def _fork_loop() -> dict[str, Any] | None:
    """Forks at each order. Returns the order in each child, and None here when the owner has ended."""
    wake_reader, wake_writer = os.pipe()
    os.set_blocking(wake_writer, False)
    _report(event="serving", pid=os.getpid())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_writer)
    while True:
        if wake_reader in select.select([0, wake_reader], [], [])[0]:
            os.read(wake_reader, 4_096)
            _reap()
            continue
        line = read_line()
        if not line:
            return None
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for end in (wake_reader, wake_writer):
                os.close(end)
            order: dict[str, Any] = json.loads(line)
            return order
        _report(event="started", pid=pid)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while (status := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            _report(event="ended", pid=status[0], status=os.waitstatus_to_exitcode(status[1]))


def _run_module(order: dict[str, Any]) -> None:
    """Runs the module of an order in a freshly forked process."""
    die_with_parent()
    os.dup2(os.open(order["stdin"], os.O_RDONLY), 0)
    for name, standard in (("out", 1), ("log", 2)):
        os.dup2(os.open(order[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND), standard)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    random.seed()
    warnings.filterwarnings("ignore", "'.*' found in sys.modules", RuntimeWarning)  # it runs again
    module, *arguments = order["arguments"]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def serve() -> None:
    """Takes orders from standard input until the owner ends, then exits. Returns in each child after its work."""
    gc.collect()
    gc.freeze()  # else the collector of each child copies all pages of the imported objects, at its exit for 2 s
    order = _fork_loop()
    if order is None:
        os._exit(0)
    _run_module(order)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        importlib.import_module(name)
    serve()
