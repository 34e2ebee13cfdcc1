"""Guidance itself, which needs another release of transformers than ours."""

from __future__ import annotations

from typing import Any

from guidance import gen, models

from benchmarks.systems.base import CannotSay, Wanted
from benchmarks.systems.transformers_based import opened


class Guidance:
    """Greedy."""

    def open(self, folder: str) -> None:
        self._model: Any = models.Transformers(*opened(folder), echo=False)

    def constrain(self, wanted: Wanted) -> None:
        if not wanted.pattern:
            raise CannotSay("it takes a regex")
        self._pattern = wanted.pattern

    def answer(self, prompt: str, max_tokens: int) -> str:
        told = gen("text", regex=self._pattern, max_tokens=max_tokens - 1, temperature=0)  # the end is not counted
        return str((self._model + prompt + told)["text"])
