"""The attention of one pass over the prefix trees of many generations.

The rows of all generations are packed into one sequence, so that every linear layer reads its weights once. Only
attention separates them: a row attends to its generation's prompt and to the nodes on its path. The library calls
`attend` in each layer, by the name under which this module registers it. The `Pass` among the arguments states which
rows belong to which tree.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask, sdpa_mask

from decoding.model.prefix_tree import PrefixTree
from decoding.model.weighing import PositionBias, Weighing

_DISTANCE_MAX = 2**20  # longer than any attention window
_UNKNOWN = -1  # no window of a mask
_BLOCK_ROWS = 32  # of one block, where the rows are split into blocks
_PAIRS_MIN = 2**15  # pairs of a row and a slot, up to which the rows are not split
_GAIN_MIN = 1.5  # the rows are split where that divides the number of pairs by more than this
# options of layers that do not change which tokens are visible
_HARMLESS = {"position_ids", "cache_position", "is_causal", "use_cache", "output_attentions", "output_hidden_states"}


class PrefixSharingUnsupported(Exception):
    """This model's attention is more than causal softmax attention. The message names the difference."""


class Prompt:
    """The rows of a pass that are a chunk of a prompt.

    These are the tokens from `begin` to `end`. The tree holds the keys and values of the tokens before them.
    """

    def __init__(self, tree: PrefixTree, begin: int, end: int) -> None:
        self.rows = end - begin
        self.positions, self.adapter = torch.arange(begin, end), tree.adapter
        self._tree, self._begin, self._end = tree, begin, end
        self._masks: dict[int | None, Tensor] = {}  # by window

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, *, weighing: Weighing) -> Tensor:
        """[heads, n, width], for n rows.

        Their keys and values are [H, n, width].
        """
        stored = self._tree.store_prompt(layer, self._begin, keys.transpose(0, 1), values.transpose(0, 1))
        window, first, mask = None if weighing.sees_all(self._end) else weighing.window, 0, None
        if self._begin or window is not None or weighing.fills_heads:
            first, mask = self._mask(window, query.device)
        if self._begin:
            keys, values = (slab[first:].transpose(0, 1) for slab in stored)
        group = len(query) // len(keys)
        if mask is not None and weighing.fills_heads:
            bias = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(~mask, float("-inf")).repeat(group, 1)
            if weighing.position_bias is not None:
                entry = torch.arange(first, self._end, device=mask.device)
                rows = entry[self._begin - first :]
                bias = bias + weighing.position_bias.between(rows, entry, heads=len(keys), length=self._end).to(bias)
            rows = query.reshape(len(keys), -1, query.shape[2])
            return weighing.attend(rows, keys, values, bias).view(*query.shape[:2], -1)
        return scaled_dot_product_attention(
            query[None], keys[None], values[None], attn_mask=mask, is_causal=mask is None, scale=weighing.scaling,
            enable_gqa=group > 1,
        )[0]  # fmt: skip

    def _mask(self, window: int | None, device: torch.device) -> tuple[int, Tensor]:
        """The first token that some row sees, and a mask.

        It is bool [n, end - first]: which tokens from there on each row sees.
        """
        first = 0 if window is None else max(0, self._begin - window + 1)
        if window not in self._masks:
            row = torch.arange(self._begin, self._end, device=device)[:, None]
            token = torch.arange(first, self._end, device=device)
            sees = token <= row
            self._masks[window] = sees if window is None else sees & (token > row - window)
        return first, self._masks[window]


