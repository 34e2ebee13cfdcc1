"""Builds the token automaton from a byte transducer and a vocabulary.

States in which few tokens may follow are lifted one by one along the vocabulary's trie, the others together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from compiler.automata import DEAD, NO_END, ByteTransducer, Dfa, distinct, spread
from compiler.lifting.distances import distances
from compiler.lifting.effects import DEAD_EFFECT, IDENTITY, Effects, LetterMaps
from compiler.lifting.sparse_walk import SparseTokens, sparse_tokens
from compiler.lifting.token_automaton import DEAD_EDGE, TokenAutomaton, padded_rows
from compiler.lifting.trie_walk import TokenClasses, token_classes
from compiler.limits import ResourceGuard
from compiler.vocab import Vocabulary

_SPARSE = 8  # in a table with less than one live entry in this many, the live entries are collected first
_BLOCK_CELLS = 1 << 17  # of a table under construction: what fits a core's cache
_CELL_BYTES, _STATE_BYTES = 2, 4  # what an edge and a distance take in the finished tables


def lift(transducer: ByteTransducer, letters: Dfa, vocabulary: Vocabulary, guard: ResourceGuard) -> TokenAutomaton:
    """The token automaton of a transducer and its letter DFA.

    letters  DFA over the letters in the transducer's outputs; a text satisfies the constraint when the letters
             emitted while it is read, and the final_output at its end, are accepted
    Raises LimitExceeded over `table_bytes_max` or `compile_s_max`.

    >>> from compiler.pipeline import compile_text
    >>> from compiler.spec import RegexSpec
    >>> from compiler.limits import DEFAULT_LIMITS
    >>> text = compile_text(RegexSpec("abc"))
    >>> vocabulary = Vocabulary((b"a", b"bc", b"abc", None), (3,))
    >>> lift(text.transducer, text.letters, vocabulary, ResourceGuard(DEFAULT_LIMITS)).min_tokens  # "abc", EOS
    2
    """
    effects = Effects(transducer, LetterMaps(letters, transducer.outputs, guard), guard)
    between, within = np.split(np.arange(transducer.states, dtype=np.int32), [transducer.boundary_states])
    sparse = sparse_tokens(effects, transducer, between, vocabulary.boundary_trie, guard=guard)
    byte_class = transducer.byte_class
    dense = token_classes(
        effects, _begun(effects, between[sparse.dense]), byte_class, vocabulary.boundary_trie, guard=guard
    )
    boundary = _merged(dense, sparse, vocabulary.size, len(effects))
    midchar = token_classes(effects, _begun(effects, within), byte_class, vocabulary.midchar_trie, guard=guard)
    cells = boundary.dense.size + 2 * len(boundary.state) + midchar.effects.size
    # Checked before the large tables are written.
    guard.check("table_bytes_max", _CELL_BYTES * cells + _STATE_BYTES * (transducer.states + 1) * letters.states)
    # EOS has a class of its own. It stands between the classes of the two groups.
    eos_class, token_class = boundary.dense.shape[1], boundary.token_class
    token_class[list(vocabulary.eos_ids)] = eos_class
    live = midchar.column != 0
    token_class[midchar.ids[live]] = eos_class + 1 + midchar.column[live]
    return _assemble(
        transducer, letters, effects, boundary=_with_end(transducer, effects, boundary), midchar=midchar.effects,
        eos_ids=vocabulary.eos_ids,
    )


def _begun(effects: Effects, states: np.ndarray) -> np.ndarray:
    """The effects of no bytes from some states."""
    return effects.intern(states, np.full_like(states, IDENTITY))


class _Boundary(NamedTuple):
    """The edges between characters while they are still effects. B transducer states, C0 token classes.

    dense_row    int32 [B]      row of each state in `dense`; row 0 is all dead
    dense        int32 [D, C0]  effect by row and class; class 0 is dead
    state, column, effect  int [N]  the entries of the states that have no row
    token_class  int32 [V]      the class of each id
    """

    dense_row: np.ndarray
    dense: np.ndarray
    state: np.ndarray
    column: np.ndarray
    effect: np.ndarray
    token_class: np.ndarray


def _merged(dense: TokenClasses, sparse: SparseTokens, size: int, effects: int) -> _Boundary:
    """The token classes over dense and sparse states. Two ids share a class where they act alike in all states."""
    token_class = np.zeros(size, dtype=np.int32)
    token_class[dense.ids] = dense.column
    order = np.lexsort((sparse.source, sparse.ids))
    source, effect = sparse.source[order], sparse.effect[order]
    ids, first, count = np.unique(sparse.ids[order], return_index=True, return_counts=True)
    # What an id does in the sparse states, as the bytes of its entries.
    entries, width = (source * effects + effect).tobytes(), source.itemsize
    classes: dict[tuple[int, bytes], int] = {}
    number = np.array([
        classes.setdefault((column, entries[width * begin : width * end]), len(classes))
        for column, begin, end in zip(token_class[ids].tolist(), first.tolist(), (first + count).tolist(), strict=True)
    ], dtype=np.int32)  # fmt: skip
    example = np.unique(number, return_index=True)[1]  # the first id of each of these classes
    own_column = token_class[ids[example]]
    # Classes of dense states whose ids are all in `ids` go; class 0 stays.
    alone = np.ones(size, dtype=bool)
    alone[ids] = False
    kept = distinct(np.append(token_class[alone], 0), dense.effects.shape[1])
    renumbered = np.zeros(dense.effects.shape[1], dtype=np.int32)
    renumbered[kept] = np.arange(len(kept))
    token_class = renumbered[token_class]
    token_class[ids] = len(kept) + number
    dense_row = np.cumsum(sparse.dense, dtype=np.int32) * sparse.dense
    table = np.zeros((1 + len(dense.effects), len(kept) + len(example)), dtype=np.int32)
    table[1:] = dense.effects[:, np.concatenate([kept, own_column])]
    place, counts = spread(first[example], (first + count)[example])
    column = np.repeat(len(kept) + np.arange(len(example)), counts)
    return _Boundary(dense_row, table, source[place], column, effect[place], token_class)


def _with_end(transducer: ByteTransducer, effects: Effects, boundary: _Boundary) -> _Boundary:
    """The same with one more class, that of EOS.

    The state after EOS, which only EOS keeps, is numbered after the transducer's own. EOS applies the letters that
    the end of the text emits.
    """
    end, eos_class = transducer.states, boundary.dense.shape[1]
    final_output = transducer.final_output[: transducer.boundary_states]
    # Where a text may not end, EOS leads to the dead state.
    ends = final_output != NO_END
    end_function = effects.letter_maps.after(
        np.full(len(final_output), IDENTITY, dtype=np.int32), np.where(ends, final_output, 0)
    )
    effect = effects.intern(np.where(ends, end, DEAD), end_function)
    stays = effects.intern(np.array([end]), np.array([IDENTITY]))
    row = boundary.dense_row
    dense_column = np.zeros(len(boundary.dense), dtype=np.int32)
    dense_column[row[row != 0]] = effect[row != 0]
    state = np.flatnonzero((row == 0) & (effect != DEAD_EFFECT))
    return _Boundary(
        dense_row=np.append(row, np.int32(0)),
        dense=np.column_stack([boundary.dense, dense_column]),
        state=np.concatenate([boundary.state, state, [len(row)]]),
        column=np.concatenate([boundary.column, np.full(len(state) + 1, eos_class)]),
        effect=np.concatenate([boundary.effect, effect[state], stays]),
        token_class=boundary.token_class,
    )


def _assemble(
    transducer: ByteTransducer, letters: Dfa, effects: Effects, *, boundary: _Boundary, midchar: np.ndarray,
    eos_ids: tuple[int, ...],
) -> TokenAutomaton:
    """Number the reachable effects as edges, and compute the distances. The result is checked.

    midchar  int32 [L-B, C1]  effect by transducer state inside a character
    """
    number, used_effects = _numbers((boundary.dense, boundary.effect[:, None], midchar), len(effects))
    edge_boundary = np.zeros(boundary.dense.shape, dtype=number.dtype)
    edge_midchar = np.zeros((len(midchar) + 1, midchar.shape[1]), dtype=number.dtype)  # its row 0 is dead
    for edges, table in ((edge_boundary, boundary.dense), (edge_midchar[1:], midchar)):
        for rows in _row_blocks(table):
            edges[rows] = number.take(table[rows])
    sparse_class, sparse_edge = padded_rows(
        boundary.state, boundary.column, number[boundary.effect], len(boundary.dense_row)
    )
    # The state after EOS moves between the two groups.
    state, eos_state = effects.state[used_effects], transducer.boundary_states
    edge_target = np.where(state == transducer.states, eos_state, state + (state >= eos_state)).astype(np.int32)
    used, edge_function = np.unique(effects.function[used_effects], return_inverse=True)
    edge_function, function = edge_function.astype(np.int32), effects.letter_maps.table(used)
    accepting = np.zeros((transducer.states + 1, letters.states), dtype=bool)
    accepting[eos_state] = letters.accepting  # only the state after EOS accepts
    row, dense_edge = _distinct(edge_boundary)
    place, midchar_edge = _distinct(edge_midchar)
    sparse_pair = distinct(boundary.state * len(used_effects) + number[boundary.effect])
    dense_states = np.append(0, np.flatnonzero(boundary.dense_row))  # by row; no edge leaves row 0
    source = [dense_states[row], sparse_pair // len(used_effects), place + eos_state]
    edge = [dense_edge, sparse_pair % len(used_effects), midchar_edge]
    distance = distances(
        np.concatenate(source), np.concatenate(edge), edge_target, edge_function, function=function,
        accepting=accepting, inside=eos_state + 1, guard=effects.guard,
    )
    return TokenAutomaton(
        token_class=boundary.token_class,
        edge_boundary=edge_boundary,
        dense_row=boundary.dense_row,
        sparse_class=sparse_class,
        sparse_edge=sparse_edge,
        edge_midchar=edge_midchar,
        edge_target=edge_target,
        edge_function=edge_function,
        function=function,
        distance=distance.reshape(-1),
        start=transducer.start * letters.states + letters.start,
        eos_ids=eos_ids,
    )


def _numbers(tables: Sequence[np.ndarray], effects: int) -> tuple[np.ndarray, np.ndarray]:
    """The edge number of each effect, and the effects of the edges.

    These are [A] and [P]. Only effects that tokens reach are edges. 0 stays 0.
    """
    used = np.zeros(effects, dtype=bool)
    used[DEAD_EFFECT] = True
    for table in tables:
        for rows in _row_blocks(table):
            used[table[rows]] = True
    used_effects = np.flatnonzero(used)
    number = np.zeros(effects, dtype=np.int16 if len(used_effects) <= np.iinfo(np.int16).max else np.int32)
    number[used_effects] = np.arange(len(used_effects))
    return number, used_effects


def _row_blocks(table: np.ndarray) -> Iterator[slice]:
    """The rows of a table, a few at a time. Indexing by a whole table would first copy it into wide integers."""
    rows = max(1, _BLOCK_CELLS // max(1, table.shape[1]))
    return (slice(first, first + rows) for first in range(0, len(table), rows))


def _distinct(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct live edges of each row: rows and edges. Distances need each edge once."""
    live = table != DEAD_EDGE
    if np.count_nonzero(live) * _SPARSE < live.size:
        position = np.flatnonzero(live)
        # Row and edge in one integer sort together.
        width = int(table.max()) + 1
        row, edge = np.divmod(distinct(position // table.shape[1] * width + table.reshape(-1)[position]), width)
        return row, edge
    ordered = np.sort(table, axis=1)
    new = ordered != DEAD_EDGE
    new[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    row, column = np.nonzero(new)
    return row, ordered[row, column]
