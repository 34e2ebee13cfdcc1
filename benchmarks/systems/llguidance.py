"""llguidance, through a logits processor that applies its token masks."""

from __future__ import annotations

from typing import Any

import llguidance.hf
import llguidance.torch as masks
import torch
from llguidance import LLMatcher
from transformers import LogitsProcessor

from benchmarks.systems.base import ConstraintNotSupported, TextConstraint
from benchmarks.systems.transformers_systems import TransformersSystem


class LLGuidance(TransformersSystem):
    """Greedy search. Its grammars can intersect regexes, so it takes the parts of a constraint."""

    def open(self, folder: str) -> None:
        super().open(folder)
        self._tokenizer_data = llguidance.hf.from_tokenizer(self.tokenizer)

    def constrain(self, constraint: TextConstraint) -> None:
        if constraint.parts:
            parts = " & ".join(f"/{part.replace('/', chr(92) + '/')}/" for part in constraint.parts)
            self._grammar = LLMatcher.grammar_from_lark(f"start: ALL\nALL: {parts}")
        else:
            self._grammar = LLMatcher.grammar_from_regex(constraint.regex())
        error = LLMatcher(self._tokenizer_data, self._grammar).get_error()
        if error:
            raise ConstraintNotSupported(str(error))

    def generate_options(self) -> dict[str, Any]:
        matcher = LLMatcher(self._tokenizer_data, self._grammar)
        return {"logits_processor": [_MatcherMask(matcher, self.vocab_size, self.eos)]}


class _MatcherMask(LogitsProcessor):
    def __init__(self, matcher: Any, vocab_size: int, eos: int) -> None:
        self._matcher, self._eos, self._started = matcher, eos, False
        self._mask = masks.allocate_token_bitmask(1, vocab_size)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self._started and not self._matcher.is_stopped():
            self._matcher.consume_token(int(input_ids[0, -1]))
        self._started = True
        masked = scores.clone()
        if self._matcher.is_stopped():
            masked[:] = float("-inf")
            masked[:, self._eos] = 0.0
            return masked
        masks.fill_next_token_bitmask(self._matcher, self._mask, 0)
        masks.apply_token_bitmask_inplace(masked, self._mask)
        return masked
