"""Hostile sandbox jobs, selected by the first word of a request.

The fork server opens them by name.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

STUBBORN_CODE = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


def open_job(setup: bytes) -> tuple[Callable[[bytes], bytes], bytes]:
    """The job function of the tests; `setup` prefixes every answer."""

    def work(request: bytes) -> bytes:
        name, _, argument = request.partition(b" ")
        return setup + JOBS[name.decode()](argument)

    return work, b"echo the rehearsal"


def open_never(setup: bytes) -> tuple[Callable[[bytes], bytes], bytes]:
    """Cannot be opened."""
    raise RuntimeError("the job cannot be opened")


def echo(argument: bytes) -> bytes:
    return argument


def spin(argument: bytes) -> bytes:
    """Use the processor for ever and ignore all signals."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGXCPU, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while True:
        pass


def sleep(argument: bytes) -> bytes:
    """Do nothing for ever."""
    time.sleep(600)
    return b""


def eat_memory(argument: bytes) -> bytes:
    """Allocate memory without end."""
    arrays = []
    while True:
        arrays.append(np.ones(2**20, dtype=np.int64))


def swallow_memory_errors(argument: bytes) -> bytes:
    """Allocate without end and ignore memory errors."""
    buffers = []
    while True:
        try:
            buffers.append(bytearray(b"x" * 2**20))
        except MemoryError:
            continue


def abort_for_memory(argument: bytes) -> bytes:
    """Allocate much memory, then abort as after a failed allocation."""
    array = np.ones(int(argument) // 8, dtype=np.int64)
    os.abort()
    return bytes(array[:1])


class Panic(BaseException):
    """No Exception, as what libraries in Rust raise."""


def panic_for_memory(argument: bytes) -> bytes:
    """Allocate much memory, then fail as a library in Rust does."""
    array = np.ones(int(argument) // 8, dtype=np.int64)
    raise Panic(len(array))


def use_up_its_time(argument: bytes) -> bytes:
    """End as a process whose CPU limit is exceeded."""
    signal.raise_signal(signal.SIGXCPU)
    return b""


def segfault(argument: bytes) -> bytes:
    ctypes.string_at(0)
    return b""


def leave(argument: bytes) -> bytes:
    """End the process with status 0, without an answer."""
    os._exit(0)


def raise_bug(argument: bytes) -> bytes:
    raise ZeroDivisionError("a bug")


def recurse(argument: bytes) -> bytes:
    return recurse(argument) + argument


def write_a_large_file(argument: bytes) -> bytes:
    with open("large", "wb") as file:
        for _ in range(1024):
            file.write(bytes(2**20))
    return b""


def start_others(argument: bytes) -> bytes:
    """Start a process that ignores signals.

    It gets a new process group or a new session. With an argument, this job then sleeps.
    """
    session = argument != b"stay, in one session"
    group_options = {"start_new_session": True} if session else {"process_group": 0}
    child = subprocess.Popen([sys.executable, "-S", "-c", STUBBORN_CODE], **group_options)
    if argument:
        time.sleep(600)
    return str(child.pid).encode()


def describe(argument: bytes) -> bytes:
    """The process ids, directory, files and environment of the job."""
    environment = " ".join(sorted(os.environ))
    facts = (os.getpid(), os.getsid(0), os.getcwd(), os.listdir(), environment, os.listdir("/proc/self/fd"))
    return "|".join(map(str, facts)).encode()


JOBS: dict[str, Callable[[bytes], bytes]] = {
    job.__name__: job
    for job in (
        echo, spin, sleep, eat_memory, swallow_memory_errors, abort_for_memory, panic_for_memory, use_up_its_time,
        segfault, leave, raise_bug, recurse, write_a_large_file, start_others, describe,
    )
}  # fmt: skip
