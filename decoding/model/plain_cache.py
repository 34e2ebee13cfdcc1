"""Reads each generation with a cache of the library. Rows of the cache are copied when they move.

It serves every causal model, also those with recurrent states or with windowed attention.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, LinearAttentionCacheLayerMixin

from decoding.errors import ModelUnavailable
from decoding.model.adapters import apply_adapter
from decoding.model.chunked_feed import PIECE_ROWS_MAX, ChunkedFeed, piece_bytes, piece_rows
from decoding.model.cpu_layers import activation_bytes, layer_widths
from decoding.model.protocol import Scores, StepInput, WholePrompts

# The library renamed them to the first in release 5.24. Before, models without attention, such as Mamba, had the third.
_CACHE_NAMES = ("cache", "past_key_values", "cache_params")


@dataclass(slots=True, weakref_slot=True, eq=False)
class PlainSession:
    """The rows of one generation, in a cache of the library. They are read with an adapter, or none."""

    cache: Any
    rows: int = 1
    adapter: str = ""


class PlainReader(WholePrompts[PlainSession]):
    """Reads with the library's caches, one pass for each feed."""

    rows_independent = True  # each generation has its passes to itself

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._vocab_size = int(model.config.get_text_config().vocab_size)
        self._widest_layer = max(layer_widths(model))
        self._keeps_logits = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._cache_name = cache_name(model)

    @torch.inference_mode()
    def prefill(self, prompt_ids: Sequence[int], adapter: str = "") -> tuple[PlainSession, Tensor]:
        """Read a prompt into a session of one row. The log-probs after it are float32 [V]."""
        ids = torch.tensor([list(prompt_ids)], device=self._model.device)
        log_probs, cache = self.forward(ids, None, keep=1, adapter=adapter)
        return PlainSession(cache, adapter=adapter), log_probs[0, 0]

    def prefill_chunks(self, prompt_ids: Sequence[int], adapter: str = "") -> Iterator[tuple[PlainSession, Tensor]]:
        yield self.prefill(prompt_ids, adapter)

    @torch.inference_mode()
    def step(self, feeds: Sequence[StepInput[PlainSession]]) -> list[Scores]:
        """One pass, or several for long feeds, for each generation."""
        return [self._step_alone(feed) for feed in feeds]

    def bytes_for(self, prompt_tokens: int, rows: int, max_tokens: int, scratch_bytes: int) -> int:
        """The memory of the largest pass, and twice the rows' memory.

        The library copies the rows when the cache grows and when rows move.
        """
        fixed, each = self._row_bytes
        longest = prompt_tokens + max_tokens
        cached = 2 * rows * (fixed + longest * each)
        fed = piece_rows(rows, min(max_tokens, self.tokens_at_once))
        masks = 8 * self._scores_written * max(prompt_tokens * prompt_tokens, fed * longest)
        passing = activation_bytes(self._model, max(prompt_tokens, fed), self._widest_layer)
        piece = piece_bytes(rows, max_tokens, self._vocab_size)
        return cached + piece + max(masks + passing + 2 * piece, scratch_bytes)  # a pass, then the step

    def try_out(self, token: int) -> None:
        """Raise ModelUnavailable where a search would fail. Loading then fails instead of a request."""
        session, _ = self.prefill([token])
        try:
            for parents in ((0, 0), (1, 0, 1)):
                rows = torch.tensor(parents, device=self._model.device)
                self.step([StepInput(session, rows, torch.full_like(rows, token)[:, None])])
        except Exception as error:  # of any foreign cache
            name = self._model.name_or_path
            raise ModelUnavailable(f"the rows that the model {name!r} keeps cannot be reordered: {error}") from error

    @property
    def _scores_written(self) -> int:
        """The number of [tokens, tokens] tables that a pass writes.

        They are the mask, and one table for each head with eager attention, or with attention in code of its own.
        """
        config = self._model.config.get_text_config()
        is_fused = config._attn_implementation != "eager" and self._model.is_backend_compatible()
        return 1 + (0 if is_fused else int(getattr(config, "num_attention_heads", 1)))

    @functools.cached_property
    def _row_bytes(self) -> tuple[int, int]:
        """The bytes of a row of any length, and of each token."""
        # By trial, since layers may hold anything; two lengths separate the fixed part from the growing one.
        short, long = (cache_bytes(self.prefill([0] * tokens)[0].cache) for tokens in (1, 9))
        each = (long - short + 7) // 8
        return max(0, short - each), each

    @functools.cached_property
    def tokens_at_once(self) -> int:
        """How many tokens a row may grow by in one pass. It is one where a layer stores anything but keys and values.
        """
        # Several recurrent layers of the library reset their state when they read more than one, or fail.
        cache = self.prefill([0])[0].cache
        keys_and_values = type(cache) is DynamicCache and all(
            isinstance(layer, DynamicLayer) and not isinstance(layer, LinearAttentionCacheLayerMixin)
            for layer in cache.layers
        )
        return PIECE_ROWS_MAX if keys_and_values else 1

    @torch.inference_mode()
    def forward(self, ids: Tensor, cache: Any, *, keep: int, adapter: str = "") -> tuple[Tensor, Any]:
        """Read ids [R, N], and return log-probs and the cache.

        The log-probs are float32 [R, keep, V], after the last `keep` ids.
        """
        # Many models ignore arguments that they do not know, so a cache under another name would be lost unnoticed.
        options = {self._cache_name: cache} if self._cache_name else {}
        options |= {"logits_to_keep": keep} if self._keeps_logits else {}
        with apply_adapter(adapter):
            out = self._model(input_ids=ids, use_cache=True, return_dict=True, **options)
        log_probs: Tensor = out.logits[:, -keep:].float().log_softmax(dim=-1)
        updated = getattr(out, self._cache_name, None)
        if not hasattr(updated, "reorder_cache"):
            raise ModelUnavailable(f"the model {self._model.name_or_path!r} keeps no cache whose rows can be reordered")
        return log_probs, updated

    def _step_alone(self, feed: StepInput[PlainSession]) -> Scores:
        chunked = ChunkedFeed(feed.parents, feed.tokens, self._vocab_size, self.tokens_at_once)
        session = feed.session
        # A row that goes on alone stays where it is, which saves copying the cache.
        if not session.rows == len(feed.parents) == 1:
            session.cache.reorder_cache(feed.parents)
        session.rows = len(feed.parents)
        while not chunked.done:
            _, tokens = chunked.piece()
            log_probs, session.cache = self.forward(
                tokens, session.cache, keep=tokens.shape[1], adapter=session.adapter
            )
            chunked.take(log_probs)
        return chunked.scores()


def cache_name(model: PreTrainedModel) -> str:
    """The name of the cache among a model's arguments and results. Empty where it takes none."""
    parameters = inspect.signature(model.forward).parameters
    return next((name for name in _CACHE_NAMES if name in parameters), "")


def cache_bytes(cache: Any) -> int:
    """The bytes of a cache of the library. They include keys, values, and all other tensors of its layers."""
    fields = [value for layer in cache.layers for value in vars(layer).values()]
    # Recurrent layers keep several states by number.
    states = [state for value in fields if isinstance(value, dict) for state in value.values()]
    return sum(value.nbytes for value in (*fields, *states) if isinstance(value, Tensor))
