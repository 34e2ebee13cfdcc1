"""The states of a pushdown automaton that one generation meets.

A state is a set of configurations, each a control state and a stack. Stacks share their lower parts, and each node of a
stack has a vector: the fewest further tokens for each pending that its top symbol may be left with. So a distance takes
a few additions, however high the stack is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from compiler.automata import spread
from compiler.lifting import UNREACHABLE
from compiler.pushdown.machine import ACCEPTED, BOTTOM, Configuration, StackNodes
from compiler.pushdown.pushdown_automaton import PushdownAutomaton
from compiler.pushdown.saturation import ExitDistances
from compiler.pushdown.tables import ACCEPTED_PENDING, NO_LANDING, PushdownTables

DEAD_STATE = 0  # the state without configurations
_INFINITE = 1 << 29  # twice this fits int32
_MEMBERS_MAX = 256  # configurations in a state


class _Reads(NamedTuple):
    """What tokens do in one control state, flattened.

    classes   the token classes with an edge, ascending
    exits     (place of the class, pending): int [n, 2]
    landings  for each string of pushed symbols, a landing with it, and the places of classes with control states
    """

    classes: np.ndarray
    exits: np.ndarray
    landings: list[tuple[int, np.ndarray, _StateValues]]


class _StateValues(NamedTuple):
    """The values of `within` of some control states, one after the other. States without values are left out.

    position  int [n]  the places of the values in `ExitDistances.within`
    first     int [m]  where those of each state begin
    kept      int [m]  which of the states these are
    """

    position: np.ndarray
    first: np.ndarray
    kept: np.ndarray


class Configurations:
    """The states of one generation, numbered as they are met. State 0 is dead.

    members_max  how many configurations a state may have. Beyond it some readings of a text are dropped, never the one
                 that is nearest to acceptance: every configuration alone is a true reading, so what is kept can still
                 be finished within its distance.
    distances    other costs than one per token, as `saturate` computes them; then distances are float64

    Numbers depend on the order of calls, distances do not.

    >>> from compiler.limits import DEFAULT_LIMITS, ResourceGuard
    >>> from compiler.pushdown import Grammar, build_machine, call, lift_to_tokens
    >>> from compiler.regex import Concat, Repeat, literal_node
    >>> from compiler.vocab import Vocabulary
    >>> guard = ResourceGuard(DEFAULT_LIMITS)
    >>> nested = Concat((literal_node("(", False), Repeat(call(0), 0, 1), literal_node(")", False)))
    >>> vocabulary = Vocabulary((b"(", b")", b"))", None), (3,))
    >>> automaton = lift_to_tokens(build_machine(Grammar(("s",), (nested,)), guard), vocabulary, guard)
    >>> states = Configurations(automaton)
    >>> states.distance(states.run([0, 0, 0])), states.distance(states.run([0, 0, 0, 2]))  # "))", ")", EOS; ")", EOS
    (3, 2)
    """

    def __init__(
        self, automaton: PushdownAutomaton, *, members_max: int = _MEMBERS_MAX, distances: ExitDistances | None = None
    ) -> None:
        self.tables = automaton.tables
        self.stacks = StackNodes()
        self._members_max = members_max
        distances = distances or automaton.distances
        self._infinite = _INFINITE if distances.within.dtype == np.int32 else np.inf
        self._vectors = _Vectors(self.tables, distances, self._infinite)
        self._entries = {
            (symbol, pending): arrival
            for symbol, pending, arrival in zip(
                self.tables.entry_symbol.tolist(), self.tables.entry_pending.tolist(),
                self.tables.entry_arrival.tolist(), strict=True,
            )
        }  # fmt: skip
        self._reads: dict[int, _Reads] = {}
        self._distances: dict[Configuration, float] = {(ACCEPTED, BOTTOM): 0}
        self._members: list[tuple[Configuration, ...]] = []
        self._numbers: dict[tuple[Configuration, ...], int] = {}
        self.state_of(())
        self.start = self.state_of([(self.tables.start, BOTTOM)])
        self._accepted = self.state_of([(ACCEPTED, BOTTOM)])

    def state_of(self, configurations: Iterable[Configuration]) -> int:
        """The number of a set of configurations with nodes of `stacks`."""
        members = tuple(sorted(configurations))
        number = self._numbers.setdefault(members, len(self._members))
        if number == len(self._members):
            self._members.append(members)
        return number

    def members(self, state: int) -> tuple[Configuration, ...]:
        """The configurations of a state, ascending."""
        return self._members[state]

    def is_accepting(self, state: int) -> bool:
        """Whether the text is finished, EOS included."""
        return state == self._accepted

    def distance(self, state: int) -> float:
        """Fewest tokens to acceptance, EOS included, or UNREACHABLE."""
        least = min((self._distance(*member) for member in self._members[state]), default=self._infinite)
        return least if least < self._infinite else UNREACHABLE

    def class_distances(self, states: list[int]) -> np.ndarray:
        """The distance after each token class: [R, C]."""
        rows = np.full((len(states), self.tables.classes), self._infinite, dtype=self._vectors.dtype)
        for row, state in zip(rows, states, strict=True):
            for control, node in self._members[state]:
                self._lower(row, control, node)
            if self.is_accepting(state):  # after EOS only EOS may follow
                row[self.tables.token_class[self.tables.eos_ids[0]]] = 0
        rows[rows >= self._infinite] = UNREACHABLE
        return rows

    def successor(self, state: int, token_class: int) -> int:
        """The state after one token of a class. Configurations that cannot be finished are dropped."""
        if self.is_accepting(state):
            return state if token_class == self.tables.token_class[self.tables.eos_ids[0]] else DEAD_STATE
        tables, reached = self.tables, set[Configuration]()
        for control, node in self._members[state]:
            first, end = tables.edge_first[control], tables.edge_first[control + 1]
            place = first + int(np.searchsorted(tables.edge_class[first:end], token_class))
            if place < end and tables.edge_class[place] == token_class:
                self._arrive(int(tables.edge_arrival[place]), node, reached)
        alive = {member for member in reached if self._distance(*member) < self._infinite}
        return self.state_of(alive if len(alive) <= self._members_max else self._nearest(alive))

    def run(self, ids: list[int]) -> int:
        """The state after some token ids."""
        state = self.start
        for token in ids:
            state = self.successor(state, int(self.tables.token_class[token]))
        return state

    def _nearest(self, members: set[Configuration]) -> list[Configuration]:
        """As many configurations as are allowed. Those nearest to acceptance come first, with distinct tops before."""
        # Ties are decided by the stacks themselves: the numbers of nodes depend on the order of calls.
        order = sorted(members, key=lambda each: (self._distance(*each), each[0], self.stacks.symbols(each[1])))
        seen = dict[Configuration, int]()
        rank = []
        for control, node in order:
            top = control, self.stacks.symbol[node]
            seen[top] = seen.get(top, 0) + 1
            rank.append(seen[top])
        return [order[place] for place in np.argsort(rank, kind="stable")[: self._members_max].tolist()]

    def _distance(self, control: int, node: int) -> float:
        if (control, node) not in self._distances:
            rows = self._vectors.rows(np.array([control]))
            found = self._vectors.from_states(self.stacks, node, rows).tolist() if len(rows.first) else []
            self._distances[control, node] = min(found, default=self._infinite)
        return self._distances[control, node]

    def _arrive(self, arrival: int, node: int, reached: set[Configuration]) -> None:
        """Add the configurations after the items of an arrival."""
        waiting = [(arrival, node)]
        while waiting:
            arrival, node = waiting.pop()
            for item in self.tables.items(arrival).tolist():
                if item >= 0:
                    reached.add((int(self.tables.landing_state[item]), self._pushed(item, node)))
                elif node != BOTTOM:
                    entry = self._entries.get((self.stacks.symbol[node], ~item))
                    waiting += [] if entry is None else [(entry, self.stacks.below[node])]
                elif ~item == ACCEPTED_PENDING:
                    reached.add((ACCEPTED, BOTTOM))

    def _lower(self, row: np.ndarray, control: int, node: int) -> None:
        """Lower a row of distances by class to those from one configuration."""
        if control == ACCEPTED:
            return
        reads = self._reads.get(control)
        if reads is None:
            reads = self._reads[control] = self._read(control)
        least = np.full(len(reads.classes), self._infinite, dtype=row.dtype)
        np.minimum.at(least, reads.exits[:, 0], self._vectors.of(self.stacks, node)[reads.exits[:, 1]])
        for pushed, places, rows in reads.landings:
            if len(rows.first):
                above = self._vectors.from_states(self.stacks, self._pushed(pushed, node), rows)
                np.minimum.at(least, places[rows.kept], above)
        row[reads.classes] = np.minimum(row[reads.classes], least)

    def _read(self, control: int) -> _Reads:
        tables = self.tables
        edges = slice(tables.edge_first[control], tables.edge_first[control + 1])
        arrival = tables.edge_arrival[edges]
        place, counts = spread(tables.item_first[arrival], tables.item_first[arrival + 1])
        item, source = tables.item[place], np.repeat(np.arange(len(arrival)), counts)
        exits = np.column_stack([source, ~item])[item < 0]
        # Landings that push the same symbols are read together: their control states lie over one node.
        examples, landings = dict[tuple[int, ...], int](), dict[tuple[int, ...], list[tuple[int, int]]]()
        for which, landing in zip(source[item >= 0].tolist(), item[item >= 0].tolist(), strict=True):
            symbols = tuple(self._symbols(landing))
            examples.setdefault(symbols, landing)
            landings.setdefault(symbols, []).append((which, int(tables.landing_state[landing])))
        groups = list[tuple[int, np.ndarray, _StateValues]]()
        for symbols, pairs in landings.items():
            places, states = np.array(pairs).T
            groups.append((examples[symbols], places, self._vectors.rows(states)))
        return _Reads(tables.edge_class[edges], exits, groups)

    def _symbols(self, landing: int) -> Iterator[int]:
        """The symbols that a landing pushes, the deepest first."""
        while (below := int(self.tables.landing_below[landing])) != NO_LANDING:
            yield int(self.tables.landing_symbol[landing])
            landing = below

    def _pushed(self, landing: int, node: int) -> int:
        """The node with a landing's symbols above a node."""
        for symbol in self._symbols(landing):
            node = self.stacks.push(symbol, node)
        return node


