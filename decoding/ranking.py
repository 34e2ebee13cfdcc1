"""Choosing among many candidates exactly, whatever the ties. Knows tensors of keys, not what they stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Order = Callable[[Tensor], Tensor]
"""For elements named by int64 [n], numbers int64 [n]: the lower comes first, and equal ones in any order."""


def top_in_order(keys: Sequence[Tensor], order: Order, count: int) -> Tensor:
    """The first `count` elements by descending lexicographic order of the keys, in that order: int64 [count].

    keys   float64 [N] each, the most significant first, no NaN; count <= N
    order  settles what ties in all of them; on the CPU it is asked of little else
    """
    chosen = top(keys, order, count)
    last = order(chosen)
    if chosen.device.type == "cpu":
        columns = [-key[chosen].numpy() for key in reversed(keys)]
        return chosen[torch.from_numpy(np.lexsort([last.numpy(), *columns]))]
    chosen = chosen[last.argsort(stable=True)]
    for key in reversed(keys):
        chosen = chosen[key[chosen].argsort(descending=True, stable=True)]
    return chosen


def top(keys: Sequence[Tensor], order: Order, count: int) -> Tensor:
    """The same elements, in any order.

    Each key in turn settles the elements above its threshold, and passes on those that tie with it.
    """
    return _top_by_numpy(keys, order, count) if keys[0].device.type == "cpu" else _top_in_place(keys, order, count)


def _top_by_numpy(keys: Sequence[Tensor], order: Order, count: int) -> Tensor:
    """On the CPU, where numpy selects several times faster and lengths may depend on data: only ties are looked at."""
    tied = np.arange(len(keys[0]))
    settled: list[NDArray[np.int64]] = []
    for number, key in enumerate(keys):
        if len(tied) <= count:
            break
        values = key.numpy() if number == 0 else key.numpy()[tied]
        threshold = np.partition(values, len(values) - count)[len(values) - count]
        reach = np.flatnonzero(values >= threshold)
        above = values[reach] > threshold
        settled.append(tied[reach[above]])
        count -= len(settled[-1])
        tied = tied[reach[~above]]
    if len(tied) > count:
        tied = tied[np.argpartition(order(torch.from_numpy(tied)).numpy(), count - 1)[:count]]
    return torch.from_numpy(np.concatenate([*settled, tied]))


def _top_in_place(keys: Sequence[Tensor], order: Order, count: int) -> Tensor:
    """On an accelerator, in shapes that do not depend on data, so that nothing waits for it."""
    every = torch.arange(len(keys[0]), device=keys[0].device)
    columns = [*keys, -order(every).double()]
    tied = torch.ones_like(keys[0], dtype=torch.bool)
    taken = torch.zeros_like(tied)
    places = torch.full((1,), count, dtype=torch.int64, device=tied.device)
    for column in columns:
        ranked = column.masked_fill(~tied, float("-inf")).topk(count).values
        threshold = ranked.gather(0, places - 1)
        above = tied & (column > threshold)
        taken = taken | above
        places = places - above.sum()
        tied = tied & (column == threshold)
    return (2 * taken.to(torch.uint8) + tied.to(torch.uint8)).topk(count).indices


def repeats(*keys: Tensor) -> Tensor:
    """bool [N]: all the keys, int64 [N] each, are those of an element before."""
    order = torch.arange(len(keys[0]), device=keys[0].device)
    for key in keys:
        order = order[key[order].argsort(stable=True)]
    same = torch.ones_like(order[1:], dtype=torch.bool)
    for key in keys:
        sorted_key = key[order]
        same = same & (sorted_key[1:] == sorted_key[:-1])
    found = torch.zeros_like(order, dtype=torch.bool)
    found[order[1:]] = same
    return found


def place_in_group(group: Tensor) -> Tensor:
    """How many elements of the same group, int64 [N], come before each: int64 [N]."""
    order = group.argsort(stable=True)
    sorted_group = group[order]
    place = torch.arange(len(group), device=group.device)
    begins = torch.ones_like(place, dtype=torch.bool)
    begins[1:] = sorted_group[1:] != sorted_group[:-1]
    within = place - torch.where(begins, place, 0).cummax(dim=0).values
    return torch.empty_like(place).scatter_(0, order, within)
