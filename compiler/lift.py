"""From bytes to tokens: walks a vocabulary's tries through a labeller and builds the token automaton (design 4).

The tries are walked level by level. A node stands for what its bytes do from every labeller state at once: a row of
codes, one a state, each code an arrival (labeller state, function on the letter states). Equal rows are one, so the
work is (distinct rows) x (states), not (nodes) x (states), and the token classes fall out: the ids whose rows agree.
"""

from __future__ import annotations

import numpy as np

from compiler.dfa import Dfa, live_states
from compiler.distance import distances
from compiler.labeller import DEAD, NO_END, Labeller
from compiler.limits import Meter
from compiler.rows import hash_rows, unique_rows
from compiler.token_automaton import DEAD_EDGE, TokenAutomaton
from compiler.vocabulary import Trie, Vocabulary

_FUNCTIONS_MAX = 1 << 24  # a code keeps the function in its low bits
_DEAD_CODE = 0
_CELL_BYTES, _STATE_BYTES = 2, 4  # what an edge and a distance take in the finished tables


class _Functions:
    """The functions that strings of letters apply to the letter states, interned. Function 0 is the identity."""

    def __init__(self, letters: Dfa, strings: tuple[tuple[int, ...], ...]) -> None:
        self._moves = [self._move(letters, string) for string in strings]
        self._ids: dict[bytes, int] = {}
        self.rows: list[np.ndarray] = []
        self.intern(np.arange(letters.states, dtype=np.int32))
        self._after = np.full((64, len(strings)), -1, dtype=np.int64)

    @staticmethod
    def _move(letters: Dfa, string: tuple[int, ...]) -> np.ndarray:
        row = np.arange(letters.states, dtype=np.int32)
        for letter in string:
            row = letters.next_state[row, letters.symbol_class[letter]]
        return row

    def intern(self, row: np.ndarray) -> int:
        number = self._ids.setdefault(row.tobytes(), len(self.rows))
        if number == len(self.rows):
            self.rows.append(row)
        return number

    def after(self, function: np.ndarray, string: np.ndarray) -> np.ndarray:
        """The functions that apply `function` [N] and then the letters of `string` [N]: int64 [N]."""
        result = self._after[function, string]
        unseen = result < 0
        if unseen.any():
            for first, then in set(zip(function[unseen].tolist(), string[unseen].tolist(), strict=True)):
                number = self.intern(self._moves[then][self.rows[first]])
                self._after[first, then] = number
            if len(self.rows) > len(self._after):
                self._grow()
            result = self._after[function, string]
        return np.asarray(result)

    def _grow(self) -> None:
        grown = np.full((2 * len(self.rows), self._after.shape[1]), -1, dtype=np.int64)
        grown[: len(self._after)] = self._after
        self._after = grown


