"""guidance, which needs another release of transformers than ours."""

from __future__ import annotations

from typing import Any

from guidance import gen, models

from benchmarks.systems.base import TextConstraint
from benchmarks.systems.transformers_systems import load_model


class Guidance:
    """Greedy search."""

    def open(self, folder: str) -> None:
        self._model: Any = models.Transformers(*load_model(folder), echo=False)

    def constrain(self, constraint: TextConstraint) -> None:
        self._pattern = constraint.regex()

    def answer(self, prompt: str, max_tokens: int) -> str:
        step = gen("text", regex=self._pattern, max_tokens=max_tokens - 1, temperature=0)  # it does not count the end
        return str((self._model + prompt + step)["text"])
