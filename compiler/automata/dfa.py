"""Complete deterministic finite automata over symbols 0..A-1: letters, classes of characters, bytes.

Owns the type, minimization and the Boolean operations. Knows nothing of formulas, patterns or tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from compiler.automata.interning import unique_rows
from compiler.automata.minimization import UNREACHABLE, refine, steps_to
from compiler.limits import ResourceGuard


@dataclass(frozen=True, slots=True, eq=False)
class Dfa:
    """A complete DFA. A symbols, K columns, S states.

    symbol_class  int32 [A]     the column each symbol reads; symbols that act alike may share one
    next_state    int32 [S, K]  row: state, column: symbol class
    accepting     bool  [S]
    start         the state before the first symbol

    Raises ValueError where an index is out of range or a shape is off.

    >>> even = Dfa(np.array([0]), np.array([[1], [0]]), np.array([True, False]))  # words of even length over one symbol
    >>> even.accepts([0, 0]), even.accepts([0])
    (True, False)
    """

    symbol_class: np.ndarray
    next_state: np.ndarray
    accepting: np.ndarray
    start: int = 0

    def __post_init__(self) -> None:
        if self.next_state.ndim != 2 or self.accepting.shape != self.next_state.shape[:1]:
            raise ValueError("next_state is [S, K] and accepting is [S]")
        if self.symbol_class.ndim != 1 or self.accepting.dtype != np.bool_:
            raise ValueError("symbol_class is int [A] and accepting is bool [S]")
        states, columns = self.next_state.shape
        if not 0 <= self.start < states:
            raise ValueError("start names a state that does not exist")
        if self.next_state.size and not (self.next_state.min() >= 0 and self.next_state.max() < states):
            raise ValueError("next_state names a state that does not exist")
        if self.symbol_class.size and not (self.symbol_class.min() >= 0 and self.symbol_class.max() < columns):
            raise ValueError("symbol_class names a column that does not exist")

    @property
    def states(self) -> int:
        return len(self.accepting)

    @property
    def symbols(self) -> int:
        return len(self.symbol_class)

    def step(self, state: int, symbol: int) -> int:
        return int(self.next_state[state, self.symbol_class[symbol]])

    def run(self, symbols: Iterable[int], state: int | None = None) -> int:
        """The state after reading `symbols` from `state` (default: the start)."""
        at = self.start if state is None else state
        for symbol in symbols:
            at = self.step(at, symbol)
        return at

    def moves(self, symbols: Iterable[int]) -> np.ndarray:
        """The state after reading `symbols`, from each state: int32 [S]."""
        states = np.arange(self.states, dtype=np.int32)
        # The word is applied to all states at once.
        for symbol in symbols:
            states = self.next_state[states, self.symbol_class[symbol]]
        return states

    def accepts(self, symbols: Iterable[int]) -> bool:
        return bool(self.accepting[self.run(symbols)])


def live_states(dfa: Dfa) -> np.ndarray:
    """bool [S]: the states from which some word is accepted."""
    return np.asarray(steps_to(_columns_read(dfa)[0], dfa.accepting) != UNREACHABLE)


def _columns_read(dfa: Dfa) -> tuple[np.ndarray, np.ndarray]:
    """The columns that symbols read, and each symbol's column among them.

    A column comes at the first symbol that reads it.
    """
    # A column that no symbol reads leads nowhere for a word; it must not make a state look alive or a state distinct.
    first, symbol_class = unique_rows(dfa.symbol_class.reshape(-1, 1))
    return dfa.next_state[:, dfa.symbol_class[first]], symbol_class


def is_empty(dfa: Dfa) -> bool:
    """True when the DFA accepts no word at all."""
    return not bool(live_states(dfa)[dfa.start])


def _breadth_first(next_state: np.ndarray, start: int) -> np.ndarray:
    """The reachable states from `start`, in breadth-first order, columns left to right."""
    seen = np.zeros(len(next_state), dtype=bool)
    seen[start] = True
    level = np.array([start], dtype=np.int64)
    order = [level]
    # A level at a time; its states are in the order in which they are met, which is canonical.
    while level.size:
        targets = next_state[level].reshape(-1)
        level = np.array(list(dict.fromkeys(targets[~seen[targets]].tolist())), dtype=np.int64)
        seen[level] = True
        order.append(level)
    return np.concatenate(order)


def minimize(dfa: Dfa, guard: ResourceGuard | None = None) -> Dfa:
    """The minimal complete DFA of the same language, in canonical form. Raises LimitExceeded over `compile_s_max`.

    Equal columns are merged and numbered by their first symbol, states are numbered breadth-first,
    so two DFAs over the same symbols have equal languages exactly when their arrays are equal.

    >>> ring = Dfa(np.array([0]), np.array([[1], [2], [3], [0]]), np.array([True, False, True, False]))
    >>> minimize(ring).next_state.tolist()  # counting to four in order to count to two
    [[1], [0]]
    """
    # Unreachable states go first: they would be refined for nothing, and could keep their own blocks.
    dfa = canonical(dfa)
    # blocks numbered by their first states, which a breadth-first search of the blocks would meet in the same order
    first, block = unique_rows(refine(dfa.next_state, dfa.accepting.astype(np.int64), guard).reshape(-1, 1))
    table = block[dfa.next_state[first]]
    # Symbols that all states treat alike share a column.
    column, merged = unique_rows(table.T)
    return Dfa(merged[dfa.symbol_class].astype(np.int32), table[:, column].astype(np.int32), dfa.accepting[first], 0)


def canonical(dfa: Dfa) -> Dfa:
    """The same DFA without unreachable states and unread columns.

    Both are numbered as they are met.
    """
    columns_read, symbol_class = _columns_read(dfa)
    keep = _breadth_first(columns_read, dfa.start)
    index = np.zeros(dfa.states, dtype=np.int32)
    index[keep] = np.arange(len(keep))
    return Dfa(symbol_class.astype(np.int32), index[columns_read[keep]], dfa.accepting[keep], 0)


def complement(dfa: Dfa) -> Dfa:
    """The DFA of exactly the words that `dfa` rejects."""
    return Dfa(dfa.symbol_class, dfa.next_state, ~dfa.accepting, dfa.start)
