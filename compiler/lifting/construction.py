"""Builds the token automaton from a byte transducer and a vocabulary.

States that differ in few tokens from the dead state or from another one are lifted one by one along the vocabulary's
trie, the others together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from compiler.automata import DEAD, NO_END, ByteTransducer, Dfa, distinct, ranks, spread, stable_order
from compiler.lifting.distances import distances
from compiler.lifting.effects import DEAD_EFFECT, IDENTITY, Effects, LetterMaps
from compiler.lifting.rows import SparseTable
from compiler.lifting.sparse_walk import SparseTokens, sparse_tokens
from compiler.lifting.token_automaton import DEAD_EDGE, TokenAutomaton, entry_rows
from compiler.lifting.trie_walk import SparseTokenClasses, TokenClasses, sparse_token_classes, token_classes
from compiler.limits import ResourceGuard
from compiler.vocab import Vocabulary

_SPARSE = 8  # in a table with less than one live entry in this many, the live entries are collected first
_BLOCK_CELLS = 1 << 17  # of a table under construction: what fits a core's cache
_ENTRIES_MAX = 48  # of a state without a row of its own, or a share of a row, if that is more
_ROW_SHARE = 32
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
    sparse = sparse_tokens(effects, transducer, vocabulary.boundary_trie, guard=guard)
    byte_class = transducer.byte_class
    trie = vocabulary.boundary_trie
    outlines = vocabulary.counted_outlines if sparse.counts_plain else vocabulary.outlines
    # Each group has a walk of its own: the digits of numbers do not cost as much as the words of strings.
    plain, wide, narrow = (
        _initial(effects, between[states]) for states in (sparse.plain, sparse.wide, sparse.narrow)
    )
    walks = _Walks(
        outlines.of_id, token_classes(effects, plain, byte_class, outlines.trie, guard=guard),
        token_classes(effects, wide, byte_class, trie, guard=guard),
        sparse_token_classes(effects, narrow, byte_class, trie, guard=guard),
    )  # fmt: skip
    boundary = _merged(walks, sparse, effects=effects.bound())
    midchar = token_classes(effects, _initial(effects, within), byte_class, vocabulary.midchar_trie, guard=guard)
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


def _initial(effects: Effects, states: np.ndarray) -> np.ndarray:
    """The effects of no bytes from some states."""
    return effects.of(states, np.full_like(states, IDENTITY))


class _Boundary(NamedTuple):
    """The edges between characters while they are still effects. B transducer states, C0 token classes.

    dense_row    int32 [B]      row of each state in `dense`, its own or that of its base; row 0 is all dead
    owner        int [D]        the state whose own each row is; the dead state owns row 0
    dense        int32 [D, C0]  effect by row and class; class 0 is dead
    state, column, effect  int [N]  the entries of states that are not those of their rows
    token_class  int32 [V]      the class of each id
    """

    dense_row: np.ndarray
    owner: np.ndarray
    dense: np.ndarray
    state: np.ndarray
    column: np.ndarray
    effect: np.ndarray
    token_class: np.ndarray


class _Walks(NamedTuple):
    """The token classes of the groups of states between characters.

    outline  int32 [V]  the outline of each id
    plain               over outlines in place of ids
    """

    outline: np.ndarray
    plain: TokenClasses
    wide: TokenClasses
    narrow: SparseTokenClasses


def _merged(walks: _Walks, sparse: SparseTokens, *, effects: int) -> _Boundary:
    """The token classes over all states. Two ids share a class where they act alike in each of them."""
    classes, token_class = _classes(walks, sparse, effects=effects)
    plain, wide = walks.plain.effects, walks.wide.effects
    narrow = _entries_of(walks.narrow.effects, classes.narrow, np.flatnonzero(sparse.narrow))
    # Narrow states are listed by entries like the sparse ones, unless they have many.
    most = max(_ENTRIES_MAX, len(classes.wide) // _ROW_SHARE)
    many = np.bincount(narrow.state, minlength=len(sparse.base)) > most
    has_many = many[narrow.state]
    parts = tuple(map(np.flatnonzero, (sparse.plain, sparse.wide, many, sparse.copied)))
    owner = np.concatenate([[DEAD], *parts])
    dense_row = np.zeros(len(sparse.base), dtype=np.int32)
    dense_row[owner] = np.arange(len(owner))
    dense = np.zeros((len(owner), len(classes.wide)), dtype=np.int32)
    at = np.cumsum([1, *map(len, parts)])
    dense[at[0] : at[1]] = plain[:, classes.plain]
    dense[at[1] : at[2]] = wide[:, classes.wide]
    dense[dense_row[narrow.state[has_many]], narrow.column[has_many]] = narrow.effect[has_many]
    dense[at[3] :] = dense[dense_row[sparse.base[parts[-1]]]]
    of_copied = sparse.copied[classes.state]
    dense[dense_row[classes.state[of_copied]], classes.column[of_copied]] = classes.effect[of_copied]
    return _Boundary(
        dense_row=np.where((sparse.base == DEAD) | sparse.copied, dense_row, dense_row[sparse.base]),
        owner=owner,
        dense=dense,
        state=np.append(classes.state[~of_copied], narrow.state[~has_many]),
        column=np.append(classes.column[~of_copied], narrow.column[~has_many]),
        effect=np.append(classes.effect[~of_copied], narrow.effect[~has_many]),
        token_class=token_class,
    )


class _NarrowEntries(NamedTuple):
    """What classes do in states, in N entries: int [N] each."""

    state: np.ndarray
    column: np.ndarray
    effect: np.ndarray


def _entries_of(effects: SparseTable, part: np.ndarray, states: np.ndarray) -> _NarrowEntries:
    """The entries of some states.

    effects  by class among those of these states alone, and by place in `states`
    part     int [C0]  the class of each class among those
    """
    classes = np.arange(len(effects.first))
    order = stable_order(part)
    first = np.searchsorted(part[order], classes)
    row = np.repeat(classes[:-1], np.diff(effects.first))
    place, count = spread(first[row], first[row + 1])
    return _NarrowEntries(np.repeat(states[effects.place], count), order[place], np.repeat(effects.effect, count))


class _Classes(NamedTuple):
    """The token classes over all states between characters. C0 classes.

    plain, wide, narrow    int [C0]  the class of each among those of these states
    state, column, effect  int [N]   the entries of the sparse states
    """

    plain: np.ndarray
    wide: np.ndarray
    narrow: np.ndarray
    state: np.ndarray
    column: np.ndarray
    effect: np.ndarray


def _classes(walks: _Walks, sparse: SparseTokens, *, effects: int) -> tuple[_Classes, np.ndarray]:
    """The classes, and the class of each id."""
    column = np.zeros(int(walks.outline.max(initial=0)) + 1, dtype=np.int32)  # by outline
    column[walks.plain.ids] = walks.plain.column
    token_class = column.take(walks.outline)
    groups = np.zeros((3, walks.plain.effects.shape[1]), dtype=np.int64)  # the class among those of each group
    groups[0] = np.arange(groups.shape[1])
    walked = (walks.wide.ids, walks.wide.column), (walks.narrow.ids, walks.narrow.column)
    for group, (ids, column) in enumerate(walked, 1):
        # Ids that live in these states get further classes, by their pair of columns.
        live, count, columns = column != 0, groups.shape[1], 1 + int(column.max(initial=0))
        ids = ids[live]
        pairs, number = ranks(token_class[ids] * np.int64(columns) + column[live], count * columns)
        token_class[ids] = count + number
        groups = np.concatenate([groups, groups[:, pairs // columns]], axis=1)
        groups[group, count:] = pairs % columns
    order = np.lexsort((sparse.source, sparse.ids))
    source, effect = sparse.source[order], sparse.effect[order]
    ids, first, counts = np.unique(sparse.ids[order], return_index=True, return_counts=True)
    # What an id does in the sparse states, as the bytes of its entries.
    entries, width = (source * effects + effect).tobytes(), source.itemsize
    classes: dict[tuple[int, bytes], int] = {}
    number = np.array([
        classes.setdefault((column, entries[width * begin : width * end]), len(classes))
        for column, begin, end in zip(token_class[ids].tolist(), first.tolist(), (first + counts).tolist(), strict=True)
    ], dtype=np.int32)  # fmt: skip
    example = np.unique(number, return_index=True)[1]  # the first id of each of these classes
    own_column = token_class[ids[example]]
    # Classes of which all ids are in `ids` go; class 0 stays.
    others = np.bincount(token_class, minlength=groups.shape[1]) - np.bincount(
        token_class[ids], minlength=groups.shape[1]
    )
    others[0] = 1
    kept = np.flatnonzero(others)
    renumbered = np.zeros(groups.shape[1], dtype=np.int32)
    renumbered[kept] = np.arange(len(kept))
    token_class = renumbered.take(token_class)
    token_class[ids] = len(kept) + number
    place, counts = spread(first[example], (first + counts)[example])
    column = np.repeat(len(kept) + np.arange(len(example)), counts)
    plain, wide, narrow = groups[:, np.concatenate([kept, own_column])]
    return _Classes(plain, wide, narrow, source[place], column, effect[place]), token_class


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
    effect = effects.of(np.where(ends, end, DEAD), end_function)
    stays = effects.of(np.array([end]), np.array([IDENTITY]))
    row, dense_column = boundary.dense_row, effect[boundary.owner]
    state = np.flatnonzero(effect != dense_column[row])
    return _Boundary(
        dense_row=np.append(row, np.int32(0)),
        owner=boundary.owner,
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
    number, used_effects = _numbers((boundary.dense, boundary.effect[:, None], midchar), effects.bound())
    edge_boundary = np.zeros(boundary.dense.shape, dtype=number.dtype)
    edge_midchar = np.zeros((len(midchar) + 1, midchar.shape[1]), dtype=number.dtype)  # its row 0 is dead
    for edges, table in ((edge_boundary, boundary.dense), (edge_midchar[1:], midchar)):
        for rows in _row_blocks(table):
            edges[rows] = number.take(table[rows])
    sparse_first, sparse_class, sparse_edge = entry_rows(
        boundary.state, boundary.column, number[boundary.effect], states=len(boundary.dense_row)
    )
    # The state after EOS moves between the two groups.
    state, eos_state = effects.state(used_effects), transducer.boundary_states
    edge_target = np.where(state == transducer.states, eos_state, state + (state >= eos_state)).astype(np.int32)
    used, edge_function = np.unique(effects.function(used_effects), return_inverse=True)
    edge_function, function = edge_function.astype(np.int32), effects.letter_maps.table(used)
    accepting = np.zeros((transducer.states + 1, letters.states), dtype=bool)
    accepting[eos_state] = letters.accepting  # only the state after EOS accepts
    place, midchar_edge = _distinct(edge_midchar)
    source, edge = _boundary_pairs(boundary, edge_boundary, number[boundary.effect])
    distance = distances(
        np.append(source, place + eos_state), np.append(edge, midchar_edge), edge_target, edge_function,
        function=function, accepting=accepting, inside=eos_state + 1, guard=effects.guard,
    )
    return TokenAutomaton(
        token_class=boundary.token_class,
        edge_boundary=edge_boundary,
        dense_row=boundary.dense_row,
        sparse_first=sparse_first,
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


def _boundary_pairs(
    boundary: _Boundary, dense_edge: np.ndarray, sparse_edge: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The states between characters, each once for each of its edges.

    Returns states and edges, int [N] each. Distances need each pair once.

    dense_edge, sparse_edge  the edges in place of the effects of `boundary`
    """
    row, edge, count = _distinct_counts(dense_edge)
    first = np.searchsorted(row, np.arange(len(dense_edge) + 1))
    place, pairs = spread(first[boundary.dense_row], first[boundary.dense_row + 1])
    states, edges = len(pairs), int(max(dense_edge.max(), sparse_edge.max(initial=0))) + 1
    keys = np.repeat(np.arange(states) * edges, pairs) + edge[place]
    # A state has not the edges of its row of which it replaces every class.
    replaced = boundary.state * edges + dense_edge[boundary.dense_row[boundary.state], boundary.column]
    replaced, times = np.unique(replaced[replaced % edges != DEAD_EDGE], return_counts=True)
    at = np.searchsorted(keys, replaced)
    kept = np.ones(len(keys), dtype=bool)
    kept[at[count[place[at]] == times]] = False
    entries = distinct((boundary.state * edges + sparse_edge)[sparse_edge != DEAD_EDGE])
    return np.divmod(np.concatenate([keys[kept], entries]), edges)


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
    """The distinct live edges of each row: rows and edges, ascending. Distances need each edge once."""
    return _distinct_counts(table)[:2]


def _distinct_counts(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same, and how many classes lead along each."""
    live = table != DEAD_EDGE
    if np.count_nonzero(live) * _SPARSE < live.size:
        position = np.flatnonzero(live)
        # Row and edge in one integer sort together.
        width = int(table.max()) + 1
        ordered = np.sort(position // table.shape[1] * width + table.reshape(-1)[position])
        first = np.flatnonzero(np.diff(ordered, prepend=-1))
        row, edge = np.divmod(ordered[first], width)
        return row, edge, np.diff(first, append=len(ordered))
    ordered = np.sort(table, axis=1)
    new = ordered != DEAD_EDGE
    new[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    row, column = np.nonzero(new)
    # A run ends where the next one begins, or with its row.
    first = row * table.shape[1] + column
    end = np.minimum(np.append(first[1:], table.size), (row + 1) * table.shape[1])
    return row, ordered[row, column], end - first
