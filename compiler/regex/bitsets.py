"""Bit sets of positions, and of the demands of a condition."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

import numpy as np

# What is demanded between two positions, as bits. A condition is the union of demands that hold together.
START = 1  # nothing has been read yet
END = 2  # nothing is left to read
FINAL = 4  # nothing is left to read but, perhaps, one newline
LOOK = 8  # LOOK << 2 * n: look-around n succeeds; LOOK << 2 * n + 1: it fails
NO_DEMAND = 0
Key = TypeVar("Key", bound=Hashable)
_DENSE = 64  # bit sets with more positions than this are unpacked at once


def bits(mask: int) -> list[int]:
    """The positions in a bit set, ascending."""
    # numpy reads the digits of a large mask at once; a small one is read bit by bit.
    if mask.bit_count() > _DENSE:
        digits = np.frombuffer(bin(mask)[:1:-1].encode(), dtype=np.uint8)
        return np.flatnonzero(digits == ord("1")).tolist()
    numbers = []
    while mask:
        low = mask & -mask
        numbers.append(low.bit_length() - 1)
        mask ^= low
    return numbers


def opposites(condition: int) -> int:
    """For each demand on a look-around, the demand that excludes it.

    >>> opposites(LOOK << 2 | LOOK << 5) == LOOK << 3 | LOOK << 4
    True
    """
    return sum(LOOK << (number ^ 1) for number in bits(condition // LOOK))


def number_of(key: Key, numbers: dict[Key, int], order: list[Key]) -> int:
    """The number of a key. A key is numbered where it is first met."""
    number = numbers.setdefault(key, len(order))
    if number == len(order):
        order.append(key)
    return number
