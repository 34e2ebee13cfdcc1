"""A caller's own automaton compiled: over the letters of a word trace, or over the characters of a text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.automata import CharDfa, Dfa, by_characters, minimize
from compiler.errors import SpecSyntaxError
from compiler.limits import ResourceGuard
from compiler.ltlf import LtlfFormula, Op
from compiler.spec import UserDfa, UserTransition, guards_of

_NO_TRANSITION = -1  # in a table of transition numbers
_CELL_BYTES = 48  # a cell of a table, with what its minimisation needs beside it
_SHOWN_CHARS_MAX = 200
_BYTES = 256


def _holds(formula: LtlfFormula, letters: Sequence[frozenset[str]]) -> np.ndarray:
    """bool [A]: the letters at which a propositional formula holds."""
    values: list[np.ndarray] = []
    for node in formula.nodes:
        parts = [values[argument] for argument in node.args]
        if node.op is Op.NAME:
            values.append(np.array([node.name in letter for letter in letters], dtype=bool))
        elif node.op in (Op.TRUE, Op.FALSE):
            values.append(np.full(len(letters), node.op is Op.TRUE))
        elif node.op is Op.NOT:
            values.append(~parts[0])
        elif node.op is Op.AND:
            values.append(np.logical_and.reduce(parts))
        elif node.op is Op.OR:
            values.append(np.logical_or.reduce(parts))
        else:
            values.append(parts[0] == parts[1] if node.op is Op.IFF else ~parts[0] | parts[1])
    return values[-1]


def user_letter_dfa(given: UserDfa, letters: Sequence[frozenset[str]], guard: ResourceGuard) -> Dfa:
    """The minimal DFA, in canonical form, of the words over `letters` that an automaton over propositions accepts.

    Symbol i is letters[i], the set of the propositions that hold at a step. The empty word is accepted where the start
    is accepting. Raises ValueError for an automaton over bytes, SpecSyntaxError where a guard cannot be read or two
    transitions of a state apply to one letter, SpecUnsupported for a temporal guard, LimitExceeded over
    formula_chars_max (all guards together), dfa_states_max, table_bytes_max or compile_s_max.
    """
    if given.over_bytes:
        raise ValueError("an automaton over bytes reads no letters")
    guards = guards_of(given, guard)
    number_of = {name: number for number, name in enumerate(given.states)}
    dead = len(number_of)
    guard.check("dfa_states_max", dead + 1)
    guard.check("table_bytes_max", (dead + 1) * len(letters) * _CELL_BYTES)
    holds = {source: _holds(formula, letters) for source, formula in guards.items()}
    table = np.full((dead + 1, len(letters)), dead, dtype=np.int32)
    applies = np.full(table.shape, _NO_TRANSITION, dtype=np.int32)
    for number, transition in enumerate(given.transitions):
        assert transition.when is not None  # over_bytes is False
        guard.check_time()
        state, here = number_of[transition.source], holds[transition.when]
        both = np.flatnonzero(here & (applies[state] != _NO_TRANSITION))
        if both.size:
            raise _clash(int(applies[state, both[0]]), number, f"at a step of {_shown(letters[both[0]])}")
        table[state, here] = number_of[transition.target]
        applies[state, here] = number
    accepting = np.array([*(name in set(given.accepting) for name in number_of), False])
    return minimize(Dfa(np.arange(len(letters), dtype=np.int32), table, accepting, 0), guard)


def _shown(letter: frozenset[str]) -> str:
    """A letter as errors repeat it: the names that hold, where they are short and plain."""
    text = " and ".join(sorted(letter)) or "no proposition"
    return text if len(text) <= _SHOWN_CHARS_MAX and text.isprintable() else "several propositions"


def _clash(first: int, second: int, where: str) -> SpecSyntaxError:
    return SpecSyntaxError(
        f"the automaton is not deterministic: {where}, both dfa.transitions.{first} and dfa.transitions.{second} apply",
        field=f"dfa.transitions.{second}",
        expected="at most one transition for each state and step",
    )


def user_char_dfa(given: UserDfa, guard: ResourceGuard) -> CharDfa:
    """The texts, in valid UTF-8, whose bytes an automaton over bytes accepts; minimal.

    Raises ValueError for an automaton over propositions, SpecSyntaxError where two transitions of a state apply to one
    byte, LimitExceeded over dfa_states_max, table_bytes_max or compile_s_max.
    """
    if given.transitions and not given.over_bytes:
        raise ValueError("an automaton over propositions reads no bytes")
    edges = _Edges(given.states, guard)
    for number, transition in enumerate(given.transitions):
        edges.add(number, transition)
    table = edges.table()
    accepting = np.zeros(len(table), dtype=bool)
    accepting[[edges.number_of[name] for name in given.accepting]] = True
    return by_characters(Dfa(np.arange(_BYTES, dtype=np.int32), table, accepting, 0), guard)


class _Edges:
    """The transitions as edges on single bytes; a character of several bytes passes through states of its own."""

    def __init__(self, states: Sequence[str], guard: ResourceGuard) -> None:
        self.number_of = {name: number for number, name in enumerate(states)}
        self._guard = guard
        self._states = len(states)
        self._inner_from = len(states)
        self._edges: dict[tuple[int, int], tuple[int, int]] = {}  # (state, byte) -> (state, number of the transition)
        guard.check("dfa_states_max", len(states))

    def add(self, number: int, transition: UserTransition) -> None:
        source, target = self.number_of[transition.source], self.number_of[transition.target]
        for low, high in transition.byte_ranges or ():
            for byte in range(low, high + 1):
                self._insert(number, source, bytes((byte,)), target)
        for character in transition.text or "":
            self._insert(number, source, character.encode(), target)

    def _insert(self, number: int, state: int, path: bytes, target: int) -> None:
        """Read the bytes of `path` from `state` to `target`; SpecSyntaxError where another transition may too."""
        self._guard.check_time()
        for byte in path[:-1]:
            if (state, byte) not in self._edges:
                self._edges[state, byte] = (self._states, number)
                self._states += 1
                self._guard.check("dfa_states_max", self._states)
            following, owner = self._edges[state, byte]
            if following < self._inner_from:
                raise _clash(owner, number, f"on the byte {byte:#04x}")
            state = following
        found = self._edges.setdefault((state, path[-1]), (target, number))
        if found != (target, number):
            raise _clash(found[1], number, f"on the byte {path[-1]:#04x}")

    def table(self) -> np.ndarray:
        """int32 [S + 1, 256]: the given states, those inside characters, and the dead one."""
        self._guard.check("table_bytes_max", (self._states + 1) * _BYTES * np.dtype(np.int32).itemsize)
        table = np.full((self._states + 1, _BYTES), self._states, dtype=np.int32)
        for (state, byte), (target, _) in self._edges.items():
            table[state, byte] = target
        return table
