"""What systems share that take a model of transformers: how it is loaded, and how its own `generate` is steered."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def opened(folder: str) -> tuple[Any, Any]:
    """A model, in float32, and its tokenizer.

    Releases before 5 leave tied embeddings empty where a file has them under the output layer's name alone.
    """
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    if model.get_input_embeddings().weight.is_meta:
        model = AutoModelForCausalLM.from_pretrained(folder, tie_word_embeddings=False)
        model.get_input_embeddings().weight = model.get_output_embeddings().weight
    return model.float().eval(), AutoTokenizer.from_pretrained(folder)  # releases differ in the type's name


class Generating:
    """A model with its tokenizer; whoever derives from it says how `generate` is steered."""

    def __init__(self, beams: int = 1) -> None:
        self.beams = beams

    def open(self, folder: str) -> None:
        self.model, self.tokenizer = opened(folder)
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
