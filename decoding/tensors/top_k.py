"""Exact selection among many candidates, ties included."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from decoding.tensors.backend import Array, count_up, library, take

_DEEP = 4  # columns shorter than this save nothing
TieBreak = Callable[[Array], Array]
"""For elements named by int64 [n], numbers int64 [n]: the lower comes first, and equal ones in any order."""


def top_in_order(keys: Sequence[Array], order: TieBreak, count: int) -> Array:
    """The first `count` elements by descending lexicographic order of the keys, in that order: int64 [count].

    keys   float64 [N] each, the most significant first, no NaN; count <= N
    order  settles what ties in all of them
    """
    chosen = top(keys, order, count)
    if not isinstance(chosen, np.ndarray):
        return chosen
    return chosen[np.lexsort([order(chosen), *(-key[chosen] for key in reversed(keys))])]


def top(keys: Sequence[Array], order: TieBreak, count: int) -> Array:
    """The same elements; on the CPU in any order."""
    if isinstance(keys[0], np.ndarray):
        return _top_by_numpy(keys, order, count)
    chosen = order(count_up(keys[0], len(keys[0]))).argsort()  # on an accelerator shapes must not depend on data
    for key in reversed(keys):
        chosen = chosen[key[chosen].argsort(descending=True, stable=True)]
    return chosen[:count]


def _top_by_numpy(keys: Sequence[NDArray[np.float64]], order: TieBreak, count: int) -> NDArray[np.int64]:
    """Each key in turn settles the elements above its threshold, and passes on those that tie with it."""
    tied = _superset(keys[0], count)
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


def _superset(key: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """A few more elements than `count`, ascending, and the best among them, faster than a selection.

    The keys are cut into columns. An element below the count-th best of the columns' maxima cannot be chosen.
    """
    columns = 2 * count
    deep = len(key) // columns
    if deep < _DEEP:
        return np.arange(len(key))
    best = key[: deep * columns].reshape(deep, columns).max(axis=0)
    return np.flatnonzero(key >= np.partition(best, columns - count)[columns - count])


def place_in_group(group: Array) -> Array:
    """How many elements of the same group, int64 [N], come before each: int64 [N]."""
    xp = library(group)
    order = xp.argsort(group, stable=True)
    sorted_group = take(group, order)
    within = count_up(group, len(order)) - xp.searchsorted(sorted_group, sorted_group)
    place = xp.empty_like(within)
    place[order] = within
    return place
