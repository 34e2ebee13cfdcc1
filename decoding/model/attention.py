"""Attention of many generations in one pass: each row over its own prompt and its own nodes, and nothing else.

The rows of all generations are packed into one sequence, so that every linear layer reads its weights once. Only
attention separates them: the library calls `attend` in each layer, by the name under which this module registers it.
The `Pass` among the arguments states which rows belong to which tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from decoding.model.prefix_tree import PrefixTree

SHARED_PREFIX = "shared_prefix"
SHARED_PREFIX_CHECKED = "shared_prefix_checked"
_FAR = 2**20  # further apart than any window
_KIN = 32  # rows of one block, where the rows are split into blocks
_PAIRS_FEW = 2**15  # pairs of a row and a slot, up to which the rows are not split
_GAIN = 1.5  # the rows are split where that divides the number of pairs by more than this

# what layers pass along that says nothing about who sees whom
_HARMLESS = {"position_ids", "cache_position", "is_causal", "use_cache", "output_attentions", "output_hidden_states"}


class NotShareable(Exception):
    """This model's attention is more than softmax over all that came before; the message says what else."""


class Prompt:
    """The rows of a pass that are one generation's prompt."""

    def __init__(self, tree: PrefixTree, tokens: int) -> None:
        self.rows = tokens
        self.positions = torch.arange(tokens)
        self._tree = tree
        tree.begin(tokens)

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, scaling: float | None) -> Tensor:
        """[heads, P, width] over keys and values [H, P, width]."""
        self._tree.store_prompt(layer, keys, values)
        grouped = query.shape[0] != keys.shape[0]
        return scaled_dot_product_attention(
            query[None], keys[None], values[None], is_causal=True, scale=scaling, enable_gqa=grouped
        )[0]


class _Block:
    """Rows of a generation that attend together, and all that any of them sees.

    rows    int64 [n]     which of the pass's; None: all, in their order
    places  int64 [K]     of the keys and values; None: all
    bias    float [n, K]  0 where a row sees, -inf where it does not; repeated for each head of a group that shares keys
    """

    def __init__(self, tree: PrefixTree, sees: Tensor, dtype: torch.dtype, rows: Tensor | None = None) -> None:
        self.rows = rows
        self._places: Tensor | None = None
        if rows is not None:
            sees = sees[rows]
            slots = sees.any(dim=0).nonzero()[:, 0]
            self._places = torch.cat([torch.arange(tree.prompt), tree.prompt + slots])
            sees = sees[:, slots]
        self._bias = torch.zeros(len(sees), tree.prompt + sees.shape[1], dtype=dtype, device=sees.device)
        self._bias[:, tree.prompt :].masked_fill_(~sees, float("-inf"))
        self.pairs = self._bias.numel()

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scaling: float | None) -> Tensor:
        """[heads, n, width] of its rows, from the query of all [heads, R, width] and keys and values [K, H, width].

        Heads that share keys are rows of one product, so none is repeated.
        """
        if self.rows is None:
            query = query.clone(memory_format=torch.contiguous_format)  # where it lies can change a product's last bit
        else:
            query = query.index_select(1, self.rows)
        if self._places is not None:
            keys, values = keys.index_select(0, self._places), values.index_select(0, self._places)
        heads, rows, width = query.shape
        group = heads // keys.shape[1]
        if len(self._bias) < group * rows:
            self._bias = self._bias.repeat(group, 1)
        found = scaled_dot_product_attention(
            query.view(1, -1, group * rows, width), keys.transpose(0, 1)[None], values.transpose(0, 1)[None],
            attn_mask=self._bias, scale=scaling,
        )
        return found.reshape(heads, rows, -1)  # not every kernel lays out its result alike


