"""Peak memory and CPU affinity of this process. Linux only."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
from pathlib import Path

_STATUS = Path("/proc/self/status")
_RESET_PEAK = "5"  # resets the high-water mark when written to /proc/self/clear_refs


def pin_to_one_core() -> None:
    """Run on the last of the allowed cores alone."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def limit_more_memory(size_bytes: int) -> None:
    """Limit the address space to its present size and `size_bytes`."""
    cap = _status_bytes("VmSize") + size_bytes
    resource.setrlimit(resource.RLIMIT_AS, (cap, cap))


def _status_bytes(field: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def resident_bytes() -> int:
    """The resident set of this process."""
    return _status_bytes("VmRSS")


class PeakMemory:
    """Measures the peak growth of the resident set since its creation.

    Freed memory is returned to the system first, as later work could use it without any growth.
    """

    def __init__(self) -> None:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
        self._start = _status_bytes("VmRSS")

    def growth(self) -> int:
        """In bytes."""
        return max(0, _status_bytes("VmHWM") - self._start)
