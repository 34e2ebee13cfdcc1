"""A clock that only a test advances."""

from __future__ import annotations


class Clock:
    """Seconds that pass only when the test sets `now`."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now
