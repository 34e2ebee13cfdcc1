"""The language model as the search sees it, and the adapter for Hugging Face causal models.

Owns devices, dtypes, caches and positions. Knows nothing of automata, beams' scores or text: ids in, log-probs out.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from decoding.errors import ModelUnavailable, PromptEmpty

_RESCORE_TOKENS = 64  # tokens of an answer scored in one forward pass: bounds the logits held at once
_TOLERANCE = {torch.float32: 1e-2, torch.float64: 1e-2}
_TOLERANCE_HALF = 0.5

SessionT = TypeVar("SessionT")


@dataclass(frozen=True, slots=True)
class Rescored:
    """A model's opinion of a finished continuation: for each token its log-prob, and the best log-prob in its place."""

    log_probs: tuple[float, ...]
    peaks: tuple[float, ...]


class LanguageModel(Protocol[SessionT]):
    """A causal model. One instance serves many generations; what belongs to one generation is its session.

    Log-probs are float32 and at most 0; -inf is allowed, NaN is not. V ids, T tokens, R rows.
    """

    @property
    def vocab_size(self) -> int:
        """V, the number of ids that the model scores."""

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """The ids that end a text, at least one."""

    @property
    def context_length(self) -> int | None:
        """The most tokens the model can read, None where there is no limit."""

    @property
    def device(self) -> torch.device:
        """Where the log-probs lie."""

    @property
    def tolerance(self) -> float:
        """By how much two honest ways of computing one log-prob may differ, in nats."""

    def prefill(self, prompt_ids: Sequence[int]) -> tuple[SessionT, Tensor]:
        """Reads the prompt: a session of one row, and the log-probs [V] of the first token."""

    def step(self, session: SessionT, parents: Sequence[int], tokens: Sequence[int]) -> Tensor:
        """Replaces the session's rows: row i extends the former row parents[i] by tokens[i]. Log-probs [R, V]."""

    def score(self, prompt_ids: Sequence[int], tokens: Sequence[int]) -> Rescored:
        """Scores a finished continuation from scratch, by another way than `prefill` and `step` took."""


@dataclass(slots=True)
class HuggingFaceSession:
    """The keys and values of one generation's rows, in the library's own cache."""

    cache: Any
    rows: int


