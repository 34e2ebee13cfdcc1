"""Systems for the tests of the process that runs them. Imports nothing of ours but what every system may."""

from __future__ import annotations

import os
import time

from benchmarks.systems.base import ConstraintNotSupported, TextConstraint


class Fake:
    """Answers with its arguments and the number of preparations. Some patterns cause faults."""

    def __init__(self, mark: str = "") -> None:
        self._mark, self._prepared = mark, 0

    def open(self, folder: str) -> None:
        if folder == "nowhere":
            raise FileNotFoundError("there is no model here")
        print("a library's own words")

    def constrain(self, constraint: TextConstraint) -> None:
        self._prepared += 1
        self._pattern = constraint.pattern
        if constraint.pattern == "unsayable":
            raise ConstraintNotSupported("not this")

    def answer(self, prompt: str, max_tokens: int) -> str:
        if self._pattern == "slow":
            time.sleep(60)
        if self._pattern == "brief":
            time.sleep(1.5)
        while self._pattern == "busy":
            pass
        if self._pattern == "die":
            os._exit(3)
        return f"{self._mark}{prompt} {self._pattern} {max_tokens} {self._prepared}"
