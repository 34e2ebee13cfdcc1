"""The engine under guidance, by a processor that masks with its matcher."""

from __future__ import annotations

from typing import Any

import llguidance.hf
import llguidance.torch as masks
import torch
from llguidance import LLMatcher
from transformers import LogitsProcessor

from benchmarks.systems.base import CannotSay, Wanted
from benchmarks.systems.transformers_based import Generating


class LLGuidance(Generating):
    """Greedy. Parts are intersected, which is what its grammars can and regexes cannot."""

    def open(self, folder: str) -> None:
        super().open(folder)
        self._reading = llguidance.hf.from_tokenizer(self.tokenizer)

    def constrain(self, wanted: Wanted) -> None:
        if wanted.parts:
            parts = " & ".join(f"/{part.replace('/', chr(92) + '/')}/" for part in wanted.parts)
            self._grammar = LLMatcher.grammar_from_lark(f"start: ALL\nALL: {parts}")
        elif wanted.pattern:
            self._grammar = LLMatcher.grammar_from_regex(wanted.pattern)
        else:
            raise CannotSay("it takes regexes")
        error = LLMatcher(self._reading, self._grammar).get_error()
        if error:
            raise CannotSay(str(error))

    def steering(self) -> dict[str, Any]:
        return {"logits_processor": [_Masked(LLMatcher(self._reading, self._grammar), self.vocab_size, self.eos)]}


class _Masked(LogitsProcessor):
    def __init__(self, matcher: Any, vocab_size: int, eos: int) -> None:
        self._matcher, self._eos, self._begun = matcher, eos, False
        self._mask = masks.allocate_token_bitmask(1, vocab_size)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self._begun and not self._matcher.is_stopped():
            self._matcher.consume_token(int(input_ids[0, -1]))
        self._begun = True
        if self._matcher.is_stopped():
            ended = torch.full_like(scores, float("-inf"))
            ended[:, self._eos] = 0.0
            return ended
        masks.fill_next_token_bitmask(self._matcher, self._mask, 0)
        masked = scores.clone()
        masks.apply_token_bitmask_inplace(masked, self._mask)
        return masked
