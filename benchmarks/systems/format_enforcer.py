"""LM Format Enforcer, through its own function for transformers."""

from __future__ import annotations

import sys
import types
from typing import Any

import transformers

from benchmarks.systems.base import TextConstraint
from benchmarks.systems.transformers_systems import TransformersSystem

_SHIM = types.ModuleType("transformers.tokenization_utils")  # the library imports it; transformers 5 has dropped it
_SHIM.PreTrainedTokenizerBase = transformers.PreTrainedTokenizerBase  # type: ignore[attr-defined]
sys.modules.setdefault("transformers.tokenization_utils", _SHIM)

from lmformatenforcer import RegexParser  # noqa: E402
from lmformatenforcer.integrations.transformers import (  # noqa: E402
    build_token_enforcer_tokenizer_data,
    build_transformers_prefix_allowed_tokens_fn,
)


class FormatEnforcer(TransformersSystem):
    """Greedy or beam search with lm-format-enforcer. Its function depends on the text alone and keeps no state."""

    def open(self, folder: str) -> None:
        super().open(folder)
        self._tokenizer_data = build_token_enforcer_tokenizer_data(self.tokenizer)

    def constrain(self, constraint: TextConstraint) -> None:
        self._parser = RegexParser(constraint.regex())

    def generate_options(self) -> dict[str, Any]:
        allowed = build_transformers_prefix_allowed_tokens_fn(self._tokenizer_data, self._parser)
        return {"prefix_allowed_tokens_fn": allowed}
