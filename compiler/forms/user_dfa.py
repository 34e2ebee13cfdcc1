"""Compiles a caller's own automaton. It is over the letters of a word trace, or over the characters of a text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.automata import CharDfa, Dfa, by_characters, minimize
from compiler.errors import SpecSyntaxError
from compiler.limits import ResourceGuard
from compiler.ltlf import LtlfFormula, Op
from compiler.spec import UserDfa, UserTransition, guard_formulas

_NO_TRANSITION = -1  # in a table of transition numbers
_CELL_BYTES = 48  # a cell of a table, with what its minimization needs beside it
_SHOWN_CHARS_MAX = 200
_BYTES = 256


def _holds(formula: LtlfFormula, letters: Sequence[frozenset[str]]) -> np.ndarray:
    """bool [A]: the letters at which a propositional formula holds."""
    # For each node of the formula, whether it holds: bool [A]. Arguments come before their operators.
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


def user_letter_dfa(user_dfa: UserDfa, letters: Sequence[frozenset[str]], guard: ResourceGuard) -> Dfa:
    """The minimal DFA of the words that an automaton over propositions accepts.

    It reads `letters`, and it is in canonical form.

    Symbol i is letters[i], the set of the propositions that hold at a step. The empty word is accepted where the start
    is accepting. Raises ValueError for an automaton over bytes, SpecSyntaxError where a guard cannot be read or two
    transitions of a state apply to one letter, SpecUnsupported for a temporal guard, LimitExceeded over
    formula_chars_max (all guards together), dfa_states_max, table_bytes_max or compile_s_max.
    """
    if user_dfa.over_bytes:
        raise ValueError("an automaton over bytes reads no letters")
    guards = guard_formulas(user_dfa, guard)
    number_of = {name: number for number, name in enumerate(user_dfa.states)}
    # A state without a transition for a letter goes to one more state, from which nothing is accepted.
    dead = len(number_of)
    guard.check_table(dead + 1, len(letters), _CELL_BYTES)
    # Guards are evaluated once each, for all letters at once.
    holds = {source: _holds(formula, letters) for source, formula in guards.items()}
    table = np.full((dead + 1, len(letters)), dead, dtype=np.int32)
    # int32 [S + 1, A]: the number of the transition that fills each entry, for the message about a second one.
    applies = np.full(table.shape, _NO_TRANSITION, dtype=np.int32)
    for number, transition in enumerate(user_dfa.transitions):
        assert transition.when is not None  # over_bytes is False
        guard.check_time()
        state, letters_read = number_of[transition.source], holds[transition.when]
        conflicts = np.flatnonzero(letters_read & (applies[state] != _NO_TRANSITION))
        if conflicts.size:
            first = conflicts[0]
            raise _clash(int(applies[state, first]), number, f"at a step of {_letter_text(letters[first])}")
        table[state, letters_read] = number_of[transition.target]
        applies[state, letters_read] = number
    accepting = np.array([*(name in set(user_dfa.accepting) for name in number_of), False])
    return minimize(Dfa(np.arange(len(letters), dtype=np.int32), table, accepting, 0), guard)


def _letter_text(letter: frozenset[str]) -> str:
    """A letter for an error message. It consists of the names that hold, where these are short and printable."""
    text = " and ".join(sorted(letter)) or "no proposition"
    return text if len(text) <= _SHOWN_CHARS_MAX and text.isprintable() else "several propositions"


def _clash(first: int, second: int, where: str) -> SpecSyntaxError:
    return SpecSyntaxError(
        f"the automaton is not deterministic: {where}, both dfa.transitions.{first} and dfa.transitions.{second} apply",
        field=f"dfa.transitions.{second}",
        expected="at most one transition for each state and step",
    )


def user_char_dfa(user_dfa: UserDfa, guard: ResourceGuard) -> CharDfa:
    """The valid UTF-8 texts that an automaton over bytes accepts. The DFA is minimal.

    Raises ValueError for an automaton over propositions, SpecSyntaxError where two transitions of a state apply to one
    byte, LimitExceeded over dfa_states_max, table_bytes_max or compile_s_max.
    """
    if user_dfa.transitions and not user_dfa.over_bytes:
        raise ValueError("an automaton over propositions reads no bytes")
    edges = _Edges(user_dfa.states, guard)
    for number, transition in enumerate(user_dfa.transitions):
        edges.add(number, transition)
    table = edges.table()
    accepting = np.zeros(len(table), dtype=bool)
    accepting[[edges.number_of[name] for name in user_dfa.accepting]] = True
    # The bytes are read back as characters, and paths that are not valid UTF-8 disappear.
    return by_characters(Dfa(np.arange(_BYTES, dtype=np.int32), table, accepting, 0), guard)


class _Edges:
    """The transitions as edges on single bytes. A character of several bytes passes through states of its own."""

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
        """Read the bytes of `path` from `state` to `target`.

        Raises SpecSyntaxError where another transition reads the same bytes.
        """
        self._guard.check_time()
        for byte in path[:-1]:
            # States inside characters are shared by the characters that begin with the same bytes.
            if (state, byte) not in self._edges:
                self._edges[state, byte] = (self._states, number)
                self._states += 1
                self._guard.check("dfa_states_max", self._states)
            following, owner = self._edges[state, byte]
            # Another transition reads this byte alone and ends at a state of the caller's.
            if following < self._inner_from:
                raise _clash(owner, number, f"on the byte {byte:#04x}")
            state = following
        # Within one transition no edge is repeated, so a second one is another transition's.
        edge = self._edges.setdefault((state, path[-1]), (target, number))
        if edge != (target, number):
            raise _clash(edge[1], number, f"on the byte {path[-1]:#04x}")

    def table(self) -> np.ndarray:
        """The table over bytes: int32 [S + 1, 256].

        Its states are the caller's, those inside characters, and the dead one.
        """
        self._guard.check("table_bytes_max", (self._states + 1) * _BYTES * np.dtype(np.int32).itemsize)
        table = np.full((self._states + 1, _BYTES), self._states, dtype=np.int32)
        for (state, byte), (target, _) in self._edges.items():
            table[state, byte] = target
        return table
