"""Walks a vocabulary's trie from many transducer states at once.

The trie is walked level by level. A node stands for what its bytes do from every transducer state at once: a row of
effects, one for each state. Equal rows are stored once, so the work is (distinct rows) x (states) instead of
(nodes) x (states). The ids whose rows are equal form a token class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from compiler.automata import distinct, grown, spread
from compiler.lifting.effects import UNSEEN
from compiler.lifting.rows import DEAD_ROW, ByteEffects, DenseRows, Rows, SparseRows, SparseTable
from compiler.limits import ResourceGuard
from compiler.vocab import Trie

_ROWS_MIN = 2  # of a walk: the dead one and the root's
_SCAN_SHARE = 3  # a level is scanned where at least one node in this many is live; else live nodes are followed alone


class TokenClasses(NamedTuple):
    """The effects of a trie's tokens from some transducer states.

    effects  int32 [R, C]  by state and token class; class 0 is dead, as are ids that are not named
    ids      int [M]       none twice
    column   int [M]       the class of each
    """

    effects: np.ndarray
    ids: np.ndarray
    column: np.ndarray


class SparseTokenClasses(NamedTuple):
    """The same, with the live effects of each class."""

    effects: SparseTable
    ids: np.ndarray
    column: np.ndarray


class _TrieWalk:
    """Walks one trie over one group of transducer states.

    The group is the states between characters, or those inside one.
    """

    def __init__(
        self, effects: ByteEffects, first: np.ndarray, *, columns: int, rows: Rows[Any], guard: ResourceGuard
    ) -> None:
        self._effects = effects
        self._rows = rows
        self._root = rows.begin(first)
        self._guard = guard
        self._columns = columns
        # [rows, columns]: the row behind each byte class, computed at its first use and grown with the rows.
        self._move = np.full((64, columns), UNSEEN, dtype=np.int32)
        self._move[DEAD_ROW] = DEAD_ROW

    def trie(self, trie: Trie, byte_class: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ids that are not dead everywhere, and their rows: int [M]. `byte_class` is uint8 [256].

        Only nodes below live rows are visited: under most constraints most tokens are dead after a byte or two.
        """
        frontier: _Frontier = _DenseFrontier(trie.levels[0], np.array([self._root], dtype=np.int32))
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
            self._extend(distinct(keys[rows == UNSEEN], self._rows.count * self._columns))
            rows = self._move.reshape(-1).take(keys)
        return np.asarray(rows)

    def _extend(self, keys: np.ndarray) -> None:
        """Compute the rows of (row, byte class) keys."""
        row, column = np.divmod(keys, self._columns)
        after = self._rows.after(self._effects, row, column)
        if self._rows.count > len(self._move):
            self._move = grown(self._move, max(self._rows.count, 2 * len(self._move)), UNSEEN)
        self._move[row, column] = after


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
    most = min(len(trie.parent) + 1, max(_ROWS_MIN, guard.limits.table_bytes_max // max(1, first.nbytes)))
    rows = DenseRows(len(first), most, guard)
    used, ids, column = _walked(effects, first, byte_class, trie, rows=rows, guard=guard)
    return TokenClasses(rows.table[used].T, ids, column)


def sparse_token_classes(
    effects: ByteEffects, first: np.ndarray, byte_class: np.ndarray, trie: Trie, *, guard: ResourceGuard
) -> SparseTokenClasses:
    """The same as `token_classes`, where most states can read few tokens."""
    rows = SparseRows(len(first), guard)
    used, ids, column = _walked(effects, first, byte_class, trie, rows=rows, guard=guard)
    return SparseTokenClasses(rows.table.chosen(used), ids, column)


def _walked(
    effects: ByteEffects, first: np.ndarray, byte_class: np.ndarray, trie: Trie, *, rows: Rows[Any],
    guard: ResourceGuard,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The token classes' rows. Then the ids that are not dead everywhere, and the class of each."""
    walk = _TrieWalk(effects, first, columns=int(byte_class.max()) + 1, rows=rows, guard=guard)
    ids, ends = walk.trie(trie, byte_class.astype(np.uint8))
    # Rows at which no token ends are only steps on the way; the others are the token classes.
    used = np.zeros(rows.count, dtype=bool)
    used[ends] = used[DEAD_ROW] = True
    column = np.cumsum(used, dtype=np.int32) - 1
    return np.flatnonzero(used), ids, column.take(ends)
