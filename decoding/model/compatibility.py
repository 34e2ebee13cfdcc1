"""Decides whether a model can be read with prefix sharing.

The tests cover the model's configuration, its cache, the options that its layers pass to attention, and the log-probs
of a trial tree, which must equal those of `PlainReader` up to a tolerance.
"""

from __future__ import annotations

import inspect

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from decoding.model.loading import ROPE_BY_LENGTH, has_reduced_precision, rope_types
from decoding.model.own_attention import has_own_attention, replace_attention, restore_attention
from decoding.model.plain_cache import PlainReader
from decoding.model.protocol import StepInput
from decoding.model.shared_prefix import SharedReader
from decoding.model.tree_attention import LIBRARY, PrefixSharingUnsupported, shared_prefix

_TOLERANCE_HALVED = 0.125  # of the spread of log-probs: rounding costs some 0.03 of it, a model read wrongly all of it
_PROMPT_TOKENS = 6
_OWN_NAMES = {shared_prefix(name): name for name in LIBRARY} | {name: name for name in LIBRARY}
_STEPS = (((0, 0, 0), 1), ((2, 0, 1, 1), 2), ((3, 1), 1))  # parents, tokens a row


def enable_prefix_sharing(
    model: PreTrainedModel, plain_reader: PlainReader, *, tolerance: float, batch_invariant: bool
) -> tuple[SharedReader | None, str]:
    """A reader of this model with prefix sharing. Otherwise None and the reason against it.

    tolerance        that log-probs may differ by from those of the plain reader
    batch_invariant  as `SharedReader` takes it
    """
    # Our attention without a `Pass` is the library's own, so the plain reader goes on with it. It is exchanged twice:
    # the first one raises where a mask hides a token, the second makes the library's masks unchecked.
    before = model.config._attn_implementation
    try:
        _require_rows_apart(model)
        if has_own_attention(model):
            _require_keys_and_values_only(model, plain_reader)
            replace_attention(model, str(before))
        else:
            library = _require_exchangeable_attention(model)
            model.set_attn_implementation(shared_prefix(library, checked=True))
            _require_keys_and_values_only(model, plain_reader)
            model.set_attn_implementation(shared_prefix(library))
        reader = SharedReader(model, batch_invariant=batch_invariant)
        _require_equal(model, plain_reader, reader, tolerance)
        reader.find_multiple()
    except Exception as error:  # of any foreign architecture, which the plain reader then serves
        restore_attention(model)
        if model.config._attn_implementation != before:
            model.set_attn_implementation(before)
        return None, f"{type(error).__name__}: {error}"
    return reader, ""


def _require_exchangeable_attention(model: PreTrainedModel) -> str:
    """The name of the library's attention that the model has."""
    library = _OWN_NAMES.get(str(model.config._attn_implementation))
    if library is None or not model.is_backend_compatible():
        raise PrefixSharingUnsupported("its attention cannot be exchanged")
    return library


def _require_rows_apart(model: PreTrainedModel) -> None:
    """Require log-probs of single rows, which depend on no other row. The model declares it, without a pass."""
    config = model.config.get_text_config()
    if "logits_to_keep" not in inspect.signature(model.forward).parameters:
        raise PrefixSharingUnsupported("it gives the log-probs of all tokens or none")
    if kinds := ROPE_BY_LENGTH & rope_types(getattr(config, "rope_parameters", None)):
        raise PrefixSharingUnsupported(f"its positions are stretched by the longest row ({', '.join(kinds)})")


def _require_keys_and_values_only(model: PreTrainedModel, plain_reader: PlainReader) -> None:
    """Require layers that cache keys and values only. Masks must be causal, within a window or without."""
    session, _ = plain_reader.prefill(_ids(model, _PROMPT_TOKENS))
    layers = session.cache.layers if type(session.cache) is DynamicCache else [None]
    if any(type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers):
        raise PrefixSharingUnsupported("it keeps more than keys and values, or not all of them")


def _require_equal(model: PreTrainedModel, plain_reader: PlainReader, reader: SharedReader, tolerance: float) -> None:
    prompt = _ids(model, _PROMPT_TOKENS)
    tree, first = reader.prefill(prompt)
    session, expected = plain_reader.prefill(prompt)
    if not tree.layers:
        raise PrefixSharingUnsupported("its layers do not pass on what our attention needs")
    if tree.layers != len(session.cache.layers):
        raise PrefixSharingUnsupported("some of its layers share keys and values, or keep none")
    reduced = has_reduced_precision(model)
    if reduced:
        tolerance = _TOLERANCE_HALVED * float(expected.std())
    _require_close(first, expected, tolerance, reduced)
    # The steps branch, reorder, drop a row, and grow by two tokens at once.
    for number, (parents, count) in enumerate(_STEPS):
        rows = torch.tensor(parents, device=model.device)
        ids = _ids(model, len(parents) * count, 17 * number)
        tokens = torch.tensor(ids, device=model.device).view(-1, count)
        shared = reader.step([StepInput(tree, rows, tokens)])[0]
        expected_scores = plain_reader.step([StepInput(session, rows, tokens)])[0]
        for name in ("log_probs", "token_log_probs", "max_log_probs"):
            _require_close(getattr(shared, name), getattr(expected_scores, name), tolerance, reduced)


def _require_close(log_probs: Tensor, expected: Tensor, tolerance: float, reduced: bool) -> None:
    if log_probs.numel():
        difference = (log_probs - expected).abs()
        # In reduced precision the mean decides: where log-probs are far apart, rounding moves single ids by a nat.
        error = float(difference.mean() if reduced else difference.max())
        if not error <= tolerance:  # also catches NaN
            raise PrefixSharingUnsupported(f"the log-probs with prefix sharing are off by {error:.3g} nats")


def _ids(model: PreTrainedModel, count: int, begin: int = 3) -> list[int]:
    return [number * 7919 % int(model.config.get_text_config().vocab_size) for number in range(begin, begin + count)]
