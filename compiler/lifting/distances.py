"""Distances in tokens from pairs of a transducer and a letter state."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from compiler.automata import DEAD, UNREACHABLE, spread, stable_order, steps_along
from compiler.limits import ResourceGuard

_WORD_BITS, _WORD_BYTES = 64, 8
_BLOCK_CELLS = 1 << 18  # of rows under work, unpacked
_LONG, _FEW = 4_096, 32  # letter states, and words for each fresh one, from which on fresh pairs are read one by one
_INVERSE_MAX = 1 << 24  # entries of the functions that are inverted: 128 MiB
_INSIDE_MANY = 8  # states inside characters, per state between them, from which on they are searched apart


def distances(
    source: np.ndarray,
    edge: np.ndarray,
    edge_target: np.ndarray,
    edge_function: np.ndarray,
    *,
    function: np.ndarray,
    accepting: np.ndarray,
    inside: int | None = None,
    guard: ResourceGuard | None = None,
) -> np.ndarray:
    """Fewest tokens from each state (l, q) to acceptance: int32 [L, Q]. UNREACHABLE where no path leads there.

    source, edge   int [N]       the (transducer state, edge) pairs of the table, in any order, without the dead edge
    edge_target    int32 [P]     transducer state an edge leads to
    edge_function  int32 [P]     what the edge does to the letter state
    function       int32 [F, Q]  letter state after that
    accepting      bool  [L, Q]
    inside         the first of the transducer states inside characters, which come last; None where there are none

    A multi-source reverse breadth-first search over the pairs (l, q), one level for each distance. A level touches
    only the edges into the transducer states at which the level before has settled pairs. The Q letter states of a
    transducer state are the bits of a few 64-bit words, and rows are worked on in blocks that fit a core's cache.
    Raises LimitExceeded over `compile_s_max`.
    """
    letter_states = accepting.shape[1]
    if letter_states == 1:  # no letters: an edge is the transducer state that it leads to
        return steps_along(source, edge_target[edge], accepting[:, 0], guard).astype(np.int32).reshape(-1, 1)
    edges = _PairEdges(source, edge, edge_target, edge_function, function)
    if inside is not None and len(accepting) - inside > _INSIDE_MANY * inside:
        distance = _search_between(edges, accepting, inside, guard)
        if distance is not None:
            return distance
    return _search(_ReverseGraph(edges, len(accepting)), accepting, guard)


class _PairEdges(NamedTuple):
    """The arrays of `distances`."""

    source: np.ndarray
    edge: np.ndarray
    edge_target: np.ndarray
    edge_function: np.ndarray
    function: np.ndarray

    def chosen(self, pairs: np.ndarray) -> _PairEdges:
        """The same with some of the pairs."""
        return self._replace(source=self.source[pairs], edge=self.edge[pairs])


def _search_between(
    edges: _PairEdges, accepting: np.ndarray, inside: int, guard: ResourceGuard | None
) -> np.ndarray | None:
    """The distances, unless tokens that end inside a character shorten some.

    The search leaves out such tokens, and with them the many states inside characters. Their distances follow from
    the others. Then each distance is one more than the least behind its edges, which only the true ones are.
    None, too, where the search has so few levels that one over all states takes less time.
    """
    from_inside, into_inside = edges.source >= inside, edges.edge_target[edges.edge] >= inside
    distance = _search(_ReverseGraph(edges.chosen(~from_inside & ~into_inside), len(accepting)), accepting, guard)
    # A search takes time for each edge and level, what follows here for each edge and letter state.
    if int(distance.max(where=distance != UNREACHABLE, initial=0)) < accepting.shape[1]:
        return None
    within = edges.chosen(from_inside)
    while _relax(distance, within):
        if guard:
            guard.check_time()
    return None if _relax(distance, edges.chosen(~from_inside & into_inside)) else distance


def _relax(distance: np.ndarray, edges: _PairEdges) -> bool:
    """Lower each distance to one more than the least behind its edges. Returns whether one has changed."""
    order = stable_order(edges.source)
    source, edge = edges.source[order], edges.edge[order]
    first = np.flatnonzero(np.diff(source, prepend=-1))  # of the pairs of each source
    ends, changed, letter_states = np.append(first, len(source)), False, distance.shape[1]
    sources = max(1, _BLOCK_CELLS * len(first) // max(1, len(source) * letter_states))
    for at in range(0, len(first), sources):
        begin, end = ends[at], ends[min(at + sources, len(first))]
        after = edges.edge_target[edge[begin:end]].astype(np.int64)[:, None] * letter_states
        after = distance.reshape(-1).take(after + edges.function[edges.edge_function[edge[begin:end]]])
        least = np.minimum.reduceat(after, first[at : at + sources] - begin, axis=0)
        least += least != UNREACHABLE
        rows = source[first[at : at + sources]]
        before = distance[rows]
        changed |= bool((least < before).any())
        distance[rows] = np.minimum(least, before)
    return changed


def _search(graph: _ReverseGraph, accepting: np.ndarray, guard: ResourceGuard | None) -> np.ndarray:
    """The distances by the levels of the search."""
    distance = np.full(accepting.shape, UNREACHABLE, dtype=np.int32)
    distance[accepting] = 0
    settled = _pack(accepting)
    rows = np.flatnonzero(settled.any(axis=1))
    fresh = settled[rows]  # uint64 [n, W]: what the level before has settled, by transducer state
    for level in itertools.count(1):
        if not rows.size:
            break
        if guard:
            guard.check_time()
        reached_pairs = []
        for into_row, reached in graph.step_back(rows, fresh):
            new = reached & ~settled[into_row]
            changed_rows = np.flatnonzero(new.any(axis=1))
            reached_pairs.append((into_row[changed_rows], new[changed_rows]))
            _settle(distance, settled, *reached_pairs[-1], level=level)
        rows = np.concatenate([into_row for into_row, _ in reached_pairs]) if reached_pairs else rows[:0]
        fresh = np.concatenate([new for _, new in reached_pairs]) if reached_pairs else fresh[:0]
    return distance


class _ReverseGraph:
    """The edges of the pairs (l, q), by target transducer state."""

    def __init__(self, edges: _PairEdges, transducer_states: int) -> None:
        self._source, self._edge_function, self._function = edges.source, edges.edge_function, edges.function
        # Edges that no state has lead to the dead state here, which is never settled.
        target = np.full_like(edges.edge_target, DEAD)
        target[edges.edge] = edges.edge_target[edges.edge]
        self._edge_index = _Index(target, transducer_states)
        self._pair_index = _Index(edges.edge, len(edges.edge_target))
        self._letter_states = edges.function.shape[1]
        # bool [P]: the edges that keep the letter state need no look at its bits
        self._is_identity = (edges.function == np.arange(self._letter_states)).all(axis=1)[edges.edge_function]
        self._block_rows = max(1, _BLOCK_CELLS // max(1, self._letter_states))
        self._inverse: tuple[np.ndarray, np.ndarray] | None = None

    def step_back(self, rows: np.ndarray, fresh: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The pairs with one edge to a pair of `rows` and `fresh`. These are [n] and [n, W].

        Yields transducer states int [m], each once, and their letter states uint64 [m, W], in blocks.
        """
        if self._are_few(fresh):
            yield from self._step_back_singly(rows, fresh)
            return
        edges, leads_to = self._edge_index.of(rows)
        before = fresh[leads_to]  # [E, W]: the letter states from which an edge leads to a fresh pair
        # Only the edges that change the letter state need their bits permuted.
        non_identity = np.flatnonzero(~self._is_identity[edges])
        for block in np.split(non_identity, range(self._block_rows, len(non_identity), self._block_rows)):
            # the letter state q leads to a fresh pair where the bit function[q] of the edge's target row is set
            first = np.arange(len(block))[:, None] * self._letter_states
            # Places in the bits below, as one flat index.
            after = first + self._function[self._edge_function[edges[block]]]
            before[block] = _pack(_unpack(before[block], self._letter_states).reshape(-1)[after])
        used = np.flatnonzero(before.any(axis=1))
        pair, by_edge = self._pair_index.of(edges[used])
        yield from _unions(self._source[pair], before[used], by_edge, self._block_rows)

    def _are_few(self, fresh: np.ndarray) -> bool:
        # A letter DFA that counts has many states, of which a level reaches few.
        is_long = self._letter_states >= _LONG and self._function.size <= _INVERSE_MAX
        return is_long and int(np.count_nonzero(fresh)) * _FEW < fresh.size

    def _step_back_singly(self, rows: np.ndarray, fresh: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """`step_back`, one fresh pair at a time."""
        count = self._letter_states
        if self._inverse is None:
            self._inverse = _inverted(self._function)
        origins, first = self._inverse
        row, letter = _set_bits(fresh)
        edge, leads_to = self._edge_index.of(rows[row])
        function, image = self._edge_function[edge], letter[leads_to]
        place, counts = spread(first[function, image], first[function, image + 1])
        origin = origins[np.repeat(function, counts), place]
        pair, by_origin = self._pair_index.of(np.repeat(edge, counts))
        reached = np.unique(self._source[pair].astype(np.int64) * count + origin[by_origin])
        into_row, begin = np.unique(reached // count, return_index=True)
        ends = np.append(begin, len(reached))
        for at in range(0, len(into_row), self._block_rows):
            block = into_row[at : at + self._block_rows]
            row, letter = np.divmod(reached[ends[at] : ends[at + len(block)]], count)
            bits = np.zeros((len(block), count), dtype=bool)
            bits[np.searchsorted(block, row), letter] = True
            yield block, _pack(bits)


def _settle(distance: np.ndarray, settled: np.ndarray, rows: np.ndarray, new: np.ndarray, *, level: int) -> None:
    """Write the distances of the pairs of a level.

    These are the letter states `new` [n, W] of the transducer states `rows` [n].
    """
    settled[rows] |= new
    if np.count_nonzero(new) * _FEW < new.size:
        row, letter = _set_bits(new)
        distance[rows[row], letter] = level
        return
    reached_pairs = distance[rows]
    np.copyto(reached_pairs, level, where=_unpack(new, distance.shape[1]))
    distance[rows] = reached_pairs


def _pack(bits: np.ndarray) -> np.ndarray:
    """Pack the rows of a Boolean matrix into words. The matrix is [N, Q], the result uint64 [N, W]."""
    packed = np.zeros((len(bits), -(-bits.shape[1] // _WORD_BITS) * _WORD_BYTES), dtype=np.uint8)
    # Rows are padded to whole words, so that unions and differences work on 64 letter states at once.
    packed[:, : -(-bits.shape[1] // 8)] = np.packbits(bits, axis=1)
    return packed.view(np.uint64)


def _unpack(words: np.ndarray, bits: int) -> np.ndarray:
    """The inverse of `_pack`: bool [N, bits]."""
    return np.unpackbits(words.view(np.uint8), axis=1, count=bits).view(bool)


def _set_bits(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows and columns of the set bits in packed rows. Few are set."""
    row, word = words.nonzero()
    at, bit = np.unpackbits(words[row, word].view(np.uint8).reshape(-1, _WORD_BYTES), axis=1).nonzero()
    return row[at], word[at] * _WORD_BITS + bit


def _inverted(function: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The letter states by where each function leads: int32 [F, Q].

    The second array, int32 [F, Q + 1], has where those of each image begin.
    """
    origins = np.empty(function.shape, dtype=np.int32)
    first = np.zeros((len(function), function.shape[1] + 1), dtype=np.int32)
    for number, images in enumerate(function):
        origins[number] = stable_order(images)
        first[number, 1:] = np.bincount(images, minlength=len(images)).cumsum()
    return origins, first


class _Index:
    """The places at which each key 0..K-1 stands in an array."""

    def __init__(self, keys: np.ndarray, count: int) -> None:
        self._order = stable_order(keys)
        self._first = np.searchsorted(keys[self._order], np.arange(count + 1))

    def of(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions of `keys` [n], and for each position its key's index. Both are int64 arrays."""
        positions, counts = spread(self._first[keys], self._first[keys + 1])
        return self._order[positions], np.repeat(np.arange(len(keys)), counts)


def _unions(
    index: np.ndarray, rows: np.ndarray, row: np.ndarray, block_rows: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The distinct indices, ascending, each with the union of its rows.

    The rows of an index are rows[row[i]]; `block_rows` indices are worked on at a time.
    """
    order = stable_order(index)
    index, row = index[order], row[order]
    # Equal indices are adjacent: one reduceat makes the unions of a block.
    first = np.flatnonzero(np.concatenate([[True], index[1:] != index[:-1]])) if index.size else index
    ends = np.append(first, len(index))
    for at in range(0, len(first), block_rows):
        begin, end, block = ends[at], ends[min(at + block_rows, len(first))], first[at : at + block_rows]
        yield index[block], np.bitwise_or.reduceat(rows[row[begin:end]], block - begin, axis=0)