class _Walk:
    """One trie walked over one group of labeller states (those between characters, or those inside one)."""

    def __init__(self, labeller: Labeller, functions: _Functions, sources: np.ndarray, meter: Meter) -> None:
        self._labeller = labeller
        self._functions = functions
        self._meter = meter
        self._columns = labeller.next_state.shape[1]
        self._ids: dict[int, int] = {}
        self._move = np.full((256, self._columns), -1, dtype=np.int64)
        self.rows = np.zeros((256, len(sources)), dtype=np.int64)
        self.count = 0
        self.root = int(self._intern((sources.astype(np.int64) * _FUNCTIONS_MAX)[None, :])[0])

    def trie(self, trie: Trie) -> np.ndarray:
        """The row that each node of the trie ends with: int64 [N], indices into `rows`."""
        at = np.full(len(trie.parent), self.root, dtype=np.int64)
        column = self._labeller.byte_class[trie.byte]
        for level in trie.levels[1:]:
            self._meter.tick()
            parents, columns = at[trie.parent[level]], column[level]
            arrived = self._move[parents, columns]
            unseen = arrived < 0
            if unseen.any():
                self._extend(np.unique(parents[unseen] * self._columns + columns[unseen]))
                arrived = self._move[parents, columns]
            at[level] = arrived
        return at

    def _extend(self, keys: np.ndarray) -> None:
        """Compute the rows of (row, byte class) keys, in blocks that keep the work in the cache."""
        block = max(1, (1 << 20) // max(1, self.rows.shape[1]))
        for start in range(0, len(keys), block):
            row, column = np.divmod(keys[start : start + block], self._columns)
            self._move[row, column] = self._intern(self._step(self.rows[row], column))

    def _step(self, codes: np.ndarray, column: np.ndarray) -> np.ndarray:
        state, function = np.divmod(codes, _FUNCTIONS_MAX)
        target = self._labeller.next_state[state, column[:, None]].astype(np.int64)
        emission = self._labeller.emission[state, column[:, None]]
        silent = emission == 0
        if not silent.all():
            loud = ~silent & (target != DEAD)
            function[loud] = self._functions.after(function[loud], emission[loud])
        return np.where(target == DEAD, _DEAD_CODE, target * _FUNCTIONS_MAX + function)

    def _intern(self, rows: np.ndarray) -> np.ndarray:
        """The numbers of rows of codes; new ones are added. Hashes find them, comparison confirms."""
        first, inverse = unique_rows(rows)
        distinct = rows[first]
        keys = hash_rows(distinct).tolist()
        numbers = np.array([self._ids.get(key, -1) for key in keys], dtype=np.int64)
        known = numbers >= 0
        if len(set(keys)) < len(keys) or not np.array_equal(self.rows[numbers[known]], distinct[known]):
            return self._intern_one_by_one(rows)
        fresh = np.flatnonzero(~known)
        numbers[fresh] = self.count + np.arange(len(fresh))
        self._ids.update((keys[place], self.count + i) for i, place in enumerate(fresh.tolist()))
        self._add(distinct[fresh])
        return np.asarray(numbers[inverse])

    def _intern_one_by_one(self, rows: np.ndarray) -> np.ndarray:
        """The same where two rows share a hash: each key is probed until its row is found or a free one is."""
        numbers = np.empty(len(rows), dtype=np.int64)
        for i, key in enumerate(hash_rows(rows).tolist()):
            while (number := self._ids.get(key, -1)) >= 0 and not np.array_equal(self.rows[number], rows[i]):
                key = (key + 1) % 2**64
            if number < 0:
                number = self._ids[key] = self.count
                self._add(rows[i : i + 1])
            numbers[i] = number
        return numbers

    def _add(self, rows: np.ndarray) -> None:
        count = self.count + len(rows)
        while count > len(self.rows):
            self._meter.charge("table_bytes_max", 2 * self.rows.nbytes)
            self.rows = np.concatenate([self.rows, np.zeros_like(self.rows)])
            self._move = np.concatenate([self._move, np.full_like(self._move, -1)])
        self.rows[self.count : count] = rows
        self.count = count


def _columns(walk: _Walk, trie: Trie, dead_first: bool) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows at which tokens end, as columns [R, C], and each spelled id's column [M]."""
    ends = walk.trie(trie)[trie.node]
    used, column = np.unique(ends, return_inverse=True)
    table = walk.rows[used].T
    if dead_first:
        table = np.concatenate([np.zeros((len(table), 1), dtype=np.int64), table], axis=1)
        column = column + 1
    return table, column.reshape(-1)


def lift(labeller: Labeller, letters: Dfa, vocabulary: Vocabulary, meter: Meter) -> TokenAutomaton:
    """The token automaton of a labeller and the letter DFA it feeds, over a vocabulary.

    letters  DFA over the letters in the labeller's strings; a text satisfies the constraint when the letters
             emitted while it is read, and the flush at its end, are accepted
    Raises LimitExceeded over `table_bytes_max` or `compile_s_max`.
    """
    functions = _Functions(letters, labeller.strings)
    between = labeller.boundary
    outer_walk = _Walk(labeller, functions, np.arange(between), meter)
    outer, outer_column = _columns(outer_walk, vocabulary.outer_trie, dead_first=True)
    inner_walk = _Walk(labeller, functions, np.arange(between, labeller.states), meter)
    inner, inner_column = _columns(inner_walk, vocabulary.inner_trie, dead_first=False)
    ending = np.array([_end_code(labeller, functions, state) for state in range(between)], dtype=np.int64)
    outer = np.concatenate([outer, ending[:, None]], axis=1)
    cells, states = outer.size + inner.size, (labeller.states + 1) * letters.states
    meter.charge("table_bytes_max", _CELL_BYTES * cells + _STATE_BYTES * states)
    return _assemble(vocabulary, functions, letters, labeller.start, between, outer, outer_column, inner, inner_column)


def _end_code(labeller: Labeller, functions: _Functions, state: int) -> int:
    """Where EOS leads from a labeller state: to the end, with the flushed letters applied, or nowhere."""
    flush = int(labeller.flush[state])
    if flush == NO_END:
        return _DEAD_CODE
    function = functions.after(np.zeros(1, dtype=np.int64), np.array([flush]))[0]
    return labeller.states * _FUNCTIONS_MAX + int(function)  # the end is numbered after the labeller's own states


def _assemble(
    vocabulary: Vocabulary,
    functions: _Functions,
    letters: Dfa,
    start: int,
    between: int,
    outer: np.ndarray,
    outer_column: np.ndarray,
    inner: np.ndarray,
    inner_column: np.ndarray,
) -> TokenAutomaton:
    """Number the edges, add the row after EOS, compute the distances and check the whole."""
    function = np.stack(functions.rows)
    hopeless = ~live_states(letters)[function].any(axis=1)  # these functions leave no letter state alive
    end = len(outer) + len(inner)
    outer, inner = _pruned(outer, hopeless), _pruned(inner, hopeless)
    outer_first, outer_merged = unique_rows(outer.T)
    inner_first, inner_merged = unique_rows(inner.T)
    outer, inner = outer[:, outer_first], inner[:, inner_first]
    eos_class = outer_merged[-1]
    after_eos = np.zeros((1, outer.shape[1]), dtype=np.int64)
    after_eos[0, eos_class] = end * _FUNCTIONS_MAX
    outer = np.concatenate([outer, after_eos])
    inner = np.concatenate([np.zeros((1, inner.shape[1]), dtype=np.int64), inner])
    target, edge_function, edge = _numbered(np.concatenate([outer.reshape(-1), inner.reshape(-1)]), end, len(function))
    edge_target = np.where(target == end, between, target + (target >= between))
    edge = edge.astype(np.int16 if len(target) <= np.iinfo(np.int16).max else np.int32)
    edge_outer, edge_inner = edge[: outer.size].reshape(outer.shape), edge[outer.size :].reshape(inner.shape)
    accepting = np.zeros((len(outer) + len(inner) - 1, letters.states), dtype=bool)
    accepting[between] = letters.accepting
    distance = distances(*_pairs(edge_outer, edge_inner), edge_target, edge_function, function, accepting)
    token_class = np.zeros(vocabulary.size, dtype=np.int32)
    token_class[vocabulary.outer_trie.ids] = outer_merged[outer_column]
    token_class[vocabulary.inner_trie.ids] = outer.shape[1] + inner_merged[inner_column]
    token_class[list(vocabulary.eos_ids)] = eos_class
    return TokenAutomaton(
        token_class,
        edge_outer,
        edge_inner,
        edge_target.astype(np.int32),
        edge_function.astype(np.int32),
        function,
        distance.reshape(-1),
        start * letters.states + letters.start,
        vocabulary.eos_ids,
    )


def _numbered(codes: np.ndarray, end: int, functions: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct codes as edges, in order of their codes: target [P], function [P], and each code's edge [N].

    A table over all possible codes finds them without sorting; where it would be too large, they are sorted.
    """
    target, function = np.divmod(codes, _FUNCTIONS_MAX)
    if (end + 1) * functions > 1 << 25:
        found, edge = np.unique(codes, return_inverse=True)
        return *np.divmod(found, _FUNCTIONS_MAX), edge.reshape(-1)
    narrow = target * functions + function
    used = np.zeros((end + 1) * functions, dtype=bool)
    used[narrow] = True
    number = np.cumsum(used, dtype=np.int64) - 1
    return *np.divmod(np.flatnonzero(used), functions), number[narrow]


def _pruned(codes: np.ndarray, hopeless: np.ndarray) -> np.ndarray:
    return np.where(hopeless[codes % _FUNCTIONS_MAX], _DEAD_CODE, codes)


def _pairs(edge_outer: np.ndarray, edge_inner: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct (labeller state, edge) pairs of both tables that are not dead: two int arrays [N]."""
    pairs = [_distinct(edge_outer, 0), _distinct(edge_inner[1:], len(edge_outer))]
    return np.concatenate([source for source, _ in pairs]), np.concatenate([edge for _, edge in pairs])


def _distinct(table: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Each row's distinct edges: most classes of a state lead to few places, and distances need each place once."""
    ordered = np.sort(table, axis=1)
    new = ordered != DEAD_EDGE
    new[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    row, column = np.nonzero(new)
    return row + first, ordered[row, column]
