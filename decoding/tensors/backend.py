"""Array functions for numpy and torch alike, and the log-probs' floor.

The search's small arrays are numpy's on the CPU, where a call costs a third of one of torch and a step is a hundred
calls, and torch's elsewhere, where nothing may leave the device. Functions that both libraries call by one name are
used by that name: operators, indices, `where`, `concatenate`, `argsort`, `searchsorted`, `isfinite`. The others are
here.

Among them is an exact selection of the best of many candidates, ties included. Candidates are ranked by several keys in
turn, each the higher the better. Ties in all keys go by a number that differs for every candidate, the lower first, so
the choice never depends on the algorithm, the library or the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LOG_PROB_FLOOR = -1e4
"""Floor under every log-prob that a generation adds up. A token of probability 0 may still be the only path to
acceptance, and -inf would make all scores after it equal (and NaN at full push, 0 * -inf)."""
_CELLS_AT_A_TIME = {"cpu": 2**18, "cuda": 2**21}  # log-probs worked on together; a GPU needs more work in a call
_CELL_BYTES = 64  # made of a log-prob on the way to a token, at most: half a dozen float64 and int64
Array: TypeAlias = Any
"""A numpy.ndarray or a torch.Tensor; the arrays of one search are all of one kind, on one device."""
_DEPTH_MIN = 4  # shorter columns save nothing
TieBreak = Callable[[Array], Array]
"""The numbers that settle ties, for elements named by int64 [n]. It is called for the tied elements alone on the CPU,
since it costs more than a key."""


def library(array: Array) -> Any:
    """The module whose functions take the array: numpy or torch."""
    return np if isinstance(array, np.ndarray) else torch


def like(model: Array, array: Array) -> Array:
    """The array in the library of `model`, numpy or torch. Nothing is copied where both are on the CPU."""
    if isinstance(model, np.ndarray):
        return array.numpy() if isinstance(array, torch.Tensor) else array
    return to_device(array, model.device) if isinstance(array, np.ndarray) else array.to(model.device)


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """A host's array on a device. The host does not wait for the copy."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type == "cuda":
        tensor = tensor.pin_memory()  # a copy from other memory is waited for
    return tensor.to(device, non_blocking=True)


def take(array: Array, positions: Array) -> Array:
    """The elements at flat positions of an array.

    The array is read row after row; the result has the shape of `positions`.

    >>> take(np.array([[5, 6], [7, 8]]), np.array([3, 0])).tolist()
    [8, 5]
    """
    return array.take(positions) if isinstance(array, np.ndarray) else array.reshape(-1)[positions]


def fill_at(array: Array, positions: Array, value: float) -> None:
    """Sets elements of an array [N] to one value. An accelerator is not waited for."""
    if isinstance(array, np.ndarray):
        array[positions] = value
    else:
        array.index_fill_(0, positions, value)


def arange(model: Array, count: int) -> Array:
    """0, 1, ... as int64 [count], in the library of `model`. The array is on the device of `model`."""
    return np.arange(count) if isinstance(model, np.ndarray) else torch.arange(count, device=model.device)


def to_float64(array: Array) -> Array:
    """The array as float64."""
    return array.astype(np.float64) if isinstance(array, np.ndarray) else array.double()


def take_columns(array: Array, columns: Array) -> Array:
    """These columns, int64 [N], of [R, C]: [R, N]."""
    return array.take(columns, axis=1) if isinstance(array, np.ndarray) else array.index_select(1, columns)


def with_floor(log_probs: Array) -> Array:
    """Log-probs as float64, not below LOG_PROB_FLOOR."""
    # NaN and infinity become the floor as well: they must not spread through sums, and the step reports them itself.
    finite = (log_probs >= LOG_PROB_FLOOR) & (log_probs < inf)
    return to_float64(library(log_probs).where(finite, log_probs, LOG_PROB_FLOOR))


def rows_at_a_time(vocab_size: int, device: torch.device) -> int:
    """The number of rows of log-probs that are worked on together."""
    return max(1, _CELLS_AT_A_TIME.get(device.type, _CELLS_AT_A_TIME["cpu"]) // vocab_size)


def scratch_bytes(rows: int, vocab_size: int, device: torch.device) -> int:
    """The most bytes that a step over `rows` rows allocates.

    The log-probs are not counted; `rows_at_a_time` rows are worked on together.
    """
    return _CELL_BYTES * vocab_size * min(rows, rows_at_a_time(vocab_size, device))


def top_k_stable(keys: Sequence[Array], tie_break: TieBreak, count: int) -> Array:
    """The first `count` elements by descending lexicographic order of the keys. They are int64 [count], in that order.

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
    """A superset of the `count` best elements, slightly larger, ascending. It is faster than an exact selection."""
    # The keys are cut into columns. `count` columns have a maximum at or above the count-th best maximum, so an element
    # below it has `count` better ones and cannot be chosen.
    columns = 2 * count
    depth = len(key) // columns
    if depth < _DEPTH_MIN:
        return np.arange(len(key))
    best = key[: depth * columns].reshape(depth, columns).max(axis=0)
    return np.flatnonzero(key >= np.partition(best, columns - count)[columns - count])


def rank_in_group(group: Array) -> Array:
    """The number of preceding elements of each element's group. `group` and the result are int64 [N].

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
