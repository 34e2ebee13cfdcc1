"""Hugging Face causal language models as the search sees them, `LanguageModel`.

Owns which way a model is read, and the independent check of what was read. Knows nothing of automata, beams' scores or
text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from decoding.errors import PromptEmpty
from decoding.model.compatibility import open_shared
from decoding.model.cpu_layers import pack_layers
from decoding.model.loading import context_length_of, eos_ids_of, load_model
from decoding.model.plain_cache import PlainReader
from decoding.model.protocol import ScoredSequence, Scores, StepInput

_RESCORE_TOKENS = 64  # tokens of an answer scored in one forward pass: bounds the logits held at once
_TOLERANCE = {torch.float32: 1e-2, torch.float64: 1e-2}
_TOLERANCE_HALF = 0.5


class HuggingFaceModel:
    """Any causal language model of the transformers library; see `load`.

    It is read the shared way (`shared_prefix`) where that is found to be right, else the library's own (`plain_cache`).
    unshared_because  why it is read the library's own way; empty where it is not
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model.eval().requires_grad_(False)
        text = model.config.get_text_config()
        self._vocab_size = int(text.vocab_size)
        self._eos_ids = eos_ids_of(model)
        bos = getattr(text, "bos_token_id", None)
        self._bos_id = int(bos) if bos is not None else None
        self._context_length = context_length_of(text)
        pack_layers(self._model)
        self._plain = PlainReader(model)
        shared, self.unshared_because = open_shared(model, self._plain, self.tolerance)
        self._reader: Any = shared or self._plain

    @property
    def rows_independent(self) -> bool:
        """Whether a generation's log-probs are the same, to the last bit, whatever others share its passes."""
        return bool(self._reader.rows_independent)

    @property
    def reads_together(self) -> bool:
        return self._reader is not self._plain

    @classmethod
    def load(cls, path_or_name: str, *, device: str = "auto", dtype: str = "auto") -> HuggingFaceModel:
        """Loads a model; see `loading.load_model` for the arguments.

        Raises ModelUnavailable where it cannot be loaded, names no token that ends a text, keeps no cache, or none
        whose rows can be reordered.
        """
        adapter = cls(load_model(path_or_name, device, dtype))
        adapter._plain.try_out(adapter.eos_ids[0])
        return adapter

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def eos_ids(self) -> tuple[int, ...]:
        return self._eos_ids

    @property
    def context_length(self) -> int | None:
        return self._context_length

    @property
    def device(self) -> torch.device:
        return torch.device(self._model.device)

    @property
    def tolerance(self) -> float:
        return _TOLERANCE.get(self._model.dtype, _TOLERANCE_HALF)

    def prefill(self, prompt_ids: Sequence[int]) -> tuple[Any, Tensor]:
        """The prompt is read once, as one row. Raises PromptEmpty without a token to begin with."""
        session, log_probs = self._reader.prefill(self._begun(prompt_ids))
        return session, log_probs

    def step(self, feeds: Sequence[StepInput[Any]]) -> list[Scores]:
        scores: list[Scores] = self._reader.step(feeds)
        return scores

    def bytes_for(self, prompt_tokens: int, rows: int, max_tokens: int, scratch_bytes: int = 0) -> int:
        return int(self._reader.bytes_for(max(1, prompt_tokens), rows, max_tokens, scratch_bytes))

    @torch.inference_mode()
    def score(self, prompt_ids: Sequence[int], tokens: Sequence[int]) -> ScoredSequence:
        """One row, many tokens a pass, in the library's own cache: shares no state and no attention with the search."""
        session, first = self._plain.prefill(self._begun(prompt_ids))
        rows, cache = [first[None]], session.cache
        log_probs, peaks = [], []
        at_once = min(_RESCORE_TOKENS, self._plain.tokens_at_once)
        for begin in range(0, len(tokens), at_once):
            piece = list(tokens[begin : begin + at_once])
            feed = piece if begin + len(piece) < len(tokens) else piece[:-1]  # nothing follows the last token
            if feed:
                ids = torch.tensor([feed], device=self.device)
                following, cache = self._plain.forward(ids, cache, keep=len(feed))
                rows.append(following[0])
            known = torch.cat(rows)  # [len(piece)] rows, and one more where a piece follows
            index = torch.tensor(piece, device=self.device)
            log_probs += known[: len(piece)].gather(1, index[:, None])[:, 0].tolist()
            peaks += known[: len(piece)].amax(dim=1).tolist()
            rows = [known[len(piece) :]]
        return ScoredSequence(tuple(log_probs), tuple(peaks))

    def _begun(self, prompt_ids: Sequence[int]) -> Sequence[int]:
        if prompt_ids:
            return prompt_ids
        if self._bos_id is None:
            raise PromptEmpty("the prompt is empty, and the model names no token that begins a text")
        return [self._bos_id]
