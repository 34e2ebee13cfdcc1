"""Rows of effects, each stored once, for a walk over a trie.

A row says what the bytes of a node do from each of some transducer states. `DenseRows` stores an effect for every
state, `SparseRows` only those that are not dead. Rows are numbered as they are met; row 0 is dead from every state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from compiler.automata import grown, hash_rows, hash_sparse_rows, spread
from compiler.lifting.effects import DEAD_EFFECT
from compiler.limits import ResourceGuard

DEAD_ROW = 0
_ROOM = 64  # at first
_ONE_BY_ONE = 6  # rows, at most, that are looked up without first finding the distinct ones
_SPARSE = 8  # in a table with less than one live entry in this many, the live entries are collected first
_BLOCK_CELLS = 1 << 17  # of rows under construction: what fits a core's cache


class ByteEffects(Protocol):
    """What strings of bytes do from one state, as numbers. DEAD_EFFECT is the number of those that cannot be read."""

    def after(self, effect: np.ndarray, column: np.ndarray) -> np.ndarray:
        """The effects after one more byte, which reads a column. The arrays are broadcast, the result is int32."""


_New = TypeVar("_New")  # rows under construction
_Chosen: TypeAlias = slice | np.ndarray


class Rows(ABC, Generic[_New]):
    """Finds rows by hash and comparison, and adds new ones."""

    def __init__(self, guard: ResourceGuard) -> None:
        self._guard = guard
        self._ids: dict[int, int] = {}
        self.count = 0

    @abstractmethod
    def begin(self, first: np.ndarray) -> int:
        """The row of no bytes. `first` is their effect in each state: int32 [S]. The dead row gets number 0."""

    @abstractmethod
    def after(self, effects: ByteEffects, rows: np.ndarray, column: np.ndarray) -> np.ndarray:
        """The rows after one more byte each: int32 [N]. `rows` and `column` are int [N]."""

    @abstractmethod
    def _store(self, new: _New, chosen: _Chosen) -> None:
        """Store chosen rows behind those that count. Raises LimitExceeded over `table_bytes_max`."""

    @abstractmethod
    def _equal(self, new: _New, chosen: _Chosen, numbers: np.ndarray) -> bool:
        """Whether chosen rows are those with these numbers."""

    def _intern(self, new: _New, hashes: np.ndarray) -> np.ndarray:
        """The numbers of rows; new ones are added."""
        if len(hashes) <= _ONE_BY_ONE:
            return self._intern_one_by_one(new, hashes)
        # Python looks up each distinct hash once.
        distinct_hashes, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        keys = distinct_hashes.tolist()
        numbers = np.array([self._ids.get(key, -1) for key in keys], dtype=np.int32)
        fresh = np.flatnonzero(numbers < 0)
        fresh = fresh[np.argsort(first[fresh])]  # numbered as they appear
        numbers[fresh] = self.count + np.arange(len(fresh))
        # They do not count yet, and are only what rows are compared with.
        self._store(new, first[fresh])
        if not self._equal(new, slice(None), numbers[inverse]):
            return self._intern_one_by_one(new, hashes)
        self._ids.update((keys[position], self.count + i) for i, position in enumerate(fresh.tolist()))
        self.count += len(fresh)
        return np.asarray(numbers[inverse])

    def _intern_one_by_one(self, new: _New, hashes: np.ndarray) -> np.ndarray:
        """`_intern` for a few rows, or for rows that share a hash.

        Keys are probed until the row or a free key is found.
        """
        numbers = np.empty(len(hashes), dtype=np.int32)
        for i, key in enumerate(hashes.tolist()):
            here = slice(i, i + 1)
            while (number := self._ids.get(key, -1)) >= 0 and not self._equal(new, here, np.array([number])):
                key = (key + 1) % 2**64
            if number < 0:
                self._store(new, here)
                number = self._ids[key] = self.count
                self.count += 1
            numbers[i] = number
        return numbers


class DenseRows(Rows[np.ndarray]):
    """Rows with an effect for each state.

    table  int32 [most, S]  the rows, and room for others
    """

    def __init__(self, width: int, most: int, guard: ResourceGuard) -> None:
        super().__init__(guard)
        # Memory that is never written costs nothing.
        self.table = np.empty((most, width), dtype=np.int32)

    def begin(self, first: np.ndarray) -> int:
        initial = np.stack([np.full_like(first, DEAD_EFFECT), first])
        return int(self._intern(initial, hash_rows(initial))[1])

    def after(self, effects: ByteEffects, rows: np.ndarray, column: np.ndarray) -> np.ndarray:
        block = max(1, _BLOCK_CELLS // max(1, self.table.shape[1]))
        numbers = [
            self._intern(*_one_byte_further(effects, self.table[rows[at : at + block]], column[at : at + block]))
            for at in range(0, len(rows), block)
        ]
        return np.concatenate(numbers)

    def _store(self, new: np.ndarray, chosen: _Chosen) -> None:
        rows = new[chosen]
        count = self.count + len(rows)
        self._guard.check("table_bytes_max", count * self.table[:1].nbytes)
        self.table[self.count : count] = rows

    def _equal(self, new: np.ndarray, chosen: _Chosen, numbers: np.ndarray) -> bool:
        return np.array_equal(self.table[numbers], new[chosen])


def _one_byte_further(effects: ByteEffects, rows: np.ndarray, column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of effects after one byte class each, with their hashes. `rows` is [N, S]."""
    count, width = rows.shape
    live = rows.reshape(-1) != DEAD_EFFECT
    # A row whose states are mostly dead is advanced for its live states alone.
    if np.count_nonzero(live) * _SPARSE >= live.size:
        rows = effects.after(rows, column[:, None])
        return rows, hash_rows(rows)
    position = np.flatnonzero(live)
    entry = effects.after(rows.reshape(-1)[position], column[position // width])
    after = np.zeros_like(rows)
    after.reshape(-1)[position] = entry
    return after, hash_sparse_rows(position, entry, count, width)


class SparseTable(NamedTuple):
    """Rows of which only live entries are stored. N entries, R rows.

    first   int64 [R+1]  the entries of row r are first[r] .. first[r + 1] - 1
    place   int32 [N]    the place of each entry in its row, ascending
    effect  int32 [N]
    """

    first: np.ndarray
    place: np.ndarray
    effect: np.ndarray

    def chosen(self, rows: slice | np.ndarray) -> SparseTable:
        """Some of the rows."""
        position, counts = spread(self.first[:-1][rows], self.first[1:][rows])
        return SparseTable(np.append(0, np.cumsum(counts)), self.place[position], self.effect[position])

    def followed_by(self, other: SparseTable) -> SparseTable:
        """These rows, then those of another table."""
        first = np.append(self.first[:-1], self.first[-1] + other.first)
        return SparseTable(first, np.append(self.place, other.place), np.append(self.effect, other.effect))

    def beside(self, other: SparseTable) -> SparseTable:
        """Rows with the entries of two rows each. No place is in both."""
        row = np.concatenate([np.repeat(np.arange(len(each.first) - 1), np.diff(each.first)) for each in (self, other)])
        place, effect = np.append(self.place, other.place), np.append(self.effect, other.effect)
        # Both tables are in order, and a stable sort merges ordered stretches.
        order = np.argsort(row * (1 + int(place.max(initial=0))) + place, kind="stable")
        return SparseTable(self.first + other.first, place[order], effect[order])

    def hashes(self, width: int) -> np.ndarray:
        """A 64-bit hash of each row: uint64 [R]. Equal rows have equal hashes."""
        row = np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))
        return hash_sparse_rows(row * width + self.place, self.effect, len(self.first) - 1, width)


