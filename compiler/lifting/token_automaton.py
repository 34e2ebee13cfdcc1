"""The automaton over model tokens, with exact distances to acceptance. It follows section 3.1 of the paper.

It is kept factored. A state is a pair (l, q): l is what the transducer knows of the text so far (a half-written
word, a half-written character), q the state of the letter DFA. A token moves l and applies one of a few functions
to q, so the tables grow with L + Q, not with L x Q; constraints without letters (a regex) have Q = 1. Decoding sees
nothing else of the compiler.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from compiler.automata import DEAD, UNREACHABLE, spread, stable_order, steps_along
from compiler.limits import ResourceGuard

__all__ = ["DEAD_EDGE", "UNREACHABLE", "TokenAutomaton", "from_table"]

DEAD_EDGE = 0  # the edge to the dead state
_WORD_BITS, _WORD_BYTES = 64, 8
_BLOCK_CELLS = 1 << 18  # of rows under work, unpacked


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TokenAutomaton:
    """A DFA over the ids of a vocabulary. V ids, C token classes, L transducer states, Q letter states, P edges.

    token_class    int32 [V]          the column each id reads; ids that act alike everywhere share one
    edge_boundary  int [B, C0]        edge by (l, class) for the B transducer states between characters, l = 0..B-1
    edge_midchar   int [L-B+1, C1]    the same inside a UTF-8 character, l = B..L-1; row 0 is all DEAD_EDGE
    edge_target    int32 [P]          the transducer state an edge leads to; edge 0 is DEAD_EDGE, to l = 0
    edge_function  int32 [P]          the row of `function` that an edge applies to q
    function       int32 [F, Q]       letter state after it
    distance       int32 [L * Q]      fewest tokens, EOS among them, to acceptance: 0 after EOS, UNREACHABLE when dead
    start          int                state before the first token
    eos_ids        the ids that end a text; they share one class

    The state (l, q) has the number l * Q + q. Classes 0..C0-1 are those of edge_boundary, C0..C-1 those of
    edge_midchar: tokens whose first byte continues a character live only inside one, so two small tables replace one
    that is mostly dead. Raises ValueError where a shape, an index or the dead state's rows are off.

    >>> table, accepting = np.array([[1], [1]]), np.array([False, True])  # at least one token of id 0, then EOS (id 1)
    >>> automaton = from_table(np.array([0, 0]), table, accepting, start=0, eos_ids=(1,))
    >>> automaton.min_tokens, int(automaton.distance[automaton.advance(automaton.start, 0)])
    (2, 1)
    """

    token_class: np.ndarray
    edge_boundary: np.ndarray
    edge_midchar: np.ndarray
    edge_target: np.ndarray
    edge_function: np.ndarray
    function: np.ndarray
    distance: np.ndarray
    start: int
    eos_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        transducer_states = len(self.edge_boundary) + len(self.edge_midchar) - 1
        letter_states = self.function.shape[1]
        if self.distance.shape != (transducer_states * letter_states,):
            raise ValueError("distance is [L * Q]")
        if not 0 <= self.start < len(self.distance):
            raise ValueError("start names a state that does not exist")
        _check_range("token_class", self.token_class, self.classes)
        _check_range("edge_boundary", self.edge_boundary, len(self.edge_target))
        _check_range("edge_midchar", self.edge_midchar, len(self.edge_target))
        _check_range("edge_target", self.edge_target, transducer_states)
        _check_range("edge_function", self.edge_function, len(self.function))
        _check_range("function", self.function, letter_states)
        if self.edge_function.shape != self.edge_target.shape:
            raise ValueError("edge_function and edge_target are [P]")
        if self.edge_target[DEAD_EDGE] != DEAD or self.edge_boundary[DEAD].any() or self.edge_midchar[0].any():
            raise ValueError("the dead state is left, or edge 0 does not lead to it")
        if (self.distance < 0).any() or (self.distance[:letter_states] != UNREACHABLE).any():
            raise ValueError("distances are not negative, and the dead state has none")
        if not self.eos_ids or not all(0 <= eos < len(self.token_class) for eos in self.eos_ids):
            raise ValueError("eos_ids names ids of the vocabulary, at least one")

    def with_own_classes(self, ids: np.ndarray) -> TokenAutomaton:
        """The same automaton with a class for each of these ids. `ids` is int64 [n]; each begins a character."""
        columns = self.edge_boundary.shape[1]
        columns_of_ids = self.token_class[ids]
        ids, columns_of_ids = ids[columns_of_ids < columns], columns_of_ids[columns_of_ids < columns]
        # The new columns stand behind those of edge_boundary, so the classes of edge_midchar move.
        token_class = np.where(self.token_class < columns, self.token_class, self.token_class + len(ids))
        token_class[ids] = np.arange(columns, columns + len(ids))
        edge_boundary = np.concatenate([self.edge_boundary, self.edge_boundary[:, columns_of_ids]], axis=1)
        return replace(self, token_class=token_class, edge_boundary=edge_boundary)

    @property
    def states(self) -> int:
        return len(self.distance)

    @property
    def letter_states(self) -> int:
        return int(self.function.shape[1])

    @property
    def classes(self) -> int:
        return int(self.edge_boundary.shape[1] + self.edge_midchar.shape[1])

    @property
    def vocabulary_size(self) -> int:
        return len(self.token_class)

    @property
    def min_tokens(self) -> int:
        """d(start), the fewest tokens that satisfy the constraint. EOS is counted. A smaller budget is impossible."""
        return int(self.distance[self.start])

    @property
    def table_bytes(self) -> int:
        """Bytes of everything but the map from ids to classes. All automata of a vocabulary share that map."""
        edges = (self.edge_boundary, self.edge_midchar, self.edge_target, self.edge_function)
        return sum(int(table.nbytes) for table in (*edges, self.function, self.distance))

    def edges(self, transducer_state: int) -> np.ndarray:
        """The edge each class takes from a transducer state: int [C]."""
        boundary_states = len(self.edge_boundary)
        boundary = transducer_state if transducer_state < boundary_states else DEAD
        midchar = transducer_state - boundary_states + 1 if transducer_state >= boundary_states else 0
        return np.concatenate([self.edge_boundary[boundary], self.edge_midchar[midchar]])

    def successors(self, state: int) -> np.ndarray:
        """The state after one token of each class: int64 [C]."""
        transducer_state, letter_state = divmod(state, self.letter_states)
        edge = self.edges(transducer_state)
        if self.letter_states == 1:  # no letters: an edge is where it leads to
            return self.edge_target.take(edge).astype(np.int64)
        letters = self.function[:, letter_state].take(self.edge_function.take(edge))
        return np.asarray(self.edge_target.take(edge).astype(np.int64) * self.letter_states + letters)

    def advance(self, state: int, token: int) -> int:
        """The state after one token id."""
        return int(self.successors(state)[self.token_class[token]])


def _check_range(name: str, values: np.ndarray, end: int) -> None:
    if values.size and not (values.min() >= 0 and values.max() < end):
        raise ValueError(f"{name} holds an index outside 0..{end - 1}")


def from_table(
    token_class: np.ndarray, next_state: np.ndarray, accepting: np.ndarray, start: int, *, eos_ids: tuple[int, ...]
) -> TokenAutomaton:
    """A token automaton from an explicit transition table.

    It serves automata that are given by their transitions, and tests.

    token_class  int [V]     column each id reads; what it says of the EOS ids is ignored
    next_state   int [S, K]
    accepting    bool [S]    states after which EOS may follow
    start        int

    State s of the table becomes state s + 1 of the result (0 is dead, S + 1 is after EOS).
    """
    states, columns = next_state.shape
    end = states + 1
    # One edge for each target state: edge i leads to state i. The last column is that of EOS.
    target = np.zeros((states + 2, columns + 1), dtype=np.int64)
    target[1:end, :columns] = next_state + 1
    target[1:end, columns] = np.where(accepting, end, DEAD)
    # After EOS only EOS may follow, and stays there.
    target[end, columns] = end
    ids = token_class.astype(np.int32).copy()
    ids[list(eos_ids)] = columns
    target[:, np.setdiff1d(np.arange(columns), ids)] = DEAD  # no id reads these columns: they shorten no distance
    accept = (np.arange(states + 2) == end)[:, None]
    source, used = np.divmod(np.unique(np.arange(states + 2)[:, None] * (states + 2) + target), states + 2)
    edge_target = np.arange(states + 2, dtype=np.int32)
    effect, function = np.zeros(states + 2, dtype=np.int32), np.zeros((1, 1), dtype=np.int32)
    live = (source != DEAD) & (used != DEAD)
    distance = distances(source[live], used[live], edge_target, effect, function=function, accepting=accept)
    return TokenAutomaton(
        token_class=ids, edge_boundary=target.astype(np.int32), edge_midchar=np.zeros((1, 0), dtype=np.int32),
        edge_target=edge_target, edge_function=effect, function=function, distance=distance.reshape(-1),
        start=start + 1, eos_ids=eos_ids,
    )


def distances(
    source: np.ndarray,
    edge: np.ndarray,
    edge_target: np.ndarray,
    edge_function: np.ndarray,
    *,
    function: np.ndarray,
    accepting: np.ndarray,
    guard: ResourceGuard | None = None,
) -> np.ndarray:
    """Fewest tokens from each state (l, q) to acceptance: int32 [L, Q]. UNREACHABLE where no path leads there.

    source, edge   int [N]       the (transducer state, edge) pairs of the table, in any order, without the dead edge
    edge_target    int32 [P]     transducer state an edge leads to
    edge_function  int32 [P]     what the edge does to the letter state
    function       int32 [F, Q]  letter state after that
    accepting      bool  [L, Q]

    A multi-source reverse breadth-first search over the pairs (l, q), one level for each distance. A level touches
    only the edges into the transducer states at which the level before has settled pairs. The Q letter states of a
    transducer state are the bits of a few 64-bit words, and rows are worked on in blocks that fit a core's cache.
    Raises LimitExceeded over `compile_s_max`.
    """
    letter_states = accepting.shape[1]
    if letter_states == 1:  # no letters: an edge is the transducer state that it leads to
        return steps_along(source, edge_target[edge], accepting[:, 0], guard).astype(np.int32).reshape(-1, 1)
    return _search(
        _ReverseGraph(source, edge, edge_target, edge_function, function=function, transducer_states=len(accepting)),
        accepting, guard,
    )


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
    """The edges of the pairs (l, q), by target transducer state. Takes the arrays of `distances`."""

    def __init__(
        self,
        source: np.ndarray,
        edge: np.ndarray,
        edge_target: np.ndarray,
        edge_function: np.ndarray,
        *,
        function: np.ndarray,
        transducer_states: int,
    ) -> None:
        self._source, self._edge_function, self._function = source, edge_function, function
        self._edge_index, self._pair_index = _Index(edge_target, transducer_states), _Index(edge, len(edge_target))
        self._letter_states = function.shape[1]
        # bool [P]: the edges that keep the letter state need no look at its bits
        self._is_identity = (function == np.arange(self._letter_states)).all(axis=1)[edge_function]
        self._block_rows = max(1, _BLOCK_CELLS // max(1, self._letter_states))

    def step_back(self, rows: np.ndarray, fresh: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The pairs with one edge to a pair of `rows` and `fresh`. These are [n] and [n, W].

        Yields transducer states int [m], each once, and their letter states uint64 [m, W], in blocks.
        """
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
        return _unions(self._source[pair], before[used], by_edge, self._block_rows)


def _settle(distance: np.ndarray, settled: np.ndarray, rows: np.ndarray, new: np.ndarray, *, level: int) -> None:
    """Write the distances of the pairs of a level.

    These are the letter states `new` [n, W] of the transducer states `rows` [n].
    """
    settled[rows] |= new
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
