"""XGrammar, through its own logits processor for transformers."""

from __future__ import annotations

from typing import Any

import xgrammar as xgr

from benchmarks.systems.base import TextConstraint
from benchmarks.systems.transformers_systems import TransformersSystem


class XGrammar(TransformersSystem):
    """Greedy search: its processor does not support beams."""

    def constrain(self, constraint: TextConstraint) -> None:
        pattern = constraint.regex()
        info = xgr.TokenizerInfo.from_huggingface(self.tokenizer, vocab_size=self.vocab_size, stop_token_ids=[self.eos])
        self._grammar = xgr.GrammarCompiler(info).compile_regex(pattern)

    def generate_options(self) -> dict[str, Any]:
        return {"logits_processor": [xgr.contrib.hf.LogitsProcessor(self._grammar)]}
