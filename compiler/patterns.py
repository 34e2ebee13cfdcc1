"""The labeller of a regex: it emits no letters, it only says where a text may end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.characters import CharTransducer, to_labeller
from compiler.charset import Minterms, minterms, single
from compiler.dfa import Dfa, live_states
from compiler.labeller import DEAD, NO_END, Labeller
from compiler.limits import Meter


@dataclass(frozen=True, slots=True, eq=False)
class PatternLabeller:
    """A labeller of whole texts.

    text_start  the labeller state an answer is read from; the labeller's own start may read one space more
    dfa_state   int32 [B]: the state of the character DFA for each labeller state between characters
    """

    labeller: Labeller
    text_start: int
    dfa_state: np.ndarray


class _LeadingSpace:
    """The states that an optional space before the text adds to a DFA.

    After it the text may begin, or, where the pattern itself can begin with a space, may have begun: the two
    readings are followed side by side, as sets of DFA states. Sets of one state are that state.
    """

    def __init__(self, table: np.ndarray, live: np.ndarray, start: int, space: int, meter: Meter) -> None:
        self._table, self._live, self._meter = table, live, meter
        self._number: dict[frozenset[int], int] = {}
        self.sets: list[frozenset[int]] = []
        first = self._row(frozenset((start,)))
        first[space] = self._state({int(table[start, space]), start})
        self.rows = [first]
        while len(self.rows) <= len(self.sets):
            self.rows.append(self._row(self.sets[len(self.rows) - 1]))

    def _row(self, states: frozenset[int]) -> list[int]:
        self._meter.tick()
        return [self._state(set(column)) for column in self._table[sorted(states)].T.tolist()]

    def _state(self, states: set[int]) -> int:
        """A labeller state: 0 where all is dead, s + 1 for the one state s, a new one behind them for more."""
        alive = frozenset(state for state in states if self._live[state])
        if len(alive) < 2:
            return next(iter(alive)) + 1 if alive else DEAD
        if alive not in self._number:
            self.sets.append(alive)
            self._number[alive] = len(self._table) + 1 + len(self.sets)  # after the dead one, the DFA's, and the start
            self._meter.charge("dfa_states_max", len(self._number))
        return self._number[alive]


def _space_apart(whole: Minterms) -> tuple[Minterms, np.ndarray]:
    """The minterms cut so that the space is one of its own, and the old minterm of each new one: int64 [M]."""
    cut = minterms([*(whole.charset([minterm]) for minterm in range(whole.count)), single(ord(" "))])
    old = np.empty(cut.count, dtype=np.int64)
    for minterm, members in enumerate(cut.members[:-1]):
        old[list(members)] = minterm
    return cut, old


def pattern_labeller(dfa: Dfa, whole: Minterms, leading_space: bool, meter: Meter) -> PatternLabeller:
    """The labeller of the texts that a DFA over minterms accepts, and of one space before them if asked.

    Raises LimitExceeded over `dfa_states_max` or `compile_s_max`.
    """
    live = live_states(dfa)
    parts, part_of = _space_apart(whole) if leading_space else (whole, np.arange(whole.count))
    table = dfa.next_state[:, dfa.symbol_class[part_of]]
    rows = np.where(live[table], table + 1, DEAD)
    rows[~live] = DEAD
    ends = dfa.accepting.tolist()
    start = dfa.start + 1
    if leading_space:
        space = parts.word(" ")[0]
        added = _LeadingSpace(table, live, dfa.start, space, meter)
        rows = np.concatenate([rows, np.array(added.rows, dtype=rows.dtype)])
        ends += [ends[dfa.start], *(any(ends[state] for state in states) for states in added.sets)]
        start = dfa.states + 1
    next_state = np.concatenate([np.zeros((1, rows.shape[1]), dtype=rows.dtype), rows]).astype(np.int32)
    flush = np.array([NO_END, *(0 if end else NO_END for end in ends)], dtype=np.int32)
    transducer = CharTransducer(next_state, np.zeros_like(next_state), flush, ((),), parts)
    shown = np.full(len(flush), dfa.start, dtype=np.int32)
    shown[1 : dfa.states + 1] = np.arange(dfa.states)
    shown[DEAD] = int(np.argmin(live))  # the dead state where there is one, else any: nothing leads here but bad bytes
    return PatternLabeller(to_labeller(transducer, start, meter), dfa.start + 1, shown)
