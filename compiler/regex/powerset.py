"""The powerset construction: position automata to DFAs.

The symbols of the resulting DFA are minterms, not characters; `compiler.automata.transducers` turns them into bytes.
"""

from __future__ import annotations

import numpy as np

from compiler.automata import Dfa, Minterms, minimize, minterms
from compiler.limits import ResourceGuard
from compiler.regex.bitsets import bits, number_of
from compiler.regex.glushkov import CharNfa

_WIDE = 4  # minterms in a set whose positions are kept apart from the others
_SHARED_MAX = 256  # parts of states that are kept
_DEAD_SET = 0  # nothing may be read and the text may not end here


def determinize(nfa: CharNfa, guard: ResourceGuard, parts: Minterms | None = None) -> tuple[Dfa, Minterms]:
    """The minimal complete DFA of a position automaton. Its symbols are the minterms of the character sets.

    parts  the minterms, with further ones perhaps for sets that hold no character
    Raises LimitExceeded over `dfa_states_max` or `table_bytes_max`.
    """
    parts = parts or minterms(nfa.sets)
    # One more bit says that the text may end here. It follows the last positions as if it were a position.
    accept = 1 << nfa.positions
    follow = list(nfa.follow)
    for position in bits(nfa.last):
        follow[position] |= accept
    start = nfa.first | (accept if nfa.nullable else 0)
    index = {_DEAD_SET: 0, start: 1} if start else {_DEAD_SET: 0}
    step = PowersetStep(tuple(follow), nfa.position_set, parts, start & ~accept)
    order, rows = list(index), []
    # The powerset construction: a state of the DFA is the set of positions that may read next.
    for state in order:  # grows while it is walked
        # The bit of acceptance reads nothing.
        shared, successors = step.successors(state & ~accept)
        # States are numbered in the order in which they are met, also inside the shared row.
        shared.number(successors, index, order)
        row = shared.row.copy()
        for minterm, successor in successors.items():
            row[minterm] = number_of(successor, index, order)
        rows.append(row)
        guard.check_time()
        guard.check_table(len(index), parts.count)
    accepting = np.array([bool(state & accept) for state in order])
    table = np.array(rows, dtype=np.int32)
    return minimize(Dfa(np.arange(parts.count, dtype=np.int32), table, accepting, index[start]), guard), parts


class _SharedTransitions:
    """The transitions of a component that many states share.

    They are the positions after each minterm, and the numbers of those states.

    A state is numbered when it is first met: where every state with this part leads further, it may not exist.
    """

    def __init__(self, successors: dict[int, int], minterms: int) -> None:
        self.successors = successors
        self.row = [_DEAD_SET] * minterms
        self._successors_left = dict(successors)

    def number(self, extra_successors: dict[int, int], index: dict[int, int], order: list[int]) -> None:
        """Number the successors of a state.

        Beyond the shared part, it has other successors only after the minterms in `extra_successors`.
        """
        # The minterms in `extra_successors` lead to larger sets than the shared part alone does.
        for minterm in [minterm for minterm in self._successors_left if minterm not in extra_successors]:
            self.row[minterm] = number_of(self._successors_left.pop(minterm), index, order)


class PowersetStep:
    """One step of the powerset construction. A state is the bit set of the positions that may read next.

    Most states of a search (`.*word.*`) have positions in common that read much: those of wide sets, and often those of
    the first state. What these lead to is kept, and only the rest of a state is read.
    """

    def __init__(self, follow: tuple[int, ...], position_set: tuple[int, ...], parts: Minterms, first: int) -> None:
        self._follow = follow
        self._position_set = position_set
        self._members = parts.members
        # Positions of wide sets, such as those of a dot, occur in most states of a search: what they lead to is
        # computed once.
        wide = [len(members) > _WIDE for members in parts.members]
        self._wide_positions = sum(1 << position for position, which in enumerate(position_set) if wide[which])
        self._first = first
        self._minterms = parts.count
        self._cache: dict[int, _SharedTransitions] = {}

    def successors(self, state: int) -> tuple[_SharedTransitions, dict[int, int]]:
        """The shared component of a state, and its other successors.

        The latter are the positions after each minterm that leads elsewhere.
        """
        frequent = self._wide_positions | self._first if state & self._first == self._first else self._wide_positions
        part = state & frequent
        if part not in self._cache:
            # The cache is bounded; dropping all of it is simpler than choosing, and rare.
            if len(self._cache) == _SHARED_MAX:
                self._cache.clear()
            self._cache[part] = _SharedTransitions(self.after(part, {}), self._minterms)
        shared = self._cache[part]
        return shared, self.after(state & ~frequent, shared.successors)

    def after(self, state: int, extra_successors: dict[int, int]) -> dict[int, int]:
        """The successors of the positions of `state` and `extra_successors`. The keys are minterms."""
        by_set: dict[int, int] = {}
        # Positions with the same character set are read together: one union a set, not one a minterm.
        for position in bits(state):
            which = self._position_set[position]
            by_set[which] = by_set.get(which, 0) | self._follow[position]
        successors: dict[int, int] = {}
        for which, targets in by_set.items():
            for minterm in self._members[which]:
                earlier = successors.get(minterm)
                successors[minterm] = targets | (extra_successors.get(minterm, 0) if earlier is None else earlier)
        return successors
