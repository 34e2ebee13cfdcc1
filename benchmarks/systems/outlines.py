"""Outlines and its engine outlines-core. A logits processor applies the engine's guide."""

from __future__ import annotations

from typing import Any

import torch
from outlines import Generator, from_transformers
from outlines.types import Regex
from outlines_core import Guide, Index, Vocabulary
from transformers import LogitsProcessor

from benchmarks.systems.base import TextConstraint
from benchmarks.systems.transformers_systems import TransformersSystem, load_model


class Outlines:
    """Greedy search: its backends do not support beams."""

    def open(self, folder: str) -> None:
        self._model = from_transformers(*load_model(folder))

    def constrain(self, constraint: TextConstraint) -> None:
        self._generator = Generator(self._model, Regex(constraint.regex()), backend="outlines_core")

    def answer(self, prompt: str, max_tokens: int) -> str:
        return str(self._generator(prompt, max_new_tokens=max_tokens, do_sample=False))


class OutlinesCore(TransformersSystem):
    """Greedy search with one guide for each answer."""

    def open(self, folder: str) -> None:
        super().open(folder)
        tokens: dict[str, list[int]] = {}
        for text, number in self.tokenizer.get_vocab().items():
            if number != self.eos:
                tokens.setdefault(self.tokenizer.convert_tokens_to_string([text]), []).append(number)
        self._vocabulary = Vocabulary(self.eos, tokens)

    def constrain(self, constraint: TextConstraint) -> None:
        self._index = Index(constraint.regex(), self._vocabulary)

    def generate_options(self) -> dict[str, Any]:
        return {"logits_processor": [_GuideMask(Guide(self._index), self.eos)]}


class _GuideMask(LogitsProcessor):
    def __init__(self, guide: Any, eos: int) -> None:
        self._guide, self._eos, self._started = guide, eos, False

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self._started and not self._guide.is_finished():
            self._guide.advance(int(input_ids[0, -1]), return_tokens=False)
        self._started = True
        allowed = [self._eos] if self._guide.is_finished() else self._guide.get_tokens()
        masked = torch.full_like(scores, float("-inf"))
        masked[:, allowed] = scores[:, allowed]
        return masked
