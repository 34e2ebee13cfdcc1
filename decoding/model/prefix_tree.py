"""The keys and values of one generation: its prompt's once, and a tree of nodes for what its rows have written.

A row is a path through the tree, known by the places of its nodes. Reordering rows moves those numbers, never keys or
values. Owns the memory and who sees what; knows nothing of models, of other generations or of scores.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_SLACK_ROWS = 3  # a slab that grows gets space for this many more steps, or half as many slots again if that is more
_SLOTS_STEP = 32  # a slab that grows gets a multiple of this many slots


class Mark(NamedTuple):
    """A tree as it was, but for the keys and values in slots that no row saw."""

    length: int
    rows: int
    seen: Tensor
    kinship: Tensor
    free: Tensor
    taken: int
    reach: int
    full: int


class PrefixTree:
    """One generation's memory. L layers, H heads of keys and values, P prompt tokens, C slots for nodes, R rows.

    length  tokens that each row has read: all rows of a generation are equally long
    prompt  P
    rows    R

    keys, values  [P + C, H, width] for each layer, in the model's dtype; the prompt first
    seen          bool [R, C]  the slots of each row's own nodes
    kinship       int64 [R]    where each row stands when they are ordered by their paths
    free          int64 [F]    slots that no row saw when they were last counted; `taken` of them are in use again
    reach         only slots below it were ever used; `full` of them were in use when they were last counted
    """

    def __init__(self, device: torch.device) -> None:
        self.length = 0
        self.rows = 1
        self.prompt = 0
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._seen = torch.zeros(1, 0, dtype=torch.bool, device=device)
        self._kinship = torch.zeros(1, dtype=torch.int64, device=device)
        self._free = torch.zeros(0, dtype=torch.int64, device=device)
        self._taken = 0
        self._reach = 0
        self._full = 0

    @property
    def layers(self) -> int:
        """How many layers have left keys and values here."""
        return len(self._keys)

    @property
    def nbytes(self) -> int:
        """What its keys and values hold."""
        return sum(slab.nbytes for slabs in (self._keys, self._values) for slab in slabs.values())

    def begin(self, tokens: int) -> None:
        """Announces the prompt, which the layers then leave by `store_prompt`."""
        self.length = self.prompt = tokens

    def store_prompt(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """[H, P, width] each, which are copied."""
        self._keys[layer] = keys.transpose(0, 1).clone(memory_format=torch.contiguous_format)
        self._values[layer] = values.transpose(0, 1).clone(memory_format=torch.contiguous_format)

    def mark(self) -> Mark:
        """Where it is, to go back to by `restore`; it holds what the rows see now until it is dropped."""
        return Mark(
            self.length, self.rows, self._seen, self._kinship, self._free, self._taken, self._reach, self._full
        )

    def restore(self, mark: Mark) -> None:
        """Back to where it was, whatever became of an `extend` and of its `store` since, in whatever layer it ended.

        Then the same parents may be extended again: what they see was never written over. What other rows saw may be.
        """
        self.length, self.rows, self._seen, self._kinship = mark.length, mark.rows, mark.seen, mark.kinship
        self._free, self._taken, self._reach, self._full = mark.free, mark.taken, mark.reach, mark.full

    def extend(self, parents: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Replaces the rows by N new ones, `count` nodes longer than their parents, int64 [N].

        Returns the slots of the new nodes, int64 [N * count], and the slots that each of them sees, itself among them:
        bool [N * count, reach]. Nodes of one row follow one another in both.
        """
        rows = len(parents)
        self._seen = self._seen.index_select(0, parents)  # [N, C]
        self._kinship = self._kinship.index_select(0, parents).argsort(stable=True).argsort()
        slots = self._take(rows, rows * count)  # [N * count]
        own = torch.ones(count, count, dtype=torch.bool, device=slots.device).tril()
        sees = self._seen[:, None].repeat(1, count, 1)  # [N, count, C]
        sees.scatter_(2, slots.view(rows, 1, count).expand(-1, count, -1), own.expand(rows, -1, -1))
        self._seen = sees[:, -1]
        self.rows = rows
        self.length += count
        return slots, sees.view(rows * count, -1)[:, : self._reach]

    def by_kinship(self) -> Tensor:
        """The rows, int64 [R], in the order of their paths: those that share most of what they see lie together."""
        return self._kinship.argsort()

    def store(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Writes the keys and values [H, N, width] of new nodes; all that a row may see: [P + reach, H, width]."""
        places, end = self.prompt + slots, self.prompt + self._reach
        self._keys[layer].index_copy_(0, places, keys.transpose(0, 1))
        self._values[layer].index_copy_(0, places, values.transpose(0, 1))
        return self._keys[layer][:end], self._values[layer][:end]

    def _take(self, rows: int, count: int) -> Tensor:
        """Slots for `count` new nodes, int64 [count]; counts the holes, and grows, only where those known run out.

        How many holes there are is the one thing that the host asks of the device, once in several steps.
        """
        if self._taken + count > len(self._free):
            self._count_free()
            need = self._seen.shape[1] - len(self._free) + count
            room = need + max(_SLACK_ROWS * rows, need // 2)
            if 4 * self._seen.shape[1] < 3 * room:  # nearly enough is enough: the holes are only counted sooner
                self._grow(-(-room // _SLOTS_STEP) * _SLOTS_STEP)
        slots = self._free[self._taken : self._taken + count]
        self._taken += count
        self._reach = max(self._reach, self._full + self._taken)
        return slots

    def _count_free(self) -> None:
        holes = (~self._seen[:, : self._reach].any(dim=0)).nonzero()[:, 0]
        unused = torch.arange(self._reach, self._seen.shape[1], device=holes.device)
        self._free = torch.cat([holes, unused])  # holes first: what is never reached is never read
        self._taken = 0
        self._full = self._reach - len(holes)

    def _grow(self, capacity: int) -> None:
        for slabs in (self._keys, self._values):
            for layer, slab in slabs.items():  # one at a time: no more than one is held twice
                if len(slab) < self.prompt + capacity:  # else it grew before memory ran out over another
                    larger = slab.new_empty(self.prompt + capacity, *slab.shape[1:])
                    larger[: len(slab)] = slab
                    slabs[layer] = larger
        before = self._seen.shape[1]
        unused = torch.arange(before, capacity, device=self._seen.device)
        self._free = torch.cat([self._free, unused])
        self._seen = torch.nn.functional.pad(self._seen, (0, capacity - before))


def slots_at_most(rows: int, nodes: int) -> int:
    """The most slots that a tree holds for `rows` rows that together see `nodes` nodes."""
    return nodes + max(_SLACK_ROWS * rows, nodes // 2) + _SLOTS_STEP