class _Vectors:
    """The vectors of the nodes of stacks, computed at first need."""

    def __init__(self, tables: PushdownTables, distances: ExitDistances, infinite: float) -> None:
        self._infinite = infinite
        self.dtype = distances.within.dtype
        bottom = np.full(tables.pendings, infinite, dtype=self.dtype)
        bottom[ACCEPTED_PENDING] = 0
        self._of: dict[int, np.ndarray] = {BOTTOM: bottom}
        self._distances = distances
        self._first = np.searchsorted(distances.state, np.arange(tables.states + 1))  # of each control state's values
        ends = np.searchsorted(distances.symbol, np.arange(tables.symbols + 1))
        self._symbols = [self._of_symbol(slice(*pair)) for pair in pairwise(ends.tolist())]

    def _of_symbol(self, values: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The values of a symbol.

        These are the pendings above it, where the values of each begin, the pendings below, and the values.
        """
        entered = self._distances.entered[values]
        first = np.flatnonzero(np.diff(entered, prepend=-1))
        return entered[first], first, self._distances.left[values], self._distances.behind[values]

    def of(self, stacks: StackNodes, node: int) -> np.ndarray:
        """Least cost to acceptance from each pending above a node: [X]."""
        missing = []
        while node not in self._of:
            missing.append(node)
            node = stacks.below[node]
        vector = self._of[node]
        for node in reversed(missing):
            entered, first, left, behind = self._symbols[stacks.symbol[node]]
            below, vector = vector, np.full(len(vector), self._infinite, dtype=self.dtype)
            if len(first):
                vector[entered] = np.minimum(np.minimum.reduceat(behind + below[left], first), self._infinite)
            self._of[node] = vector
        return vector

    def rows(self, states: np.ndarray) -> _StateValues:
        """The places of the values of some control states."""
        position, counts = spread(self._first[states], self._first[states + 1])
        kept = np.flatnonzero(counts)
        return _StateValues(position, (np.cumsum(counts) - counts)[kept], kept)

    def from_states(self, stacks: StackNodes, node: int, rows: _StateValues) -> np.ndarray:
        """Least cost to acceptance from some control states over a node. There is at least one."""
        distances = self._distances
        sums = distances.within[rows.position] + self.of(stacks, node)[distances.pending[rows.position]]
        return np.asarray(np.minimum(np.minimum.reduceat(sums, rows.first), self._infinite))
