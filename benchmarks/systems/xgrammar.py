"""XGrammar, by its own processor for transformers."""

from __future__ import annotations

from typing import Any

import xgrammar as xgr

from benchmarks.systems.base import CannotSay, Wanted
from benchmarks.systems.transformers_based import Generating


class XGrammar(Generating):
    """Greedy, as its processor knows no beams."""

    def constrain(self, wanted: Wanted) -> None:
        if not wanted.pattern:
            raise CannotSay("it takes a regex")
        info = xgr.TokenizerInfo.from_huggingface(
            self.tokenizer, vocab_size=self.vocab_size, stop_token_ids=[self.eos]
        )
        self._grammar = xgr.GrammarCompiler(info).compile_regex(wanted.pattern)

    def steering(self) -> dict[str, Any]:
        return {"logits_processor": [xgr.contrib.hf.LogitsProcessor(self._grammar)]}
