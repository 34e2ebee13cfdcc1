"""When to try again, and for how long. Knows neither HTTP nor how one waits."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from abs_client.errors import AbsError, Busy


@dataclass(frozen=True)
class Retry:
    """A request that may succeed when sent again is: at most `tries` times, within `total_s` seconds in all.

    It waits as long as the service asks for, and a little more, so that a crowd that was refused together does not
    come back together; where it does not ask, twice as long each time, from `backoff_s` to `backoff_s_max`. What would
    be over `total_s` is not waited for. Retry(tries=1) never tries again. `clock` and `random` are for tests.
    """

    tries: int = 8
    total_s: float = 120.0
    backoff_s: float = 0.5
    backoff_s_max: float = 10.0
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    random: Callable[[], float] = field(default=random.random, repr=False)


class Tries:
    """The tries of one request so far. It has been sent once."""

    def __init__(self, retry: Retry) -> None:
        self._retry = retry
        self.anew()

    def anew(self) -> None:
        """Reset the attempts' count and clock, because the request made progress."""
        self._number, self._began = 1, self._retry.clock()

    def wait_s(self, asked_s: float | None = None) -> float | None:
        """How long to wait before the next try; None where there is to be none."""
        retry, spread = self._retry, self._retry.random()
        if self._number >= retry.tries:
            return None
        if asked_s is None:
            wait = min(retry.backoff_s_max, retry.backoff_s * 2.0 ** (self._number - 1)) * (0.5 + spread / 2)
        else:
            wait = asked_s + spread * min(1.0, 0.1 + asked_s / 4)
        if retry.clock() - self._began + wait > retry.total_s:
            return None
        self._number += 1
        return wait


def may_pass(error: AbsError) -> bool:
    """Whether the same request may succeed later.

    It may after a Busy error, after a 408 (the body arrived too slowly) and after a 502 (a proxy reached no server).
    """
    return isinstance(error, Busy) or error.status in (408, 502)
