"""How much of a device's memory proves to be there: for all generations together, and for the rows of one pass.

Begins with what it is told. Where memory runs out, each limit falls to what was seen to hold, so that the next step
does not run into the same wall; and it rises again by and by, for what took the memory may be gone. Knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

ROWS_MAX = 2**62  # of a pass about which nothing is known yet
SOUND_STEPS = 256  # so many steps that hold raise what has fallen by a half
T = TypeVar("T")


class MemoryBudget:
    """The limits as they are now.

    memory_bytes  what the generations that run may come to hold together; one by itself may always be tried
    rows          of one pass; the rows of one generation are never parted, so that its bits stay the same
    """

    def __init__(self, memory_bytes: int, rows: int = ROWS_MAX) -> None:
        self.memory_bytes, self._memory_bytes_most = memory_bytes, memory_bytes
        self.rows, self._rows_most = rows, rows
        self._sound = 0

    def crowd_failed(self, left_bytes: int) -> None:
        """A generation found no memory; those that go on without it may come to hold so much."""
        self.memory_bytes, self._sound = min(self.memory_bytes, left_bytes), 0

    def pass_failed(self, rows_held: int) -> None:
        """A pass had to be parted. `rows_held`: the most rows that were then read at once."""
        self.rows, self._sound = max(1, min(self.rows, rows_held)), 0

    def step_held(self) -> None:
        """A step found the memory for all its passes."""
        self._sound += 1
        if self._sound == SOUND_STEPS:
            self._sound = 0
            self.rows = min(self._rows_most, _raised(self.rows))
            self.memory_bytes = min(self._memory_bytes_most, _raised(self.memory_bytes))

    def passes(self, parts: Iterable[T], rows_of: Callable[[T], int]) -> Iterator[list[T]]:
        """The parts of a step in as few passes as may be, in their order; each has one at least."""
        group: list[T] = []
        rows = 0
        for part in parts:
            if group and rows + rows_of(part) > self.rows:
                yield group
                group, rows = [], 0
            group.append(part)
            rows += rows_of(part)
        if group:
            yield group


def _raised(limit: int) -> int:
    return limit + max(1, limit // 2)
