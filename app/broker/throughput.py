"""How fast a queue moves, and what follows from it for who wants to join. Knows no job and no broker.

The scripts of the Redis broker compute the same with these constants; tests/app/broker/test_contract_admission.py
compares both.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

MEMORY_S, IDLE_MEMORY_S = 30.0, 600.0  # how long a pace is remembered while the queue moves, and while it does not
KNOWN_S = 1.0  # of waiting, before which nothing is said about a pace
SHARE = 0.7  # of a request's time that may be planned: the rest is for what is slower than most, and a pace that falls
RUN_SHARE = 0.5  # of what a run takes of late: with less time than that none is begun
LATEST = 0.1  # the weight of the latest run in what runs take of late
SPREAD = 0.25  # of what waits: over so much time those who are refused come back, one by one
UNKNOWN_S, S_MAX = 2, 60


def work_of(weight: int) -> int:
    """What a job of this weight counts for: one of no weight takes its time too."""
    return weight + 1


class ThroughputEstimator:
    """The work that was taken from a queue while more of it waited, and for how long something waited while some ran.

    So time in which too little was asked for says nothing of what could have been done, nor does time without workers.
    Taken, not finished: of those that came in one crowd the first is done as late as all that run beside it, and by it
    alone the queue would seem to crawl. Both fade: while something waits, so that what is new soon outweighs what was,
    and slowly while nothing does.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._at = now()
        self._work, self._s, self._credit = 0.0, 0.0, 0.0
        self._run_s, self._run_work = 0.0, 0.0

    def passed(self, moving: bool) -> None:
        """Count the time since the last call, in all of which something waited while something ran, or not."""
        now = self._now()
        kept = math.exp(-max(0.0, now - self._at) / (MEMORY_S if moving else IDLE_MEMORY_S))
        self._at, self._s = now, self._s * kept
        self._work, self._credit = self._work * kept, self._credit * kept
        if moving:
            self._s += (1 - kept) * MEMORY_S

    def begins(self, running: int) -> None:
        """Jobs begin to wait while `running` work runs.

        The progress of the running work is unknown. At first it counts in full, as if it had just been taken. Later
        half of it counts, beside the work taken since.
        """
        if self._work < running:
            self._credit = max(self._credit, running)

    def taken(self, work: int) -> None:
        """Work was taken, and more of it waits."""
        self._work += work

    def given_back(self, work: int) -> None:
        """Work that was taken is not being done."""
        self._work = max(0.0, self._work - work)

    def seconds(self, work: float) -> float | None:
        """How long the queue takes over so much work; None where that is not known."""
        done = max(self._work + self._credit / 2, self._credit)
        return work * self._s / done if done > 0 and self._s >= KNOWN_S else None

    def ran(self, seconds: float, work: int) -> None:
        """A job of `work` was finished in `seconds`."""
        latest = LATEST if self._run_work else 1.0
        self._run_s += latest * (seconds - self._run_s)
        self._run_work += latest * (work - self._run_work)

    def hopeless(self, work: int, left_s: float, waited_s: float) -> bool:
        """Whether a job that has waited so long cannot be done in what it has left: it would keep others waiting.

        It is taken to need as long as others did of late, or less where it is less work.
        """
        needs_s = self._run_s * min(1.0, work / self._run_work) if self._run_work else 0.0
        return 0 < left_s < min(waited_s, RUN_SHARE * needs_s)


def come_again_s(room_s: float | None, whole_s: float | None, dice: Callable[[], float] = random.random) -> int:
    """In how many s, from 1 to `S_MAX`, one who is refused had best come again.

    room_s   when there may be room for him; None where the pace is not known
    whole_s  how long all that waits takes: however late he comes in a part of it, the queue is not empty

    Not all at the same time: they would find room for a few, and keep the service busy with refusals.
    """
    if room_s is None:
        return UNKNOWN_S + round(dice())
    return min(S_MAX, max(1, math.ceil(room_s + SPREAD * (whole_s or 0.0) * dice())))
