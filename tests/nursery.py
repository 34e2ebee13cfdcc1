"""Processes that start within hundredths of a second: forked from one that has imported what they need.

Python's start and the service's imports cost each of its processes one to two seconds of processor time, and tests of
faults start dozens. All else is as after `python -m MODULE ARGUMENTS`: environment, arguments, log and signals are the
process's own, nothing has been opened and no thread was started before. They end with the nursery, and it with its
owner.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import random
import runpy
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

IMPORTED = (
    "app.access.server", "app.broker.redis.broker", "app.cli", "app.handlers.compile", "app.main", "app.redis.checks",
    "app.serving", "app.store.redis", "app.working", "uvicorn",
)
GENERATING = (*IMPORTED, "tests.loaded")  # and what generates with the built-in model
PARENT_DEATH_SIGNAL = 1


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
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.nursery", *imported], env={**os.environ, **environment},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        self._children: dict[int, Child] = {}
        self._born = threading.Condition()
        self._newest: Child | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Child:
        """A new process: python -m ARGUMENTS, in this environment, with what it says added to a log."""
        order = json.dumps({"arguments": arguments, "environment": dict(environment), "log": str(log)})
        with self._born:
            assert self._process.stdin is not None
            self._newest = None
            self._process.stdin.write(order + "\n")
            self._process.stdin.flush()
            assert self._born.wait_for(lambda: self._newest is not None, 180), "the nursery does not answer"
            assert self._newest is not None
            return self._newest

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            if told["event"] == "ended":
                self._children.pop(told["pid"]).ended(told["status"])
                continue
            with self._born:
                self._newest = self._children[told["pid"]] = Child(told["pid"])
                self._born.notify_all()

    def end(self) -> None:
        """End it, and so all that it started."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


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


def _bear() -> dict[str, Any] | None:
    """Fork at each order. Returns in each child, what it is to do; and here, when the owner is gone."""
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker)
    while True:
        if woken in select.select([sys.stdin, woken], [], [])[0]:
            os.read(woken, 4_096)
            _reap()
            continue
        line = sys.stdin.readline()
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


def _live(order: dict[str, Any]) -> None:
    """What a process does that was just born."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
    nothing, log = os.open(os.devnull, os.O_RDONLY), os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for opened, standard in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(opened, standard)
    os.environ.clear()
    os.environ.update(order["environment"])
    random.seed()
    module, *arguments = order["arguments"]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        importlib.import_module(name)
    order = _bear()
    if order is not None:
        _live(order)
