"""Walks a vocabulary's trie from many transducer states at once.

The trie is walked level by level. A node stands for what its bytes do from every transducer state at once: a row of
effects, one for each state. Equal rows are stored once, so the work is (distinct rows) x (states) instead of
(nodes) x (states). The ids whose rows are equal form a token class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from compiler.automata import distinct, grown, hash_rows, hash_sparse_rows, spread
from compiler.lifting.effects import DEAD_EFFECT, UNSEEN
from compiler.limits import ResourceGuard
from compiler.vocab import Trie

_DEAD_ROW = 0  # of a walk: dead from every transducer state
_ROWS_MIN = 2  # of a walk: the dead one and the root's
_SCAN_SHARE = 3  # a level is scanned where at least one node in this many is live; else live nodes are followed alone
_ONE_BY_ONE = 6  # rows, at most, that are looked up without first finding the distinct ones
_SPARSE = 8  # in a table with less than one live entry in this many, the live entries are collected first
_BLOCK_CELLS = 1 << 17  # of a table under construction: what fits a core's cache


class ByteEffects(Protocol):
    """What strings of bytes do from one state, as numbers. DEAD_EFFECT is the number of those that cannot be read."""

    def after(self, effect: np.ndarray, column: np.ndarray) -> np.ndarray:
        """The effects after one more byte, which reads a column. The arrays are broadcast, the result is int32."""


class TokenClasses(NamedTuple):
    """The effects of a trie's tokens from some transducer states.

    effects  int32 [R, C]  by state and token class; class 0 is dead, as are ids that are not named
    ids      int [M]       none twice
    column   int [M]       the class of each
    """

    effects: np.ndarray
    ids: np.ndarray
    column: np.ndarray


class _TrieWalk:
    """Walks one trie over one group of transducer states.

    The group is the states between characters, or those inside one.
    """

    def __init__(
        self, effects: ByteEffects, first: np.ndarray, columns: int, nodes: int, *, guard: ResourceGuard
    ) -> None:
        self._effects = effects
        self._guard = guard
        self._columns = columns
        self._ids: dict[int, int] = {}
        # [rows, columns]: the row behind each byte class, computed at its first use and grown with the rows.
        self._move = np.full((64, columns), UNSEEN, dtype=np.int32)
        self._move[_DEAD_ROW] = _DEAD_ROW
        # Each node adds one row at most; memory that is never written costs nothing.
        most = max(_ROWS_MIN, guard.limits.table_bytes_max // max(1, first.nbytes))
        self.rows = np.empty((min(nodes + 1, most), len(first)), dtype=np.int32)
        self.count = 0
        initial = np.stack([np.full_like(first, DEAD_EFFECT), first])
        self.root = int(self._intern(initial, hash_rows(initial))[1])

    def trie(self, trie: Trie, byte_class: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ids that are not dead everywhere, and their rows: int [M]. `byte_class` is uint8 [256].

        Only nodes below live rows are visited: under most constraints most tokens are dead after a byte or two.
        """
        frontier: _Frontier = _DenseFrontier(trie.levels[0], np.array([self.root], dtype=np.int32))
        ends = [(trie.ids[:0], frontier.rows[:0])]
        for level in trie.levels[1:]:
            self._guard.check_time()
            frontier = frontier.advance(self, trie, level, byte_class)
            ends.append(frontier.ends(trie))
            frontier = _cheaper_form(frontier)
            if isinstance(frontier, _SparseFrontier) and not frontier.nodes.size:
                break
        return np.concatenate([ids for ids, _ in ends]), np.concatenate([rows for _, rows in ends])

    def after(self, rows: np.ndarray, byte_class: np.ndarray) -> np.ndarray:
        """The rows that `rows` reach by one byte class each: int32 [N]."""
        keys = rows * np.int64(self._columns) + byte_class  # one flat index is faster than two
        rows = self._move.reshape(-1).take(keys)
        # Most keys were seen before: the table is read, the unseen keys are computed together, and it is read again.
        if rows.size and rows.min() == UNSEEN:
            self._extend(distinct(keys[rows == UNSEEN], self.count * self._columns))
            rows = self._move.reshape(-1).take(keys)
        return np.asarray(rows)

    def _extend(self, keys: np.ndarray) -> None:
        """Compute the rows of (row, byte class) keys. Blocks of keys fit into the processor's cache."""
        block = max(1, _BLOCK_CELLS // max(1, self.rows.shape[1]))
        for start in range(0, len(keys), block):
            row, column = np.divmod(keys[start : start + block], self._columns)
            rows, hashes = self._one_byte_further(self.rows[row], column)
            self._move[row, column] = self._intern(rows, hashes)

    def _one_byte_further(self, rows: np.ndarray, column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows of effects after one byte class each, with their hashes. `rows` is [N, S]."""
        count, width = rows.shape
        live = rows.reshape(-1) != DEAD_EFFECT
        # A row whose states are mostly dead is advanced for its live states alone.
        if np.count_nonzero(live) * _SPARSE >= live.size:
            rows = self._effects.after(rows, column[:, None])
            return rows, hash_rows(rows)
        position = np.flatnonzero(live)
        entry = self._effects.after(rows.reshape(-1)[position], column[position // width])
        after = np.zeros_like(rows)
        after.reshape(-1)[position] = entry
        return after, hash_sparse_rows(position, entry, count, width)

    def _intern(self, rows: np.ndarray, hashes: np.ndarray) -> np.ndarray:
        """The numbers of rows of effects; new ones are added. Hashes find them, comparison confirms."""
        if len(rows) <= _ONE_BY_ONE:
            return self._intern_one_by_one(rows, hashes)
        # Python looks up each distinct hash once.
        distinct_hashes, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        keys = distinct_hashes.tolist()
        numbers = np.array([self._ids.get(key, -1) for key in keys], dtype=np.int32)
        fresh = np.flatnonzero(numbers < 0)
        fresh = fresh[np.argsort(first[fresh])]  # numbered as they appear
        numbers[fresh] = self.count + np.arange(len(fresh))
        self._check(self.count + len(fresh))
        # They are no rows yet, only what rows are compared with.
        self.rows[self.count : self.count + len(fresh)] = rows[first[fresh]]
        if not np.array_equal(self.rows[numbers[inverse]], rows):
            return self._intern_one_by_one(rows, hashes)
        self._ids.update((keys[position], self.count + i) for i, position in enumerate(fresh.tolist()))
        self.count += len(fresh)
        return np.asarray(numbers[inverse])

    def _intern_one_by_one(self, rows: np.ndarray, hashes: np.ndarray) -> np.ndarray:
        """`intern` for a few rows, or for rows that share a hash. Keys are probed until the row or a free key is found.
        """
        numbers = np.empty(len(rows), dtype=np.int32)
        for i, key in enumerate(hashes.tolist()):
            while (number := self._ids.get(key, -1)) >= 0 and not np.array_equal(self.rows[number], rows[i]):
                key = (key + 1) % 2**64
            if number < 0:
                self._check(self.count + 1)
                number = self._ids[key] = self.count
                self.rows[number] = rows[i]
                self.count += 1
            numbers[i] = number
        return numbers

    def _check(self, count: int) -> None:
        """Room for `count` rows. Raises LimitExceeded over `table_bytes_max`."""
        self._guard.check("table_bytes_max", count * self.rows[:1].nbytes)
        if count > len(self._move):
            self._move = grown(self._move, max(count, 2 * len(self._move)), UNSEEN)


@dataclass(frozen=True, slots=True)
class _DenseFrontier:
    """The rows of all nodes of a level. Its level is read as one slice of the trie, without indices.

    rows  int32 [n]
    """

    level: slice
    rows: np.ndarray

    def advance(self, walk: _TrieWalk, trie: Trie, level: slice, byte_class: np.ndarray) -> _Frontier:
        """The rows of the next level."""
        return _DenseFrontier(level, walk.after(self.rows.take(trie.parent[level]), byte_class.take(trie.byte[level])))

    def ends(self, trie: Trie) -> tuple[np.ndarray, np.ndarray]:
        """The ids that end at the level's nodes, and their rows. Both are int [M]."""
        here = slice(trie.first_id[self.level.start], trie.first_id[self.level.stop])
        return trie.ids[here], self.rows.take(trie.node[here])


@dataclass(frozen=True, slots=True)
class _SparseFrontier:
    """The live nodes of a level, ascending, and their rows.

    nodes  int64 [n]    rows  int32 [n], none dead
    """

    level: slice
    nodes: np.ndarray
    rows: np.ndarray

    def advance(self, walk: _TrieWalk, trie: Trie, level: slice, byte_class: np.ndarray) -> _Frontier:
        """The live children of the nodes."""
        below, counts = spread(trie.first_child[self.nodes], trie.first_child[self.nodes + 1])
        rows = walk.after(self.rows.repeat(counts), byte_class.take(trie.byte[below]))
        alive = rows.nonzero()[0]
        return _SparseFrontier(level, below[alive], rows[alive])

    def ends(self, trie: Trie) -> tuple[np.ndarray, np.ndarray]:
        """The ids that end at the nodes, and their rows: int [M]."""
        positions, counts = spread(trie.first_id[self.nodes], trie.first_id[self.nodes + 1])
        return trie.ids[positions], self.rows.repeat(counts)


_Frontier: TypeAlias = _DenseFrontier | _SparseFrontier


def _cheaper_form(frontier: _Frontier) -> _Frontier:
    """The frontier in the form that the next level costs less in.

    Reading a whole level takes about a third of the time per node that the indices of live nodes take.
    """
    nodes = frontier.level.stop - frontier.level.start
    match frontier:
        case _SparseFrontier(level, live, rows) if len(live) * _SCAN_SHARE > nodes:
            all_rows = np.zeros(nodes, dtype=np.int32)
            all_rows[live - level.start] = rows
            return _DenseFrontier(level, all_rows)
        case _DenseFrontier(level, rows) if np.count_nonzero(rows) * _SCAN_SHARE < nodes:
            positions = rows.nonzero()[0]
            return _SparseFrontier(level, level.start + positions, rows[positions])
    return frontier


def token_classes(
    effects: ByteEffects, first: np.ndarray, byte_class: np.ndarray, trie: Trie, *, guard: ResourceGuard
) -> TokenClasses:
    """The effects of a trie's tokens from a group of states.

    first       int32 [R]  the effect of no bytes, from each state
    byte_class  int [256]  the column of each byte
    """
    # A trie has one row for each node at most; equal rows are one.
    walk = _TrieWalk(effects, first, int(byte_class.max()) + 1, len(trie.parent), guard=guard)
    ids, ends = walk.trie(trie, byte_class.astype(np.uint8))
    # Rows at which no token ends are only steps on the way; the others are the token classes.
    used = np.zeros(walk.count, dtype=bool)
    used[ends] = used[_DEAD_ROW] = True
    column = np.cumsum(used, dtype=np.int32) - 1
    return TokenClasses(walk.rows[: walk.count][used].T, ids, column.take(ends))
