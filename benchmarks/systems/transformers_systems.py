"""transformers' searches, and the base class of systems that steer `generate`."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.systems.base import ConstraintNotSupported, TextConstraint


def load_model(folder: str) -> tuple[Any, Any]:
    """A model in float32 and its tokenizer.

    Releases before 5 leave tied embeddings empty if a file has them only under the name of the output layer.
    """
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    if model.get_input_embeddings().weight.is_meta:
        model = AutoModelForCausalLM.from_pretrained(folder, tie_word_embeddings=False)
        model.get_input_embeddings().weight = model.get_output_embeddings().weight
    return model.float().eval(), AutoTokenizer.from_pretrained(folder)  # the releases differ in the tokenizer's type


class TransformersSystem:
    """A model with its tokenizer. A subclass says with which arguments `generate` keeps the constraint."""

    def __init__(self, beams: int = 1) -> None:
        self.beams = beams

    def open(self, folder: str) -> None:
        self.model, self.tokenizer = load_model(folder)
        self.vocab_size = int(self.model.config.vocab_size)
        self.eos = int(self.tokenizer.eos_token_id)

    def generate_options(self) -> dict[str, Any]:
        """Further arguments of `generate`, made for each answer."""
        return {}

    @torch.inference_mode()
    def answer(self, prompt: str, max_tokens: int) -> str:
        ids = torch.tensor([self.tokenizer(prompt).input_ids])
        output = self.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=max_tokens, do_sample=False, num_beams=self.beams,
            pad_token_id=self.eos, **self.generate_options(),
        )  # fmt: skip
        return str(self.tokenizer.decode(output[0, ids.shape[1] :], skip_special_tokens=True))


class Unconstrained(TransformersSystem):
    """Greedy or beam search that ignores the constraint."""

    def constrain(self, constraint: TextConstraint) -> None:
        del constraint


class ForcedPhrases(TransformersSystem):
    """transformers' constrained beam search (`force_words_ids`). The release is one from before it moved to the Hub.

    One form of each concept must occur, spelled as after a space. It supports no order, and sees tokens, not words.
    """

    def constrain(self, constraint: TextConstraint) -> None:
        if not constraint.concepts or constraint.ordered:
            raise ConstraintNotSupported("the system takes only phrases in any order")
        self._phrases = [self._token_ids(forms) for forms in constraint.concepts]

    def generate_options(self) -> dict[str, Any]:
        return {"force_words_ids": self._phrases}

    def _token_ids(self, forms: tuple[str, ...]) -> list[list[int]]:
        """The ids of each form, without forms that extend another. The search rejects lists with such forms."""
        spellings = {tuple(spelling_after_space(self.tokenizer, form)) for form in forms}
        longer = {ids for ids in spellings for prefix in spellings if ids != prefix and ids[: len(prefix)] == prefix}
        return [list(ids) for ids in sorted(spellings - longer)]


def spelling_after_space(tokenizer: Any, word: str) -> list[int]:
    """The ids of a word that follows a space."""
    prefix_ids = tokenizer("a", add_special_tokens=False).input_ids
    ids: list[int] = tokenizer(f"a {word}", add_special_tokens=False).input_ids[len(prefix_ids) :]
    return ids
