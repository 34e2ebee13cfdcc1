"""Facts about running processes: memory, children, processor time. Linux only."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

S_MAX = 90.0


def resident_bytes(pid: int) -> int:
    """What a process holds in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def children(pid: int) -> list[int]:
    """The processes that a process started, of all its threads, those aside that have ended."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for one in lists for child in one.read_text().split() if alive(int(child))]


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


def until(holds: Callable[[], bool]) -> None:
    """Waits until a condition holds; fails after S_MAX seconds."""
    ends = time.monotonic() + S_MAX
    while not holds():
        assert time.monotonic() < ends, "it never came to hold"
        time.sleep(0.005)
