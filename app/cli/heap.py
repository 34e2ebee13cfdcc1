"""Where a worker's threads get their memory: from one heap, not one each.

A thread's own heap keeps the holes that its work has left, and no other thread fills them.
"""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8  # of glibc's malloc.h


def share_one_heap() -> None:
    """Have all threads that are started from now on allocate from the heap of the first; without glibc, do nothing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
