"""Stores the KV cache of a generation as a tree. It also has the attention of one pass over many generations.

A generation has the keys and values of its prompt, and a tree of nodes for the tokens of its rows.

A row is a path through the tree, and a mask over the slots of its nodes. Reordering rows moves masks, never keys or
values (prefix sharing). The keys of a layer, and its values, lie in one array of P + C entries:

    entry   0 ... P-1    P ... P + used_slots - 1     P + used_slots ... P + C - 1
            the prompt   slots in use, and holes      slots that were never used

A slot is an entry minus P. A hole is a slot whose rows are all gone; `free` lists the holes, then the unused slots, and
`free_used` of them are in use again. Attention reads the entries below P + used_slots.

The rows of all generations are packed into one sequence, so that every linear layer reads its weights once. Only
attention separates them: a row attends to its generation's prompt and to the nodes on its path. The library calls
`attend` in each layer, by the name under which this module registers it. The `Pass` among the arguments states which
rows belong to which tree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

_SLACK_ROWS = 3  # an array that grows gets slots for this many more steps, or half of its slots if that is more
_SLOTS_STEP = 32  # an array that grows has a multiple of this many slots
SHARED_PREFIX = "shared_prefix"
SHARED_PREFIX_CHECKED = "shared_prefix_checked"
_DISTANCE_MAX = 2**20  # longer than any attention window
_BLOCK_ROWS = 32  # of one block, where the rows are split into blocks
_PAIRS_MIN = 2**15  # pairs of a row and a slot, up to which the rows are not split
_GAIN_MIN = 1.5  # the rows are split where that divides the number of pairs by more than this
# options of layers that do not change which tokens are visible
_HARMLESS = {"position_ids", "cache_position", "is_causal", "use_cache", "output_attentions", "output_hidden_states"}


Checkpoint: TypeAlias = Mapping[str, object]
"""The attributes of a tree at some time, without the keys and values in slots that were visible to no row."""


class PrefixTree:
    """One generation's memory. L layers, H heads of keys and values, P prompt tokens, C slots for nodes, R rows.

    length  tokens that each row has read: all rows of a generation are equally long
    prompt  P
    rows    R

    keys, values  [P + C, H, width] for each layer, in the model's dtype; the prompt first
    visible       bool [R, C]  the slots of the nodes on each row's path
    path_rank     int64 [R]    the position of each row when rows are ordered by their paths
    free          int64 [F]    slots that were visible to no row at the last count, `free_used` of them in use again
    used_slots    the slots below it were used at least once; `occupied` of them were visible at the last count
    """

    def __init__(self, device: torch.device) -> None:
        self.length = 0
        self.rows = 1
        self.prompt = 0
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._visible_slots = torch.zeros(1, 0, dtype=torch.bool, device=device)
        self._path_rank = torch.zeros(1, dtype=torch.int64, device=device)
        self._free_slots = torch.zeros(0, dtype=torch.int64, device=device)
        self._free_taken = 0
        self._used_slots = 0
        self._occupied_slots = 0

    @property
    def layers(self) -> int:
        """The number of layers that have stored keys and values."""
        return len(self._keys)

    @property
    def nbytes(self) -> int:
        """The bytes of its keys and values."""
        return sum(slab.nbytes for slabs in (self._keys, self._values) for slab in slabs.values())

    def begin(self, tokens: int) -> None:
        """Announces the prompt; each layer then calls `store_prompt`."""
        self.length = self.prompt = tokens

    def store_prompt(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Copies the keys and values of a layer, [H, P, width] each."""
        self._keys[layer] = keys.transpose(0, 1).clone(memory_format=torch.contiguous_format)
        self._values[layer] = values.transpose(0, 1).clone(memory_format=torch.contiguous_format)

    def checkpoint(self) -> Checkpoint:
        """The present state, for `rollback`. While it is referred to, its arrays stay in memory."""
        return dict(vars(self))

    def rollback(self, to: Checkpoint) -> None:
        """Undoes an `extend` and its `store`, in whatever layer they failed. The same parents may be extended again."""
        # `extend` replaces the arrays and changes none, so the references are enough. Keys and values that the parents
        # see were not overwritten; those of other rows may be. An array that has grown stays as it is: the dicts of
        # arrays by layer are the same ones.
        vars(self).update(to)

    def extend(self, parents: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Replace the rows by N new ones, parents int64 [N]. Each is `count` nodes longer than its parent.

        Returns the slots of the new nodes, int64 [N * count], and the slots that each of them sees, itself among them:
        bool [N * count, used_slots]. Nodes of one row are adjacent in both.
        """
        rows = len(parents)
        self._visible_slots = self._visible_slots.index_select(0, parents)  # [N, C]
        # Children take the order of their parents, and those of one parent their own: a double argsort makes ranks.
        self._path_rank = self._path_rank.index_select(0, parents).argsort(stable=True).argsort()
        slots = self._take(rows, rows * count)  # [N * count]
        # A new node sees its row's path, and of the row's new nodes itself and those before it (causal).
        causal = torch.ones(count, count, dtype=torch.bool, device=slots.device).tril()
        sees = self._visible_slots[:, None].repeat(1, count, 1)  # [N, count, C]
        sees.scatter_(2, slots.view(rows, 1, count).expand(-1, count, -1), causal.expand(rows, -1, -1))
        self._visible_slots = sees[:, -1]  # [N, C]: the row's path is what its last node sees
        self.rows = rows
        self.length += count
        return slots, sees.view(rows * count, -1)[:, : self._used_slots]

    def path_order(self) -> Tensor:
        """The rows, int64 [R], ordered by their paths. Neighbours then share most of their nodes."""
        return self._path_rank.argsort()

    def store(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write the keys and values [H, N, width] of new nodes. Returns [P + used_slots, H, width] each."""
        entries, end = self.prompt + slots, self.prompt + self._used_slots
        self._keys[layer].index_copy_(0, entries, keys.transpose(0, 1))
        self._values[layer].index_copy_(0, entries, values.transpose(0, 1))
        return self._keys[layer][:end], self._values[layer][:end]

    def _take(self, rows: int, count: int) -> Tensor:
        """Slots for `count` new nodes, int64 [count]."""
        # Holes are counted only when the list runs out: their number must come from the device to the host, which
        # waits for it, and this is once in several steps.
        if self._free_taken + count > len(self._free_slots):
            self._count_free()
            need = self._visible_slots.shape[1] - len(self._free_slots) + count
            capacity = need + max(_SLACK_ROWS * rows, need // 2)
            if 4 * self._visible_slots.shape[1] < 3 * capacity:  # three quarters only hasten the next count
                self._grow(-(-capacity // _SLOTS_STEP) * _SLOTS_STEP)
        slots = self._free_slots[self._free_taken : self._free_taken + count]
        self._free_taken += count
        self._used_slots = max(self._used_slots, self._occupied_slots + self._free_taken)
        return slots

    def _count_free(self) -> None:
        holes = (~self._visible_slots[:, : self._used_slots].any(dim=0)).nonzero()[:, 0]
        unused = torch.arange(self._used_slots, self._visible_slots.shape[1], device=holes.device)
        self._free_slots = torch.cat([holes, unused])  # holes first: attention reads all slots below `used_slots`
        self._free_taken = 0
        self._occupied_slots = self._used_slots - len(holes)

    def _grow(self, capacity: int) -> None:
        for slabs in (self._keys, self._values):
            for layer, slab in slabs.items():  # one at a time, so that at most one array is in memory twice
                if len(slab) < self.prompt + capacity:  # else it had grown before memory ran out for another one
                    larger = slab.new_empty(self.prompt + capacity, *slab.shape[1:])
                    larger[: len(slab)] = slab
                    slabs[layer] = larger
        before = self._visible_slots.shape[1]
        unused = torch.arange(before, capacity, device=self._visible_slots.device)
        self._free_slots = torch.cat([self._free_slots, unused])
        self._visible_slots = torch.nn.functional.pad(self._visible_slots, (0, capacity - before))


def slots_at_most(rows: int, nodes: int) -> int:
    """The most slots that a tree holds for `rows` rows. The rows together see `nodes` nodes."""
    return nodes + max(_SLACK_ROWS * rows, nodes // 2) + _SLOTS_STEP


class PrefixSharingUnsupported(Exception):
    """This model's attention is more than causal softmax attention. The message names the difference."""


class Prompt:
    """The rows of a pass that are the prompt of a generation: P tokens in one sequence."""

    def __init__(self, tree: PrefixTree, tokens: int) -> None:
        self.rows = tokens
        self.positions = torch.arange(tokens)
        self._tree = tree
        tree.begin(tokens)

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, *, scaling: float | None) -> Tensor:
        """[heads, P, width] over keys and values [H, P, width]."""
        self._tree.store_prompt(layer, keys, values)
        grouped = query.shape[0] != keys.shape[0]
        return scaled_dot_product_attention(
            query[None], keys[None], values[None], is_causal=True, scale=scaling, enable_gqa=grouped
        )[0]


class _Block:
    """Rows of a generation that attend together to K entries. Each entry is seen by at least one row.

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
        """The attention output of its rows, [heads, n, width].

        The query of all rows is [heads, R, width], keys and values are [K, H, width].
        """
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
    """The blocks of rows that see these slots. `sees` is bool [N * count, slots]."""
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

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, *, scaling: float | None) -> Tensor:
        """[heads, N * m, width] over the tree."""
        keys, values = self._tree.store(layer, self._slots, keys, values)
        if self._blocks[0].rows is None:
            return self._blocks[0].attend(query, keys, values, scaling)
        attended = query.new_empty(*query.shape[:2], values.shape[2])
        for block in self._blocks:
            attended[:, block.rows] = block.attend(query, keys, values, scaling)
        return attended


class Pass:
    """One forward pass over the rows of several generations. It may contain padding rows."""

    def __init__(self, parts: Sequence[Prompt | Nodes], fill: int, device: torch.device) -> None:
        positions = [*(part.positions for part in parts), torch.zeros(fill, dtype=torch.int64)]
        flat = torch.cat(positions)
        if device.type == "cuda":
            flat = flat.pin_memory()  # without it the host waits for the copy
        self.positions = flat.to(device, non_blocking=True)[None]  # int64 [1, rows]
        self.no_mask = torch.zeros(1, 1, 1, 1, device=device)  # four axes: the library makes no mask of its own
        self._parts = parts

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, *, scaling: float | None) -> Tensor:
        """The attention output, [rows, heads, width].

        The query is [heads, rows, width], keys and values are [H, rows, width].
        """
        heads, rows, _ = query.shape
        out = values.new_empty(rows, heads, values.shape[2])
        begin = 0
        for part in self._parts:
            span = slice(begin, begin + part.rows)
            out[span] = part.attend(layer, query[:, span], keys[:, span], values[:, span], scaling=scaling).transpose(
                0, 1
            )
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
    """Attention through the interface of the library.

    It maps query [B, heads, rows, width] and so on to [B, rows, heads, width].

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
    return shared_pass.attend(module.layer_idx, query[0], key[0], value[0], scaling=scaling)[None], None


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
