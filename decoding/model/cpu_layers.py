"""Layers of oneDNN for the CPU, and GPT-2's activation in one kernel.

They compute the same sums in another order. A row's result is the same to the last bit for any number of rows beside
it, which the products of a BLAS do not offer.
"""

from __future__ import annotations

import weakref

import torch
from torch import Tensor, nn
from torch.utils.mkldnn import to_mkldnn
from transformers import PreTrainedModel
from transformers.activations import NewGELUActivation
from transformers.pytorch_utils import Conv1D

_WEIGHTS_MIN = 2**20  # below, the conversions around the call cost more than it saves
_ROWS_TRIED = 5
_FINEST = 4  # a small number of rows is rounded up to a multiple of this
_SHARES = 8  # a large number of rows grows by less than one part in 8
_TOLERANCE = 1e-4  # of the largest value: oneDNN must compute the same


class OneDnnLinear(nn.Module):
    """A linear layer that oneDNN computes.

    It maps x [..., in] to x W' + b [..., out], with W [out, in].
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        layer = nn.Linear(self.in_features, self.out_features, bias=bias is not None, device="meta")
        state = {"weight": weight.detach()} | ({} if bias is None else {"bias": bias.detach()})
        layer.load_state_dict(state, assign=True)
        self._layer: nn.Module = to_mkldnn(layer)
        self._weight = weakref.ref(weight)

    @property
    def weight(self) -> Tensor:
        """W, a copy unless others keep it. Code that reads the weights of a layer needs it."""
        # Mamba reads those of its head in each step, for their type; mostly its embeddings keep them.
        weight = self._weight()
        return self._layer.get_buffer("weight").to_dense() if weight is None else weight

    def forward(self, rows: Tensor) -> Tensor:
        """The layer's output, computed over `rows_computed` rows."""
        flat = rows.reshape(-1, rows.shape[-1])
        count = len(flat)
        if count == 0:  # oneDNN takes no empty product
            return rows.new_empty(*rows.shape[:-1], self.out_features)
        flat = nn.functional.pad(flat, (0, 0, 0, rows_computed(count) - count))
        out: Tensor = self._layer(flat)
        return out[:count].view(*rows.shape[:-1], self.out_features)


def rows_computed(count: int) -> int:
    """How many rows such a layer computes when it gets `count` rows.

    >>> [rows_computed(count) for count in (1, 2, 5, 9, 70, 129)]
    [1, 4, 8, 12, 72, 144]
    """
    # oneDNN, and PyTorch in front of it, cache half a MiB for each number of rows that a layer has ever computed. So
    # the numbers are few: up to 1,000 rows some 50.
    if count <= 1:
        return count
    unit = max(_FINEST, (1 << (count - 1).bit_length()) // (2 * _SHARES))
    return -(-count // unit) * unit


@torch.no_grad()
def use_onednn_layers(model: PreTrainedModel) -> int:
    """Speed up a float32 model's layers on the CPU without changing results. Returns how many layers were replaced.

    oneDNN copies the weights; one shared with the embeddings stays in memory twice.
    """
    if model.device.type != "cpu" or model.dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return 0
    replaced = 0
    # Over copies of the lists of children, since `setattr` changes them.
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            replacement = _onednn_layer(layer) if type(layer) is not NewGELUActivation else nn.GELU(approximate="tanh")
            if replacement is not None:
                setattr(parent, name, replacement)
                replaced += 1
    return replaced


def _onednn_layer(layer: nn.Module) -> OneDnnLinear | None:
    """The layer that oneDNN computes. None where it is not linear, too small, or gets another result."""
    if type(getattr(layer, "weight", None)) is not nn.Parameter:  # quantized weights are of classes of their own
        return None
    if type(layer) is nn.Linear:
        weight: Tensor = layer.weight
    elif type(layer) is Conv1D:
        weight = layer.weight.t()  # GPT-2's layers store W transposed
    else:
        return None
    if weight.dtype != torch.float32 or weight.numel() < _WEIGHTS_MIN:
        return None
    replacement = OneDnnLinear(weight, layer.bias)
    rows = torch.linspace(-1.0, 1.0, _ROWS_TRIED * weight.shape[1]).sin().view(_ROWS_TRIED, -1)
    expected = layer(rows)
    error = (replacement(rows) - expected).abs().max()
    return replacement if bool(error <= _TOLERANCE * expected.abs().max()) else None


def layer_widths(model: PreTrainedModel) -> set[int]:
    """The output widths of all linear layers, except the language-model head."""
    head = model.get_output_embeddings()
    layers = [layer for layer in model.modules() if layer is not head]
    return {int(getattr(layer, "out_features", getattr(layer, "nf", 0))) for layer in layers}


def activation_bytes(model: PreTrainedModel, tokens: int, widest_layer: int) -> int:
    """The most bytes of activations that a pass over `tokens` tokens holds.

    The KV cache, the tokens' scores and the masks are not counted; the scores of padding rows are.
    """
    config = model.config.get_text_config()
    computed = rows_computed(tokens)
    # A bound on the arrays that are alive together.
    hidden = computed * (8 * int(config.hidden_size) + 4 * widest_layer)
    padding = 2 * (computed - tokens) * int(config.vocab_size)  # logits of padding rows, and their log-probs
    return (hidden + padding) * model.dtype.itemsize
