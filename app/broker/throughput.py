"""Estimates the throughput of a queue, for admission control and retry delays.

The scripts of the Redis broker compute the same with these constants; tests/app/broker/test_contract_admission.py
compares both.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

# Time constants of the exponential decay: while jobs wait and run, and while the queue is idle or stands still.
MEMORY_S, IDLE_MEMORY_S = 30.0, 600.0
WAITING_S_MIN = 1.0  # decayed waiting time below which the throughput counts as unknown
DEADLINE_SHARE = 0.7  # of a deadline that admission may plan; the rest covers slow jobs and a falling throughput
RUN_TIME_SHARE = 0.5  # of the recent run time: a job with less time left is not started
LATEST_RUN_WEIGHT = 0.1  # of the latest run in the moving average of run times
RETRY_SPREAD = 0.25  # of the queue's total time, over which the retries of refused callers are spread
DEFAULT_RETRY_S, RETRY_S_MAX = 2, 60


def work_of(weight: int) -> int:
    """The work of a job of this weight. A job without weight takes time too, so it counts as 1."""
    return weight + 1


class ThroughputEstimator:
    """Estimates the throughput of a queue. It is the work taken while more work waited, divided by the time in which
    jobs waited and ran.

    Time in which nothing waits, or nothing runs, says nothing about the throughput, so it is not counted. Work counts
    when it is taken, not when it is finished: of jobs that start together, the first finishes as late as the others,
    which would look like a slow queue. Work and time decay exponentially, quickly while jobs wait and run and slowly
    otherwise.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._at = now()
        # Decayed: work taken, time in which jobs waited and ran, and work that ran when the first job began to wait.
        self._work, self._s, self._credit = 0.0, 0.0, 0.0
        self._run_s, self._run_work = 0.0, 0.0  # moving averages of a run: its time and its work

    def advance(self, moving: bool) -> None:
        """Count the time since the last call. `moving` says whether jobs waited and ran during all of it."""
        now = self._now()
        decay = math.exp(-max(0.0, now - self._at) / (MEMORY_S if moving else IDLE_MEMORY_S))
        self._at, self._s = now, self._s * decay
        self._work, self._credit = self._work * decay, self._credit * decay
        if moving:
            self._s += (1 - decay) * MEMORY_S  # the integral of the decay over the elapsed time

    def on_first_waiting(self, running: int) -> None:
        """Jobs begin to wait while `running` work runs.

        The progress of the running work is unknown. At first it counts in full, as if it had just been taken. Later
        half of it counts, beside the work taken since.
        """
        if self._work < running:
            self._credit = max(self._credit, running)

    def record_taken(self, work: int) -> None:
        """Record taken work; call it only if more work waits."""
        self._work += work

    def record_requeued(self, work: int) -> None:
        """Take back work that a worker returned to the queue."""
        self._work = max(0.0, self._work - work)

    def seconds(self, work: float) -> float | None:
        """Seconds that the queue needs for `work`. None if the throughput is unknown."""
        progress = max(self._work + self._credit / 2, self._credit)
        return work * self._s / progress if progress > 0 and self._s >= WAITING_S_MIN else None

    def record_run(self, seconds: float, work: int) -> None:
        """Record a finished job."""
        weight = LATEST_RUN_WEIGHT if self._run_work else 1.0  # the first run replaces the initial 0
        self._run_s += weight * (seconds - self._run_s)
        self._run_work += weight * (work - self._run_work)

    def cannot_meet_deadline(self, work: int, left_s: float, waited_s: float) -> bool:
        """Whether a waiting job cannot finish in `left_s` seconds. Such a job would only delay others.

        The estimate is the recent run time, scaled down for a job with less work.
        """
        needs_s = self._run_s * min(1.0, work / self._run_work) if self._run_work else 0.0
        # A job whose time was short from the start runs; one past its deadline is left to its worker to refuse.
        return 0 < left_s < min(waited_s, RUN_TIME_SHARE * needs_s)


def retry_delay_s(room_s: float | None, total_s: float | None, dice: Callable[[], float] = random.random) -> int:
    """Seconds after which a refused caller should retry, from 1 to `RETRY_S_MAX`.

    room_s   time until there may be room, None if the throughput is unknown
    total_s  time that all waiting jobs need; a retry within a part of it still finds a queue that is not empty

    The delay is random, because callers that retry at the same time would mostly be refused again.
    """
    if room_s is None:
        return DEFAULT_RETRY_S + round(dice())
    return min(RETRY_S_MAX, max(1, math.ceil(room_s + RETRY_SPREAD * (total_s or 0.0) * dice())))
