"""The library's own way: each generation has a cache of its own, whose rows are copied when they move.

Serves every causal model, also those that keep more than keys and values, or attend to less than all.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, LinearAttentionCacheLayerMixin

from decoding.errors import ModelUnavailable
from decoding.model.chunked_feed import PIECE_ROWS_MAX, ChunkedFeed, piece_bytes, piece_rows
from decoding.model.cpu_layers import activation_bytes
from decoding.model.protocol import Scores, StepInput


@dataclass(slots=True, weakref_slot=True, eq=False)
class PlainSession:
    """One generation's rows, in the library's own cache."""

    cache: Any
    rows: int = 1


class PlainReader:
    """Reads with the library's caches, one pass for each feed."""

    rows_independent = True  # each generation has its passes to itself

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._vocab_size = int(model.config.get_text_config().vocab_size)
        self._keeps_logits = "logits_to_keep" in inspect.signature(model.forward).parameters

    @torch.inference_mode()
    def prefill(self, ids: Sequence[int]) -> tuple[PlainSession, Tensor]:
        log_probs, cache = self.forward(torch.tensor([list(ids)], device=self._model.device), None, keep=1)
        return PlainSession(cache), log_probs[0, 0]

    @torch.inference_mode()
    def step(self, feeds: Sequence[StepInput[PlainSession]]) -> list[Scores]:
        return [self._step_alone(feed) for feed in feeds]

    def bytes_for(self, prompt_tokens: int, rows: int, max_tokens: int, scratch_bytes: int) -> int:
        """The largest pass, and twice the rows' memory: the library copies it when it grows and when rows move."""
        first, each = self._row_bytes
        longest = prompt_tokens + max_tokens
        held = 2 * rows * (first + longest * each)
        fed = piece_rows(rows, min(max_tokens, self.tokens_at_once))
        masks = 8 * self._scores_written * max(prompt_tokens * prompt_tokens, fed * longest)
        passing = activation_bytes(self._model, max(prompt_tokens, fed))
        piece = piece_bytes(rows, max_tokens, self._vocab_size)
        return held + piece + max(masks + passing + 2 * piece, scratch_bytes)  # a pass, then the step

    def try_out(self, token: int) -> None:
        """Raise ModelUnavailable where a search would fail: a model says so when it is loaded, not in a request."""
        session, _ = self.prefill([token])
        try:
            for parents in ((0, 0), (1, 0, 1)):
                rows = torch.tensor(parents, device=self._model.device)
                self.step([StepInput(session, rows, torch.full_like(rows, token)[:, None])])
        except Exception as error:  # whatever a foreign cache raises
            name = self._model.name_or_path
            raise ModelUnavailable(f"the rows that the model {name!r} keeps cannot be reordered: {error}") from error

    @property
    def _scores_written(self) -> int:
        """How many tables of tokens by tokens a pass writes out: the mask, and with eager attention the heads'."""
        config = self._model.config.get_text_config()
        return 1 + (int(getattr(config, "num_attention_heads", 1)) if config._attn_implementation == "eager" else 0)

    @functools.cached_property
    def _row_bytes(self) -> tuple[int, int]:
        """What a row holds however short it is, and for each token: by trial."""
        short, long = (cache_bytes(self.prefill([0] * tokens)[0].cache) for tokens in (1, 9))
        each = (long - short + 7) // 8
        return max(0, short - each), each

    @functools.cached_property
    def tokens_at_once(self) -> int:
        """How many tokens a row may grow by in one pass: one where a layer keeps anything but keys and values.

        Several recurrent layers of the library forget what they keep when they are fed more, or fail.
        """
        cache = self.prefill([0])[0].cache
        remembers = type(cache) is DynamicCache and all(
            isinstance(layer, DynamicLayer) and not isinstance(layer, LinearAttentionCacheLayerMixin)
            for layer in cache.layers
        )
        return PIECE_ROWS_MAX if remembers else 1

    @torch.inference_mode()
    def forward(self, ids: Tensor, cache: Any, keep: int) -> tuple[Tensor, Any]:
        """Reads ids [R, N]: log-probs float32 [R, keep, V] after the last `keep` of them, and the cache."""
        options = {"logits_to_keep": keep} if self._keeps_logits else {}
        out = self._model(input_ids=ids, past_key_values=cache, use_cache=True, return_dict=True, **options)
        log_probs: Tensor = out.logits[:, -keep:].float().log_softmax(dim=-1)
        kept = getattr(out, "past_key_values", None)
        if not hasattr(kept, "reorder_cache"):
            raise ModelUnavailable(f"the model {self._model.name_or_path!r} keeps no cache whose rows can be reordered")
        return log_probs, kept

    def _step_alone(self, feed: StepInput[PlainSession]) -> Scores:
        stretch = ChunkedFeed(feed.parents, feed.tokens, self._vocab_size, self.tokens_at_once)
        session = feed.session
        if not session.rows == len(feed.parents) == 1:
            session.cache.reorder_cache(feed.parents)
        session.rows = len(feed.parents)
        while not stretch.done:
            _, tokens = stretch.piece()
            log_probs, session.cache = self.forward(tokens, session.cache, keep=tokens.shape[1])
            stretch.take(log_probs)
        return stretch.scores()


def cache_bytes(cache: Any) -> int:
    """What the library's cache holds: keys, values and whatever else its layers keep."""
    kept = (value for layer in cache.layers for value in vars(layer).values())
    return sum(value.nbytes for value in kept if isinstance(value, Tensor))
