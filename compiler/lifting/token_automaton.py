"""The automaton over model tokens, with exact distances to acceptance. It follows section 3.1 of the paper.

It is kept factored. A state is a pair (l, q): l is what the transducer knows of the text so far (a half-written
word, a half-written character), q the state of the letter DFA. A token moves l and applies one of a few functions
to q, so the tables grow with L + Q, not with L x Q; constraints without letters (a regex) have Q = 1. Decoding sees
nothing else of the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from compiler.automata import DEAD, UNREACHABLE, spread, stable_order
from compiler.lifting.distances import distances

__all__ = ["BUDGET_MAX", "DEAD_EDGE", "UNREACHABLE", "TokenAutomaton", "from_table"]

BUDGET_MAX = 2**30  # tokens; the distances that stand for "unknown" and "unreachable" lie above it

DEAD_EDGE = 0  # the edge to the dead state


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TokenAutomaton:
    """A DFA over the ids of a vocabulary. V ids, C token classes, L transducer states, Q letter states, P edges,
    N entries.

    token_class    int32 [V]          the column each id reads; ids that act alike everywhere share one
    edge_boundary  int [D, C0]        edge by class, in rows that the B transducer states between characters share
    dense_row      int32 [B]          the row of edge_boundary for l = 0..B-1; row 0 is all DEAD_EDGE
    sparse_first   int64 [B+1]        the entries of l are sparse_first[l] .. sparse_first[l + 1] - 1
    sparse_class   int [N]            by entry, a class with another edge than in that row
    sparse_edge    int [N]            and its edge
    edge_midchar   int [L-B+1, C1]    edge by class inside a UTF-8 character, l = B..L-1; row 0 is all DEAD_EDGE
    edge_target    int32 [P]          the transducer state an edge leads to; edge 0 is DEAD_EDGE, to l = 0
    edge_function  int32 [P]          the row of `function` that an edge applies to q
    function       int32 [F, Q]       letter state after it
    distance       int32 [L * Q]      fewest tokens, EOS among them, to acceptance: 0 after EOS, UNREACHABLE when dead
    start          int                state before the first token
    eos_ids        the ids that end a text; they share one class

    The state (l, q) has the number l * Q + q. Classes 0..C0-1 are those of edge_boundary, C0..C-1 those of
    edge_midchar: tokens whose first byte continues a character live only inside one, so two small tables replace one
    that is mostly dead. Class 0 is dead in every state if there are entries. Raises ValueError where a shape, an index
    or the dead state's rows are off.

    >>> table, accepting = np.array([[1], [1]]), np.array([False, True])  # at least one token of id 0, then EOS (id 1)
    >>> automaton = from_table(np.array([0, 0]), table, accepting, start=0, eos_ids=(1,))
    >>> automaton.min_tokens, int(automaton.distance[automaton.advance(automaton.start, 0)])
    (2, 1)
    """

    token_class: np.ndarray
    edge_boundary: np.ndarray
    dense_row: np.ndarray
    sparse_first: np.ndarray
    sparse_class: np.ndarray
    sparse_edge: np.ndarray
    edge_midchar: np.ndarray
    edge_target: np.ndarray
    edge_function: np.ndarray
    function: np.ndarray
    distance: np.ndarray
    start: int
    eos_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        transducer_states = self.boundary_states + len(self.edge_midchar) - 1
        letter_states = self.function.shape[1]
        if self.distance.shape != (transducer_states * letter_states,):
            raise ValueError("distance is [L * Q]")
        if not 0 <= self.start < len(self.distance):
            raise ValueError("start names a state that does not exist")
        _check_range("token_class", self.token_class, self.classes)
        _check_range("edge_boundary", self.edge_boundary, len(self.edge_target))
        _check_range("dense_row", self.dense_row, len(self.edge_boundary))
        _check_range("sparse_class", self.sparse_class, self.edge_boundary.shape[1])
        _check_range("sparse_edge", self.sparse_edge, len(self.edge_target))
        _check_range("edge_midchar", self.edge_midchar, len(self.edge_target))
        _check_range("edge_target", self.edge_target, transducer_states)
        _check_range("edge_function", self.edge_function, len(self.function))
        _check_range("function", self.function, letter_states)
        if self.edge_function.shape != self.edge_target.shape:
            raise ValueError("edge_function and edge_target are [P]")
        if self.sparse_class.ndim != 1 or self.sparse_class.shape != self.sparse_edge.shape:
            raise ValueError("sparse_class and sparse_edge are [N]")
        if self.sparse_first.shape != (len(self.dense_row) + 1,) or (np.diff(self.sparse_first) < 0).any():
            raise ValueError("sparse_first is [B+1] and ascends")
        if self.sparse_first[0] != 0 or self.sparse_first[-1] != len(self.sparse_edge):
            raise ValueError("sparse_first is not 0 .. N: an entry belongs to no state")
        if self.sparse_class.size and (self.edge_boundary[:, 0].any() or not self.sparse_class.all()):
            raise ValueError("class 0 is not dead in every state")
        dead_rows = self.edge_boundary[0], self.edge_midchar[0], self.dense_row[DEAD], self.sparse_first[DEAD + 1]
        if self.edge_target[DEAD_EDGE] != DEAD or any(row.any() for row in dead_rows):
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
        state = np.repeat(np.arange(self.boundary_states), np.diff(self.sparse_first))
        # Each entry of the class of such an id is an entry of its own class, too.
        entries = np.flatnonzero(np.isin(self.sparse_class, columns_of_ids))
        number, own = np.nonzero(columns_of_ids[:, None] == self.sparse_class[entries])
        own = entries[own]
        sparse_first, sparse_class, sparse_edge = entry_rows(
            np.append(state, state[own]), np.append(self.sparse_class, columns + number),
            np.append(self.sparse_edge, self.sparse_edge[own]), states=self.boundary_states,
        )
        return replace(
            self, token_class=token_class, edge_boundary=edge_boundary, sparse_first=sparse_first,
            sparse_class=sparse_class, sparse_edge=sparse_edge,
        )

    @property
    def boundary_states(self) -> int:
        """B, the number of transducer states between characters."""
        return len(self.dense_row)

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
        edges = (
            self.edge_boundary, self.dense_row, self.sparse_first, self.sparse_class, self.sparse_edge,
            self.edge_midchar, self.edge_target, self.edge_function,
        )  # fmt: skip
        return sum(int(table.nbytes) for table in (*edges, self.function, self.distance))

    def edges(self, transducer_state: int) -> np.ndarray:
        """The edge each class takes from a transducer state: int [C]."""
        boundary = transducer_state if transducer_state < self.boundary_states else DEAD
        midchar = transducer_state - self.boundary_states + 1 if transducer_state >= self.boundary_states else 0
        edges = np.concatenate([self.edge_boundary[self.dense_row[boundary]], self.edge_midchar[midchar]])
        entries = slice(self.sparse_first[boundary], self.sparse_first[boundary + 1])
        edges[self.sparse_class[entries]] = self.sparse_edge[entries]
        return edges

    def edges_after(self, transducer_states: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """The edge that one class takes from each transducer state: int64 [N]. Both are int64 [N]."""
        columns = self.edge_boundary.shape[1]
        boundary = transducer_states < self.boundary_states
        edge = np.zeros(len(transducer_states), dtype=np.int64)
        outer = np.flatnonzero(boundary & (classes < columns))
        row = transducer_states[outer]
        edge[outer] = self.edge_boundary[self.dense_row[row], classes[outer]]
        entry, counts = spread(self.sparse_first[row], self.sparse_first[row + 1])
        owner = np.repeat(outer, counts)
        found = self.sparse_class[entry] == classes[owner]
        edge[owner[found]] = self.sparse_edge[entry[found]]
        inner = np.flatnonzero(~boundary & (classes >= columns))
        edge[inner] = self.edge_midchar[transducer_states[inner] - self.boundary_states + 1, classes[inner] - columns]
        return edge

    def live_entries(self, cells: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """All live entries of the tables, ascending by transducer state.

        Yields transducer states, token classes and edges: int64 [n] each, in blocks of about `cells` cells.
        """
        outer, inner = self.edge_boundary.shape[1], max(1, self.edge_midchar.shape[1])
        for states in _blocks(0, self.boundary_states, cells // outer):
            edges = self.edge_boundary[self.dense_row[states]]
            first = self.sparse_first[states.start : states.stop + 1]
            entries = slice(first[0], first[-1])
            edges[np.repeat(np.arange(len(edges)), np.diff(first)), self.sparse_class[entries]] = (
                self.sparse_edge[entries]
            )
            row, column = edges.nonzero()
            yield row + states.start, column, edges[row, column].astype(np.int64)
        for states in _blocks(1, len(self.edge_midchar), cells // inner):
            row, column = self.edge_midchar[states].nonzero()
            edge = self.edge_midchar[states][row, column].astype(np.int64)
            yield row + (states.start + self.boundary_states - 1), column + outer, edge

    def successors(self, state: int) -> np.ndarray:
        """The state after one token of each class: int64 [C]."""
        transducer_state, letter_state = divmod(state, self.letter_states)
        edge = self.edges(transducer_state)
        if self.letter_states == 1:  # no letters: an edge is where it leads to
            return self.edge_target.take(edge).astype(np.int64)
        letters = self.function[:, letter_state].take(self.edge_function.take(edge))
        return np.asarray(self.edge_target.take(edge).astype(np.int64) * self.letter_states + letters)

    def distance_of(self, state: int) -> int:
        """Fewest tokens to acceptance, EOS included, or UNREACHABLE."""
        return int(self.distance[state])

    def distances(self, states: np.ndarray) -> np.ndarray:
        """The same of several states: int32 [R]."""
        return np.asarray(self.distance[states])

    def expand(self, state: int) -> tuple[np.ndarray, Callable[[int], int]]:
        """What one token of each class leads to.

        Returns the distances there, int32 [C], and a function from classes to states.
        """
        successors = self.successors(state)
        return self.distance[successors], successors.item

    def live_classes(self, state: int) -> tuple[np.ndarray, Callable[[int], int]]:
        """The classes that acceptance can be reached after.

        They are bool [C], beside a function from them to states.
        """
        distances, after = self.expand(state)
        return distances != UNREACHABLE, after

    def control_of(self, state: int) -> int:
        """The state itself: it needs no stack."""
        return state

    def advance(self, state: int, token: int) -> int:
        """The state after one token id."""
        return int(self.successors(state)[self.token_class[token]])


def _blocks(first: int, end: int, length: int) -> Iterator[slice]:
    return (slice(begin, min(begin + max(1, length), end)) for begin in range(first, end, max(1, length)))


def entry_rows(
    state: np.ndarray, token_class: np.ndarray, edge: np.ndarray, *, states: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The arrays `sparse_first`, `sparse_class` and `sparse_edge` of entries.

    state, token_class, edge  int [N]  the entries, in any order
    """
    order = stable_order(state)
    narrow = np.min_scalar_type(-1 - int(token_class.max(initial=1)))  # signed: torch has few unsigned types
    first = np.append(0, np.cumsum(np.bincount(state, minlength=states)))
    return first, token_class[order].astype(narrow), edge[order]


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
    edge_target, no_entries = np.arange(states + 2, dtype=np.int32), np.zeros(0, dtype=np.int32)
    effect, function = np.zeros(states + 2, dtype=np.int32), np.zeros((1, 1), dtype=np.int32)
    live = (source != DEAD) & (used != DEAD)
    distance = distances(source[live], used[live], edge_target, effect, function=function, accepting=accept)
    return TokenAutomaton(
        token_class=ids, edge_boundary=target.astype(np.int32), dense_row=edge_target,
        sparse_first=np.zeros(states + 3, dtype=np.int64), sparse_class=no_entries, sparse_edge=no_entries,
        edge_midchar=np.zeros((1, 0), dtype=np.int32),
        edge_target=edge_target, edge_function=effect, function=function, distance=distance.reshape(-1),
        start=start + 1, eos_ids=eos_ids,
    )
