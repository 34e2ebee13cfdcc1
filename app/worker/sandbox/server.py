"""The fork server: holds what every job needs, and forks a process for each. Runs in a process of its own.

It has one thread, reads nothing that a caller wrote, and does one thing at a time, so that nothing a job does can reach
it. A job's process has a session, a directory and limits of its own. When it ends, for whatever reason, everything it
started is killed and collected before the worker hears of it. Where the worker goes away, so does the server.

The next job's process stands by before the job comes, and has rehearsed: a fork shares its memory until it writes to
it, and the first job in a process would pay 5 ms for pages that every job writes to.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import resource
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from app.worker.sandbox.protocol import (
    CANCEL,
    CANCELLED,
    DONE,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_NO_MEMORY,
    EXITED,
    JOB,
    READY,
    SIGNALLED,
    STARTED,
    TIMED_OUT,
    Budget,
    Report,
)

Work = Callable[[bytes], bytes]
OpenWork = Callable[[bytes], tuple[Work, bytes]]

OPEN_FILES_MAX = 64
_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36  # of Linux's prctl
_ADDRESS_SPACE, _RESIDENT = 0, 1  # fields of /proc/self/statm
_FIRST_TO_KILL = "1000"  # where the machine itself runs out of memory


def main(boot: dict[str, Any]) -> None:
    """Open the work and serve until the worker is gone.

    boot  target: "module:function", an OpenWork: from the bytes of the setup to the work and a request to rehearse,
          which is empty where there is nothing to rehearse; control, setup: open files; directory: where jobs get
          theirs; budget: the fields of Budget
    """
    control = socket.socket(fileno=boot["control"])
    _control_process(_SET_CHILD_SUBREAPER, 1)  # what a job leaves behind becomes our child
    with os.fdopen(boot["setup"], "rb") as setup:
        module, _, name = boot["target"].partition(":")
        open_work: OpenWork = getattr(importlib.import_module(module), name)
        work, rehearsal = open_work(setup.read())
    gc.collect()
    gc.freeze()  # the collector of a job leaves these objects alone, and so the pages that it shares with us
    server = _Server(control, work, rehearsal, Budget(**boot["budget"]), boot["directory"])
    with contextlib.suppress(OSError):  # the worker is gone
        control.sendall(Report(READY).pack())
        server.serve()
    server.end()
    shutil.rmtree(boot["directory"], ignore_errors=True)
    os._exit(0)


def _control_process(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


class _Server:
    """One job after the other, and a process that stands by for the next."""

    def __init__(self, control: socket.socket, work: Work, rehearsal: bytes, budget: Budget, directory: str) -> None:
        self._directory = directory
        self._control = control
        self._work = work
        self._rehearsal = rehearsal
        self._budget = budget
        self._next = self._fork()

    def serve(self) -> None:
        """Until the worker closes its end. A CANCEL that comes after its job's end is passed over."""
        while True:
            order, files, _, _ = socket.recv_fds(self._control, 1, 2)
            if not order:
                return
            if order == JOB:
                self._hand_over(files)
                self._finish(self._wait())
                self._next = self._fork()

    def end(self) -> None:
        """End the process that stands by, or whose job is under way."""
        self._next.collect()

    def _fork(self) -> _Process:
        directory = tempfile.mkdtemp(dir=self._directory)
        door, inner = socket.socketpair()
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._control.close()
            door.close()
            _live(self._work, self._rehearsal, inner, self._budget, directory, server)
        inner.close()
        return _Process(pid, door, directory)

    def _hand_over(self, files: list[int]) -> None:
        """Give the job to the process that stands by; to another where that was killed before it could begin."""
        for last in (False, True):
            self._control.sendall(Report(STARTED, self._next.pid).pack())  # first, lest we die before it is known
            self._next.give(files)
            if last or (self._next.spoke(self._budget.wall_s) and self._next.word() == STARTED):
                break
            self._next.collect()
            self._next = self._fork()
        for file in files:
            os.close(file)

    def _wait(self) -> bytes:
        """Until the job is done, ends, is called off, or has used up its time."""
        ends = time.monotonic() + self._budget.wall_s
        while (left_s := ends - time.monotonic()) > 0:
            if self._next.spoke(left_s, self._control):
                if (word := self._next.word()) != STARTED:
                    return word
            elif _readable(self._control) and self._control.recv(1) in (b"", CANCEL):
                return CANCELLED
        return TIMED_OUT

    def _finish(self, how: bytes) -> None:
        """Report the outcome to the worker, and collect the process.

        A finished job is reported first. Any other report needs the exit status, so the process is collected first.
        """
        if how == DONE:
            self._control.sendall(Report(DONE).pack())
            self._next.collect()
            return
        status, peak_bytes = self._next.collect()
        kind = SIGNALLED if how == EXITED and status < 0 else how
        self._control.sendall(Report(kind, abs(status), peak_bytes).pack())


