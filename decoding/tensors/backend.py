"""Array functions for numpy and torch alike, and the floor under all log-probs.

The search's small arrays are numpy's on the CPU, where a call costs a third of one of torch and a step is a hundred
calls, and torch's elsewhere, where nothing may leave the device. Functions that both libraries call by one name are
used by that name: operators, indices, `where`, `concatenate`, `argsort`, `searchsorted`, `isfinite`. The others are
here.
"""

from __future__ import annotations

from math import inf
from typing import Any, TypeAlias

import numpy as np
import torch

LOG_PROB_FLOOR = -1e4
"""Floor under every log-prob that a generation adds up. A token of probability 0 may still be the only path to
acceptance, and -inf would make all scores after it equal (and NaN at full push, 0 * -inf)."""
_CELLS_AT_A_TIME = {"cpu": 2**18, "cuda": 2**21}  # log-probs worked on together; a GPU needs more work in a call
_CELL_BYTES = 64  # made of a log-prob on the way to a token, at most: half a dozen float64 and int64
Array: TypeAlias = Any
"""A numpy.ndarray or a torch.Tensor; the arrays of one search are all of one kind, on one device."""


def library(array: Array) -> Any:
    """The module whose functions take the array: numpy or torch."""
    return np if isinstance(array, np.ndarray) else torch


def like(model: Array, array: Array) -> Array:
    """The array, numpy's or torch's, as the library of `model` has it; no copy where both are on the CPU."""
    if isinstance(model, np.ndarray):
        return array.numpy() if isinstance(array, torch.Tensor) else array
    return torch.as_tensor(array, device=model.device)


def take(array: Array, positions: Array) -> Array:
    """The elements at positions, integers of any shape, of the array read row after row: of the positions' shape.

    >>> take(np.array([[5, 6], [7, 8]]), np.array([3, 0])).tolist()
    [8, 5]
    """
    return array.take(positions) if isinstance(array, np.ndarray) else array.reshape(-1)[positions]


def arange(model: Array, count: int) -> Array:
    """0, 1, ... : int64 [count], in the library and on the device of `model`."""
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
    """The most bytes that a step over `rows` rows makes beside their log-probs, `rows_at_a_time` together."""
    return _CELL_BYTES * vocab_size * min(rows, rows_at_a_time(vocab_size, device))
