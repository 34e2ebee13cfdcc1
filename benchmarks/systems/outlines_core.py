"""The engine under Outlines, by a processor that masks with its guide."""

from __future__ import annotations

from typing import Any

import torch
from outlines_core import Guide, Index, Vocabulary
from transformers import LogitsProcessor

from benchmarks.systems.base import CannotSay, Wanted
from benchmarks.systems.transformers_based import Generating


class OutlinesCore(Generating):
    """Greedy, one guide for each answer."""

    def open(self, folder: str) -> None:
        super().open(folder)
        tokens: dict[str, list[int]] = {}
        for text, number in self.tokenizer.get_vocab().items():
            if number != self.eos:
                tokens.setdefault(self.tokenizer.convert_tokens_to_string([text]), []).append(number)
        self._vocabulary = Vocabulary(self.eos, tokens)

    def constrain(self, wanted: Wanted) -> None:
        if not wanted.pattern:
            raise CannotSay("it takes a regex")
        self._index = Index(wanted.pattern, self._vocabulary)

    def steering(self) -> dict[str, Any]:
        return {"logits_processor": [_Masked(Guide(self._index), self.eos)]}


class _Masked(LogitsProcessor):
    def __init__(self, guide: Any, eos: int) -> None:
        self._guide, self._eos, self._begun = guide, eos, False

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self._begun and not self._guide.is_finished():
            self._guide.advance(int(input_ids[0, -1]), return_tokens=False)
        self._begun = True
        allowed = [self._eos] if self._guide.is_finished() else self._guide.get_tokens()
        masked = torch.full_like(scores, float("-inf"))
        masked[:, allowed] = scores[:, allowed]
        return masked
