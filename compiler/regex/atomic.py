"""Atomic groups: of all matches of `(?>A)`, the first one in order.

The order is that in which backtracking finds matches at a place. A is simulated by a list of threads in this order, as
in Pike's virtual machine (Cox 2009): a thread that matches cuts those behind it, and the last match that is recorded is
the first one in order. The lists are the states of a DFA. Where a list has recorded a match the group may end, unless a
later one is recorded: that is a negative look-ahead, for the texts that lead from the list to the next match. So a
group becomes positions and look-aheads.

Where A holds look-arounds, the steps at a place depend on which of them succeed. The DFA reads in turns a character and
an outcome of those that matter at the place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np

from compiler.automata import CharSet, Dfa, Minterms, live_states, minimize, minterms, refine
from compiler.limits import ResourceGuard
from compiler.regex.bitsets import NO_DEMAND, bits, number_of, opposites
from compiler.regex.nodes import AtomicGroup
from compiler.regex.preferences import EXIT, Conditions, OrderedPositions, Steps, ordered_positions

_State: TypeAlias = tuple[int, tuple[int, ...]]  # its kind, and positions: those that have read, or that read next
_PLACE, _LIST, _MATCH = range(3)  # between two characters; a list of threads; one that has recorded a match


class LookAheads(Conditions, Protocol):
    """The look-arounds of a pattern, to which look-aheads can be added."""

    def look_aheads(self, part: OrderedPositions, entries: Sequence[Steps]) -> list[int]:
        """The conditions that demand the texts of a part.

        There is one for each of `entries`, which stand in place of the part's own.
        """


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _ListDfa:
    """The DFA of lists. Its states at places read outcomes, its lists read characters.

    table       int32 [S, M + C]: the characters' minterms, then the outcomes
    accepting   bool  [S]: the lists that have recorded a match
    live        bool  [S]: the states from which a match can be recorded
    start       a place
    parts       the minterms
    conditions  for each outcome, the condition that demands it
    """

    table: np.ndarray
    accepting: np.ndarray
    live: np.ndarray
    start: int
    parts: Minterms
    conditions: tuple[int, ...]


def first_match(node: AtomicGroup, looks: LookAheads, guard: ResourceGuard) -> OrderedPositions:
    """The positions that read what an atomic group matches. At most one of their exits is possible in a text.

    Raises LimitExceeded over `nfa_positions_max`, `dfa_states_max` or `table_bytes_max`.
    """
    lists = _determinize(ordered_positions(node.item, looks, guard), guard)
    writer = _PositionWriter(lists, _exits(lists, looks, guard), guard)
    return writer.positions(writer.steps(lists.start))


def _exits(lists: _ListDfa, looks: LookAheads, guard: ResourceGuard) -> dict[int, int]:
    """The conditions of lists that no text leads to another match."""
    ends = np.flatnonzero(lists.accepting & lists.live[lists.table[:, : lists.parts.count]].any(axis=1))
    if not len(ends):
        return {}
    states = len(lists.table)
    # The texts count up to the next match. Each end occurs once more, as the place from which they start.
    table = np.concatenate([lists.table, lists.table[ends]])
    table[:states][lists.accepting] = np.flatnonzero(~lists.live)[0]
    accepting = np.append(lists.accepting, np.zeros(len(ends), dtype=bool))
    # Ends with equal texts share a look-ahead.
    block = refine(table, accepting.astype(np.int64), guard)
    first = np.unique(block, return_index=True)[1]
    live = np.append(lists.live, np.ones(len(ends), dtype=bool))[first]
    merged = replace(lists, table=block[table[first]], accepting=accepting[first], live=live)
    writer = _PositionWriter(merged, {}, guard)
    of_end = block[states:].tolist()
    distinct_ends = dict.fromkeys(of_end)
    entries = [writer.leaving(number) for number in distinct_ends]
    conditions = dict(zip(distinct_ends, looks.look_aheads(writer.positions(()), entries), strict=True))
    return {end: opposites(conditions[number]) for end, number in zip(ends.tolist(), of_end, strict=True)}


def _determinize(part: OrderedPositions, guard: ResourceGuard) -> _ListDfa:
    """The minimal DFA of lists."""
    sets = dict.fromkeys(part.sets)
    parts = minterms([*sets])
    members = dict(zip(sets, parts.members, strict=True))
    read_by = [members[charset] for charset in part.sets]
    after = (*part.after, part.entry)
    conditions: dict[int, int] = {}
    # The start is the place behind a position after all others.
    states: list[_State] = [(_LIST, ()), (_PLACE, (len(part.after),))]
    index = {state: number for number, state in enumerate(states)}
    rows: list[dict[int, int]] = []
    for kind, positions in states:  # grows while it is walked
        row: dict[int, int] = {}
        if kind == _PLACE:
            for condition, following, matched in _outcomes(_steps_behind(positions, after)):
                symbol = parts.count + conditions.setdefault(condition, len(conditions))
                row[symbol] = number_of((_MATCH if matched else _LIST, following), index, states)
                guard.check("dfa_states_max", len(row))
        else:
            for minterm, threads in _threads(positions, read_by).items():
                row[minterm] = number_of((_PLACE, tuple(threads)), index, states)
        rows.append(row)
        guard.check_time()
        guard.check_table(len(states), parts.count + len(conditions))
    table = np.zeros((len(rows), parts.count + len(conditions)), dtype=np.int32)
    for number, row in enumerate(rows):
        table[number, [*row]] = [*row.values()]
    accepting = np.array([kind == _MATCH for kind, _ in states])
    dfa = minimize(Dfa(np.arange(table.shape[1], dtype=np.int32), table, accepting, 1), guard)
    return _ListDfa(
        table=dfa.next_state[:, dfa.symbol_class], accepting=dfa.accepting, live=live_states(dfa), start=dfa.start,
        parts=parts, conditions=tuple(conditions),
    )  # fmt: skip


def _threads(positions: Sequence[int], read_by: Sequence[tuple[int, ...]]) -> dict[int, list[int]]:
    """For each minterm, the positions that read it, in their order."""
    threads: dict[int, list[int]] = {}
    for position in positions:
        for minterm in read_by[position]:
            threads.setdefault(minterm, []).append(position)
    return threads


def _steps_behind(positions: Sequence[int], after: Sequence[Steps]) -> Steps:
    """The distinct steps behind a list of positions.

    An exit without a condition cuts those behind it.
    """
    steps: dict[tuple[int, int], None] = {}
    for position in positions:
        steps.update(dict.fromkeys(after[position]))
        if (NO_DEMAND, EXIT) in after[position]:
            break
    return tuple(steps)


def _outcomes(
    steps: Steps, first: int = 0, known: int = NO_DEMAND, threads: Sequence[int] = ()
) -> Iterator[tuple[int, tuple[int, ...], bool]]:
    """The outcomes of the look-arounds at a place.

    Each is its condition, the list behind the steps, and whether that has recorded a match.

    first    the step from which on they are taken
    known    the demands that hold
    threads  the list behind the steps before
    """
    following = dict.fromkeys(threads)
    for number in range(first, len(steps)):
        condition, at = steps[number]
        if at in following:
            continue
        if open_demands := condition & ~known:
            if opposites(open_demands) & known:
                continue
            # One look-around is decided, in both ways.
            demand = open_demands & -open_demands
            for decided in (demand, opposites(demand)):
                yield from _outcomes(steps, number, known | decided, tuple(following))
            return
        if at == EXIT:
            yield known, tuple(following), True
            return
        following[at] = None
    yield known, tuple(following), False


def _simplified(conditions: set[int]) -> list[int]:
    """Fewer conditions, of which one holds where one of these does.

    Pairs that differ in the outcome of one look-around are joined.
    """
    waiting = [*conditions]
    while waiting:
        condition = waiting.pop()
        if condition not in conditions:
            continue
        for number in bits(condition):
            rest = condition ^ 1 << number
            twin = rest | opposites(1 << number)
            if twin in conditions:
                conditions = conditions - {condition, twin} | {rest}
                waiting.append(rest)
                break
    return sorted(conditions)


class _PositionWriter:
    """Writes the DFA of lists as positions. A position reads a set of characters and leads to a place.

    exits  for some lists, what is demanded where the group ends there
    """

    def __init__(self, lists: _ListDfa, exits: Mapping[int, int], guard: ResourceGuard) -> None:
        self._lists, self._exits, self._guard = lists, exits, guard
        self._numbers: dict[tuple[CharSet, int], int] = {}
        self._order: list[tuple[CharSet, int]] = []
        self._leaving: dict[int, Steps] = {}

    def leaving(self, state: int) -> Steps:
        """The steps to the positions that a list leads to."""
        if state not in self._leaving:
            targets: dict[int, list[int]] = {}
            for minterm, target in enumerate(self._lists.table[state, : self._lists.parts.count].tolist()):
                if self._lists.live[target]:
                    targets.setdefault(target, []).append(minterm)
            keys = [(self._lists.parts.charset(symbols), target) for target, symbols in targets.items()]
            self._leaving[state] = tuple((NO_DEMAND, number_of(key, self._numbers, self._order)) for key in keys)
            self._guard.check("nfa_positions_max", len(self._order))
            self._guard.check_time()
        return self._leaving[state]

    def steps(self, place: int) -> Steps:
        """The steps at a place."""
        row = self._lists.table[place, self._lists.parts.count :]
        conditions: dict[int, set[int]] = {}  # by the list behind them
        for number in np.flatnonzero(self._lists.live[row]).tolist():
            conditions.setdefault(int(row[number]), set()).add(self._lists.conditions[number])
        steps = []
        for state, outcomes in conditions.items():
            for condition in _simplified(outcomes):
                if self._lists.accepting[state]:
                    steps.append((condition | self._exits.get(state, NO_DEMAND), EXIT))
                steps += [(condition, at) for _, at in self.leaving(state)]
        return tuple(steps)

    def positions(self, entry: Steps) -> OrderedPositions:
        """The positions that have been met, and those behind them."""
        after = [self.steps(place) for _, place in self._order]  # which grows while it is walked
        return OrderedPositions(tuple(charset for charset, _ in self._order), entry, tuple(after))
