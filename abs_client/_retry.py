"""When to send a request again, and after how long. Knows neither HTTP nor how a client waits."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from abs_client.errors import AbsError, BusyError


@dataclass(frozen=True)
class Retry:
    """How often a request that may succeed later is sent again.

    tries          attempts in all; 1 never sends a request again
    total_s        seconds from the first attempt; no wait ends later
    backoff_s      first wait in seconds where the service names none; it doubles with each attempt
    backoff_s_max  the longest such wait in seconds
    clock, random  replace those of the standard library, for tests

    A wait that the service names (`retry_after_s`) is kept and lengthened at random by up to 1 s, so that clients which
    were rejected together do not return together.
    """

    tries: int = 8
    total_s: float = 120.0
    backoff_s: float = 0.5
    backoff_s_max: float = 10.0
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    random: Callable[[], float] = field(default=random.random, repr=False)


class RetryState:
    """The attempts of one request so far. The first one is counted at the start."""

    def __init__(self, retry: Retry) -> None:
        self._retry = retry
        self.reset()

    def reset(self) -> None:
        """Reset the attempts' count and clock, because the request made progress."""
        self._attempt, self._started = 1, self._retry.clock()

    def wait_s(self, retry_after_s: float | None = None) -> float | None:
        """Count the next attempt and return the seconds before it. None if no attempt is left."""
        retry, jitter = self._retry, self._retry.random()
        if self._attempt >= retry.tries:
            return None
        if retry_after_s is None:
            # Exponential backoff; the jitter takes off up to half of each wait.
            wait = min(retry.backoff_s_max, retry.backoff_s * 2.0 ** (self._attempt - 1)) * (0.5 + jitter / 2)
        else:
            wait = retry_after_s + jitter * min(1.0, 0.1 + retry_after_s / 4)
        # The caller gets the error at once if the wait would end too late.
        if retry.clock() - self._started + wait > retry.total_s:
            return None
        self._attempt += 1
        return wait


def is_transient(error: AbsError) -> bool:
    """Whether the same request may succeed later.

    It may after a BusyError, after a 408 (the body arrived too slowly) and after a 502 (a proxy reached no server).
    """
    return isinstance(error, BusyError) or error.status in (408, 502)