def _blocks(tree: PrefixTree, sees: Tensor, count: int, dtype: torch.dtype) -> list[_Block]:
    """How rows attend that see these slots, bool [N * count, slots]: together, or on the CPU kin by kin.

    Where rows are many few see what most of the others wrote, and masked products are computed all the same. An
    accelerator would have to be waited for.
    """
    if sees.device.type == "cpu" and len(sees) > _KIN and sees.numel() > _PAIRS_FEW:
        order = (tree.by_kinship()[:, None] * count + torch.arange(count)).view(-1)
        kin = [_Block(tree, sees, dtype, rows) for rows in order.split(_KIN)]
        if _GAIN * sum(block.pairs for block in kin) < len(sees) * (tree.prompt + sees.shape[1]):
            return kin
    return [_Block(tree, sees, dtype)]


class Nodes:
    """The rows of a pass that are new nodes of one generation: N rows of m tokens, row by row."""

    def __init__(self, tree: PrefixTree, parents: Tensor, count: int, dtype: torch.dtype) -> None:
        before = tree.length
        self.rows = len(parents) * count
        self.positions = torch.arange(before, before + count).repeat(len(parents))
        self._tree = tree
        self._slots, sees = tree.extend(parents, count)
        self._blocks = _blocks(tree, sees, count, dtype)

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, scaling: float | None) -> Tensor:
        """[heads, N * m, width] over the tree."""
        keys, values = self._tree.store(layer, self._slots, keys, values)
        if self._blocks[0].rows is None:
            return self._blocks[0].attend(query, keys, values, scaling)
        found = query.new_empty(*query.shape[:2], values.shape[2])
        for block in self._blocks:
            found[:, block.rows] = block.attend(query, keys, values, scaling)
        return found


class Pass:
    """One forward pass over the rows of several generations, one part each, and over rows that only fill up."""

    def __init__(self, parts: Sequence[Prompt | Nodes], fill: int, device: torch.device) -> None:
        positions = [*(part.positions for part in parts), torch.zeros(fill, dtype=torch.int64)]
        self.positions = torch.cat(positions).to(device)[None]  # int64 [1, rows]
        self.no_mask = torch.zeros(1, 1, 1, 1, device=device)  # four axes: the library makes no mask of its own
        self._parts = parts

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, scaling: float | None) -> Tensor:
        """[rows, heads, width] from query [heads, rows, width], keys and values [H, rows, width]."""
        heads, rows, _ = query.shape
        out = values.new_empty(rows, heads, values.shape[2])
        begin = 0
        for part in self._parts:
            own = slice(begin, begin + part.rows)
            out[own] = part.attend(layer, query[:, own], keys[:, own], values[:, own], scaling).transpose(0, 1)
            begin += part.rows
        # a row that fills up sees itself alone
        out[begin:] = values[:, begin:].repeat_interleave(heads // len(values), dim=0).transpose(0, 1)
        return out


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    shared_pass: Pass | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention as the library calls it: query [B, heads, rows, width] and so on, to [B, rows, heads, width].

    Without a pass it is the library's own. Raises NotShareable where a layer asks for more than we do.
    """
    if shared_pass is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **others
        )
    given = {name for name, option in others.items() if option is not None and option is not False}
    asked = sorted(given - _HARMLESS)
    if asked or attention_mask is not shared_pass.no_mask or others.get("is_causal") is False or dropout:
        raise NotShareable(f"a layer asks for {', '.join(asked) or 'a mask of its own'}")
    return shared_pass.attend(module.layer_idx, query[0], key[0], value[0], scaling)[None], None


def _checked_mask(*, mask_function: Callable[..., Any], **options: Any) -> Tensor | None:
    """The library's mask. Raises NotShareable where it hides something that came before, however long ago."""
    query = torch.tensor([0, 1, 7, 100, 5000, _FAR])
    seen = torch.as_tensor(mask_function(torch.tensor(0), torch.tensor(0), query[:, None], query[None]))
    if not torch.equal(seen.broadcast_to(6, 6), torch.ones(6, 6, dtype=torch.bool).tril()):
        raise NotShareable("a layer does not see all that came before, or sees what comes after")
    return sdpa_mask(mask_function=mask_function, **options)


for _name, _mask in ((SHARED_PREFIX, sdpa_mask), (SHARED_PREFIX_CHECKED, _checked_mask)):
    AttentionInterface.register(_name, attend)
    AttentionMaskInterface.register(_name, _mask)
