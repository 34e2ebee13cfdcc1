"""DFA fragments over one alphabet, and their Boolean operations. State 0 is dead, state 1 is the start.

An absent fragment (None) is the empty language. Nothing here knows JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from compiler.automata import SINK, Dfa, explore, minimize, steps_to, unique_rows
from compiler.limits import ResourceGuard

DEAD, START = 0, 1
ENTRY_BYTES = 4  # of an int32
Operation = Literal["and", "or", "less"]


@dataclass(frozen=True, slots=True, eq=False)
class Fragment:
    """A deterministic automaton with labelled acceptance. S states, K columns, M symbols.

    columns  int32 [M]: the column that each symbol reads
    table    int32 [S, K]: the successor of each state; row DEAD is all DEAD
    label    int32 [S]: 0 where no text ends; any other number tells kinds of accepted texts apart

    Fragments are compared and hashed by identity, so one can be the key of a dictionary.

    >>> table = np.array([[0, 0], [0, 2], [0, 0]])
    >>> exactly_b = Fragment(columns=np.array([0, 1]), table=table, label=np.array([0, 0, 7]))
    >>> exactly_b.run([1]), exactly_b.run([0])
    (7, 0)
    """

    columns: np.ndarray
    table: np.ndarray
    label: np.ndarray

    def __post_init__(self) -> None:
        # Later code indexes without checks, and relies on these invariants.
        if self.table.ndim != 2 or self.label.shape != self.table.shape[:1] or len(self.label) <= START:
            raise ValueError("table is [S, K] and label is [S], with a dead state and a start")
        if self.table[DEAD].any() or self.label[DEAD]:
            raise ValueError("state 0 is dead")

    @property
    def states(self) -> int:
        return len(self.label)

    @property
    def full_table(self) -> np.ndarray:
        """The table with one column for each symbol: int32 [S, M]."""
        return np.asarray(self.table[:, self.columns])

    def run(self, word: Sequence[int]) -> int:
        """The label after a word from the start."""
        state = START
        for symbol in word:
            state = int(self.table[state, self.columns[symbol]])
        return int(self.label[state])


def compressed(full_table: np.ndarray, label: np.ndarray) -> Fragment:
    """The fragment of a table [S, M]: symbols with equal columns share one."""
    first, columns = unique_rows(full_table.T)
    return Fragment(columns.astype(np.int32), full_table[:, first], label)


def dfa_of(fragment: Fragment, guard: ResourceGuard) -> Dfa:
    """The minimal complete DFA of a fragment, over the same symbols."""
    return minimize(Dfa(fragment.columns, fragment.table, fragment.label != 0, START), guard)


def fragment_of(dfa: Dfa) -> Fragment | None:
    """The fragment of a DFA; None where the language is empty. The label of accepted texts is 1."""
    # All states from which nothing is accepted become DEAD; the others keep their order, behind the start.
    live = steps_to(dfa.next_state, dfa.accepting) < dfa.states
    if not live[dfa.start]:
        return None
    order = np.flatnonzero(live)
    order = np.concatenate([[dfa.start], order[order != dfa.start]])
    number = np.zeros(dfa.states, dtype=np.int32)  # [states of the DFA] -> state of the fragment
    number[order] = np.arange(START, START + len(order))
    table = np.zeros((START + len(order), dfa.next_state.shape[1]), dtype=np.int32)
    table[START:] = number[dfa.next_state[order]]
    label = np.zeros(len(table), dtype=np.int32)
    label[START:] = dfa.accepting[order]
    return Fragment(dfa.symbol_class, table, label)


def trim(fragment: Fragment) -> Fragment | None:
    """The same language without states from which nothing is accepted; labels become 1."""
    return fragment_of(Dfa(fragment.columns, fragment.table, fragment.label != 0, START))


def minimal_fragment(fragment: Fragment, guard: ResourceGuard) -> Fragment | None:
    """The same language with the fewest states; labels become 1."""
    return fragment_of(dfa_of(fragment, guard))


def trie(words: Sequence[Sequence[int]], width: int, guard: ResourceGuard) -> Fragment | None:
    """Exactly these words over `width` symbols; None without any.

    Raises LimitExceeded over `dfa_states_max` or `table_bytes_max`.
    """
    children: list[dict[int, int]] = [{}, {}]  # of each state; those of DEAD stay empty
    ends = set()
    for word in words:
        state = START
        for symbol in word:
            if symbol not in children[state]:
                children[state][symbol] = len(children)
                children.append({})
            state = children[state][symbol]
        ends.add(state)
        guard.check_time()
        guard.check("dfa_states_max", len(children))
    # A schema's alphabet has at least 128 symbols, of which a word has few.
    used = sorted({symbol for successors in children for symbol in successors})
    # A column for each symbol that occurs. Column 0, all DEAD, is shared by the symbols that no word has.
    columns = np.zeros(width, dtype=np.int32)
    columns[used] = 1 + np.arange(len(used))
    guard.check("table_bytes_max", len(children) * (1 + len(used)) * ENTRY_BYTES)
    table = np.zeros((len(children), 1 + len(used)), dtype=np.int32)
    for state, successors in enumerate(children):
        table[state, columns[list(successors)]] = list(successors.values())
    label = np.zeros(len(children), dtype=np.int32)
    label[sorted(ends)] = 1
    return Fragment(columns, table, label) if ends else None


def combine(
    left: Fragment | None, right: Fragment | None, operation: Operation, guard: ResourceGuard
) -> Fragment | None:
    """The texts in both, in either, or in `left` alone; minimal. Raises LimitExceeded over `dfa_states_max`."""
    # The empty language and equal operands need no product.
    if left is None or right is None:
        return None if operation == "and" else left or (right if operation == "or" else None)
    if left is right:
        return None if operation == "less" else left
    pairs = product([left, right], guard, _REQUIRED[operation])
    first, second = left.label[pairs.states[:, 0]] != 0, right.label[pairs.states[:, 1]] != 0
    accepting = {"and": first & second, "or": first | second, "less": first & ~second}[operation]
    return fragment_of(minimize(Dfa(pairs.symbol_class, pairs.table, accepting, START), guard))


# Whether the result is empty once the left or the right operand is dead.
_REQUIRED = {"and": (True, True), "or": (False, False), "less": (True, False)}


@dataclass(frozen=True, slots=True, eq=False)
class FragmentProduct:
    """Fragments that read the same text side by side. S states, F fragments, K columns, M symbols.

    symbol_class  int32 [M], table int32 [S, K]: as in a Dfa, with the states DEAD and START
    states        int32 [S, F]: the state of each fragment in each state of the product
    """

    symbol_class: np.ndarray
    table: np.ndarray
    states: np.ndarray


def product(fragments: Sequence[Fragment], guard: ResourceGuard, required: Sequence[bool]) -> FragmentProduct:
    """The reachable tuples of states, breadth first.

    required  for each fragment, whether the product is dead where that fragment is; it is where all are, too
    Raises LimitExceeded over `dfa_states_max` or `table_bytes_max`.
    """
    # Symbols that every fragment treats alike share a column of the product.
    first, symbol_class = unique_rows(np.column_stack([fragment.columns for fragment in fragments]))
    tables = [fragment.table[:, fragment.columns[first]] for fragment in fragments]
    # Where a required fragment is dead, or all are, the product goes to SINK, which is DEAD here. START comes next.
    live = [
        np.arange(fragment.states) != DEAD if must else np.ones(fragment.states, dtype=bool)
        for fragment, must in zip(fragments, required, strict=True)
    ]
    explored = explore(tables, live, [[START] * len(fragments)], guard, dead=[DEAD] * len(fragments))
    explored.component[SINK] = DEAD
    return FragmentProduct(symbol_class.astype(np.int32), explored.next_state, explored.component)


def label_by(base: Fragment | None, tests: Sequence[Fragment | None], guard: ResourceGuard) -> Fragment | None:
    """The texts of `base`, labelled by the tests that accept them: 1 + the sum of 2 ** i over accepting tests i."""
    if base is None:
        return None
    # An absent test accepts nothing, so its bit is never set.
    present = [(bit, test) for bit, test in enumerate(tests) if test is not None]
    if not present:
        return Fragment(base.columns, base.table, (base.label != 0).astype(np.int32))
    # A dead test still leaves the text to the others: only `base` is required.
    tuples = product([base, *(test for _, test in present)], guard, (True, *(False for _ in present)))
    bits = np.zeros(len(tuples.states), dtype=np.int32)
    for column, (bit, test) in enumerate(present, 1):
        bits |= (test.label[tuples.states[:, column]] != 0).astype(np.int32) << bit
    accepted = base.label[tuples.states[:, 0]] != 0
    return Fragment(tuples.symbol_class, tuples.table, np.where(accepted, 1 + bits, 0).astype(np.int32))
