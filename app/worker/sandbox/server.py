"""The fork server keeps the compiler's tables and forks job processes.

It runs in its own process with one thread, and never reads data of a caller, so a job cannot affect it. A job's process
has its own session, directory and limits. When the worker ends it, all processes that it started are killed and
collected too. The server ends when its worker ends.

server to worker    one REPORT with each process that it forks, and beside it the socket of that process
worker to server    one byte to end the process; the next report follows
worker to process   one byte, with two open files beside it: the request, and an empty one for the answer
process to worker   STARTED, then DONE; the socket is open until the process ends

The process of the next job is forked in advance and runs a rehearsal. A fork shares its memory until it writes to it,
so the first job in a process would take 5 ms more for pages that every job writes to.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib
import os
import resource
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

Work = Callable[[bytes], bytes]
OpenWork = Callable[[bytes], tuple[Work, bytes]]

REPORT = struct.Struct("<qqq")  # id of the new process; exit status (or -signal) and peak memory of the last
STARTED, DONE = b"S", b"D"
EXIT_FAILED, EXIT_NO_MEMORY = 1, 3  # a bug; an allocation failed
OPEN_FILES_MAX = 64
_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36  # of Linux's prctl
_ADDRESS_SPACE, _RESIDENT = 0, 1  # fields of /proc/self/statm
_FIRST_TO_KILL = "1000"  # where the machine itself runs out of memory


def main(*, target: str, setup: int, control: int, directory: str, **limits: int) -> None:
    """Open the work and fork its processes until the worker ends.

    target     "module:function", an OpenWork: from the bytes of the setup to the work and a request to rehearse
    setup      an open file, as is `control`, the socket to the worker
    directory  where jobs get theirs
    limits     those of `_confine`
    """
    worker = socket.socket(fileno=control)
    _control_process(_SET_CHILD_SUBREAPER, 1)  # what a job leaves behind becomes our child
    with os.fdopen(setup, "rb") as file:
        module, _, name = target.partition(":")
        open_work: OpenWork = getattr(importlib.import_module(module), name)
        work, rehearsal = open_work(file.read())
    gc.collect()
    gc.freeze()  # the collector of a job leaves these objects alone, and so the pages that it shares with us
    status, peak_bytes, server, wanted = 0, 0, os.getpid(), True
    while wanted:
        job_directory = tempfile.mkdtemp(dir=directory)
        outer, inner = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            worker.close()
            outer.close()
            _run_process(work, rehearsal, inner, functools.partial(_confine, job_directory, server, **limits))
        inner.close()
        wanted = False
        with outer, contextlib.suppress(OSError):  # the worker is gone
            socket.send_fds(worker, [REPORT.pack(pid, status, peak_bytes)], [outer.fileno()])
            wanted = bool(worker.recv(1))
        status, peak_bytes = _end_process(pid)
        shutil.rmtree(job_directory, ignore_errors=True)
    shutil.rmtree(directory, ignore_errors=True)
    os._exit(0)


def _control_process(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _memory_bytes(field: int) -> int:
    """This process's memory in bytes. It is 0 if the system does not report it."""
    if sys.platform != "linux":
        return 0
    return int(Path("/proc/self/statm").read_text().split()[field]) * resource.getpagesize()


def _end_process(pid: int) -> tuple[int, int]:
    """Kill a process and all that it started. Returns its status (or -signal) and its peak memory beyond ours."""
    os.kill(pid, signal.SIGKILL)  # changes nothing where it has ended: its number is its own until wait4
    _, status, usage = os.wait4(pid, 0)
    growth_bytes = max(0, usage.ru_maxrss * 1024 - _memory_bytes(_RESIDENT))
    with contextlib.suppress(ChildProcessError):  # none is left
        while True:
            # The children of a process become ours when it dies.
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
                    os.kill(int(child), signal.SIGKILL)
                time.sleep(0.001)
    return os.waitstatus_to_exitcode(status), growth_bytes


def _run_process(work: Work, rehearsal: bytes, worker: socket.socket, confine: Callable[[], None]) -> NoReturn:
    """Run a job's process from its fork to its exit."""
    status = EXIT_FAILED
    try:
        confine()
        if rehearsal and not select.select([worker], [], [], 0)[0]:  # no job waits already
            work(rehearsal)
        _, (request, answer), _, _ = socket.recv_fds(worker, 1, 2)
        worker.sendall(STARTED)
        with os.fdopen(request, "rb") as source, os.fdopen(answer, "wb") as sink:
            sink.write(work(source.read()))
        worker.sendall(DONE)
    except MemoryError:
        status = EXIT_NO_MEMORY
    finally:
        os._exit(status)  # skips exit handlers and buffers inherited from the server


def _confine(directory: str, server: int, *, cpu_s: int, memory_bytes: int, file_bytes: int) -> None:
    """Give this process its own session, directory and limits. It dies with the server.

    cpu_s         whole seconds of processor time, for each of its processes
    memory_bytes  address space beyond what the server itself has
    file_bytes    size of each file it writes, its answer among them
    """
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
    _lower(resource.RLIMIT_FSIZE, file_bytes)
    _lower(resource.RLIMIT_CPU, cpu_s, 1)  # a second for the program that ignores the first signal
    if sys.platform == "linux":
        _lower(resource.RLIMIT_AS, _memory_bytes(_ADDRESS_SPACE) + memory_bytes)
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_KILL)


def _lower(limit: int, value: int, more: int = 0) -> None:
    """Set a soft limit, and the hard limit `more` above it. A lower limit of the operator stays."""
    hard = resource.getrlimit(limit)[1]
    top = value + more if hard == resource.RLIM_INFINITY else min(value + more, hard)
    resource.setrlimit(limit, (min(value, top), top))
