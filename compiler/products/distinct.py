"""Token automata whose texts write letters, none of them twice.

A letter stands for a value, as an item of an array without equal items. Letter 0 stands behind an array and forgets the
others. The letters so far are a set, counted beside the state of a token automaton and not multiplied into its states.

The distance of a state and a set is bounded from below by prices (Lagrangian relaxation, Held and Karp 1970). A letter
costs its price beside its tokens, and every letter that is not written yet is worth its price once. A text that writes
no letter twice gets back what it pays, so the cheapest text of the relaxed automaton bounds it. With prices that make
up for what a letter costs less than others, the bound is the distance, unless a token writes parts of two values.
From above it is bounded by texts that write one letter first, and the cheapest others behind it one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from compiler.automata import DEAD, Dfa, distinct, grown
from compiler.lifting import UNREACHABLE, TokenAutomaton
from compiler.pushdown import Stacks

_CLASSES_KEPT = 128  # whose edges from all states are kept
HALF, LOW = 32, (1 << 32) - 1  # a number of letters stands above one of tokens
FAR = 1 << 60  # more tokens than any number that is counted
Integers = NDArray[np.int64]


def distinct_letters(count: int) -> Dfa:
    """DFAs that see to one letter each, side by side. Letter 0 takes each to its first state.

    Letter i has the states 2i - 1, before it is written, and 2i. State 0 is dead.
    """
    table = np.repeat(np.arange(2 * count + 1, dtype=np.int32)[:, None], count + 1, axis=1)
    letter = np.arange(1, count + 1)
    table[2 * letter, 0] = 2 * letter - 1
    table[2 * letter - 1, letter] = 2 * letter
    table[2 * letter, letter] = DEAD
    return Dfa(np.arange(count + 1, dtype=np.int32), table, np.arange(2 * count + 1) != DEAD, start=1)


def first_states(states: int) -> tuple[int, ...]:
    """The states of `distinct_letters` before any letter is written. `states`: how many there are."""
    return tuple(range(1, states, 2))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DistinctAutomaton:
    """A token automaton over `distinct_letters`, whose DFAs all hold. N letters, L transducer states, K price lists.

    prices     int64 [K, N]  of each letter
    least      int64 [L, K]  the cheapest text from each transducer state on, in tokens and prices
    reachable  bool [L, N]   the letters that may be written before they are forgotten
    avoidable  bool [L, N]   those that need not be written before they are
    following  bool [L, N + 1]  those that may be the next one; the last column: a text may end or forget without one
    height     int64 [N]        how many tokens more each letter takes than the cheapest one
    through    int64 [L, N + 1]  the tokens of a text that writes this letter first, and none in the last column, beside
               the heights of letters behind it; the high half counts these letters. FAR where there is none
    Raises ValueError where shapes are off.

    A state is a transducer state with a state of each DFA: a configuration with one entry, `((l, (q1, ..., qN)),)`.
    """

    tokens: TokenAutomaton
    prices: np.ndarray
    least: np.ndarray
    reachable: np.ndarray
    avoidable: np.ndarray
    following: np.ndarray
    height: np.ndarray
    through: np.ndarray

    def __post_init__(self) -> None:
        letters, rows = self.letters, self.tokens.states // self.tokens.letter_states
        narrow, wide = (rows, letters), (rows, letters + 1)
        shapes = (len(self.prices), letters), (rows, len(self.prices)), narrow, narrow, wide, (letters,), wide
        found = tuple(table.shape for table in self._tables)
        if self.tokens.letter_states != 2 * letters + 1 or shapes != found:
            raise ValueError("the letters and states of the tables are not those of the automaton")

    @property
    def letters(self) -> int:
        return int(self.prices.shape[1])

    @property
    def first_states(self) -> tuple[int, ...]:
        """The states of the letters' DFAs before any letter is written."""
        return first_states(self.tokens.letter_states)

    @property
    def start(self) -> Stacks:
        return ((self.tokens.start // self.tokens.letter_states, self.first_states),)

    @property
    def token_class(self) -> np.ndarray:
        return self.tokens.token_class

    @property
    def eos_ids(self) -> tuple[int, ...]:
        return self.tokens.eos_ids

    @property
    def vocabulary_size(self) -> int:
        return self.tokens.vocabulary_size

    @property
    def classes(self) -> int:
        return self.tokens.classes

    @property
    def states(self) -> int:
        """The transducer states. Sets are not counted."""
        return len(self.least)

    @property
    def table_bytes(self) -> int:
        return self.tokens.table_bytes + sum(int(table.nbytes) for table in self._tables)

    @property
    def _tables(self) -> tuple[np.ndarray, ...]:
        return self.prices, self.least, self.reachable, self.avoidable, self.following, self.height, self.through

    def with_own_classes(self, ids: np.ndarray) -> DistinctAutomaton:
        """The automaton with a class for each of these ids. `ids` is int64 [n]; each begins a character."""
        return replace(self, tokens=self.tokens.with_own_classes(ids))

    def bounds(self, rows: Integers, states: Integers) -> np.ndarray:
        """Lower bounds of distances: int32 [n]. UNREACHABLE where a letter is written twice, or none can follow.

        rows    int64 [n]     transducer states
        states  int64 [n, N]  of the letters' DFAs
        """
        unwritten = states % 2 == 1
        worth = (self.reachable[rows] & unwritten).astype(np.int64) @ self.prices.T  # [n, K]
        least = self.least[rows]
        bound = np.where(least == UNREACHABLE, UNREACHABLE, least - worth).max(axis=1)
        follows = (self.following[rows, :-1] & unwritten).any(axis=1) | self.following[rows, -1]
        follows &= (self.avoidable[rows] | unwritten).all(axis=1)
        return np.where(follows & (states != DEAD).all(axis=1), bound, UNREACHABLE).astype(np.int32)

    def uppers(self, rows: Integers, states: Integers) -> np.ndarray:
        """Upper bounds of distances: int32 [n]. UNREACHABLE where none is known. The arguments are as in `bounds`.

        From each state with one, some token leads to a state with a smaller one.
        """
        order = np.argsort(self.height, kind="stable")
        height, through = self.height[order], self.through[rows]
        free = (states % 2 == 1)[:, order] & self.reachable[rows][:, order]
        first, more = through[:, order] & LOW, through[:, order] >> HALF  # [n, N]
        # The cheapest letters that are free come first: the sums of 0, 1, ... of them.
        cheapest = np.where(free, height, FAR)[np.arange(len(rows))[:, None], np.argsort(~free, axis=1, kind="stable")]
        sums = np.minimum(np.cumsum(np.column_stack([np.zeros(len(rows), dtype=np.int64), cheapest]), axis=1), FAR)
        # Where the first letter is among these, the next one takes its place.
        among = np.cumsum(free, axis=1) <= more
        count = np.minimum(more + among, len(height))
        total = first + np.take_along_axis(sums, count, axis=1) - np.where(among, height, 0)
        total = np.where(free & (through[:, order] < FAR) & (more + 1 <= free.sum(axis=1)[:, None]), total, FAR)
        best = np.minimum(total.min(axis=1, initial=FAR), through[:, -1])
        return np.where((states == DEAD).any(axis=1) | (best >= UNREACHABLE), UNREACHABLE, best).astype(np.int32)


class DistinctPart:
    """The states of a `DistinctAutomaton`, numbered as they are met. State 0 is dead.

    start  the number of the state from `at`
    """

    dropped_readings = False

    def __init__(self, automaton: DistinctAutomaton, at: Stacks, costs: np.ndarray | None = None) -> None:
        self._automaton, self._costs = automaton, costs
        self._numbers: dict[bytes, int] = {}
        self._of_class: dict[int, Integers] = {}  # it saves time alone
        # By state, the transducer state and those of the letters' DFAs, and its bound.
        self._rows = np.zeros((64, 1 + automaton.letters), dtype=np.int32)
        self._bounds = np.full(64, UNREACHABLE, dtype=np.int32)
        self._number(np.zeros((1, 1 + automaton.letters), dtype=np.int32))
        (self.start,) = self._number(np.array([_row(automaton, at)], dtype=np.int32)).tolist()

    def distances(self, states: Integers) -> np.ndarray:
        """Lower bounds of the distances: int32 [N]."""
        return self._bounds[states]

    def class_distances(self, state: int) -> np.ndarray:
        """Lower bounds after one token of each class: int32 [C]."""
        edge = self._automaton.tokens.edges(int(self._rows[state, 0]))
        used = distinct(edge)
        return self._bounds_of(self._behind(self._rows[[state], 1:], used))[np.searchsorted(used, edge)]

    def costs(self, states: Integers) -> np.ndarray:
        """The cost to acceptance: float64 [N]. It is that of the letter's DFA that has the highest."""
        assert self._costs is not None
        rows = self._rows[states].astype(np.int64)
        at = rows[:, :1] * self._automaton.tokens.letter_states + rows[:, 1:]
        return np.asarray(self._costs[at].max(axis=1))

    def uppers(self, states: Integers) -> np.ndarray:
        """Upper bounds of the distances: int32 [N]. UNREACHABLE where none is known."""
        rows = self._rows[states].astype(np.int64)
        return self._automaton.uppers(rows[:, 0], rows[:, 1:])

    def after(self, states: Integers, classes: Integers) -> Integers:
        """The states after one token of a class each: int64 [N]."""
        rows = self._rows[states]
        return self._number(self._behind(rows[:, 1:], self._edges(rows[:, 0], classes)))

    def control_of(self, state: int) -> int:
        """The transducer state."""
        return int(self._rows[state, 0])

    def stacks_of(self, state: int) -> Stacks:
        """The state apart from any generation."""
        transducer_state, *states = self._rows[state].tolist()
        return ((transducer_state, tuple(states)),) if transducer_state else ()

    def bytes_max(self, states: int) -> int:
        kept = 8 * _CLASSES_KEPT * self._automaton.states
        return kept + states * (200 + 8 * (1 + self._automaton.letters))

    def _edges(self, rows: np.ndarray, classes: Integers) -> Integers:
        """The edges that the classes take from transducer states."""
        first = int(classes[0]) if len(classes) else 0
        if (classes != first).any():
            return self._automaton.tokens.edges_after(rows.astype(np.int64), classes)
        # A witness is followed from many states at once: its classes are read in all states, once each.
        if first not in self._of_class:
            if len(self._of_class) == _CLASSES_KEPT:
                self._of_class.clear()
            every = np.arange(self._automaton.states)
            self._of_class[first] = self._automaton.tokens.edges_after(every, np.full(len(every), first))
        return np.asarray(self._of_class[first][rows])

    def _behind(self, states: np.ndarray, edges: Integers) -> np.ndarray:
        """The rows behind edges: int32 [n, 1 + N]. `states` are [n, N] or [1, N]."""
        tokens = self._automaton.tokens
        letters = tokens.function[tokens.edge_function[edges][:, None], states]
        return np.column_stack([tokens.edge_target[edges], letters]).astype(np.int32)

    def _bounds_of(self, rows: np.ndarray) -> np.ndarray:
        return self._automaton.bounds(rows[:, 0].astype(np.int64), rows[:, 1:].astype(np.int64))

    def _number(self, rows: np.ndarray) -> Integers:
        """The numbers of rows. All that are dead are one."""
        bounds, numbers = self._bounds_of(rows), self._numbers
        rows = np.where((bounds == UNREACHABLE)[:, None], 0, rows).astype(np.int32)
        found = np.empty(len(rows), dtype=np.int64)
        for place, row in enumerate(rows):
            key = row.tobytes()
            number = numbers.setdefault(key, len(numbers))
            if number == len(numbers) - 1:
                if number == len(self._rows):
                    self._rows, self._bounds = grown(self._rows, 2 * number), grown(self._bounds, 2 * number)
                self._rows[number], self._bounds[number] = row, bounds[place]
            found[place] = number
        return found


def _row(automaton: DistinctAutomaton, at: Stacks) -> Sequence[int]:
    """The row of a state. Raises ValueError where the automaton has no such state."""
    if not at:
        return [DEAD] * (1 + automaton.letters)
    ((transducer_state, states),) = at
    fits = len(states) == automaton.letters and all(
        state in (DEAD, first, first + 1) for state, first in zip(states, automaton.first_states, strict=True)
    )
    if not fits or not 0 <= transducer_state < automaton.states:
        raise ValueError("a start is no state of its part")
    return [transducer_state, *states]
