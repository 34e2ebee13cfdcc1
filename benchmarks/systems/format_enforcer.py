"""LM Format Enforcer, by the function that it makes for transformers."""

from __future__ import annotations

import sys
import types
from typing import Any

import transformers

from benchmarks.systems.base import CannotSay, Wanted
from benchmarks.systems.transformers_based import Generating

_SHIM = types.ModuleType("transformers.tokenization_utils")  # it imports from there, and transformers 5 has it no more
_SHIM.PreTrainedTokenizerBase = transformers.PreTrainedTokenizerBase  # type: ignore[attr-defined]
sys.modules.setdefault("transformers.tokenization_utils", _SHIM)

from lmformatenforcer import RegexParser  # noqa: E402
from lmformatenforcer.integrations.transformers import (  # noqa: E402
    build_token_enforcer_tokenizer_data,
    build_transformers_prefix_allowed_tokens_fn,
)


class FormatEnforcer(Generating):
    """Greedy or by beams: it looks at what is written, and needs to follow nothing."""

    def open(self, folder: str) -> None:
        super().open(folder)
        self._reading = build_token_enforcer_tokenizer_data(self.tokenizer)

    def constrain(self, wanted: Wanted) -> None:
        if not wanted.pattern:
            raise CannotSay("it takes a regex")
        self._parser = RegexParser(wanted.pattern)

    def steering(self) -> dict[str, Any]:
        allowed = build_transformers_prefix_allowed_tokens_fn(self._reading, self._parser)
        return {"prefix_allowed_tokens_fn": allowed}
