"""Limits glibc's malloc to one arena, which all threads of a worker share.

With an arena per thread, memory freed by one thread is not reused by the others.
"""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8  # constant in glibc's malloc.h


def use_single_malloc_arena() -> None:
    """Makes threads that start later allocate from the main arena; does nothing without glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