class SparseRows(Rows[SparseTable]):
    """Rows of live effects alone. They suit transducers of which most states can read few tokens."""

    def __init__(self, width: int, guard: ResourceGuard) -> None:
        super().__init__(guard)
        self._width = width
        self._first = np.zeros(_ROOM, dtype=np.int64)
        self._place, self._effect = np.empty((2, _ROOM), dtype=np.int32)

    @property
    def table(self) -> SparseTable:
        end = self._first[self.count]
        return SparseTable(self._first[: self.count + 1], self._place[:end], self._effect[:end])

    def begin(self, first: np.ndarray) -> int:
        places = np.arange(self._width, dtype=np.int32)
        return int(self.add(SparseTable(np.array([0, 0, self._width]), places, first))[1])

    def add(self, rows: SparseTable) -> np.ndarray:
        """The numbers of rows: int32 [R]."""
        return self._intern(rows, rows.hashes(self._width))

    def after(self, effects: ByteEffects, rows: np.ndarray, column: np.ndarray) -> np.ndarray:
        ends = np.cumsum(self._first[rows + 1] - self._first[rows])
        cells = np.arange(_BLOCK_CELLS, int(ends[-1]) + _BLOCK_CELLS, _BLOCK_CELLS)
        blocks = np.unique(np.append(np.searchsorted(ends, cells, side="right"), len(rows)))
        numbers = [
            self._block_after(effects, rows[begin:end], column[begin:end])
            for begin, end in zip([0, *blocks.tolist()], blocks.tolist(), strict=False)
        ]
        return np.concatenate(numbers)

    def _block_after(self, effects: ByteEffects, rows: np.ndarray, column: np.ndarray) -> np.ndarray:
        position, counts = spread(self._first[rows], self._first[rows + 1])
        effect = effects.after(self._effect[position], np.repeat(column, counts))
        live = np.flatnonzero(effect != DEAD_EFFECT)
        row = np.repeat(np.arange(len(rows)), counts)[live]
        first = np.searchsorted(row, np.arange(len(rows) + 1))
        return self.add(SparseTable(first, self._place[position[live]], effect[live]))

    def _store(self, new: SparseTable, chosen: _Chosen) -> None:
        rows = new.chosen(chosen)
        count, begin = self.count + len(rows.first) - 1, int(self._first[self.count])
        end = begin + len(rows.place)
        if end > len(self._place):
            self._guard.check("table_bytes_max", end * self._place.itemsize)
            self._place, self._effect = grown(self._place, 2 * end), grown(self._effect, 2 * end)
        if count >= len(self._first):
            self._first = grown(self._first, 2 * count)
        self._first[self.count + 1 : count + 1] = begin + rows.first[1:]
        self._place[begin:end], self._effect[begin:end] = rows.place, rows.effect

    def _equal(self, new: SparseTable, chosen: _Chosen, numbers: np.ndarray) -> bool:
        stored = SparseTable(self._first, self._place, self._effect).chosen(numbers)
        return all(map(np.array_equal, stored, new.chosen(chosen)))
