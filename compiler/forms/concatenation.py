"""The automaton of a rule with the automata that it calls inside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

import numpy as np

from compiler.automata import CharDfa, Dfa, coarsened, common_minterms, live_states, minimize
from compiler.limits import ResourceGuard
from compiler.pushdown import TEXT_END, RuleDfa

_DEAD = -1


def inlined(root: RuleDfa, called: Mapping[int, CharDfa], guard: ResourceGuard) -> CharDfa:
    """The minimal automaton of the texts of a root.

    called  the automata of the other rules, which call none
    Raises LimitExceeded over `dfa_states_max`, `table_bytes_max` or `compile_s_max`.
    """
    return _Inlined(root, called).determinized(guard)


class _Inlined:
    """A nondeterministic automaton. Its states are those of the root, and behind these a copy of a callee for each rule
    and state to go on in.

    table  int [N, M]  the state behind each minterm, or _DEAD
    """

    def __init__(self, root: RuleDfa, called: Mapping[int, CharDfa]) -> None:
        numbers = sorted(called)
        self._minterms, maps = common_minterms([root.minterms, *(called[rule].minterms for rule in numbers)])
        dfa, width = root.dfa, root.minterms.count
        table = np.where(live_states(dfa), np.arange(dfa.states), _DEAD)[dfa.next_state][:, dfa.symbol_class]
        self.start, self._ends = dfa.start, table[:, width + root.letters.index(TEXT_END)] != _DEAD
        blocks, self._behind, self._calls = [table[:, :width][:, maps[0]]], dict[int, int](), dict[int, list[int]]()
        first, copies = dfa.states, dict[tuple[int, int], int]()
        for column, rule in enumerate(root.letters, width):
            if rule == TEXT_END:
                continue
            part, columns = called[rule], maps[1 + numbers.index(rule)]
            live = live_states(part.dfa)
            for state in np.flatnonzero(table[:, column] != _DEAD).tolist():
                behind = int(table[state, column])
                if (rule, behind) not in copies:
                    copies[rule, behind] = first
                    inside = np.where(live, first + np.arange(part.dfa.states), _DEAD)
                    blocks.append(inside[part.dfa.next_state][:, part.dfa.symbol_class[columns]])
                    self._behind.update(dict.fromkeys((first + np.flatnonzero(part.dfa.accepting)).tolist(), behind))
                    first += part.dfa.states
                self._calls.setdefault(state, []).append(copies[rule, behind] + part.dfa.start)
        self.table = np.vstack(blocks)

    def _closed(self, states: Iterable[int]) -> tuple[int, ...]:
        """The states, and those that they lead to without a character."""
        met, waiting = set(states), list(states)
        while waiting:
            state = waiting.pop()
            behind = self._behind.get(state)
            for further in (*self._calls.get(state, ()), *(() if behind is None else (behind,))):
                if further not in met:
                    met.add(further)
                    waiting.append(further)
        return tuple(sorted(met))

    def determinized(self, guard: ResourceGuard) -> CharDfa:
        """The same language by the powerset construction."""
        order = [(), self._closed((self.start,))]  # the first one is dead
        number = {states: place for place, states in enumerate(order)}
        rows = [np.zeros(self.table.shape[1], dtype=np.int32)]
        for states in islice(order, 1, None):  # grows while it is walked
            guard.check_time()
            guard.check_table(len(order), self.table.shape[1])
            distinct, column = np.unique(self.table[list(states)], axis=1, return_inverse=True)
            targets = []
            for reached in distinct.T.tolist():
                target = self._closed({state for state in reached if state != _DEAD})
                if target not in number:
                    number[target] = len(order)
                    order.append(target)
                targets.append(number[target])
            rows.append(np.array(targets, dtype=np.int32)[column.reshape(-1)])
        ends = set(np.flatnonzero(self._ends).tolist())
        accepting = np.array([not ends.isdisjoint(states) for states in order])
        symbols = np.arange(self.table.shape[1], dtype=np.int32)
        return coarsened(CharDfa(minimize(Dfa(symbols, np.vstack(rows), accepting, 1), guard), self._minterms))
