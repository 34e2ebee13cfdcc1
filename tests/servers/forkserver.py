"""Processes that start within hundredths of a second: forked from one that has imported what they need.

Python's start and the service's imports cost each of its processes one to two seconds of processor time, and tests of
faults start dozens. All else is as after `python -m MODULE ARGUMENTS`: environment, arguments, log and signals are the
process's own, nothing has been opened and no thread was started before. They end with the nursery, and it with its
owner. In a run of several processes a nursery is itself forked from that of tests/servers/preforked.py.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
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
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

IMPORTED = (
    "app.auth.redis_counters", "app.broker.redis.broker", "app.cli.main", "app.worker.handlers.compile", "app.main",
    "app.redis.server_checks", "app.http_server", "app.store.redis", "app.cli.worker_process", "uvicorn",
)
GENERATING = (*IMPORTED, "tests.servers.preloaded_model")  # and what generates with the built-in model
MOTHER = "TESTS_MOTHER"  # in the environment of a run that has one: the folder of its socket
MOTHER_S_MAX = 180.0
PARENT_DEATH_SIGNAL = 1
NOTHING = Path(os.devnull)


class Child:
    """A process of a nursery, with what tests ask of a Popen."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._over = threading.Event()

    def ended(self, status: int) -> None:
        """Told by the nursery."""
        self.returncode = status
        self._over.set()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self._over.wait(timeout):
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


class Nursery:
    """The process that all others are forked from."""

    def __init__(self, imported: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if MOTHER in os.environ and not environment:
            self._line = _line_to_mother(imported)
        else:
            self._line, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.servers.forkserver", *imported], env={**os.environ, **environment},
                    stdin=theirs, stdout=theirs,
                )
        self._children: dict[int, Child] = {}
        self._born = threading.Condition()
        self._newest: Child | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], log: Path, out: Path | None = None,
        stdin: Path = NOTHING,
    ) -> Child:
        """A new process: python -m ARGUMENTS, in this environment, with what it says added to a log.

        out  where what it says on standard output goes instead
        """
        order = {
            "arguments": arguments, "environment": dict(environment), "log": str(log), "out": str(out or log),
            "stdin": str(stdin),
        }
        with self._born:
            self._newest = None
            self._line.sendall(json.dumps(order).encode() + b"\n")
            assert self._born.wait_for(lambda: self._newest is not None, 180), "the nursery does not answer"
            assert self._newest is not None
            return self._newest

    def _read(self) -> None:
        with self._line.makefile("r") as lines:
            for line in lines:
                told = json.loads(line)
                if told["event"] == "ended":
                    self._children.pop(told["pid"]).ended(told["status"])
                    continue
                with self._born:
                    self._newest = self._children[told["pid"]] = Child(told["pid"])
                    self._born.notify_all()

    def end(self) -> None:
        """End it, and so all that it started."""
        with contextlib.suppress(OSError):  # it is gone
            self._line.shutdown(socket.SHUT_WR)
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._reader.join()  # until its end of the line is closed, which is when it ends
        self._line.close()


def _line_to_mother(imported: Sequence[str]) -> socket.socket:
    """The line of a new nursery, which imports what is missing of `imported` before it takes orders."""
    ends = time.monotonic() + MOTHER_S_MAX
    line = socket.socket(socket.AF_UNIX)
    while line.connect_ex(str(Path(os.environ[MOTHER]) / "socket")):
        assert time.monotonic() < ends, "the process that all are forked from does not start"
        time.sleep(0.05)
    line.sendall(json.dumps(imported).encode() + b"\n")
    return line


@functools.cache
def _own_nursery() -> Nursery:
    """That of this process, until it ends."""
    running = Nursery(IMPORTED, {})
    atexit.register(running.end)
    return running


def start_process(
    arguments: Sequence[str], environment: Mapping[str, str], log: Path, out: Path, stdin: Path = NOTHING
) -> Child | subprocess.Popen[bytes]:
    """python -m ARGUMENTS, in this environment: forked where that can be, started as ever elsewhere.

    It can where this run has a mother, and no variable but our settings is another for this process: what is imported
    has read the others.
    """
    others = (
        {name: value for name, value in all_of.items() if not name.startswith("ABS_")}
        for all_of in (environment, os.environ)
    )
    if MOTHER in os.environ and next(others) == next(others):
        return _own_nursery().start(arguments, environment, log, out, stdin)
    with stdin.open("rb") as given, log.open("ab") as words, out.open("ab") as said:
        command = [sys.executable, "-m", *arguments]
        return subprocess.Popen(command, env=environment, stdin=given, stdout=said, stderr=words)


def run_process(
    arguments: Sequence[str], environment: Mapping[str, str], s_max: float, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """The same, until it ends; it is killed where it does not within `s_max`."""
    with tempfile.TemporaryDirectory() as folder:
        given, out, log = (Path(folder) / name for name in ("stdin", "stdout", "stderr"))
        given.write_text(stdin, encoding="utf-8")
        process = start_process(arguments, environment, log, out, given)
        try:
            status = process.wait(s_max)
        finally:
            process.kill()
            process.wait()
        said = [file.read_text(encoding="utf-8") for file in (out, log)]
        return subprocess.CompletedProcess(arguments, status, *said)


@contextlib.contextmanager
def nursery(
    imported: Sequence[str] = IMPORTED, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Nursery]:
    """A nursery that ends with the statement's body. `environment` is what its own has beside ours."""
    running = Nursery(imported, environment)
    try:
        yield running
    finally:
        running.end()


def _say(**told: Any) -> None:
    print(json.dumps(told), flush=True)


def read_line() -> bytes:
    """A line of standard input, and nothing of what follows, so that `select` tells of that; empty at the end."""
    line = b""
    while not line.endswith(b"\n"):
        if not (byte := os.read(0, 1)):
            return b""
        line += byte
    return line


def _bear() -> dict[str, Any] | None:
    """Fork at each order. Returns in each child, what it is to do; and here, when the owner is gone."""
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker)
    while True:
        if woken in select.select([0, woken], [], [])[0]:
            os.read(woken, 4_096)
            _reap()
            continue
        line = read_line()
        if not line:
            return None
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for end in (woken, waker):
                os.close(end)
            order: dict[str, Any] = json.loads(line)
            return order
        _say(event="started", pid=pid)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            _say(event="ended", pid=ended[0], status=os.waitstatus_to_exitcode(ended[1]))


def die_with_parent() -> None:
    """Have the system kill this process when the one that started it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _live(order: dict[str, Any]) -> None:
    """What a process does that was just born."""
    die_with_parent()
    os.dup2(os.open(order["stdin"], os.O_RDONLY), 0)
    for name, standard in (("out", 1), ("log", 2)):
        os.dup2(os.open(order[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND), standard)
    os.environ.clear()
    os.environ.update(order["environment"])
    random.seed()
    warnings.filterwarnings("ignore", "'.*' found in sys.modules", RuntimeWarning)  # it is there, and runs anew
    module, *arguments = order["arguments"]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def tend() -> None:
    """Take orders from standard input until the owner is gone, and then end. Returns in each child, its work done."""
    order = _bear()
    if order is None:
        os._exit(0)
    _live(order)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        importlib.import_module(name)
    tend()