class HuggingFaceModel:
    """Any causal language model of the transformers library; see `load`."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model.eval().requires_grad_(False)
        text = model.config.get_text_config()
        self._vocab_size = int(text.vocab_size)
        self._eos_ids = _eos_ids(model)
        bos = getattr(text, "bos_token_id", None)
        self._bos_id = int(bos) if bos is not None else None
        self._context_length = _context_length(text)
        self._keeps_logits = "logits_to_keep" in inspect.signature(model.forward).parameters

    @classmethod
    def load(cls, path_or_name: str, *, device: str = "auto", dtype: str = "auto") -> HuggingFaceModel:
        """Loads a model from a directory, or from the hub by name.

        device  "auto" takes a GPU where there is one; else a torch device
        dtype   "auto" is float32 on the CPU (half precision is slow and coarse there), the checkpoint's own elsewhere
        Raises ModelUnavailable where nothing there can be loaded as a causal language model.
        """
        place = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
        chosen = ("float32" if place.type == "cpu" else "auto") if dtype == "auto" else dtype
        local = Path(path_or_name).exists()
        try:
            with _without_progress_bars():
                loaded: Any = AutoModelForCausalLM.from_pretrained(
                    path_or_name, dtype=chosen, local_files_only=local, output_loading_info=True
                )
            model, report = loaded[0].to(place), loaded[1]
        except Exception as error:  # the library and its file readers have no common root for what they raise
            raise ModelUnavailable(f"no causal language model can be loaded from {path_or_name!r}: {error}") from error
        missing = sorted(report.get("missing_keys", ()))
        if missing:  # an encoder read as a decoder, or a broken download: it would run, on random numbers
            raise ModelUnavailable(f"{path_or_name!r} lacks weights of a causal language model, such as {missing[0]}")
        adapter = cls(model)
        adapter.prefill(adapter.eos_ids[:1])  # a model without a cache fails here, not in the first request
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

    @torch.inference_mode()
    def prefill(self, prompt_ids: Sequence[int]) -> tuple[HuggingFaceSession, Tensor]:
        """The prompt is read once, as one row. Raises PromptEmpty without a token to begin with."""
        if not prompt_ids and self._bos_id is None:
            raise PromptEmpty("the prompt is empty, and the model names no token that begins a text")
        begin = [] if self._bos_id is None else [self._bos_id]
        log_probs, cache = self._forward([list(prompt_ids) or begin], None, keep=1)
        return HuggingFaceSession(cache, rows=1), log_probs[0, 0]

    @torch.inference_mode()
    def step(self, session: HuggingFaceSession, parents: Sequence[int], tokens: Sequence[int]) -> Tensor:
        if list(parents) != list(range(session.rows)):  # the cache is copied only where rows move
            session.cache.reorder_cache(torch.tensor(parents, device=self.device))
        session.rows = len(parents)
        log_probs, session.cache = self._forward([[token] for token in tokens], session.cache, keep=1)
        return log_probs[:, 0]

    @torch.inference_mode()
    def score(self, prompt_ids: Sequence[int], tokens: Sequence[int]) -> Rescored:
        """One row, many tokens a pass, nothing reordered: shares no state with the search it checks."""
        session, first = self.prefill(prompt_ids)
        rows, cache = [first[None]], session.cache
        log_probs, peaks = [], []
        for begin in range(0, len(tokens), _RESCORE_TOKENS):
            piece = list(tokens[begin : begin + _RESCORE_TOKENS])
            feed = piece if begin + len(piece) < len(tokens) else piece[:-1]  # nothing follows the last token
            if feed:
                following, cache = self._forward([feed], cache, keep=len(feed))
                rows.append(following[0])
            known = torch.cat(rows)  # [len(piece)] rows, and one more where a piece follows
            index = torch.tensor(piece, device=self.device)
            log_probs += known[: len(piece)].gather(1, index[:, None])[:, 0].tolist()
            peaks += known[: len(piece)].amax(dim=1).tolist()
            rows = [known[len(piece) :]]
        return Rescored(tuple(log_probs), tuple(peaks))

    def _forward(self, ids: list[list[int]], cache: Any, keep: int) -> tuple[Tensor, Any]:
        """Feeds ids [R, N]: log-probs float32 [R, keep, V] after the last `keep` of them, and the cache."""
        options = {"logits_to_keep": keep} if self._keeps_logits else {}
        read = torch.tensor(ids, device=self.device)
        out = self._model(input_ids=read, past_key_values=cache, use_cache=True, return_dict=True, **options)
        log_probs: Tensor = out.logits[:, -keep:].float().log_softmax(dim=-1)
        kept = getattr(out, "past_key_values", None)
        if not hasattr(kept, "reorder_cache"):
            raise ModelUnavailable(f"the model {self._model.name_or_path!r} keeps no cache whose rows can be reordered")
        return log_probs, kept


@contextlib.contextmanager
def _without_progress_bars() -> Iterator[None]:
    """Keeps the library's bars off the terminal, which is not ours to write on."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _eos_ids(model: PreTrainedModel) -> tuple[int, ...]:
    """From the generation settings, else the architecture's; one id or several. Raises ModelUnavailable without any."""
    for settings in (model.generation_config, model.config.get_text_config()):
        named = getattr(settings, "eos_token_id", None)
        if named is not None:
            ids = tuple(dict.fromkeys(int(eos) for eos in (named if isinstance(named, list | tuple) else [named])))
            if ids and all(0 <= eos < model.config.get_text_config().vocab_size for eos in ids):
                return ids
    raise ModelUnavailable(f"the model {model.name_or_path!r} names no token that ends a text")


def _context_length(config: Any) -> int | None:
    """The longest input in tokens, by whichever name the architecture gives it."""
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        length = getattr(config, name, None)
        if isinstance(length, int) and length > 0:
            return length
    return None
