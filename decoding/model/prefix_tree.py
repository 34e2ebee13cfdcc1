"""Stores the KV cache of a generation as a tree.

A generation has the keys and values of its prompt, and a tree of nodes for the tokens of its rows.

A row is a path through the tree, and a mask over the slots of its nodes. Reordering rows moves masks, never keys or
values (prefix sharing). The keys of a layer, and its values, lie in one array of P + C entries:

    entry   0 ... P-1    P ... P + used_slots - 1     P + used_slots ... P + C - 1
            the prompt   slots in use, and holes      slots that were never used

A slot is an entry minus P. A hole is a slot whose rows are all gone; `_free_slots` lists the holes, then the unused
slots, and `_free_taken` of them are in use again. Attention reads the entries below P + used_slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import torch
from torch import Tensor

_SLACK_ROWS = 3  # an array that grows gets slots for this many more steps, or half of its slots if that is more
_SLOTS_STEP = 32  # an array that grows has a multiple of this many slots


Checkpoint: TypeAlias = Mapping[str, object]
"""The attributes of a tree at some time, without the keys and values in slots that were visible to no row."""


class PrefixTree:
    """One generation's memory. L layers, H heads of keys and values, P prompt tokens, C slots for nodes, R rows.

    length   tokens that each row has read: all rows of a generation are equally long
    prompt   P
    rows     R
    adapter  that the model reads with; empty without one

    _keys, _values  [P + C, H, width] for each layer, in the model's dtype; the prompt first
    _visible_slots  bool [R, C]  the slots of the nodes on each row's path
    _path_rank      int64 [R]    the position of each row when rows are ordered by their paths
    _free_slots     int64 [F]    visible to no row at the last count; `_free_taken` of them are in use again
    _used_slots     slots below it were used at least once; `_occupied_slots` of them were visible at the last count
    """

    def __init__(self, device: torch.device, adapter: str = "") -> None:
        self.adapter = adapter
        self.length = 0
        self.rows = 1
        self.prompt = 0
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._visible_slots = torch.zeros(1, 0, dtype=torch.bool, device=device)
        self._slot_position = torch.zeros(0, dtype=torch.int64, device=device)  # of the node in each slot
        self._path_rank = torch.zeros(1, dtype=torch.int64, device=device)
        self._free_slots = torch.zeros(0, dtype=torch.int64, device=device)
        self._free_taken = 0
        self._used_slots = 0
        self._occupied_slots = 0
        self._last_slots = torch.zeros(1, 0, dtype=torch.int64, device=device)  # [R, m]: of the last `extend`

    @property
    def layers(self) -> int:
        """The number of layers that have stored keys and values."""
        return len(self._keys)

    @property
    def nbytes(self) -> int:
        """The bytes of its keys and values."""
        return sum(slab.nbytes for slabs in (self._keys, self._values) for slab in slabs.values())

    @property
    def prompt_bytes(self) -> int:
        """The bytes of its prompt's keys and values."""
        return sum(slab[: self.prompt].nbytes for slabs in (self._keys, self._values) for slab in slabs.values())

    def begin(self, tokens: int) -> None:
        """Announces the prompt, whose chunks each layer then stores."""
        self.length = self.prompt = tokens

    def store_prompt(self, layer: int, begin: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Stores the keys and values of some of the prompt's tokens. Returns those of all tokens up to them.

        begin         the number of the first of n tokens
        keys, values  [n, H, width]; the results are [begin + n, H, width] each
        """
        end = begin + len(keys)
        for slabs, chunk in ((self._keys, keys), (self._values, values)):
            if layer not in slabs:
                slabs[layer] = chunk.new_empty(self.prompt, *chunk.shape[1:])
            slabs[layer][begin:end] = chunk
        return self._keys[layer][:end], self._values[layer][:end]

    def prompt_chunk(self, begin: int, end: int) -> dict[int, tuple[Tensor, Tensor]]:
        """Copies of what some of the prompt's tokens have stored, by layer.

        Keys and values are [end - begin, H, width].
        """
        return {layer: (keys[begin:end].clone(), self._values[layer][begin:end].clone())
                for layer, keys in self._keys.items()}  # fmt: skip

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
        positions = torch.arange(self.length, self.length + count, device=slots.device).repeat(rows)
        self._slot_position = self._slot_position.index_copy(0, slots, positions)
        self._last_slots = slots.view(rows, count)
        self.rows = rows
        self.length += count
        return slots, sees.view(rows * count, -1)[:, : self._used_slots]

    def undo(self, count: int) -> None:
        """Takes back the last `count` nodes of each row. The last `extend` made them."""
        slots = self._last_slots[:, self._last_slots.shape[1] - count :]
        self._visible_slots = self._visible_slots.scatter(1, slots, False)
        self._last_slots = self._last_slots[:, : self._last_slots.shape[1] - count]
        self.length -= count

    def entry_positions(self) -> Tensor:
        """The position of each entry's token: int64 [P + used_slots].

        Those of holes mean nothing.
        """
        prompt = torch.arange(self.prompt, device=self._slot_position.device)
        return torch.cat([prompt, self._slot_position[: self._used_slots]])

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
        self._slot_position = torch.nn.functional.pad(self._slot_position, (0, capacity - before))


def slots_at_most(rows: int, nodes: int) -> int:
    """The most slots that a tree holds for `rows` rows. The rows together see `nodes` nodes."""
    return nodes + max(_SLACK_ROWS * rows, nodes // 2) + _SLOTS_STEP
