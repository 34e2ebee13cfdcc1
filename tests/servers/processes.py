"""Facts about processes (Linux only), a free port, and waiting for conditions."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from socketserver import BaseServer
from typing import Any

S_MAX = 90.0
PARENT_DEATH_SIGNAL = 1
START_S_MAX = 600.0  # of a service, whatever else the machine does: only a hang exceeds it


def resident_bytes(pid: int) -> int:
    """What a process holds in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def children(pid: int) -> list[int]:
    """The live processes that a process started, from all its threads."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task_file in lists for child in task_file.read_text().split() if alive(int(child))]


def alive(pid: int) -> bool:
    """False for a process that has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def cpu_s(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def die_with_parent() -> None:
    """Has the system kill this process when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)


def free_port() -> int:
    """A free port outside the range from which systems choose ports."""
    while True:
        port = random.randrange(12_000, 32_000)  # systems choose higher ones
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def accepts_connections(port: int) -> bool:
    """Whether a process listens on a port of this machine."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@contextlib.contextmanager
def served_by_thread(server: BaseServer) -> Iterator[str]:
    """The URL of a server that a thread runs during the body."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def until(
    holds: Callable[[], Any], what: str = "the condition", s_max: float = S_MAX, poll_s: float | None = None
) -> Any:
    """Waits until a condition holds and returns its value. Fails after `s_max` seconds.

    Without `poll_s` the pauses grow with the time that has passed: most conditions cost a request.
    """
    began = time.monotonic()
    while not (value := holds()):
        passed_s = time.monotonic() - began
        assert passed_s < s_max, f"not within {s_max:g} s: {what}"
        time.sleep(min(0.2, 0.02 + 0.1 * passed_s) if poll_s is None else poll_s)
    return value
