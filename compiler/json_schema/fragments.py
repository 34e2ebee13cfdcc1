"""Small automata to build larger ones from: tables over one alphabet, state 0 dead, state 1 the start.

Owns their Boolean operations. An absent block (None) is the empty language. Knows nothing of JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from compiler.automata import Dfa, minimize, steps_to, unique_rows
from compiler.limits import ResourceGuard

DEAD, START = 0, 1
_ENTRY_BYTES = 4  # of an int32


@dataclass(frozen=True, slots=True, eq=False)
class Fragment:
    """A deterministic automaton. S states, K columns, M symbols.

    columns  int32 [M]: the column that each symbol reads
    table    int32 [S, K]; row DEAD is all DEAD
    label    int32 [S]: 0 where no text ends; where one may, anything else, which tells kinds of texts apart
    """

    columns: np.ndarray
    table: np.ndarray
    label: np.ndarray

    def __post_init__(self) -> None:
        if self.table.ndim != 2 or self.label.shape != self.table.shape[:1] or len(self.label) <= START:
            raise ValueError("table is [S, K] and label is [S], with a dead state and a start")
        if self.table[DEAD].any() or self.label[DEAD]:
            raise ValueError("state 0 is dead")

    @property
    def states(self) -> int:
        return len(self.label)

    @property
    def wide(self) -> np.ndarray:
        """The table with one column for each symbol: int32 [S, M]."""
        return np.asarray(self.table[:, self.columns])

    def run(self, word: Sequence[int]) -> int:
        """The label after a word from the start."""
        state = START
        for symbol in word:
            state = int(self.table[state, self.columns[symbol]])
        return int(self.label[state])


def narrowed(table: np.ndarray, label: np.ndarray) -> Fragment:
    """The block of a table with one column for each symbol."""
    first, which = unique_rows(table.T)
    return Fragment(which.astype(np.int32), table[:, first], label)


def dfa_of(block: Fragment, guard: ResourceGuard) -> Dfa:
    """The minimal complete DFA of a block, over the same symbols."""
    return minimize(Dfa(block.columns, block.table, block.label != 0, START), guard)


def block_of(dfa: Dfa) -> Fragment | None:
    """The block of a DFA, all its dead states one; None where the language is empty."""
    live = steps_to(dfa.next_state, dfa.accepting) < dfa.states
    if not live[dfa.start]:
        return None
    order = np.flatnonzero(live)
    order = np.concatenate([[dfa.start], order[order != dfa.start]])
    number = np.zeros(dfa.states, dtype=np.int32)
    number[order] = np.arange(START, START + len(order))
    rows = np.zeros((START + len(order), dfa.next_state.shape[1]), dtype=np.int32)
    rows[START:] = number[dfa.next_state[order]]
    label = np.zeros(len(rows), dtype=np.int32)
    label[START:] = dfa.accepting[order]
    return Fragment(dfa.symbol_class, rows, label)


def trimmed(block: Fragment) -> Fragment | None:
    """The same without the states that lead nowhere; labels become 1."""
    return block_of(Dfa(block.columns, block.table, block.label != 0, START))


def minimal(block: Fragment, guard: ResourceGuard) -> Fragment | None:
    """The same language with the fewest states; labels become 1."""
    return block_of(dfa_of(block, guard))


def trie(words: Sequence[Sequence[int]], width: int, guard: ResourceGuard) -> Fragment | None:
    """Exactly these words; None without any. Raises LimitExceeded over `dfa_states_max` or `table_bytes_max`."""
    rows: list[dict[int, int]] = [{}, {}]
    ends = set()
    for word in words:
        at = START
        for symbol in word:
            if symbol not in rows[at]:
                rows[at][symbol] = len(rows)
                rows.append({})
            at = rows[at][symbol]
        ends.add(at)
        guard.check_time()
        guard.check("dfa_states_max", len(rows))
    used = sorted({symbol for row in rows for symbol in row})
    columns = np.zeros(width, dtype=np.int32)  # column 0 is of the symbols that no word has
    columns[used] = 1 + np.arange(len(used))
    guard.check("table_bytes_max", len(rows) * (1 + len(used)) * _ENTRY_BYTES)
    table = np.zeros((len(rows), 1 + len(used)), dtype=np.int32)
    for state, row in enumerate(rows):
        table[state, columns[list(row)]] = list(row.values())
    label = np.zeros(len(rows), dtype=np.int32)
    label[sorted(ends)] = 1
    return Fragment(columns, table, label) if ends else None


def combined(
    left: Fragment | None, right: Fragment | None, how: Literal["and", "or", "less"], guard: ResourceGuard
) -> Fragment | None:
    """The texts in both, in either, or in `left` alone; minimal. Raises LimitExceeded over `dfa_states_max`."""
    if left is None or right is None:
        return None if how == "and" else left or (right if how == "or" else None)
    if left is right:
        return None if how == "less" else left
    whole = joined([left, right], guard, _NEEDED[how])
    ends = whole.states[:, 0], whole.states[:, 1]
    first, second = left.label[ends[0]] != 0, right.label[ends[1]] != 0
    accepting = {"and": first & second, "or": first | second, "less": first & ~second}[how]
    return block_of(minimize(Dfa(whole.symbol_class, whole.table, accepting, START), guard))


_NEEDED = {"and": (True, True), "or": (False, False), "less": (True, False)}


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """Several blocks read side by side. S states, B blocks, K columns, M symbols.

    symbol_class  int32 [M], table int32 [S, K] as in a Dfa, with the states DEAD and START
    states        int64 [S, B]: the state of each block
    """

    symbol_class: np.ndarray
    table: np.ndarray
    states: np.ndarray


def joined(blocks: Sequence[Fragment], guard: ResourceGuard, needed: Sequence[bool]) -> Joined:
    """The reachable tuples of states; where a needed block is dead all are, and so where every one is.

    Raises LimitExceeded over `dfa_states_max` or `table_bytes_max`.
    """
    first, symbol_class = unique_rows(np.column_stack([block.columns for block in blocks]))
    tables = [block.table[:, block.columns[first]].astype(np.int64) for block in blocks]
    dead = (DEAD,) * len(blocks)
    start = (START,) * len(blocks)
    index = {dead: DEAD, start: START}
    order, rows = [dead, start], [np.zeros((1, len(first)), dtype=np.int64)]
    frontier = np.array([start], dtype=np.int64)
    while len(frontier):
        targets = np.stack([table[frontier[:, which]] for which, table in enumerate(tables)], axis=2)
        for which, must in enumerate(needed):
            if must:
                targets[targets[:, :, which] == DEAD] = DEAD
        flat = targets.reshape(-1, len(blocks))
        places, inverse = unique_rows(flat)
        number = np.empty(len(places), dtype=np.int64)
        found = []
        for position, state in enumerate(map(tuple, flat[places].tolist())):
            if state not in index:
                index[state] = len(index)
                order.append(state)
                found.append(state)
            number[position] = index[state]
        rows.append(number[inverse].reshape(targets.shape[:2]))
        frontier = np.array(found, dtype=np.int64).reshape(-1, len(blocks))
        guard.check_time()
        guard.check("dfa_states_max", len(index))
        guard.check("table_bytes_max", len(index) * len(first) * _ENTRY_BYTES)
    return Joined(symbol_class.astype(np.int32), np.concatenate(rows).astype(np.int32), np.array(order, dtype=np.int64))


def classified(base: Fragment | None, tests: Sequence[Fragment | None], guard: ResourceGuard) -> Fragment | None:
    """The texts of `base`, labelled 1 + the bit set of the tests that accept them too; all of `base` is needed."""
    if base is None:
        return None
    real = [test for test in tests if test is not None]
    if not real:
        return Fragment(base.columns, base.table, (base.label != 0).astype(np.int32))
    whole = joined([base, *real], guard, (True, *(False for _ in real)))
    bits = np.zeros(len(whole.states), dtype=np.int32)
    column = 1
    for bit, test in enumerate(tests):
        if test is not None:
            bits |= (test.label[whole.states[:, column]] != 0).astype(np.int32) << bit
            column += 1
    accepted = base.label[whole.states[:, 0]] != 0
    return Fragment(whole.symbol_class, whole.table, np.where(accepted, 1 + bits, 0).astype(np.int32))
