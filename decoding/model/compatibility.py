"""Decides whether a model can be read with shared prefixes.

The tests cover the model's configuration, its cache, the options that its layers pass to attention, and the log-probs
of a trial, which must equal those of `PlainReader` up to a tolerance.
"""

from __future__ import annotations

import inspect

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from decoding.model.attention import SHARED_PREFIX, SHARED_PREFIX_CHECKED, NotShareable
from decoding.model.loading import ROPE_BY_LENGTH, rope_types
from decoding.model.plain_cache import PlainReader
from decoding.model.protocol import StepInput
from decoding.model.shared_prefix import SharedReader

_OFF_HALVED = 0.125  # of the spread of log-probs: rounding costs some 0.03 of it, a model read wrongly all of it
_PROMPT_TOKENS = 6
_STEPS = (((0, 0, 0), 1), ((2, 0, 1, 1), 2), ((3, 1), 1))  # parents, tokens a row


def open_shared(model: PreTrainedModel, plain: PlainReader, tolerance: float) -> tuple[SharedReader | None, str]:
    """A reader that reads this model the shared way, or None and the reason why it cannot be.

    Switches the model's attention to ours, which without a pass of ours is the library's own; back where it fails.
    """
    before = model.config._attn_implementation
    try:
        _require_plain_softmax(model)
        model.set_attn_implementation(SHARED_PREFIX_CHECKED)
        _require_plain_memory(model, plain)
        model.set_attn_implementation(SHARED_PREFIX)
        reader = SharedReader(model)
        _require_equal(model, plain, reader, tolerance)
        reader.find_multiple()
    except Exception as error:  # whatever a foreign architecture raises, the plain way serves it
        if model.config._attn_implementation != before:
            model.set_attn_implementation(before)
        return None, f"{type(error).__name__}: {error}"
    return reader, ""


def _require_plain_softmax(model: PreTrainedModel) -> None:
    config = model.config.get_text_config()
    if not model._supports_attention_backend or model.config._attn_implementation not in ("sdpa", SHARED_PREFIX):
        raise NotShareable("its attention cannot be exchanged")
    if "logits_to_keep" not in inspect.signature(model.forward).parameters:
        raise NotShareable("it gives the log-probs of all tokens or none")
    if kinds := ROPE_BY_LENGTH & set(rope_types(getattr(config, "rope_parameters", None))):
        raise NotShareable(f"its positions are stretched by the longest row ({', '.join(kinds)})")


def _require_plain_memory(model: PreTrainedModel, plain: PlainReader) -> None:
    """Each layer keeps keys and values of all tokens, and nothing else; masks are causal, whatever the distance."""
    session, _ = plain.prefill(_ids(model, _PROMPT_TOKENS))
    layers = session.cache.layers if type(session.cache) is DynamicCache else [None]
    if any(type(layer) is not DynamicLayer for layer in layers):
        raise NotShareable("it keeps more than keys and values, or not all of them")


def _require_equal(model: PreTrainedModel, plain: PlainReader, reader: SharedReader, tolerance: float) -> None:
    prompt = _ids(model, _PROMPT_TOKENS)
    ours, first = reader.prefill(prompt)
    theirs, expected = plain.prefill(prompt)
    if ours.layers != len(theirs.cache.layers):
        raise NotShareable("some of its layers share keys and values, or keep none")
    halved = model.dtype not in (torch.float32, torch.float64)
    if halved:
        tolerance = _OFF_HALVED * float(expected.std())
    _require_close(first, expected, tolerance, halved)
    for number, (parents, count) in enumerate(_STEPS):
        rows = torch.tensor(parents, device=model.device)
        ids = _ids(model, len(parents) * count, 17 * number)
        tokens = torch.tensor(ids, device=model.device).view(-1, count)
        shared = reader.step([StepInput(ours, rows, tokens)])[0]
        expected_scores = plain.step([StepInput(theirs, rows, tokens)])[0]
        for name in ("log_probs", "token_log_probs", "max_log_probs"):
            _require_close(getattr(shared, name), getattr(expected_scores, name), tolerance, halved)


def _require_close(found: Tensor, expected: Tensor, tolerance: float, halved: bool) -> None:
    """In half precision by the mean: where log-probs are far apart, single ids are off by a nat however read."""
    if found.numel():
        apart = (found - expected).abs()
        off = float(apart.mean() if halved else apart.max())
        if not off <= tolerance:  # NaN is not
            raise NotShareable(f"the log-probs found the shared way are off by {off:.3g} nats")


def _ids(model: PreTrainedModel, count: int, begin: int = 3) -> list[int]:
    return [number * 7919 % int(model.config.get_text_config().vocab_size) for number in range(begin, begin + count)]