class _Process:
    """A job's process, seen from the server. It says STARTED and DONE through the door, open until it ends."""

    def __init__(self, pid: int, door: socket.socket, directory: str) -> None:
        self.pid = pid
        self._door = door
        self._directory = directory
        self._ended: tuple[int, int] | None = None

    def give(self, files: list[int]) -> None:
        """Give it the request and the file for the answer."""
        with contextlib.suppress(OSError):  # it has just died, as will be seen
            socket.send_fds(self._door, [JOB], files)

    def spoke(self, within_s: float, *others: socket.socket) -> bool:
        """Wait until it says something, `others` can be read or the time is up: True for the first."""
        return self._door in select.select([self._door, *others], [], [], within_s)[0]

    def word(self) -> bytes:
        """What it said: STARTED, DONE, or EXITED as it has ended."""
        try:
            return self._door.recv(len(DONE)) or EXITED
        except OSError:
            return EXITED

    def collect(self) -> tuple[int, int]:
        """Kill it and all that it started, where they still run; its status (or -signal), and its memory at most."""
        if self._ended is None:
            os.kill(self.pid, signal.SIGKILL)  # changes nothing where it has ended: its number is its own until wait4
            _, status, usage = os.wait4(self.pid, 0)
            growth_bytes = max(0, usage.ru_maxrss * 1024 - _memory_bytes(_RESIDENT))
            self._ended = os.waitstatus_to_exitcode(status), growth_bytes
            _end_children()
            self._door.close()
            shutil.rmtree(self._directory, ignore_errors=True)
        return self._ended


def _readable(opened: socket.socket) -> bool:
    return bool(select.select([opened], [], [], 0)[0])


def _memory_bytes(field: int) -> int:
    """What the system says of this process's memory; 0 where it says nothing."""
    if sys.platform != "linux":
        return 0
    return int(Path("/proc/self/statm").read_text().split()[field]) * resource.getpagesize()


def _end_children() -> None:
    """Kill and collect what the job's process left behind; as each dies, its own children become ours."""
    with contextlib.suppress(ChildProcessError):  # none is left
        while True:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
                    os.kill(int(child), signal.SIGKILL)
                time.sleep(0.001)


def _live(work: Work, rehearsal: bytes, door: socket.socket, budget: Budget, directory: str, server: int) -> NoReturn:
    """The whole life of a job's process."""
    status = EXIT_FAILED
    try:
        _confine(budget, directory, server)
        if rehearsal and not _readable(door):  # no job waits already
            work(rehearsal)
        _, (request, answer), _, _ = socket.recv_fds(door, 1, 2)
        door.sendall(STARTED)
        with os.fdopen(request, "rb") as source, os.fdopen(answer, "wb") as sink:
            sink.write(work(source.read()))
        door.sendall(DONE)
        status = EXIT_DONE
    except MemoryError:
        status = EXIT_NO_MEMORY
    finally:
        os._exit(status)  # skips exit handlers and buffers inherited from the server


def _confine(budget: Budget, directory: str, server: int) -> None:
    """A session, a directory and limits of its own; no terminal, no files but its own, and dead when the server is."""
    os.setsid()
    _control_process(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != server:  # it died before that
        os._exit(EXIT_FAILED)
    os.chdir(directory)
    tempfile.tempdir = directory
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.close(null)
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NOFILE, OPEN_FILES_MAX)
    _lower(resource.RLIMIT_FSIZE, budget.file_bytes)
    _lower(resource.RLIMIT_CPU, budget.cpu_s, 1)  # a second for the program that ignores the first signal
    if sys.platform == "linux":
        _lower(resource.RLIMIT_AS, _memory_bytes(_ADDRESS_SPACE) + budget.memory_bytes)
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_KILL)


def _lower(limit: int, value: int, more: int = 0) -> None:
    """Set a limit, `more` above it the one that cannot be passed; one that the operator set lower stays."""
    hard = resource.getrlimit(limit)[1]
    top = value + more if hard == resource.RLIM_INFINITY else min(value + more, hard)
    resource.setrlimit(limit, (min(value, top), top))
