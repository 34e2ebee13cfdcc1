"""The states of a pushdown automaton that one generation meets.

A state is a set of configurations, each a control state and a stack. Stacks share their lower parts, and each node of a
stack has a vector of least costs (`StackVectors`), so that a distance takes a few additions, however high the stack is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from compiler.automata import grown
from compiler.lifting import UNREACHABLE
from compiler.pushdown.machine import ACCEPTED, BOTTOM, NOWHERE, Configuration, StackNodes, digest_above
from compiler.pushdown.pushdown_automaton import PushdownAutomaton
from compiler.pushdown.stack_vectors import ExitCosts, StackVectors
from compiler.pushdown.tables import ACCEPTED_PENDING, NO_LANDING

DEAD_STATE = 0  # the state without configurations
MEMBERS_MAX = 32  # configurations in a state
_NODE_BYTES, _MEMBER_BYTES, _STATE_BYTES = 300, 120, 400  # of Python's lists, dicts and tuples
_POPS_PER_MEMBER = 4  # a token leaves at most this many components for each configuration that a state may have

Stacks: TypeAlias = tuple[tuple[int, tuple[int, ...]], ...]
"""A state apart from any generation: the control states, each with the symbols of its stack, the top first."""
Integers = NDArray[np.int64]


class Configurations:
    """The states of one generation, numbered as they are met. State 0 is dead. Not thread-safe.

    members_max  how many configurations a state may have. Beyond it some readings of a text are dropped, never the one
                 that is nearest to acceptance: every configuration alone is a true reading, so what is kept can still
                 be finished within its distance.
    costs        other costs than one per token, for `costs` and `class_costs`
    start        the state before the first token, if it is not the automaton's own

    Numbers depend on the order of calls, everything else does not. `dropped_readings` says whether readings of a text
    were dropped.

    >>> from compiler.limits import DEFAULT_LIMITS, ResourceGuard
    >>> from compiler.pushdown import Grammar, build_machine, call, lift_to_tokens
    >>> from compiler.regex import Concat, Repeat, literal_node
    >>> from compiler.vocab import Vocabulary
    >>> guard = ResourceGuard(DEFAULT_LIMITS)
    >>> nested = Concat((literal_node("(", False), Repeat(call(0), 0, 1), literal_node(")", False)))
    >>> vocabulary = Vocabulary((b"(", b")", b"))", None), (3,))
    >>> automaton = lift_to_tokens(build_machine(Grammar(("s",), (nested,)), guard), vocabulary, guard)
    >>> states = Configurations(automaton)
    >>> states.distance_of(states.run([0, 0, 0])), states.distance_of(states.run([0, 0, 0, 2]))  # "))", ")", EOS
    (3, 2)
    """

    def __init__(
        self, automaton: PushdownAutomaton, *, members_max: int = MEMBERS_MAX, costs: ExitCosts | None = None,
        start: Stacks | None = None,
    ) -> None:
        self.tables, self.eos_ids = automaton.tables, automaton.eos_ids
        self.token_class, self.classes = automaton.token_class, automaton.classes
        self.stacks = StackNodes()
        self._members_max, self.dropped_readings = members_max, False
        self._automaton = automaton
        self._vectors = StackVectors(automaton.exit_costs, self.stacks)
        self._cost_vectors = None if costs is None else StackVectors(costs, self.stacks)
        self._eos_class = int(self.token_class[self.eos_ids[0]])
        self._members: list[tuple[Configuration, ...]] = []
        self._numbers: dict[tuple[Configuration, ...], int] = {}
        self._distance = np.empty(64, dtype=np.int32)
        self._items: dict[int, list[int]] = {}  # of arrivals
        self._after: dict[int, int] = {}  # by state * C + class
        self._add_state((), UNREACHABLE)
        self._accepted = self._add_state(((ACCEPTED, BOTTOM),), 0)
        self._after[self._accepted * self.classes + self._eos_class] = self._accepted  # after EOS only EOS may follow
        self.start = self.state_of([(self.tables.start, BOTTOM)] if start is None else map(self._configuration, start))

    @property
    def states(self) -> int:
        """How many states have numbers so far."""
        return len(self._members)

    def distance_of(self, state: int) -> int:
        """Fewest tokens to acceptance, EOS included, or UNREACHABLE."""
        return self._distance.item(state)

    def distances(self, states: Integers) -> NDArray[np.int32]:
        """The same of several states: [R]."""
        return self._distance[states]

    def state_of(self, configurations: Iterable[Configuration]) -> int:
        """The number of a set of configurations with nodes of `stacks`."""
        members = tuple(sorted(set(configurations)))
        if members in self._numbers:
            return self._numbers[members]
        self._vectors.update()
        control, node = np.array(members).T
        return self._add_state(members, self._least(self._vectors.least(control, node)))

    def stacks_of(self, state: int) -> Stacks:
        """The state apart from this generation."""
        return tuple(sorted((control, self.stacks.symbols(node)) for control, node in self._members[state]))

    def members(self, state: int) -> tuple[Configuration, ...]:
        """The configurations of a state, ascending."""
        return self._members[state]

    def control_of(self, state: int) -> int:
        """The least control state of a state, or ACCEPTED. The dead state has NOWHERE."""
        return min((control for control, _ in self._members[state]), default=NOWHERE)

    def is_accepting(self, state: int) -> bool:
        """Whether the text is finished, EOS included."""
        return state == self._accepted

    def class_distances(self, states: Integers) -> NDArray[np.int32]:
        """The distance after one token of each class: [R, C]."""
        found = self._by_class(self._vectors, states)
        found[found >= self._vectors.costs.infinite] = UNREACHABLE
        return found

    def class_costs(self, states: Integers) -> NDArray[np.float64]:
        """The cost to acceptance after one token of each class.

        The costs are [R, C], 0 where acceptance cannot be reached.
        """
        assert self._cost_vectors is not None
        found = self._by_class(self._cost_vectors, states)
        found[found == np.inf] = 0.0  # a weight of 0 may follow
        return found

    def costs(self, states: Integers) -> NDArray[np.float64]:
        """The cost to acceptance of each state: [R]; 0 if dead."""
        assert self._cost_vectors is not None
        vectors, found = self._cost_vectors, np.full(len(states), np.inf)
        vectors.update()
        row, control, node = self._flat(states)
        np.minimum.at(found, row, vectors.least(control, node))
        found[(states == self._accepted) | (states == DEAD_STATE)] = 0.0
        return found

    def distances_after(self, state: int) -> NDArray[np.int32]:
        """The distance after one token of each class: [C]."""
        self._vectors.update()
        found = self._row(self._vectors, state)
        found[found >= self._vectors.costs.infinite] = UNREACHABLE
        return found

    def expand(self, state: int) -> tuple[NDArray[np.int32], Callable[[int], int]]:
        """What one token of each class leads to.

        Returns the distances there, [C], and a function from classes to states.
        """
        return self.distances_after(state), lambda token_class: self._successor(state, token_class)

    def live_classes(self, state: int) -> tuple[NDArray[np.bool_], Callable[[int], int]]:
        """The classes that acceptance can be reached after.

        They are [C], beside a function from them to states.
        """
        distances, after = self.expand(state)
        return distances != UNREACHABLE, after

    def advance(self, state: int, token: int) -> int:
        """The state after one token id."""
        return self._successor(state, int(self.token_class[token]))

    def run(self, ids: Iterable[int]) -> int:
        """The state after some token ids."""
        state = self.start
        for token in ids:
            state = self.advance(state, token)
        return state

    def successors(self, states: Integers, classes: Integers) -> Integers:
        """The state after one token of a class, for each pair.

        The states are int64 [N]. Configurations that cannot be finished are dropped.
        """
        pairs = zip(states.tolist(), classes.tolist(), strict=True)
        return np.array([self._successor(state, token_class) for state, token_class in pairs], dtype=np.int64)

    def bytes_max(self, rows: int, max_tokens: int) -> int:
        """The most bytes of the states of rows with this many tokens."""
        tokens = rows * max_tokens
        tables, vectors = self.tables, (self._vectors, self._cost_vectors)
        most_items = int(np.diff(tables.item_first).max(initial=0))
        members = tokens * (self._members_max if most_items > 1 else 1)  # one stays one where no arrival has two items
        pushed = int(self._automaton.landing_height.max(initial=0))
        node_bytes = sum(3 * vector.row_bytes for vector in vectors if vector) + _NODE_BYTES  # they grow by copies
        start = len(self.stacks) * node_bytes  # a prompt may have pushed many
        return start + members * (pushed * node_bytes + _MEMBER_BYTES) + tokens * _STATE_BYTES

    def _successor(self, state: int, token_class: int) -> int:
        key = state * self.classes + token_class
        found = self._after.get(key)
        if found is None:
            found = self._after[key] = self._reach(state, token_class)
        return found

    def _configuration(self, stack: tuple[int, tuple[int, ...]]) -> Configuration:
        control, symbols = stack
        node = BOTTOM
        for symbol in reversed(symbols):
            node = self.stacks.push(symbol, node)
        return control, node

    def _add_state(self, members: tuple[Configuration, ...], distance: int) -> int:
        number = self._numbers.setdefault(members, len(self._members))
        if number == len(self._members):
            self._members.append(members)
            if number == len(self._distance):
                self._distance = grown(self._distance, 2 * number)
            self._distance[number] = distance
        return number

    def _least(self, distances: np.ndarray) -> int:
        least = int(distances.min(initial=self._vectors.costs.infinite))
        return least if least < self._vectors.costs.infinite else UNREACHABLE

    def _flat(self, states: Integers) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The configurations of some states: row, control state and node of each. Finished texts have none."""
        members = [() if state == self._accepted else self._members[state] for state in states.tolist()]
        pairs = np.array(list(chain.from_iterable(members)), dtype=np.int64).reshape(-1, 2)
        return np.repeat(np.arange(len(members)), list(map(len, members))), pairs[:, 0], pairs[:, 1]

    def _by_class(self, vectors: StackVectors, states: Integers) -> np.ndarray:
        vectors.update()
        found = np.empty((len(states), self.classes), dtype=vectors.costs.dtype)
        first = dict[int, int]()  # the row of each state
        for place, state in enumerate(states.tolist()):
            same = first.setdefault(state, place)
            found[place] = self._row(vectors, state) if same == place else found[same]
        return found

    def _row(self, vectors: StackVectors, state: int) -> np.ndarray:
        """The cost after one token of each class: [C]."""
        if state == self._accepted or state == DEAD_STATE:
            row = np.full(self.classes, vectors.costs.infinite, dtype=vectors.costs.dtype)
            row[self._eos_class] = 0 if state == self._accepted else vectors.costs.infinite
            return row
        (control, node), *others = self._members[state]
        row = vectors.by_class(control, node)
        for control, node in others:
            np.minimum(row, vectors.by_class(control, node), out=row)
        return row

    def _reach(self, state: int, token_class: int) -> int:
        """Find the state after one token of a class."""
        if state == self._accepted:
            return DEAD_STATE  # after EOS only EOS may follow
        self._vectors.update()
        arrivals = list[Configuration]()
        for control, node in self._members[state]:
            row = self._vectors.costs.row(control)
            if arrival := row.arrivals.item(row.slot.item(token_class)):
                arrivals.append((arrival, node))
        pairs = self._landings(arrivals)
        return self._state_after(pairs, self._distances(pairs))

    def _landings(self, arrivals: list[Configuration]) -> list[Configuration]:
        """The landings after some arrivals, each over a node. A finished text is (ACCEPTED, BOTTOM).

        The components that lead to acceptance soonest are left first. The bound never cuts off the nearest landing.
        """
        stacks, pairs, waiting = self.stacks, dict[Configuration, None](), list[tuple[float, int, int, int]]()
        seen, pops, nearest, measured = set[Configuration](), 0, float(self._vectors.costs.infinite), 0

        def add(arrival: int, node: int) -> None:
            items = self._items.get(arrival)
            if items is None:
                items = self._items[arrival] = self.tables.items(arrival).tolist()
            for item in items:
                if item >= 0:
                    pairs[item, node] = None
                elif node == BOTTOM:
                    if ~item == ACCEPTED_PENDING:
                        pairs[ACCEPTED, BOTTOM] = None
                elif (node, ~item) not in seen:
                    seen.add((node, ~item))
                    value = self._vectors.value(node, ~item)
                    if value < self._vectors.costs.infinite:
                        # Ties are settled by the stacks themselves: numbers of nodes depend on the order of calls.
                        heappush(waiting, (value, ~item, stacks.digest[node], node))

        for pair in arrivals:
            add(*pair)
        while waiting:
            if pops >= _POPS_PER_MEMBER * self._members_max:
                nearest = min([nearest, *self._distances(list(pairs)[measured:])])
                measured = len(pairs)
                if nearest <= waiting[0][0]:
                    self.dropped_readings = True
                    break
            _, pending, _, node = heappop(waiting)
            pops += 1
            entry = self._automaton.entry_at.item(stacks.symbol[node] * self.tables.pendings + pending)
            if entry >= 0:
                add(entry, stacks.below[node])
        return list(pairs)

    def _distances(self, pairs: list[Configuration]) -> list[int]:
        """The distance of each landing over a node."""
        if len(pairs) == 1 and pairs[0][0] != ACCEPTED:
            return [int(self._vectors.least_of(*pairs[0]))]
        landing, node = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        accepted = landing == ACCEPTED
        found = self._vectors.least(np.where(accepted, 0, landing), node)
        found[accepted] = 0
        distances: list[int] = found.tolist()
        return distances

    def _state_after(self, pairs: list[Configuration], distances: list[int]) -> int:
        """The state of the landings that can be finished, within the limit."""
        infinite = self._vectors.costs.infinite
        alive = [(value, *pair) for pair, value in zip(pairs, distances, strict=True) if value < infinite]
        if not alive:
            return DEAD_STATE
        if len(alive) > self._members_max:
            alive, self.dropped_readings = self._nearest(alive), True
        members = {self._pushed(landing, node) for _, landing, node in alive}
        return self._add_state(tuple(sorted(members)), min(alive)[0])

    def _nearest(self, landings: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        """As many landings as are allowed. Those nearest to acceptance come first, with distinct tops before.

        A landing is a distance, a landing and a node. Several may lead to one configuration, which counts once.
        """
        # Stacks are compared by their digests: numbers of nodes depend on the order of calls, and no node is made for
        # what is dropped.
        distinct = dict[tuple[int, int, int, int], tuple[int, int, int]]()
        for each in landings:
            distance, landing, node = each
            symbols, digest = self._symbols(landing), self.stacks.digest[node]
            for symbol in symbols:
                digest = digest_above(symbol, digest)
            control, top = self._control(landing), symbols[-1] if symbols else self.stacks.symbol[node]
            distinct[distance, control, digest, top] = each
        seen = dict[Configuration, int]()
        ranked = list[tuple[int, int]]()
        order = sorted(distinct)
        for place, (_, control, _, top) in enumerate(order):
            seen[control, top] = seen.get((control, top), 0) + 1
            ranked.append((seen[control, top], place))
        return [distinct[order[place]] for _, place in sorted(ranked)[: self._members_max]]

    def _control(self, landing: int) -> int:
        return ACCEPTED if landing == ACCEPTED else int(self.tables.landing_state[landing])

    def _symbols(self, landing: int) -> list[int]:
        """The symbols that a landing pushes, the deepest first."""
        symbols = list[int]()
        while landing != ACCEPTED and (below := int(self.tables.landing_below[landing])) != NO_LANDING:
            symbols.append(int(self.tables.landing_symbol[landing]))
            landing = below
        return symbols

    def _pushed(self, landing: int, node: int) -> Configuration:
        """The configuration of a landing over a node."""
        for symbol in self._symbols(landing):
            node = self.stacks.push(symbol, node)
        return self._control(landing), node
