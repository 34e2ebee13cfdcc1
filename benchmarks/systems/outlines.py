"""Outlines itself."""

from __future__ import annotations

from typing import Any

import torch
from outlines import Generator, from_transformers
from outlines.types import Regex
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.systems.base import CannotSay, Wanted


class Outlines:
    """Greedy: its backends do not follow beams."""

    def open(self, folder: str) -> None:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self._model = from_transformers(model, tokenizer)

    def constrain(self, wanted: Wanted) -> None:
        if not wanted.pattern:
            raise CannotSay("it takes a regex")
        self._generator = Generator(self._model, Regex(wanted.pattern), backend="outlines_core")

    def answer(self, prompt: str, max_tokens: int) -> str:
        return str(self._generator(prompt, max_new_tokens=max_tokens, do_sample=False))
