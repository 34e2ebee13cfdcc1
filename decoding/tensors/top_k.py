"""Exact selection among many candidates, ties included.

Candidates are ranked by several keys in turn, each the higher the better. Ties in all keys go by a number that differs
for every candidate, the lower first, so the choice never depends on the algorithm, the library or the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from decoding.tensors.backend import Array, arange, library, take

_DEPTH_MIN = 4  # shorter columns save nothing
TieBreak = Callable[[Array], Array]
"""The numbers that settle ties, for elements named by int64 [n]. It is called for the tied elements alone on the CPU,
since it costs more than a key."""


def top_k_stable(keys: Sequence[Array], tie_break: TieBreak, count: int) -> Array:
    """The first `count` elements by descending lexicographic order of the keys, in that order: int64 [count].

    keys       float64 [N] each, the most significant first, no NaN; count <= N
    tie_break  settles ties in all of them, the lower number first

    >>> top_k_stable([np.array([1.0, 3.0, 3.0, 2.0])], lambda position: -position, 2).tolist()
    [2, 1]
    """
    best = top_k_unordered(keys, tie_break, count)
    if not isinstance(best, np.ndarray):
        return best
    return best[np.lexsort([tie_break(best), *[-key[best] for key in reversed(keys)]])]


def top_k_unordered(keys: Sequence[Array], tie_break: TieBreak, count: int) -> Array:
    """The elements of `top_k_stable`; on the CPU in any order."""
    if isinstance(keys[0], np.ndarray):
        return _top_k_of_numpy(keys, tie_break, count)
    # On an accelerator shapes must not depend on data, so all elements are sorted: a stable sort by each key, the
    # least significant first (radix sort by keys).
    best = tie_break(arange(keys[0], len(keys[0]))).argsort()
    for key in reversed(keys):
        best = best[key[best].argsort(descending=True, stable=True)]
    return best[:count]


def _top_k_of_numpy(keys: Sequence[NDArray[np.float64]], tie_break: TieBreak, count: int) -> NDArray[np.int64]:
    tied = _superset(keys[0], count)
    chosen: list[NDArray[np.int64]] = []
    # Each key in turn settles the elements above its threshold, and passes on those that tie with it.
    for key in keys:
        if len(tied) <= count:
            break
        values = key[tied]
        threshold = np.partition(values, len(values) - count)[len(values) - count]
        chosen.append(tied[values > threshold])
        count -= len(chosen[-1])
        tied = tied[values == threshold]
    if len(tied) > count:
        tied = tied[np.argpartition(tie_break(tied), count - 1)[:count]]
    return np.concatenate([*chosen, tied])


def _superset(key: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """A few more elements than `count`, ascending, and the best among them, faster than a selection."""
    # The keys are cut into columns. `count` columns have a maximum at or above the count-th best maximum, so an element
    # below it has `count` better ones and cannot be chosen.
    columns = 2 * count
    depth = len(key) // columns
    if depth < _DEPTH_MIN:
        return np.arange(len(key))
    best = key[: depth * columns].reshape(depth, columns).max(axis=0)
    return np.flatnonzero(key >= np.partition(best, columns - count)[columns - count])


def rank_in_group(group: Array) -> Array:
    """How many elements of the same group, int64 [N], come before each: int64 [N].

    >>> rank_in_group(np.array([4, 7, 4, 4, 7])).tolist()
    [0, 0, 1, 2, 1]
    """
    xp = library(group)
    # In a stable sort by group the members of a group lie together in their order; `searchsorted` finds the first.
    order = xp.argsort(group, stable=True)
    sorted_group = take(group, order)
    within = arange(group, len(order)) - xp.searchsorted(sorted_group, sorted_group)
    rank = xp.empty_like(within)
    rank[order] = within
    return rank
