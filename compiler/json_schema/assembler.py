"""Links fragments into one automaton: states, edges, literal texts, and fragments between them. Knows no schema.

A fragment is put at a state, and where a text of it ends, the automaton goes on as from another state. The result is
deterministic as long as no text of a fragment goes on with a character that may follow it. JSON has this property: a
number is followed by a comma or a bracket, and a string, array or object ends with its own delimiter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.json_schema.fragments import DEAD, ENTRY_BYTES, START, Fragment, compressed
from compiler.limits import ResourceGuard

QUOTE, BACKSLASH = ord('"'), ord("\\")
_ESCAPED = (*range(32), QUOTE, BACKSLASH)
_ESCAPES = {json.dumps(chr(code))[2:-1]: code for code in _ESCAPED}  # what follows the backslash: "n", "u001f", ...


@dataclass(frozen=True, slots=True)
class ObjectLayout:
    """The white space of a text: none at all, or that of `json.dumps(value, indent=2)`. Levels count from 0.

    >>> ObjectLayout(pretty=True).inside(1), ObjectLayout(pretty=False).inside(1)
    ('\\n    ', '')
    """

    pretty: bool

    def inside(self, level: int) -> str:
        """Before each item or key of an array or object at `level`."""
        return "\n" + "  " * (level + 1) if self.pretty else ""

    def closing(self, level: int) -> str:
        """Before the closing bracket of an array or object that is not empty."""
        return "\n" + "  " * level if self.pretty else ""

    @property
    def colon(self) -> str:
        return ": " if self.pretty else ":"


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
        self._guard.check("dfa_states_max", self._size)
        self._guard.check("table_bytes_max", self._size * self._width * ENTRY_BYTES)

    def add_text(self, source: int, text: str, target: int) -> None:
        """Read an ASCII text between two states; where it is empty, `source` goes on as `target` does."""
        if not text:
            self._joins.append((np.array([source]), target))
        state = source
        # A new state after each character but the last, which leads to the target.
        for number, char in enumerate(text, 1):
            following = target if number == len(text) else self.new_state()
            self._edges.append((state, ord(char), following))
            state = following

    def add_table(self, table: np.ndarray) -> int:
        """The states of a table [S, M] without the dead one; returns what to add to its state numbers."""
        offset = self._size - START
        self._tables.append((offset, table))
        self._grow(len(table) - START)
        return offset

    def add_fragment(self, source: int, fragment: Fragment, targets: Mapping[int, int]) -> None:
        """Read a text of a fragment from `source`; where one with a label ends, go on as from the label's target."""
        # A fragment is copied each time it is read, since each copy goes on elsewhere.
        offset = self.add_table(fragment.full_table)
        self._starts.append((source, offset + START))
        for label, target in targets.items():
            self._joins.append((np.flatnonzero(fragment.label == label) + offset, target))

    def add_quotes(self, states: Sequence[int] | np.ndarray, target: int) -> None:
        """An edge on the quotation mark from each of `states`."""
        self._edges.extend((int(state), QUOTE, target) for state in states)

    def finish(self) -> Fragment:
        """The fragment; it may have states from which nothing is accepted, and accept no text at all."""
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
        accepting = np.zeros(self._size, dtype=bool)
        accepting[self._ends] = True
        # Joins come last: a follower may be a state from which a fragment is read, and has its edges by then.
        for states, follower in self._joins:
            table[states] = np.maximum(table[states], table[follower])
            accepting[states] |= accepting[follower]
        return compressed(table, accepting.astype(np.int32))


def escaped(table: np.ndarray) -> np.ndarray:
    """From the characters of strings to their spelling in JSON: int32 [S', M], the first S states as before.

    Each string has one spelling, that of `json.dumps(text, ensure_ascii=False)`. States after a backslash are added.
    """
    return _EscapeTableBuilder(table).build()


class _EscapeTableBuilder:
    """Replaces the edges of characters that JSON escapes by paths through new states.

    After a backslash, and after each character of an escape but the last, there is one new state for all old states
    that go on alike from there.
    """

    def __init__(self, table: np.ndarray) -> None:
        self._table = table
        self._added: list[np.ndarray] = []  # [new states, M] each
        self._count = len(table)

    def build(self) -> np.ndarray:
        after_backslash = self._after(_ESCAPES)
        table = self._table.copy()
        table[:, list(_ESCAPES.values())] = DEAD
        table[:, BACKSLASH] = after_backslash
        return np.concatenate([table, *self._added])

    def _after(self, spellings: Mapping[str, int]) -> np.ndarray:
        """For each state, the new one that reads a spelling and goes on as if its character were read: int32 [S]."""
        by_first: dict[str, dict[str, int]] = {}
        for spelling, code in spellings.items():
            by_first.setdefault(spelling[0], {})[spelling[1:]] = code
        # int32 [S, first characters]: where each old state is to go after each of them
        targets = np.column_stack(
            [self._table[:, tails[""]] if "" in tails else self._after(tails) for tails in by_first.values()]
        )
        distinct, which = np.unique(targets, axis=0, return_inverse=True)
        alive = distinct.any(axis=1)
        rows = np.zeros((np.count_nonzero(alive), self._table.shape[1]), dtype=np.int32)
        rows[:, [ord(char) for char in by_first]] = distinct[alive]
        number = np.full(len(distinct), DEAD, dtype=np.int32)
        number[alive] = self._count + np.arange(len(rows))
        self._added.append(rows)
        self._count += len(rows)
        return np.asarray(number[which.reshape(-1)])


def string_fragment(content: Fragment, guard: ResourceGuard) -> Fragment:
    """The JSON strings whose content is a text of `content`."""
    assembler = Assembler(len(content.columns), guard)
    # The first states of the escaped table are those of the content, with their labels.
    offset = assembler.add_table(escaped(content.full_table))
    assembler.add_text(START, '"', offset + START)
    assembler.add_quotes(np.flatnonzero(content.label) + offset, assembler.new_end())
    return assembler.finish()
