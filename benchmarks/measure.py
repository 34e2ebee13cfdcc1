"""Peak memory of a piece of work in this process, and the wish to run on one core. Linux only; knows no engine."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
from pathlib import Path

_STATUS = Path("/proc/self/status")
_FORGET_PEAK = "5"  # what /proc/self/clear_refs takes to begin a new high-water mark


def pin_to_one_core() -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def limit_more_memory(size_bytes: int) -> None:
    """Let this process take no more address space than it has, and `size_bytes`."""
    cap = _status_bytes("VmSize") + size_bytes
    resource.setrlimit(resource.RLIMIT_AS, (cap, cap))


def _status_bytes(field: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def resident_bytes() -> int:
    """The resident set of this process now."""
    return _status_bytes("VmRSS")


class PeakMemory:
    """The growth of the resident set from the making of this object to its highest since, in bytes.

    What the process has freed is given back to the system first, so that work cannot hide in it.
    """

    def __init__(self) -> None:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text(_FORGET_PEAK)
        self._before = _status_bytes("VmRSS")

    def growth(self) -> int:
        return max(0, _status_bytes("VmHWM") - self._before)
