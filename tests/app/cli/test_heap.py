"""Threads share one heap, by the statistics of the C library."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from app.cli.worker_process import use_single_malloc_arena

_S_MAX = 120
_THREADS = 6
_BYTES = 50_000  # larger than pymalloc serves, smaller than malloc maps separately


def _heap_count() -> int:
    """The number of heaps after concurrent allocations by several threads."""
    libc = ctypes.CDLL(None)
    barrier = threading.Barrier(_THREADS)

    def allocate() -> None:
        block = bytearray(_BYTES)
        barrier.wait(_S_MAX)
        del block

    threads = [threading.Thread(target=allocate) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    libc.fopen.restype, libc.fopen.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_char_p]
    libc.malloc_info.argtypes, libc.fclose.argtypes = [ctypes.c_int, ctypes.c_void_p], [ctypes.c_void_p]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "heap.xml"
        file = libc.fopen(str(report).encode(), b"w")
        libc.malloc_info(0, file)
        libc.fclose(file)
        return report.read_text(encoding="ascii").count("<heap nr=")


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="the C library is not glibc")
def test_threads_share_one_heap_with_a_single_malloc_arena() -> None:
    counts = {}
    for mode in ("shared", "separate"):  # in fresh processes, since a process keeps its heaps
        command = [sys.executable, "-m", __name__, mode]
        counts[mode] = int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=_S_MAX).stdout)
    assert counts["shared"] == 1 < counts["separate"]


if __name__ == "__main__":
    if sys.argv[1] == "shared":
        use_single_malloc_arena()
    print(_heap_count())
