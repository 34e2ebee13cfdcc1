"""A DFA over characters with one optional space before its texts. Knows neither formulas nor tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.automata import CharDfa, Minterms, live_states, minterms, single
from compiler.limits import ResourceGuard

SPACE = " "


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class WholeText:
    """The texts of a constraint, and where they are read from. S states, M minterms.

    next_state  int32 [S, M]
    accepting   bool  [S]
    live        bool  [S]: acceptance can still be reached
    start       the state a raw text is read from; it may read one space more than an answer has
    text_start  the state an answer is read from
    display_state  int32 [S]: the state of the constraint's own DFA, for display
    """

    next_state: np.ndarray
    accepting: np.ndarray
    live: np.ndarray
    start: int
    text_start: int
    display_state: np.ndarray
    minterms: Minterms


def whole_text(part: CharDfa, leading_space: bool, guard: ResourceGuard) -> WholeText:
    """The texts of a DFA, and one space before them if asked. Where the DFA's own texts can begin with a space, both
    readings are followed. Raises LimitExceeded over `dfa_states_max` or `compile_s_max`.
    """
    # Dead states are marked, not removed: their display states must exist.
    dfa, live = part.dfa, live_states(part.dfa)
    states = np.arange(dfa.states, dtype=np.int32)
    if not leading_space:
        table = dfa.next_state[:, dfa.symbol_class]
        return WholeText(
            next_state=table, accepting=dfa.accepting, live=live, start=dfa.start, text_start=dfa.start,
            display_state=states, minterms=part.minterms,
        )
    # The space needs a column of its own, since only it has a second reading.
    parts, part_of = space_apart(part.minterms)
    table = dfa.next_state[:, dfa.symbol_class[part_of]]
    added = _LeadingSpace(table, live, dfa.start, parts.word(SPACE)[0], guard=guard)
    # A set accepts where one of its readings does.
    accepting = [dfa.accepting[dfa.start], *(dfa.accepting[sorted(states)].any() for states in added.sets)]
    return WholeText(
        next_state=np.concatenate([table, np.array(added.rows, dtype=np.int32)]),
        accepting=np.concatenate([dfa.accepting, np.array(accepting)]),
        live=np.concatenate([live, np.ones(len(added.rows), dtype=bool)]), start=dfa.states, text_start=dfa.start,
        display_state=np.concatenate([states, np.full(len(added.rows), dfa.start, dtype=np.int32)]), minterms=parts,
    )


def space_apart(partition: Minterms) -> tuple[Minterms, np.ndarray]:
    """The minterms with the space split off as its own. Also the old minterm of each new one: int64 [M]."""
    space = partition.word(SPACE)[0]
    if partition.charset([space]) == single(ord(SPACE)):
        return partition, np.arange(partition.count)
    cut = minterms([*(partition.charset([minterm]) for minterm in range(partition.count)), single(ord(SPACE))])
    old = np.empty(cut.count, dtype=np.int64)
    for minterm, members in enumerate(cut.members[:-1]):
        old[list(members)] = minterm
    return cut, old


class _LeadingSpace:
    """The states that an optional leading space adds to a DFA. These are a new start, and behind it sets of states.

    Where the pattern can begin with a space, a space has two readings: the optional one, or the first character of the
    text. Both are followed side by side, as sets of DFA states. Sets of one state are that state.
    """

    def __init__(self, table: np.ndarray, live: np.ndarray, start: int, space: int, *, guard: ResourceGuard) -> None:
        self._table, self._live, self._guard = table, live, guard
        self._number: dict[frozenset[int], int] = {}
        self.sets: list[frozenset[int]] = []
        # The new start reads what the old one reads, except that a space may also be passed over.
        first = self._row(frozenset((start,)))
        first[space] = self._state({int(table[start, space]), start})
        self.rows = [first]
        # The powerset construction, restricted to what two readings can reach: the sets stay small.
        while len(self.rows) <= len(self.sets):
            self.rows.append(self._row(self.sets[len(self.rows) - 1]))

    def _row(self, states: frozenset[int]) -> list[int]:
        self._guard.check_time()
        return [self._state(set(column)) for column in self._table[sorted(states)].T.tolist()]

    def _state(self, states: set[int]) -> int:
        """The state that stands for a set of states. A set with one live state is that state, one without live states
        is any of them, and other sets get new numbers.
        """
        # A dead reading is dropped, so that the set ends as soon as one reading is left.
        alive = frozenset(state for state in states if self._live[state])
        # One reading is left: the DFA's own state follows it, and needs no set.
        if len(alive) < 2:
            return next(iter(alive or states))
        if alive not in self._number:
            self.sets.append(alive)
            self._number[alive] = len(self._table) + len(self.sets)  # after the DFA's own and the start
            self._guard.check("dfa_states_max", len(self._number))
        return self._number[alive]
