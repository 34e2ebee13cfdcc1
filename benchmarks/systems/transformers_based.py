"""What systems share that steer transformers' own `generate`, greedily or by its beams."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


class Generating:
    """A model with its tokenizer; whoever derives from it says how `generate` is steered."""

    def __init__(self, beams: int = 1) -> None:
        self.beams = beams

    def open(self, folder: str) -> None:
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder).float().eval()  # releases differ in its name
        self.vocab_size = int(self.model.config.vocab_size)
        self.eos = int(self.tokenizer.eos_token_id)

    def steering(self) -> dict[str, Any]:
        """Further arguments of `generate`, made for each answer."""
        return {}

    @torch.inference_mode()
    def answer(self, prompt: str, max_tokens: int) -> str:
        ids = torch.tensor([self.tokenizer(prompt).input_ids])
        found = self.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=max_tokens, do_sample=False, num_beams=self.beams,
            pad_token_id=self.eos, **self.steering(),
        )  # fmt: skip
        return str(self.tokenizer.decode(found[0, ids.shape[1] :], skip_special_tokens=True))
