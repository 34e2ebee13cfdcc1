"""Choosing among many candidates exactly, whatever the ties. Knows arrays of keys, not what they stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decoding.arrays import Array, count_up, library, take

_DEEP = 4  # columns shorter than this save nothing
Order = Callable[[Array], Array]
"""For elements named by int64 [n], numbers int64 [n]: the lower comes first, and equal ones in any order."""


def top_in_order(keys: Sequence[Array], order: Order, count: int) -> Array:
    """The first `count` elements by descending lexicographic order of the keys, in that order: int64 [count].

    keys   float64 [N] each, the most significant first, no NaN; count <= N
    order  settles what ties in all of them; numpy asks it of little else
    """
    chosen = top(keys, order, count)
    last = order(chosen)
    if isinstance(chosen, np.ndarray):
        return chosen[np.lexsort([last, *(-key[chosen] for key in reversed(keys))])]
    chosen = chosen[last.argsort(stable=True)]
    for key in reversed(keys):
        chosen = chosen[key[chosen].argsort(descending=True, stable=True)]
    return chosen


def top(keys: Sequence[Array], order: Order, count: int) -> Array:
    """The same elements, in any order.

    Each key in turn settles the elements above its threshold, and passes on those that tie with it.
    """
    return _top_by_numpy(keys, order, count) if isinstance(keys[0], np.ndarray) else _top_in_place(keys, order, count)


def _top_by_numpy(keys: Sequence[NDArray[np.float64]], order: Order, count: int) -> NDArray[np.int64]:
    """On the CPU, where numpy selects several times faster and lengths may depend on data: only ties are looked at."""
    tied = _hopeful(keys[0], count)
    settled: list[NDArray[np.int64]] = []
    for key in keys:
        if len(tied) <= count:
            break
        values = key[tied]
        threshold = np.partition(values, len(values) - count)[len(values) - count]
        settled.append(tied[values > threshold])
        count -= len(settled[-1])
        tied = tied[values == threshold]
    if len(tied) > count:
        tied = tied[np.argpartition(order(tied), count - 1)[:count]]
    return np.concatenate([*settled, tied])


def _hopeful(key: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Few more elements than `count`, ascending, and the best among them, at a fraction of a selection's cost.

    Cut into columns, the best of each column are elements too: what is below the count-th best of these is not chosen.
    """
    columns = 2 * count
    deep = len(key) // columns
    if deep < _DEEP:
        return np.arange(len(key))
    best = key[: deep * columns].reshape(deep, columns).max(axis=0)
    return np.flatnonzero(key >= np.partition(best, columns - count)[columns - count])


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


def repeats(*keys: Array) -> Array:
    """bool [N]: all the keys, int64 [N] each, are those of an element before."""
    xp = library(keys[0])
    if xp is np:
        order = np.lexsort(keys)
    else:
        order = count_up(keys[0], len(keys[0]))
        for key in keys:
            order = order[xp.argsort(key[order], stable=True)]
    same = order[1:] >= 0  # all
    for key in keys:
        sorted_key = take(key, order)
        same = same & (sorted_key[1:] == sorted_key[:-1])
    found = order < 0  # none
    found[order[1:]] = same
    return found


def place_in_group(group: Array) -> Array:
    """How many elements of the same group, int64 [N], come before each: int64 [N]."""
    xp = library(group)
    order = xp.argsort(group, stable=True)
    sorted_group = take(group, order)
    within = count_up(group, len(order)) - xp.searchsorted(sorted_group, sorted_group)
    place = xp.empty_like(within)
    place[order] = within
    return place
