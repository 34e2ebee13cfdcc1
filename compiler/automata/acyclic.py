"""The minimal automata of finite sets of words and texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from compiler.automata.characters import CharDfa, minterms, single
from compiler.automata.dfa import Dfa, canonical
from compiler.automata.interning import unique_rows
from compiler.limits import ResourceGuard

_DEAD = 0
_ENTRY_BYTES = 4  # of an int32


def words_dfa(words: Iterable[Sequence[int]], symbols: int, guard: ResourceGuard) -> Dfa:
    """The minimal complete DFA of exactly these words, in canonical form.

    symbols  how many symbols there are: 0 .. symbols - 1
    Built from the sorted words without their trie, so memory grows with the result alone (Daciuk et al. 2000,
    "Incremental construction of minimal acyclic finite-state automata", algorithm 1).
    The words bound the number of states, so `dfa_states_max` does not apply.
    Raises LimitExceeded over `table_bytes_max` or `compile_s_max`.

    >>> from compiler.limits import Limits
    >>> tapes = words_dfa([(0, 1, 2), (3, 1, 2)], 4, ResourceGuard(Limits()))  # both share their end
    >>> tapes.states, tapes.accepts((3, 1, 2)), tapes.accepts((3, 1))
    (5, True, False)
    """
    # A finished state is known by whether a word ends there and its edges (symbol, state).
    numbers: dict[tuple[bool, tuple[tuple[int, int], ...]], int] = {}
    # Of each prefix of the last word: whether a word ends there, and the edges to finished states.
    path: list[tuple[bool, list[tuple[int, int]]]] = [(False, [])]
    last: Sequence[int] = ()

    def finish(length: int) -> None:
        """Numbers the states of the last word's prefixes beyond `length`."""
        while len(path) > length + 1:
            ends, edges = path.pop()
            number = numbers.setdefault((ends, tuple(edges)), 1 + len(numbers))
            path[-1][1].append((last[len(path) - 1], number))

    for word in sorted(set(map(tuple, words))):
        shared = next((i for i, pair in enumerate(zip(last, word, strict=False)) if pair[0] != pair[1]), len(last))
        finish(shared)
        path += [(False, []) for _ in word[shared:]]
        path[-1] = (True, path[-1][1])
        last = word
        guard.check_time()
        guard.check("table_bytes_max", (len(numbers) + len(path)) * _ENTRY_BYTES)
    finish(0)
    return canonical(_table([*numbers, (path[0][0], tuple(path[0][1]))], symbols, guard))


def texts_dfa(texts: Sequence[str], guard: ResourceGuard) -> CharDfa:
    """The minimal DFA of exactly these texts. Raises as `words_dfa`.

    >>> from compiler.limits import Limits
    >>> texts_dfa(["yes", "no"], ResourceGuard(Limits())).accepts("no")
    True
    """
    characters = "".join(sorted(set().union(*texts)))
    alphabet = minterms([single(ord(char)) for char in characters])
    symbol = dict(zip(characters, alphabet.word(characters), strict=True))
    return CharDfa(words_dfa(([symbol[char] for char in text] for text in texts), alphabet.count, guard), alphabet)


def _table(rows: list[tuple[bool, tuple[tuple[int, int], ...]]], symbols: int, guard: ResourceGuard) -> Dfa:
    """The DFA of states 1, 2, .. given by their edges. The last one is the start.

    Without words the start has no edge either, and is the dead state.
    """
    edges = np.array(
        [(state, *edge) for state, (_, edges) in enumerate(rows, 1) for edge in edges], dtype=np.int32
    ).reshape(-1, 3)
    # Symbols that no word has share column 0, which leads to the dead state.
    used = np.unique(edges[:, 1])
    symbol_class = np.zeros(symbols, dtype=np.int32)
    symbol_class[used] = 1 + np.arange(len(used))
    guard.check("table_bytes_max", (1 + len(rows)) * (1 + len(used)) * _ENTRY_BYTES)
    next_state = np.full((1 + len(rows), 1 + len(used)), _DEAD, dtype=np.int32)
    next_state[edges[:, 0], symbol_class[edges[:, 1]]] = edges[:, 2]
    accepting = np.array([False, *(ends for ends, _ in rows)])
    first, merged = unique_rows(next_state.T)
    start = len(rows) if accepting.any() else _DEAD
    return Dfa(merged[symbol_class].astype(np.int32), next_state[:, first], accepting, start)
