"""Outlines itself."""

from __future__ import annotations

from outlines import Generator, from_transformers
from outlines.types import Regex

from benchmarks.systems.base import CannotSay, Wanted
from benchmarks.systems.transformers_based import opened


class Outlines:
    """Greedy: its backends do not follow beams."""

    def open(self, folder: str) -> None:
        self._model = from_transformers(*opened(folder))

    def constrain(self, wanted: Wanted) -> None:
        if not wanted.pattern:
            raise CannotSay("it takes a regex")
        self._generator = Generator(self._model, Regex(wanted.pattern), backend="outlines_core")

    def answer(self, prompt: str, max_tokens: int) -> str:
        return str(self._generator(prompt, max_new_tokens=max_tokens, do_sample=False))