class _Block:
    """Rows of a generation that attend together to K entries. Each entry is seen by at least one row.

    rows      int64 [n]     rows of this generation's part of the pass; None: all, in their order
    position  int64 [n]     the positions of the rows' tokens
    entries   int64 [K]     of the keys and values; None: all
    bias      float [n, K]  0 where a row sees an entry, -inf elsewhere; [group * n, K] where heads share keys. Where a
                            layer has a window, the first entries of the prompt are left out if no row sees them
    """

    def __init__(
        self, tree: PrefixTree, sees: Tensor, position: Tensor, *, dtype: torch.dtype, rows: Tensor | None = None
    ) -> None:
        self.rows, self._tree, self._position = rows, tree, position
        self._begin = tree.length - len(position) // tree.rows  # the least position
        self._entries: Tensor | None = None
        # by window and position bias: how many entries are left out, and the bias
        self._biases: dict[tuple[int | None, PositionBias | None], tuple[int, Tensor]] = {}
        if rows is not None:
            sees, self._position = sees[rows], position[rows]
            slots = sees.any(dim=0).nonzero()[:, 0]
            self._entries = torch.cat([torch.arange(tree.prompt), tree.prompt + slots])
            sees = sees[:, slots]
        self._bias = torch.zeros(len(sees), tree.prompt + sees.shape[1], dtype=dtype, device=sees.device)
        self._bias[:, tree.prompt :].masked_fill_(~sees, float("-inf"))
        self.pairs = self._bias.numel()

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, weighing: Weighing) -> Tensor:
        """The attention output of its rows, [heads, n, width].

        The query of all rows is [heads, R, width], keys and values are [K, H, width].
        """
        if self.rows is None:
            # The layout of an operand can change the last bit of a product, so it must not depend on the batch.
            query = query.clone(memory_format=torch.contiguous_format)
        else:
            query = query.index_select(1, self.rows)
        heads, rows, width = query.shape
        # Grouped-query attention: the heads of a group become rows of one product, so that no key is repeated.
        group = heads // keys.shape[1]
        first, bias = self._bias_within(weighing, keys.shape[1], group)
        if self._entries is not None:
            keys, values = keys.index_select(0, self._entries[first:]), values.index_select(0, self._entries[first:])
        elif first:
            keys, values = keys[first:], values[first:]
        attended = weighing.attend(
            query.view(-1, group * rows, width), keys.transpose(0, 1), values.transpose(0, 1), bias
        )
        return attended.reshape(heads, rows, -1)  # kernels differ in the layout of their results

    def _bias_within(self, weighing: Weighing, heads: int, group: int) -> tuple[int, Tensor]:
        """How many entries are left out, and the bias over the others."""
        window = None if weighing.sees_all(self._tree.length) else weighing.window
        position_bias = weighing.position_bias
        if window is None and position_bias is None:  # every row sees its whole path
            if len(self._bias) < group * len(self._position):
                self._bias = self._bias.repeat(group, 1)
            return 0, self._bias
        if (window, position_bias) not in self._biases:
            first = 0 if window is None else min(self._tree.prompt, max(0, self._begin - window + 1))
            entry = self._tree.entry_positions()
            if self._entries is not None:
                entry = entry[self._entries]
            bias = self._bias[: len(self._position), first:]
            if window is not None:
                bias = bias.masked_fill(entry[first:] <= self._position[:, None] - window, float("-inf"))
            bias = bias.repeat(group, 1)
            if position_bias is not None:
                length = self._tree.length
                tokens = entry[first:].clamp(max=length - 1)  # those of holes mean nothing
                bias = bias + position_bias.between(self._position, tokens, heads=heads, length=length).to(bias)
            self._biases[window, position_bias] = first, bias
        return self._biases[window, position_bias]


def _blocks(tree: PrefixTree, sees: Tensor, position: Tensor, *, count: int, dtype: torch.dtype) -> list[_Block]:
    """The blocks of rows that see these slots.

    sees      bool [N * count, slots]
    position  int64 [N * count]
    """
    # A masked product is computed and thrown away. Where rows are many, most see few of the others' nodes; rows with
    # neighbouring paths share most nodes, so a block of them has few slots. Only on the CPU: on an accelerator the
    # number of slots would have to come to the host, which waits for it.
    if sees.device.type == "cpu" and len(sees) > _BLOCK_ROWS and sees.numel() > _PAIRS_MIN:
        order = (tree.path_order()[:, None] * count + torch.arange(count)).view(-1)
        blocks = [_Block(tree, sees, position, dtype=dtype, rows=rows) for rows in order.split(_BLOCK_ROWS)]
        if _GAIN_MIN * sum(block.pairs for block in blocks) < len(sees) * (tree.prompt + sees.shape[1]):
            return blocks
    return [_Block(tree, sees, position, dtype=dtype)]


