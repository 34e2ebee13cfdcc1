"""Memory limits of a device: for all generations together, and for the rows of one pass.

The limits begin with the configured values. Where memory runs out, the limit concerned falls to what has held, so that
the next step does not fail in the same way. After SOUND_STEPS steps without failure the limits rise by half, since
other users of the memory may have released it. The module knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

ROWS_MAX = 2**62  # of a pass about which nothing is known yet
SOUND_STEPS = 256  # after this many steps without failure, lowered limits rise by half
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
        """A generation found no memory.

        left_bytes  what the remaining generations may come to hold; the limit falls to it
        """
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
