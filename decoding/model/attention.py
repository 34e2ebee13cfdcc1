"""Tree attention for many generations in one pass.

The rows of all generations are packed into one sequence, so that every linear layer reads its weights once. Only
attention separates them: a row attends to its generation's prompt and to the nodes on its path. The library calls
`attend` in each layer, by the name under which this module registers it. The `Pass` among the arguments states which
rows belong to which tree.
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
_DISTANCE_MAX = 2**20  # longer than any attention window
_BLOCK_ROWS = 32  # of one block, where the rows are split into blocks
_PAIRS_MIN = 2**15  # pairs of a row and a slot, up to which the rows are not split
_GAIN_MIN = 1.5  # the rows are split where that divides the number of pairs by more than this

# options of layers that do not change which tokens are visible
_HARMLESS = {"position_ids", "cache_position", "is_causal", "use_cache", "output_attentions", "output_hidden_states"}


class PrefixSharingUnsupported(Exception):
    """This model's attention is more than softmax over all earlier tokens; the message names the difference."""


class Prompt:
    """The rows of a pass that are the prompt of a generation: P tokens in one sequence."""

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
    """Rows of a generation that attend together, and the K entries that any of them sees.

    rows     int64 [n]     rows of this generation's part of the pass; None: all, in their order
    entries  int64 [K]     of the keys and values; None: all
    bias     float [n, K]  0 where a row sees an entry, -inf elsewhere; [group * n, K] where heads share keys
    """

    def __init__(self, tree: PrefixTree, sees: Tensor, dtype: torch.dtype, rows: Tensor | None = None) -> None:
        self.rows = rows
        self._entries: Tensor | None = None
        if rows is not None:
            sees = sees[rows]
            slots = sees.any(dim=0).nonzero()[:, 0]
            self._entries = torch.cat([torch.arange(tree.prompt), tree.prompt + slots])
            sees = sees[:, slots]
        self._bias = torch.zeros(len(sees), tree.prompt + sees.shape[1], dtype=dtype, device=sees.device)
        self._bias[:, tree.prompt :].masked_fill_(~sees, float("-inf"))
        self.pairs = self._bias.numel()

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scaling: float | None) -> Tensor:
        """[heads, n, width] of its rows, from the query of all [heads, R, width] and keys and values [K, H, width]."""
        if self.rows is None:
            # The layout of an operand can change the last bit of a product, so it must not depend on the batch.
            query = query.clone(memory_format=torch.contiguous_format)
        else:
            query = query.index_select(1, self.rows)
        if self._entries is not None:
            keys, values = keys.index_select(0, self._entries), values.index_select(0, self._entries)
        heads, rows, width = query.shape
        # Grouped-query attention: the heads of a group become rows of one product, so that no key is repeated.
        group = heads // keys.shape[1]
        if len(self._bias) < group * rows:
            self._bias = self._bias.repeat(group, 1)
        attended = scaled_dot_product_attention(
            query.view(1, -1, group * rows, width), keys.transpose(0, 1)[None], values.transpose(0, 1)[None],
            attn_mask=self._bias, scale=scaling,
        )
        return attended.reshape(heads, rows, -1)  # kernels differ in the layout of their results


def _blocks(tree: PrefixTree, sees: Tensor, count: int, dtype: torch.dtype) -> list[_Block]:
    """The blocks of rows that see these slots, bool [N * count, slots]."""
    # A masked product is computed and thrown away. Where rows are many, most see few of the others' nodes; rows with
    # neighbouring paths share most nodes, so a block of them has few slots. Only on the CPU: on an accelerator the
    # number of slots would have to come to the host, which waits for it.
    if sees.device.type == "cpu" and len(sees) > _BLOCK_ROWS and sees.numel() > _PAIRS_MIN:
        order = (tree.path_order()[:, None] * count + torch.arange(count)).view(-1)
        blocks = [_Block(tree, sees, dtype, rows) for rows in order.split(_BLOCK_ROWS)]
        if _GAIN_MIN * sum(block.pairs for block in blocks) < len(sees) * (tree.prompt + sees.shape[1]):
            return blocks
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
        attended = query.new_empty(*query.shape[:2], values.shape[2])
        for block in self._blocks:
            attended[:, block.rows] = block.attend(query, keys, values, scaling)
        return attended


class Pass:
    """One forward pass over the rows of several generations, one part each, and over padding rows."""

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
            span = slice(begin, begin + part.rows)
            out[span] = part.attend(layer, query[:, span], keys[:, span], values[:, span], scaling).transpose(0, 1)
            begin += part.rows
        # A padding row sees itself alone, and softmax over one key returns its value.
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

    Without a pass it is the library's own. Raises PrefixSharingUnsupported where a layer needs more than this.
    """
    if shared_pass is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **others
        )
    # An unknown option (a window, a cap, sinks) could change the result, so its presence is an error.
    unknown = sorted(
        name for name, value in others.items() if name not in _HARMLESS and value is not None and value is not False
    )
    if unknown or attention_mask is not shared_pass.no_mask or others.get("is_causal") is False or dropout:
        raise PrefixSharingUnsupported(f"a layer asks for {', '.join(unknown) or 'a mask of its own'}")
    return shared_pass.attend(module.layer_idx, query[0], key[0], value[0], scaling)[None], None


def _checked_mask(*, mask_function: Callable[..., Any], **options: Any) -> Tensor | None:
    """The library's mask. Raises PrefixSharingUnsupported where it is not plainly causal."""
    # Six positions, near and far: a sliding window or chunks would hide one of the earlier ones.
    query = torch.tensor([0, 1, 7, 100, 5000, _DISTANCE_MAX])
    visible = torch.as_tensor(mask_function(torch.tensor(0), torch.tensor(0), query[:, None], query[None]))
    if not torch.equal(visible.broadcast_to(6, 6), torch.ones(6, 6, dtype=torch.bool).tril()):
        raise PrefixSharingUnsupported("a layer does not see all earlier tokens, or sees later ones")
    return sdpa_mask(mask_function=mask_function, **options)


for _name, _mask in ((SHARED_PREFIX, sdpa_mask), (SHARED_PREFIX_CHECKED, _checked_mask)):
    AttentionInterface.register(_name, attend)
    AttentionMaskInterface.register(_name, _mask)
