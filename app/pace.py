"""How fast queues move, as one process sees it: when a request that finds a queue full had best come again."""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable

WINDOW_S = 60.0
UNKNOWN_S, S_MAX = 2, 60


class Pace:
    """Counts the jobs of each queue that ended within the last `WINDOW_S` seconds, and their weights."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._since = now()
        self._ended: defaultdict[str, deque[tuple[float, int]]] = defaultdict(deque)

    def ended(self, queue: str, weight: int) -> None:
        """A job of this weight is over."""
        self._ended[queue].append((self._now(), weight))
        self._forget_old(queue)

    def wait_s(self, queue: str, excess: int) -> int:
        """In how many s, from 1 to `S_MAX`, there is room again, where so much weight must go first; 0 for one job."""
        self._forget_old(queue)
        ended = self._ended[queue]
        if not ended:
            return UNKNOWN_S
        window_s = min(WINDOW_S, max(1.0, self._now() - self._since))
        gone = sum(weight for _, weight in ended) if excess else len(ended)
        return min(S_MAX, max(1, math.ceil((excess or 1) * window_s / max(gone, 1))))

    def _forget_old(self, queue: str) -> None:
        ended = self._ended[queue]
        while ended and ended[0][0] < self._now() - WINDOW_S:
            ended.popleft()
