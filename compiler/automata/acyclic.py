"""The minimal automata of finite sets of words and texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise

import numpy as np

from compiler.automata.characters import CharDfa, minterms, single
from compiler.automata.dfa import Dfa, canonical
from compiler.automata.interning import stable_order
from compiler.limits import ResourceGuard

_DEAD = 0
_END = -1  # the symbol at the end of each word
_TARGET_BITS = 32  # of an edge's number
_ENTRY_BYTES = 4  # of an int32


def words_dfa(
    words: Iterable[Iterable[int]], symbols: int, guard: ResourceGuard, *, counts_states: bool = False
) -> Dfa:
    """The minimal complete DFA of exactly these words, in canonical form.

    symbols        how many symbols there are: 0 .. symbols - 1
    counts_states  whether `dfa_states_max` applies; else the words alone bound the number of states
    Built from the sorted words without their trie, so memory grows with the result alone (Daciuk et al. 2000,
    "Incremental construction of minimal acyclic finite-state automata", algorithm 1).
    Raises LimitExceeded over `table_bytes_max`, `compile_s_max` or `dfa_states_max`.

    >>> from compiler.limits import Limits
    >>> tapes = words_dfa([(0, 1, 2), (3, 1, 2)], 4, ResourceGuard(Limits()))  # both share their end
    >>> tapes.states, tapes.accepts((3, 1, 2)), tapes.accepts((3, 1))
    (5, True, False)
    """
    # A finished state is known by its edges: one number, or a tuple of several. States are numbered from 1.
    numbers: dict[int | tuple[int, ...], int] = {}
    # A word ends with a symbol of its own, which leads nowhere: so no word begins with another.
    ordered = sorted({(*word, _END) for word in words})
    # Of each prefix that the last word shares with another one: its edges to finished states.
    path: list[list[int]] = [[]]
    for last, word in pairwise([*ordered, ()]):
        shared = next((i for i, pair in enumerate(zip(last, word, strict=False)) if pair[0] != pair[1]), 0)
        path += [[] for _ in range(len(path), shared + 1)]
        # What only the last word has is a chain. Most states are in chains, and no list is built for them.
        branch, state = len(path) - 1, _DEAD
        for symbol in last[:branch:-1]:
            state = numbers.setdefault(_edge(symbol, state), len(numbers) + 1)
        path[branch].append(_edge(last[branch], state))
        while len(path) > shared + 1:
            edges = path.pop()
            state = numbers.setdefault(tuple(edges) if len(edges) > 1 else edges[0], len(numbers) + 1)
            path[-1].append(_edge(last[len(path) - 1], state))
        guard.check_time()
        guard.check("table_bytes_max", len(numbers) * _ENTRY_BYTES)
        if counts_states:
            guard.check("dfa_states_max", len(numbers))
    return canonical(_table([*numbers, tuple(path[0])], symbols, guard))


def _edge(symbol: int, target: int) -> int:
    """An edge as one number."""
    return (symbol + 1) << _TARGET_BITS | target


def texts_dfa(texts: Sequence[str], guard: ResourceGuard) -> CharDfa:
    """The minimal DFA of exactly these texts. Raises as `words_dfa`.

    >>> from compiler.limits import Limits
    >>> texts_dfa(["yes", "no"], ResourceGuard(Limits())).accepts("no")
    True
    """
    characters = "".join(sorted(set().union(*texts)))
    alphabet = minterms([single(ord(char)) for char in characters])
    symbol = dict(zip(characters, alphabet.word(characters), strict=True))
    return CharDfa(words_dfa((map(symbol.__getitem__, text) for text in texts), alphabet.count, guard), alphabet)


def _table(rows: list[int | tuple[int, ...]], symbols: int, guard: ResourceGuard) -> Dfa:
    """The DFA of states 1, 2, .. given by their edges. The last one is the start.

    Without words the start has no edge either, and is the dead state.
    """
    edges = np.fromiter(chain.from_iterable((row,) if isinstance(row, int) else row for row in rows), dtype=np.int64)
    counts = [1 if isinstance(row, int) else len(row) for row in rows]
    state, symbol = np.repeat(np.arange(1, 1 + len(rows)), counts), (edges >> _TARGET_BITS) - 1
    ends, accepting = symbol == _END, np.zeros(1 + len(rows), dtype=bool)
    accepting[state[ends]] = True
    state, symbol, target = state[~ends], symbol[~ends], edges[~ends] & ((1 << _TARGET_BITS) - 1)
    # Symbols with the same edges share a column. Those that no word has read column 0, which is dead.
    order = stable_order(symbol)
    used, lengths = np.unique(symbol, return_counts=True)
    symbol_class, columns, begin = np.zeros(symbols, dtype=np.int32), dict[bytes, int](), 0
    for each, count in zip(used.tolist(), lengths.tolist(), strict=True):
        alike = order[begin : begin + count]
        content = np.append(state[alike], target[alike]).tobytes()
        symbol_class[each], begin = columns.setdefault(content, 1 + len(columns)), begin + count
    guard.check("table_bytes_max", (1 + len(rows)) * (1 + len(columns)) * _ENTRY_BYTES)
    next_state = np.full((1 + len(rows), 1 + len(columns)), _DEAD, dtype=np.int32)
    next_state[state, symbol_class[symbol]] = target
    return Dfa(symbol_class, next_state, accepting, len(rows) if edges.size else _DEAD)
