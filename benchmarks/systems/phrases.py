"""transformers' constrained beam search, from before it moved to a hub: beams that are to hold given phrases."""

from __future__ import annotations

from typing import Any

from benchmarks.systems.base import CannotSay, Wanted
from benchmarks.systems.transformers_based import Generating


class Phrases(Generating):
    """Of each concept one form, spelled as it is after a space. It knows no order, and no words but by their tokens."""

    def constrain(self, wanted: Wanted) -> None:
        if not wanted.concepts or wanted.ordered:
            raise CannotSay("it takes phrases in any order")
        self._phrases = [self._spelled(forms) for forms in wanted.concepts]

    def steering(self) -> dict[str, Any]:
        return {"force_words_ids": self._phrases}

    def _spelled(self, forms: tuple[str, ...]) -> list[list[int]]:
        """The ids of each form; it refuses one that begins as another is."""
        empty = self.tokenizer("a", add_special_tokens=False).input_ids
        spelled = {
            tuple(self.tokenizer(f"a {form}", add_special_tokens=False).input_ids[len(empty) :]) for form in forms
        }
        longer = {ids for ids in spelled for other in spelled if ids != other and ids[: len(other)] == other}
        return [list(ids) for ids in sorted(spelled - longer)]
