"""Hugging Face causal language models behind the `LanguageModel` protocol.

The model chooses between prefix sharing and the plain cache at load. Finished answers are always scored with the plain
cache, as a check that shares neither state nor attention with the search.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from decoding.errors import PromptEmpty
from decoding.model.adapters import attach, read_adapters, require_calls
from decoding.model.compatibility import enable_prefix_sharing
from decoding.model.cpu_layers import use_onednn_layers
from decoding.model.loading import context_length_of, eos_ids_of, has_reduced_precision, load_model
from decoding.model.plain_cache import PlainReader
from decoding.model.prompt_cache import CountChunk, PromptCache
from decoding.model.protocol import ObserveScores, ScoredSequence, Scores, StepInput

_RESCORE_TOKENS = 64  # tokens of an answer in one forward pass, a bound on the logits in memory
_TOLERANCE, _TOLERANCE_REDUCED = 1e-2, 0.5


class HuggingFaceModel:
    """Any causal language model of the transformers library; see `load`.

    replaces_layers  whether oneDNN's layers may stand in for large layers on the CPU: faster, but only for inference
    batch_invariant  whether `rows_independent` is to hold where it can; without it passes of a few rows are faster
    prefix_sharing_disabled_reason  why it is read with the plain cache; empty where it is read with prefix sharing
    """

    def __init__(
        self, model: PreTrainedModel, *, replaces_layers: bool = True, batch_invariant: bool = True
    ) -> None:
        self._model = model.eval().requires_grad_(False)
        text = model.config.get_text_config()
        self.vocab_size = int(text.vocab_size)
        self.eos_ids = eos_ids_of(model)
        bos = getattr(text, "bos_token_id", None)
        self._bos_id = int(bos) if bos is not None else None
        self.context_length = context_length_of(text)
        self.device = torch.device(model.device)
        self.tolerance = _TOLERANCE_REDUCED if has_reduced_precision(model) else _TOLERANCE
        if replaces_layers:
            use_onednn_layers(self._model)  # before the readers, which measure and compare what they will compute
        self._plain_reader = PlainReader(model)
        shared, self.prefix_sharing_disabled_reason = enable_prefix_sharing(
            model, self._plain_reader, tolerance=self.tolerance, batch_invariant=batch_invariant
        )
        self._reader: Any = shared or self._plain_reader
        self._adapter = ""

    @property
    def rows_independent(self) -> bool:
        """Whether a generation's log-probs never depend on the rest of a batch. They are then equal to the last bit."""
        return bool(self._reader.rows_independent)

    @property
    def supports_batching(self) -> bool:
        """Whether a step reads all its feeds in one pass. It does with prefix sharing."""
        return self._reader is not self._plain_reader

    @classmethod
    def load(
        cls, path_or_name: str, *, device: str = "auto", dtype: str = "auto", batch_invariant: bool = True
    ) -> HuggingFaceModel:
        """Loads a model; see `loading.load_model` and the class for the arguments.

        Raises ModelUnavailable where it cannot be loaded, names no token that ends a text, keeps no cache, or none
        whose rows can be reordered.
        """
        loaded = cls(load_model(path_or_name, device, dtype), batch_invariant=batch_invariant)
        loaded._plain_reader.try_out(loaded.eos_ids[0])
        return loaded

    @classmethod
    def of_loaded(cls, model: PreTrainedModel, *, batch_invariant: bool = True) -> HuggingFaceModel:
        """A model of the caller's, which keeps its layers. Raises ModelUnavailable as `load` does."""
        loaded = cls(model, replaces_layers=False, batch_invariant=batch_invariant)
        loaded._plain_reader.try_out(loaded.eos_ids[0])
        return loaded

    def add_adapters(self, folders: Mapping[str, str]) -> None:
        """Read LoRA adapters from these folders, once. `with_adapter` takes their names. Raises ModelUnavailable."""
        layers = read_adapters(self._model, folders)
        attach(self._model, layers)
        for name in folders:  # two tokens: a layer that reads the last one only is then noticed
            with require_calls(self._model, [layer for layer, terms in layers.items() if name in terms]):
                self.with_adapter(name).prefill(self.eos_ids[:1] * 2)

    def with_adapter(self, adapter: str) -> HuggingFaceModel:
        """This model as an adapter changes it, or without any (""). Sessions of all of them share steps."""
        view = copy.copy(self)
        view._adapter = adapter
        return view

    def prefill(self, prompt_ids: Sequence[int]) -> tuple[Any, Tensor]:
        """Reads the prompt once, as one row. Raises PromptEmpty without a token to begin with."""
        session, log_probs = self._reader.prefill(self._with_bos(prompt_ids), self._adapter)
        return session, log_probs

    def prefill_chunks(self, prompt_ids: Sequence[int]) -> Iterator[tuple[Any, Tensor] | None]:
        yield from self._reader.prefill_chunks(self._with_bos(prompt_ids), self._adapter)

    @property
    def chunk_tokens(self) -> int:
        return int(self._reader.chunk_tokens)

    def keep_prompts(self, bytes_max: int, count: CountChunk | None = None) -> PromptCache | None:
        """Keep the first chunks of prompts for later ones that begin alike. None where the model cannot.

        bytes_max  of the chunks' keys and values
        count      receives every look-up of a chunk
        """
        if not self.supports_batching:
            return None
        cache = self._reader.prompt_cache = PromptCache(bytes_max, count)
        return cache

    def step(self, feeds: Sequence[StepInput[Any]]) -> list[Scores]:
        scores: list[Scores] = self._reader.step(feeds)
        return scores

    def bytes_for(self, prompt_tokens: int, rows: int, max_tokens: int, scratch_bytes: int = 0) -> int:
        return int(self._reader.bytes_for(max(1, prompt_tokens), rows, max_tokens, scratch_bytes))

    @torch.inference_mode()
    def score(
        self, prompt_ids: Sequence[int], tokens: Sequence[int], observe: ObserveScores | None = None
    ) -> ScoredSequence:
        """Scores one row with the plain cache, many tokens in a pass. The first pass reads the prompt, too."""
        log_probs, max_log_probs = list[float](), list[float]()
        ids, done, cache = [*self._with_bos(prompt_ids)], 0, None
        while done < len(tokens):
            # After a pass over `ids` its last rows are the log-probs in the places of `piece`.
            piece = tokens[done : done + min(_RESCORE_TOKENS, self._plain_reader.tokens_at_once)]
            ids = [*ids, *piece[:-1]]
            read = torch.tensor([ids], device=self.device)
            found, cache = self._plain_reader.forward(read, cache, keep=len(piece), adapter=self._adapter)
            rows = found[0]
            if observe is not None:
                observe(done, rows)
            index = torch.tensor(piece, device=self.device)
            log_probs += rows.gather(1, index[:, None])[:, 0].tolist()
            max_log_probs += rows.amax(dim=1).tolist()
            done, ids = done + len(piece), [piece[-1]]
        return ScoredSequence(tuple(log_probs), tuple(max_log_probs))

    def _with_bos(self, prompt_ids: Sequence[int]) -> Sequence[int]:
        if prompt_ids:
            return prompt_ids
        if self._bos_id is None:
            raise PromptEmpty("the prompt is empty, and the model names no token that begins a text")
        return [self._bos_id]
