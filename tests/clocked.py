"""A module as a process whose clock may be wrong: python -m tests.clocked MODULE [ARGUMENTS]

SIGUSR1 puts the clock an hour on, SIGUSR2 an hour back, in the middle of whatever it does. The clock is what Python's
`time.time` and `time.time_ns` say; the system's own, and so that of the log, is left alone.
"""

from __future__ import annotations

import runpy
import signal
import sys
import time

STEP_S = 3_600


class Clock:
    """The right time, and what it is shown as."""

    def __init__(self) -> None:
        self._ns = time.time_ns
        self._ahead_s = 0

    def step(self, number: int, _: object) -> None:
        self._ahead_s += STEP_S if number == signal.SIGUSR1 else -STEP_S

    def time_ns(self) -> int:
        return self._ns() + self._ahead_s * 10**9

    def time(self) -> float:
        return self.time_ns() / 1e9


if __name__ == "__main__":
    clock = Clock()
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, clock.step)
    time.time, time.time_ns = clock.time, clock.time_ns
    module, sys.argv = sys.argv[1], sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
