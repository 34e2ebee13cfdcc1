"""What a job in the sandbox might do at worst, by the request's first word. Opened by the fork server, by name."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

IGNORED = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


def open_job(setup: bytes) -> tuple[Callable[[bytes], bytes], bytes]:
    """The work of the tests. `setup` is put before every answer."""

    def work(request: bytes) -> bytes:
        name, _, rest = request.partition(b" ")
        return setup + JOBS[name.decode()](rest)

    return work, b"echo the rehearsal"


def open_never(setup: bytes) -> tuple[Callable[[bytes], bytes], bytes]:
    """Cannot be opened."""
    raise RuntimeError("the setup is not to its taste")


def echo(rest: bytes) -> bytes:
    return rest


def spin(rest: bytes) -> bytes:
    """Use the processor for ever, deaf to every signal that can be ignored."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGXCPU, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while True:
        pass


def sleep(rest: bytes) -> bytes:
    """Do nothing for ever."""
    time.sleep(600)
    return b""


def eat_memory(rest: bytes) -> bytes:
    """Fill more and more memory."""
    held = []
    while True:
        held.append(np.ones(2**20, dtype=np.int64))


def swallow_memory_errors(rest: bytes) -> bytes:
    """Go on eating whatever the system says."""
    held = []
    while True:
        try:
            held.append(bytearray(b"x" * 2**20))
        except MemoryError:
            continue


def abort_for_memory(rest: bytes) -> bytes:
    """Eat most of what there is, then die as a library does whose allocation fails."""
    held = np.ones(int(rest) // 8, dtype=np.int64)
    os.abort()
    return bytes(held[:1])


def use_up_its_time(rest: bytes) -> bytes:
    """End as the system ends a process that has used up its processor time."""
    signal.raise_signal(signal.SIGXCPU)
    return b""


def segfault(rest: bytes) -> bytes:
    ctypes.string_at(0)
    return b""


def leave(rest: bytes) -> bytes:
    """End the process as if all were well, without an answer."""
    os._exit(0)


def raise_bug(rest: bytes) -> bytes:
    raise ZeroDivisionError("a bug")


def recurse(rest: bytes) -> bytes:
    return recurse(rest) + rest


def write_a_large_file(rest: bytes) -> bytes:
    with open("large", "wb") as file:
        for _ in range(1024):
            file.write(bytes(2**20))
    return b""


def start_others(rest: bytes) -> bytes:
    """Start a process that ignores what it can, in a group or a session of its own; stay, where `rest` says so."""
    session = rest != b"stay, in one session"
    alone = {"start_new_session": True} if session else {"process_group": 0}
    other = subprocess.Popen([sys.executable, "-S", "-c", IGNORED], **alone)
    if rest:
        time.sleep(600)
    return str(other.pid).encode()


def describe(rest: bytes) -> bytes:
    """Where the job runs and what it sees."""
    environment = " ".join(sorted(os.environ))
    here = (os.getpid(), os.getsid(0), os.getcwd(), os.listdir(), environment, os.listdir("/proc/self/fd"))
    return "|".join(map(str, here)).encode()


JOBS: dict[str, Callable[[bytes], bytes]] = {
    job.__name__: job
    for job in (
        echo, spin, sleep, eat_memory, swallow_memory_errors, abort_for_memory, use_up_its_time, segfault, leave,
        raise_bug, recurse, write_a_large_file, start_others, describe,
    )
}  # fmt: skip
