"""The fork server keeps the compiler's tables and forks job processes.

It runs in its own process with one thread, and never parses data of a caller, so a job cannot affect it. A job's
process has its own session, directory and limits. When it ends, all processes that it started are killed and collected
before the worker gets the report. The server ends when its worker ends.

The process of the next job is forked in advance and runs a rehearsal. A fork shares its memory until it writes to it,
so the first job in a process would take 5 ms more for pages that every job writes to.
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

from app.worker.sandbox import protocol
from app.worker.sandbox.protocol import Budget, Report

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
        control.sendall(Report(protocol.READY).pack())
        server.serve()
    server.end()
    shutil.rmtree(boot["directory"], ignore_errors=True)
    os._exit(0)


def _control_process(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


class _Server:
    """Runs one job at a time. It keeps a process ready for the next."""

    def __init__(self, control: socket.socket, work: Work, rehearsal: bytes, budget: Budget, directory: str) -> None:
        self._directory = directory
        self._control = control
        self._work = work
        self._rehearsal = rehearsal
        self._budget = budget
        self._next = self._fork()

    def serve(self) -> None:
        """Run jobs until the worker closes its end. A CANCEL that arrives after its job's end is ignored."""
        while True:
            order, files, _, _ = socket.recv_fds(self._control, 1, 2)
            if not order:
                return
            if order == protocol.JOB:
                self._hand_over(files)
                self._finish(self._wait())
                self._next = self._fork()

    def end(self) -> None:
        """End the process that is ready or runs a job."""
        self._next.collect()

    def _fork(self) -> _Process:
        directory = tempfile.mkdtemp(dir=self._directory)
        connection, inner = socket.socketpair()
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._control.close()
            connection.close()
            _run_process(self._work, self._rehearsal, inner, self._budget, directory, server)
        inner.close()
        return _Process(pid, connection, directory)

    def _hand_over(self, files: list[int]) -> None:
        """Gives the job to the ready process. If that process was killed before it could start, a second one gets the
        job.
        """
        for last in (False, True):
            # The report comes first: if the server dies, the worker must know this session.
            self._control.sendall(Report(protocol.STARTED, self._next.pid).pack())
            self._next.give(files)
            if last or (self._next.has_message(self._budget.wall_s) and self._next.message() == protocol.STARTED):
                break
            self._next.collect()
            self._next = self._fork()
        for file in files:
            os.close(file)

    def _wait(self) -> bytes:
        """Wait until the job is done, dies, is cancelled, or is late."""
        ends = time.monotonic() + self._budget.wall_s
        while (left_s := ends - time.monotonic()) > 0:
            if self._next.has_message(left_s, self._control):
                if (message := self._next.message()) != protocol.STARTED:
                    return message
            elif _readable(self._control) and self._control.recv(1) in (b"", protocol.CANCEL):
                return protocol.CANCELLED
        return protocol.TIMED_OUT

    def _finish(self, how: bytes) -> None:
        """Report the outcome to the worker, and collect the process.

        A finished job is reported first. Any other report needs the exit status, so the process is collected first.
        """
        if how == protocol.DONE:
            self._control.sendall(Report(protocol.DONE).pack())
            self._next.collect()
            return
        status, peak_bytes = self._next.collect()
        kind = protocol.SIGNALLED if how == protocol.EXITED and status < 0 else how
        self._control.sendall(Report(kind, abs(status), peak_bytes).pack())


class _Process:
    """A job's process, seen from the server. It sends STARTED and DONE over a socket that is open until it ends."""

    def __init__(self, pid: int, connection: socket.socket, directory: str) -> None:
        self.pid = pid
        self._socket = connection
        self._directory = directory
        self._ended: tuple[int, int] | None = None

    def give(self, files: list[int]) -> None:
        """Give it the request and the file for the answer."""
        with contextlib.suppress(OSError):  # it has just died, as will be seen
            socket.send_fds(self._socket, [protocol.JOB], files)

    def has_message(self, within_s: float, *others: socket.socket) -> bool:
        """Wait for a message, for `others`, or for the timeout.

        True if there is a message; `others` are sockets to watch.
        """
        return self._socket in select.select([self._socket, *others], [], [], within_s)[0]

    def message(self) -> bytes:
        """The process's message: STARTED, DONE, or EXITED if it has ended."""
        try:
            return self._socket.recv(len(protocol.DONE)) or protocol.EXITED
        except OSError:
            return protocol.EXITED

    def collect(self) -> tuple[int, int]:
        """Kill the process and all that it started. Returns its status (or -signal) and its peak memory in bytes."""
        if self._ended is None:
            os.kill(self.pid, signal.SIGKILL)  # changes nothing where it has ended: its number is its own until wait4
            _, status, usage = os.wait4(self.pid, 0)
            growth_bytes = max(0, usage.ru_maxrss * 1024 - _memory_bytes(_RESIDENT))
            self._ended = os.waitstatus_to_exitcode(status), growth_bytes
            _end_children()
            self._socket.close()
            shutil.rmtree(self._directory, ignore_errors=True)
        return self._ended


def _readable(opened: socket.socket) -> bool:
    return bool(select.select([opened], [], [], 0)[0])


def _memory_bytes(field: int) -> int:
    """This process's memory in bytes. It is 0 if the system does not report it."""
    if sys.platform != "linux":
        return 0
    return int(Path("/proc/self/statm").read_text().split()[field]) * resource.getpagesize()


def _end_children() -> None:
    """Kill and collect the processes that a job left. Their children become ours when they die."""
    with contextlib.suppress(ChildProcessError):  # none is left
        while True:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
                    os.kill(int(child), signal.SIGKILL)
                time.sleep(0.001)


def _run_process(
    work: Work, rehearsal: bytes, connection: socket.socket, budget: Budget, directory: str, server: int
) -> NoReturn:
    """Run a job's process from its fork to its exit."""
    status = protocol.EXIT_FAILED
    try:
        _confine(budget, directory, server)
        if rehearsal and not _readable(connection):  # no job waits already
            work(rehearsal)
        _, (request, answer), _, _ = socket.recv_fds(connection, 1, 2)
        connection.sendall(protocol.STARTED)
        with os.fdopen(request, "rb") as source, os.fdopen(answer, "wb") as sink:
            sink.write(work(source.read()))
        connection.sendall(protocol.DONE)
        status = protocol.EXIT_DONE
    except MemoryError:
        status = protocol.EXIT_NO_MEMORY
    finally:
        os._exit(status)  # skips exit handlers and buffers inherited from the server


def _confine(budget: Budget, directory: str, server: int) -> None:
    """Give this process its own session, directory and limits. It dies with the server."""
    os.setsid()
    _control_process(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != server:  # it died before that
        os._exit(protocol.EXIT_FAILED)
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
    """Set a soft limit, and the hard limit `more` above it. A lower limit of the operator stays."""
    hard = resource.getrlimit(limit)[1]
    top = value + more if hard == resource.RLIM_INFINITY else min(value + more, hard)
    resource.setrlimit(limit, (min(value, top), top))
