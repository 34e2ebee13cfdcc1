"""Automata of JSON values, which are assembled into larger ones. This module knows no schema.

In each fragment, state 0 is dead and state 1 is the start. An absent fragment (None) is the empty language.

A fragment is put at a state, and where a text of it ends, the automaton goes on as from another state. The result is
deterministic as long as no text of a fragment goes on with a character that may follow it. JSON has this property: a
number is followed by a comma or a bracket, and a string, array or object ends with its own delimiter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from compiler.automata import SINK, UNREACHABLE, Dfa, explore, minimize, steps_to, unique_rows
from compiler.limits import ResourceGuard

DEAD, START = 0, 1
ENTRY_BYTES = 4  # of an int32
Operation = Literal["and", "or", "less"]
_SMALL = 512  # states up to which equal columns cost less than to find them
QUOTE, BACKSLASH = ord('"'), ord("\\")
_ESCAPED = (*range(32), QUOTE, BACKSLASH)
ESCAPES = {json.dumps(chr(code))[2:-1]: code for code in _ESCAPED}  # what follows the backslash: "n", "u001f", ...


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
        whole = self.table.shape[1] == len(self.columns) and bool((self.columns == _symbols(len(self.columns))).all())
        return self.table if whole else np.asarray(self.table[:, self.columns])

    def run(self, word: Sequence[int]) -> int:
        """The label after a word from the start."""
        state = START
        for symbol in word:
            state = int(self.table[state, self.columns[symbol]])
        return int(self.label[state])


@lru_cache(maxsize=64)
def _symbols(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int32)


def compressed(full_table: np.ndarray, label: np.ndarray) -> Fragment:
    """The fragment of a table [S, M]. Symbols with equal columns share one, if the table is large."""
    if len(full_table) <= _SMALL:
        return Fragment(_symbols(full_table.shape[1]), full_table, label)
    first, columns = unique_rows(full_table.T)
    return Fragment(columns.astype(np.int32), full_table[:, first], label)


def dfa_of(fragment: Fragment, guard: ResourceGuard) -> Dfa:
    """The minimal complete DFA of a fragment, over the same symbols."""
    first, columns = unique_rows(fragment.table.T)
    columns = columns[fragment.columns].astype(np.int32)
    return minimize(Dfa(columns, fragment.table[:, first], fragment.label != 0, START), guard)


def fragment_of(dfa: Dfa) -> Fragment | None:
    """The fragment of a DFA; None where the language is empty. The label of accepted texts is 1."""
    # All states from which nothing is accepted become DEAD; the others keep their order, behind the start.
    live = steps_to(dfa.next_state, dfa.accepting) != UNREACHABLE
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
    """Remove the states from which no text is accepted. The language is unchanged, and labels become 1."""
    return fragment_of(Dfa(fragment.columns, fragment.table, fragment.label != 0, START))


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


def part_by(
    base: Fragment | None, tests: Sequence[Fragment | None], guard: ResourceGuard
) -> tuple[Fragment | None, list[int]]:
    """The texts of `base`, labelled by the tests that accept them.

    Also the tests of each label: those of label 1 + i are the bits of the i-th number.
    """
    if base is None:
        return None, []
    # An absent test accepts nothing, so its bit is never set.
    present = [(bit, test) for bit, test in enumerate(tests) if test is not None]
    if not present:
        return Fragment(base.columns, base.table, (base.label != 0).astype(np.int32)), [0]
    # A dead test still leaves the text to the others: only `base` is required.
    tuples = product([base, *(test for _, test in present)], guard, (True, *(False for _ in present)))
    accepts = [test.label[states] != 0 for (_, test), states in zip(present, tuples.states.T[1:], strict=True)]
    accepted = base.label[tuples.states[:, 0]] != 0
    first, kind = unique_rows(np.column_stack(accepts))
    masks = [sum(1 << bit for (bit, _), holds in zip(present, accepts, strict=True) if holds[state]) for state in first]
    return Fragment(tuples.symbol_class, tuples.table, np.where(accepted, 1 + kind, 0).astype(np.int32)), masks


Whitespace = Literal["compact", "spaced", "pretty", "flexible", "any"]
_FREE = {"flexible": "\1", "any": "\2"}  # what stands for optional white space in texts that an assembler adds


@dataclass(frozen=True, slots=True)
class ObjectLayout:
    """The white space of a text, and whether its properties are ordered. Levels count from 0.

    compact   none
    spaced    a space after each comma and colon, as `json.dumps(value)`
    pretty    as `json.dumps(value, indent=2)`
    flexible  before items, keys, values and closing brackets: none, a space, or a line break and any indentation
    any       all that JSON allows between brackets, commas, colons and values
    In no layout there is any in an empty array or object, or around the text.

    >>> ObjectLayout("pretty").inside(1), ObjectLayout("compact").inside(1), ObjectLayout("spaced").comma(1)
    ('\\n    ', '', ', ')
    """

    whitespace: Whitespace
    any_order: bool = False

    def is_unique(self, text: str) -> bool:
        """Whether the value of a text has no other text."""
        if not text.startswith(("[", "{")):
            return True
        return self.whitespace not in _FREE and not (self.any_order and "{" in text)

    def inside(self, level: int) -> str:
        """Before the first item or key at `level`."""
        return "\n" + "  " * (level + 1) if self.whitespace == "pretty" else _FREE.get(self.whitespace, "")

    def comma(self, level: int) -> str:
        """The comma with the white space around it."""
        before = _FREE["any"] if self.whitespace == "any" else ""
        return before + "," + (" " if self.whitespace == "spaced" else self.inside(level))

    def closing(self, level: int) -> str:
        """The white space before a closing bracket. The array or object is not empty."""
        return "\n" + "  " * level if self.whitespace == "pretty" else _FREE.get(self.whitespace, "")

    @property
    def colon(self) -> str:
        space = _FREE.get(self.whitespace, "" if self.whitespace == "compact" else " ")
        return (space if self.whitespace == "any" else "") + ":" + space


class Assembler:
    """An automaton under construction over `width` symbols; its start is START.

    Its parts are collected, and the table is written once, in `finish`. Raises LimitExceeded over `dfa_states_max` or
    `table_bytes_max`.
    """

    def __init__(self, width: int, guard: ResourceGuard) -> None:
        self._width, self._guard = width, guard
        self._size = START + 1
        self._tables: list[tuple[int, np.ndarray]] = []  # offset of the state numbers, and rows [S, M]
        self._edges: list[tuple[int, int, int]] = []  # source, symbol, target
        self._starts: list[tuple[int, int]] = []  # a state, and the start of the fragment that is read from it
        self._joins: list[tuple[np.ndarray, int]] = []  # states, and the state that they go on as
        self._ends: list[int] = []
        self._spaces: dict[tuple[int, int], None] = {}  # a state, and the state in which it goes on behind white space
        self._behind: dict[int, int] = {}  # of a state at which a text begins with white space, the state behind it

    def new_state(self) -> int:
        """A new state without edges."""
        self._grow(1)
        return self._size - 1

    def new_end(self) -> int:
        """A new state in which the text may end."""
        self._ends.append(self.new_state())
        return self._ends[-1]

    def _grow(self, count: int) -> None:
        self._size += count
        self._guard.check_time()
        self._guard.check_table(self._size, self._width)

    def add_text(self, source: int, text: str, target: int) -> None:
        """Read an ASCII text between two states. It may hold optional white space of an `ObjectLayout`.

        Where the text is empty, `source` copies the transitions of `target`.
        """
        if not text:
            self._joins.append((np.array([source]), target))
        state = source
        # A new state after each character but the last, which leads to the target.
        for number, char in enumerate(text, 1):
            if char in _FREE.values():
                state = self._add_space(char, state, target if number == len(text) else None)
                continue
            following = target if number == len(text) else self.new_state()
            self._edges.append((state, ord(char), following))
            state = following

    def _add_space(self, kind: str, state: int, target: int | None) -> int:
        """Read optional white space from a state on. Returns the state behind it, which is `target` if there is one."""
        behind = self._behind.get(state) if target is None else target
        if behind is None:
            behind = self._behind[state] = self.new_state()
        if (state, behind) not in self._spaces:
            self._spaces[state, behind] = None
            if kind == _FREE["any"]:
                self._edges.extend((behind, ord(char), behind) for char in " \t\n\r")
            else:
                indentation = self.new_state()
                self._spaces[indentation, behind] = None
                self._edges += [(state, ord(" "), behind), (state, ord("\n"), indentation)]
                self._edges.append((indentation, ord(" "), indentation))
        return behind

    def add_table(self, table: np.ndarray) -> int:
        """Add the states of a table [S, M], except the dead one. Returns the offset of its state numbers."""
        offset = self._size - START
        self._tables.append((offset, table))
        self._grow(len(table) - START)
        return offset

    def add_fragment(self, source: int, fragment: Fragment, targets: Mapping[int, int]) -> int:
        """Adds the texts of a fragment from the state `source` on. After a text with a label, the automaton goes on as
        from the label's target. Returns the offset of its state numbers.
        """
        # A fragment is copied each time it is read, since each copy goes on elsewhere.
        offset = self.add_table(fragment.full_table)
        self._starts.append((source, offset + START))
        for label, target in targets.items():
            self._joins.append((np.flatnonzero(fragment.label == label) + offset, target))
        return offset

    def add_start(self, source: int, start: int) -> None:
        """Read on from `source` as from a state of a fragment."""
        self._starts.append((source, start))

    def add_quotes(self, states: Sequence[int] | np.ndarray, target: int) -> None:
        """An edge on the quotation mark from each of `states`."""
        self._edges.extend((int(state), QUOTE, target) for state in states)

    def finish(self) -> Fragment:
        """The fragment of all states and transitions so far.

        It may be empty, and may have states from which no text is accepted.
        """
        table = np.zeros((self._size, self._width), dtype=np.int32)
        for offset, rows in self._tables:
            table[offset + START : offset + len(rows)] = np.where(rows[START:] == DEAD, DEAD, rows[START:] + offset)
        if self._edges:
            source, symbol, target = np.array(self._edges).T
            table[source, symbol] = target
        # Two rows are merged entry by entry. The automaton is deterministic, so in each entry at most one
        # row is not DEAD, and the maximum selects its target.
        for state, start in self._starts:
            table[state] = np.maximum(table[state], table[start])
        for state, behind in self._spaces:
            table[state] = np.maximum(table[state], table[behind])
        accepting = np.zeros(self._size, dtype=bool)
        accepting[self._ends] = True
        # Joins come last: a follower may be a state from which a fragment is read, and has its edges by then.
        for states, follower in self._joins:
            table[states] = np.maximum(table[states], table[follower])
            accepting[states] |= accepting[follower]
        return compressed(table, accepting.astype(np.int32))


def escaped(table: np.ndarray, escapes: Mapping[str, int]) -> np.ndarray:
    """The spelling in JSON of texts of plain characters. Returns int32 [S', M], whose first S states are those before.

    escapes  those of ESCAPES that are written; texts with other such characters are left out
    Each string has one spelling, that of `json.dumps(text, ensure_ascii=False)`. The edges of characters that JSON
    escapes become paths through new states. After a backslash, and after each character of an escape but the last,
    there is one new state for all old states that go on alike from there.
    """
    parts = [table.copy()]  # the old states, then new ones: [n, M] each

    def after(spellings: Mapping[str, int]) -> np.ndarray:
        """The state after a spelling for each state: int32 [S].

        The new state reads a spelling, then continues as after its character.
        """
        by_first: dict[str, dict[str, int]] = {}
        for spelling, code in spellings.items():
            by_first.setdefault(spelling[0], {})[spelling[1:]] = code
        # int32 [S, first characters]: where each old state is to go after each of them
        targets = np.column_stack([table[:, tails[""]] if "" in tails else after(tails) for tails in by_first.values()])
        first, which = unique_rows(targets)
        distinct = targets[first]
        alive = distinct.any(axis=1)
        rows = np.zeros((np.count_nonzero(alive), table.shape[1]), dtype=np.int32)
        rows[:, [ord(char) for char in by_first]] = distinct[alive]
        number = np.full(len(distinct), DEAD, dtype=np.int32)
        number[alive] = sum(map(len, parts)) + np.arange(len(rows))
        parts.append(rows)
        return np.asarray(number[which])

    after_backslash = after(escapes)
    parts[0][:, _ESCAPED] = DEAD
    parts[0][:, BACKSLASH] = after_backslash
    return np.concatenate(parts)


def string_fragment(content: Fragment, escapes: Mapping[str, int], guard: ResourceGuard) -> Fragment:
    """The JSON strings whose content is a text of `content`. `escapes` as in `escaped`."""
    assembler = Assembler(len(content.columns), guard)
    # The first states of the escaped table are those of the content, with their labels.
    offset = assembler.add_table(escaped(content.full_table, escapes))
    assembler.add_text(START, '"', offset + START)
    assembler.add_quotes(np.flatnonzero(content.label) + offset, assembler.new_end())
    return assembler.finish()
