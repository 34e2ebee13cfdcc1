"""Finds equal rows of integer matrices. 64-bit hashes find them, and a comparison confirms them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

_MARKED = 8  # numbers are marked in a table where it has at most this many entries per value
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(values: np.ndarray) -> np.ndarray:
    """Scramble each value by splitmix64, modulo 2**64. The results are in no simple relation to each other."""
    # The constants are those of splitmix64 (Steele, Lea and Flood 2014).
    z = values.astype(np.uint64) + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@lru_cache(maxsize=64)
def _weights(count: int) -> np.ndarray:
    """Arbitrary but fixed 64-bit weights: uint64 [count]."""
    return mix(np.arange(1, count + 1, dtype=np.uint64))


def hash_rows(rows: np.ndarray) -> np.ndarray:
    """A 64-bit hash of each row of an integer matrix.

    The matrix is [N, M], the hashes uint64 [N]. Equal rows have equal hashes.

    The hash is a sum of weighted entries modulo 2**64 and takes one pass over the matrix. Callers must compare rows
    whose hashes are equal.
    """
    return np.asarray(rows.astype(np.uint64) @ _weights(rows.shape[1]))


def hash_sparse_rows(position: np.ndarray, entry: np.ndarray, count: int, width: int) -> np.ndarray:
    """`hash_rows` of a sparse matrix [count, width].

    It has `entry` at the ascending flat positions `position`, else 0.
    """
    # Entries that are 0 add nothing to a row's sum, so only the given ones are read.
    weighted = entry.astype(np.uint64) * _weights(width)[position % width]
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(weighted)])
    begin = np.searchsorted(position, np.arange(count + 1) * width)
    return np.asarray(sums[begin[1:]] - sums[begin[:-1]])


def unique_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First positions of the distinct rows [D], and each row's index [N].

    The distinct rows are in order of appearance.
    """
    if rows.shape[1] == 1:
        _, first, inverse = np.unique(rows[:, 0], return_index=True, return_inverse=True)
    else:
        _, first, inverse = np.unique(hash_rows(rows), return_index=True, return_inverse=True)
        if not np.array_equal(rows[first][inverse], rows):  # two rows share a hash: fall back to comparing rows
            _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    # np.unique numbers by value; the callers need numbers by first appearance.
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse.reshape(-1)]


def distinct(values: np.ndarray, end: int | None = None) -> np.ndarray:
    """The distinct values of an integer array, ascending. For short arrays it is much faster than np.unique.

    end  where it is given, all values are in 0 .. end - 1, and many of them are marked in a table, without a sort
    """
    if end is not None and end <= _MARKED * values.size:
        return _marks(values, end).nonzero()[0]
    # np.unique does the same, behind checks that cost more than the sort of a short array.
    ordered = np.sort(values, axis=None)
    new = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return np.asarray(ordered[new])


def ranks(values: np.ndarray, end: int) -> tuple[np.ndarray, np.ndarray]:
    """The distinct values, ascending, and each value's index among them. All are in 0 .. end - 1."""
    if end > _MARKED * values.size:
        return np.unique(values, return_inverse=True)
    marked = _marks(values, end)
    return marked.nonzero()[0], (np.cumsum(marked) - 1)[values]


def _marks(values: np.ndarray, end: int) -> np.ndarray:
    """Which numbers below `end` are among the values: bool [end]."""
    marked = np.zeros(end, dtype=bool)
    marked[values] = True
    return marked


def stable_order(keys: np.ndarray) -> np.ndarray:
    """A stable sorting order of the keys [N], all >= 0.

    On 16-bit keys numpy uses radix sort, which is many times faster than its sort of wider keys.
    """
    narrow = keys.astype(np.uint16) if keys.size and keys.max() < 1 << 16 else keys
    return np.argsort(narrow, kind="stable")


def spread(first: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers first[i] .. end[i] - 1 of all ranges i, concatenated.

    The second array has the length of each range [n].
    """
    counts = end - first
    # Element k of range i is first[i] + k, and k is the position in the result less where the range begins there.
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - (ends - counts), counts), counts


def grown(table: np.ndarray, rows: int, fill: float | None = None) -> np.ndarray:
    """The same table with room for `rows` rows. The new ones hold `fill`; without it, what is in them is arbitrary."""
    larger = np.empty((rows, *table.shape[1:]), dtype=table.dtype)
    larger[: len(table)] = table
    if fill is not None:
        larger[len(table) :] = fill
    return larger
