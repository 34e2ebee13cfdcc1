"""Guidance itself, which needs another release of transformers than ours."""

from __future__ import annotations

from typing import Any

from guidance import gen, models
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.systems.base import CannotSay, Wanted


class Guidance:
    """Greedy."""

    def open(self, folder: str) -> None:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
        self._model: Any = models.Transformers(model, AutoTokenizer.from_pretrained(folder), echo=False)

    def constrain(self, wanted: Wanted) -> None:
        if not wanted.pattern:
            raise CannotSay("it takes a regex")
        self._pattern = wanted.pattern

    def answer(self, prompt: str, max_tokens: int) -> str:
        told = gen("text", regex=self._pattern, max_tokens=max_tokens - 1, temperature=0)  # the end is not counted
        return str((self._model + prompt + told)["text"])