class Nodes:
    """The rows of a pass that are new nodes of one generation: N rows of m tokens, row by row."""

    def __init__(self, tree: PrefixTree, parents: Tensor, count: int, dtype: torch.dtype) -> None:
        before = tree.length
        self.rows, self.adapter = len(parents) * count, tree.adapter
        self.positions = torch.arange(before, before + count).repeat(len(parents))
        self._tree = tree
        self._slots, sees = tree.extend(parents, count)
        position = torch.arange(before, before + count, device=sees.device).repeat(len(parents))  # no wait for a copy
        self._blocks = _blocks(tree, sees, position, count=count, dtype=dtype)

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, *, weighing: Weighing) -> Tensor:
        """[heads, N * m, width] over the tree."""
        keys, values = self._tree.store(layer, self._slots, keys, values)
        if self._blocks[0].rows is None:
            return self._blocks[0].attend(query, keys, values, weighing)
        attended = query.new_empty(*query.shape[:2], values.shape[2])
        for block in self._blocks:
            attended[:, block.rows] = block.attend(query, keys, values, weighing)
        return attended


class Pass:
    """One forward pass over the rows of several generations. It may contain padding rows.

    heads, group  of queries, and how many of them share keys, at most in a layer
    fills_heads   whether a layer has written numbers for each head and pair (`Weighing.fills_heads`)
    """

    def __init__(self, parts: Sequence[Prompt | Nodes], fill: int, device: torch.device) -> None:
        positions = [*(part.positions for part in parts), torch.zeros(fill, dtype=torch.int64)]
        flat = torch.cat(positions)
        if device.type == "cuda":
            flat = flat.pin_memory()  # without it the host waits for the copy
        self.positions = flat.to(device, non_blocking=True)[None]  # int64 [1, rows]
        self.no_mask = torch.zeros(1, 1, 1, 1, device=device)  # four axes: the library makes no mask of its own
        self.heads, self.group, self.fills_heads = 1, 1, False
        self._parts = parts

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, *, weighing: Weighing) -> Tensor:
        """The attention output, [rows, heads, width].

        The query is [heads, rows, width], keys and values are [H, rows, width].
        """
        heads, rows, _ = query.shape
        self.heads, self.group = max(self.heads, heads), max(self.group, heads // len(keys))
        self.fills_heads |= weighing.fills_heads
        out = values.new_empty(rows, heads, values.shape[2])
        begin = 0
        for part in self._parts:
            span = slice(begin, begin + part.rows)
            attended = part.attend(layer, query[:, span], keys[:, span], values[:, span], weighing=weighing)
            out[span] = attended.transpose(0, 1)
            begin += part.rows
        # A padding row sees itself alone, so attention returns its value, or some part of it. No result depends on it.
        out[begin:] = values[:, begin:].repeat_interleave(heads // len(values), dim=0).transpose(0, 1)
        return out


def _eager(module: Any, *inputs: Any, **options: Any) -> tuple[Tensor, Any]:
    """The eager attention of the layer's own module in the library."""
    forward: Callable[..., tuple[Tensor, Any]] = sys.modules[type(module).__module__].eager_attention_forward
    return forward(module, *inputs, **options)


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    library: Callable[..., tuple[Tensor, Any]] = sdpa_attention_forward,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    shared_pass: Pass | None = None,
    **others: Any,
) -> tuple[Tensor, Any]:
    """Attention through the interface of the library.

    It maps query [B, heads, rows, width] and so on to [B, rows, heads, width].

    Without a pass it is the library's own. Raises PrefixSharingUnsupported where a layer needs more than this.

    softcap, s_aux  the library's names of `Weighing.cap` and `Weighing.sinks`
    """
    if shared_pass is None:
        more = {name: option for name, option in (("softcap", softcap), ("s_aux", s_aux)) if option is not None}
        return library(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **more, **others)
    # An unknown option could change the result, so its presence is an error.
    unknown = sorted(
        name for name, value in others.items() if name not in _HARMLESS and value is not None and value is not False
    )
    if unknown or attention_mask is not shared_pass.no_mask or others.get("is_causal") is False or dropout:
        raise PrefixSharingUnsupported(f"a layer asks for {', '.join(unknown) or 'a mask of its own'}")
    weighing = Weighing(scaling=scaling, window=sliding_window, cap=softcap, sinks=s_aux)
    if weighing.writes_scores and library is sdpa_attention_forward:  # some releases let a model choose this
        raise PrefixSharingUnsupported("a layer has a soft cap or sinks, which the library's fused attention ignores")
    attended = shared_pass.attend(module.layer_idx, query[0], key[0], value[0], weighing=weighing)
    return attended[None], None


def _attend_checked(module: Any, *inputs: Any, **options: Any) -> tuple[Tensor, Any]:
    """The same without a pass. Raises PrefixSharingUnsupported where mask and window of the layer differ."""
    if getattr(inputs[3], "window", _UNKNOWN) != options.get("sliding_window"):
        raise PrefixSharingUnsupported("a layer has a mask of its own, or a window that is not in its options")
    return attend(module, *inputs, **options)


def _checked_mask(
    *, library: Callable[..., Tensor | None], mask_function: Callable[..., Any], **options: Any
) -> Tensor:
    """The library's mask, with its window. Raises PrefixSharingUnsupported where it is not causal."""
    mask = library(mask_function=mask_function, **{**options, "allow_is_causal_skip": False})
    assert mask is not None
    mask.window = _window_of(mask_function)  # type: ignore[attr-defined]
    return mask


def _window_of(mask_function: Callable[..., Any]) -> int | None:
    """How many tokens a token sees, itself and those just before it. None: all before it."""

    def sees(query: Tensor, key: Tensor) -> Tensor:
        return torch.as_tensor(mask_function(torch.tensor(0), torch.tensor(0), query, key)).expand(
            torch.broadcast_shapes(query.shape, key.shape)
        )

    last = torch.tensor(_DISTANCE_MAX)
    count = int(sees(last, torch.arange(_DISTANCE_MAX + 1)).sum())
    window = None if count > _DISTANCE_MAX else count
    # Positions near and far, and on both sides of the windows' ends: chunks, or later tokens, would be seen here.
    query = torch.tensor([0, 1, 7, 100, 5000, _DISTANCE_MAX])
    key = torch.cat([query, *(() if window is None else ((query - window).clamp(0), (query - window + 1).clamp(0)))])
    behind = query[:, None] - key
    expected = (behind >= 0) & (behind < (_DISTANCE_MAX + 1 if window is None else window))
    if not torch.equal(sees(query[:, None], key[None]), expected):
        raise PrefixSharingUnsupported("a layer sees other tokens than the last ones before each, or sees later ones")
    return window


def shared_prefix(library: str, *, checked: bool = False) -> str:
    """The name of this attention for models whose own is `library`.

    checked  whether it raises PrefixSharingUnsupported where a mask is no window, and serves no pass
    """
    return f"shared_prefix_{library}{'_checked' if checked else ''}"


LIBRARY: dict[str, tuple[Callable[..., tuple[Tensor, Any]], Callable[..., Tensor | None]]] = {
    "sdpa": (sdpa_attention_forward, sdpa_mask), "eager": (_eager, eager_mask),
}  # fmt: skip
"""The library's implementations of attention that can be exchanged, each with its mask, by their names."""
for _name, (_forward, _mask) in LIBRARY.items():
    AttentionInterface.register(shared_prefix(_name), partial(attend, library=_forward))
    AttentionMaskInterface.register(shared_prefix(_name), _mask)
    AttentionInterface.register(shared_prefix(_name, checked=True), partial(_attend_checked, library=_forward))
    AttentionMaskInterface.register(shared_prefix(_name, checked=True), partial(_checked_mask, library=_mask))
