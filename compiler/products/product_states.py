"""The states of a lazy product that one generation meets."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import compress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from compiler.automata import grown, unique_rows
from compiler.lifting import UNREACHABLE
from compiler.products.product import LazyProduct, ProductStart
from compiler.products.space import KNOWN_MAX, ProductCosts, ProductSpace, is_alive
from compiler.products.witnesses import Completion, State, Witness, complete
from compiler.pushdown import MEMBERS_MAX, NOWHERE

UNKNOWN = UNREACHABLE - 1
"""The distance of a state that may reach acceptance, but for which no witness was found."""
EXPANSIONS_MAX = 128  # of all searches for one state: half for its own witness, half for those of its successors
_EXPANSIONS_PER_SEARCH, _EXPANSIONS_AT_START = 16, 500
_NEAR = 8  # tokens that a search may be expected to need
_DETOUR_MAX = 2  # tokens before a state's witness is used again
_DEAD_STATE, _ACCEPTED = 0, 1
_TABLES_BYTES_MAX, _COMPLETIONS_MAX = 64 * 2**20, 4_096  # of the successors that are kept, and results of searches
_CLASS_BYTES, _STATE_BYTES, _ID_BYTES = 140, 600, 36  # of arrays, and of Python's tuples, dicts and integers
_PART_STATES = 16  # states of a pushdown part for each state of the product
_NOTHING: Witness = ()
Integers = NDArray[np.int64]


class _Successors(NamedTuple):
    """What the tokens after a state lead to. Classes that lead to one state are a group.

    bound     int32 [C]   no fewer tokens lead to acceptance
    distance  int32 [C]   the length of the group's witness or its upper bound, UNKNOWN or UNREACHABLE
    group     int32 [C]   -1 for EOS and where acceptance is out of reach
    states    int64 [G, n]
    witness   by group; None where none was found
    """

    bound: np.ndarray
    distance: np.ndarray
    group: np.ndarray
    states: Integers
    witness: list[Witness | None]

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays and the witnesses. Integers are shared."""
        places = sum(0 if each is None else len(each) for each in self.witness)
        return 12 * len(self.group) + self.states.nbytes + 64 * len(self.witness) + 8 * places


class ProductStates:
    """The states of one generation, numbered as they are met. State 0 is dead. Not thread-safe.

    A state is a row of the parts' states and a witness from there, whose length is its distance: an upper bound of the
    true one. Where the parts know one that is no longer, it needs no witness. Each successor gets a witness of its own:
    the rest of this state's, where the token is its first; else what of this state's is still of use after the token;
    else what a search finds. So one token always leads nearer to acceptance. What a state's successors are depends on
    the state alone.

    expansions_max  how many states the searches for one state expand, and for its successors
    members_max     as in `Configurations`
    costs           other costs than one per token, for `costs` and `class_costs`
    start           the state before the first token, if it is not the product's own

    Numbers depend on the order of calls, everything else does not.
    """

    def __init__(
        self, product: LazyProduct, *, expansions_max: int = EXPANSIONS_MAX, members_max: int = MEMBERS_MAX,
        costs: ProductCosts | None = None, start: ProductStart | None = None,
    ) -> None:
        start = start or product.start
        self.token_class, self.classes, self.eos_ids = product.token_class, product.classes, product.eos_ids
        self._space = space = product.space(start.parts, members_max, costs)
        self._expansions_max = expansions_max
        self._members: list[tuple[State, Witness | None]] = []
        self._numbers: dict[tuple[State, Witness | None], int] = {}
        self._distance = np.empty(64, dtype=np.int32)
        # Both save time alone: what is dropped is found again, and the same.
        self._successors, self._tables_bytes = OrderedDict[int, _Successors](), 0
        self._completions: dict[State, Completion] = {}
        self._own_witness: dict[State, Witness | None] = {}
        self._add_state(((), None), UNREACHABLE)
        self._add_state(((), ()), 0)
        witness = None if start.witness is None else tuple(self.token_class[list(start.witness)].tolist())
        if not self._is_accepted(space.start, witness):  # parts may drop other readings than those of the compilation
            witness = complete(space, space.start, _EXPANSIONS_AT_START).witness
        self.start = self._number(space.start, witness)

    @property
    def dropped_readings(self) -> bool:
        """Whether a reading of some text was dropped."""
        return self._space.dropped_readings

    @property
    def states(self) -> int:
        """How many states have numbers so far."""
        return len(self._members)

    def distance_of(self, state: int) -> int:
        """The tokens of the state's witness, EOS included. UNKNOWN without one; UNREACHABLE if dead."""
        return self._distance.item(state)

    def distances(self, states: Integers) -> NDArray[np.int32]:
        """The same of several states: [R]."""
        return self._distance[states]

    def control_of(self, state: int) -> int:
        """What is shown of a state: that of the first part. The dead state and the end have NOWHERE."""
        return NOWHERE if state <= _ACCEPTED else self._space.parts[0].control_of(self._members[state][0][0])

    def class_distances(self, states: Integers) -> NDArray[np.int32]:
        """The distance after one token of each class: [R, C]."""
        return np.stack([self._after(state).distance for state in states.tolist()])

    def class_bounds(self, states: Integers) -> NDArray[np.int32]:
        """A lower bound of the distance after each class: [R, C]."""
        return np.stack([self._after(state).bound for state in states.tolist()])

    def class_costs(self, states: Integers) -> NDArray[np.float64]:
        """The estimated cost to acceptance after one token of each class.

        The costs are [R, C], 0 where acceptance cannot be reached.
        """
        found = np.empty((len(states), self.classes))
        for row, after in enumerate(map(self._after, states.tolist())):
            found[row] = np.append(self._space.costs(after.states, after.witness), 0.0)[after.group]  # 0: no group
        return found

    def costs(self, states: Integers) -> NDArray[np.float64]:
        """The estimated cost to acceptance of each state: [R]; 0 if dead."""
        found, live = np.zeros(len(states)), np.flatnonzero(states > _ACCEPTED)
        if len(live):
            members, witnesses = zip(*(self._members[state] for state in states[live].tolist()), strict=True)
            found[live] = self._space.costs(np.array(members), witnesses)
        return found

    def expand(self, state: int) -> tuple[NDArray[np.int32], Callable[[int], int]]:
        """What one token of each class leads to.

        Returns the distances there, [C], and a function from classes to states.
        """
        return self._after(state).distance, lambda token_class: self._successor(state, token_class)

    def live_classes(self, state: int) -> tuple[NDArray[np.bool_], Callable[[int], int]]:
        """The classes that acceptance is not ruled out after.

        They are [C], beside a function from them to states. These have no witnesses, so that none is searched for.
        """
        if state <= _ACCEPTED:
            distances, after = self.expand(state)
            return distances != UNREACHABLE, after
        member = self._members[state][0]
        bounds = self._space.class_bounds(member)[0]

        def state_after(token_class: int) -> int:
            if bounds[token_class] == 0:
                return _ACCEPTED
            (found,) = self._space.after(np.array([member]), np.array([token_class]))
            return self._add_state((self._space.key(found), None), UNKNOWN)

        return is_alive(bounds), state_after

    def advance(self, state: int, token: int) -> int:
        """The state after one token id."""
        return self._successor(state, int(self.token_class[token]))

    def successors(self, states: Integers, classes: Integers) -> Integers:
        """The state after one token of a class, for each pair.

        They are int64 [N].
        """
        pairs = zip(states.tolist(), classes.tolist(), strict=True)
        return np.array([self._successor(state, token_class) for state, token_class in pairs], dtype=np.int64)

    def bytes_max(self, rows: int, max_tokens: int) -> int:
        """The most bytes of the states of rows with this many tokens."""
        states = rows * max_tokens
        # A row's witness fits its budget. After a token, a detour and a search may stand before what is left of it.
        longest = max_tokens + _DETOUR_MAX + _EXPANSIONS_PER_SEARCH
        table = self.classes * (_CLASS_BYTES + 8 * len(self._space.parts) + 8 * longest)
        tables = min(states * table, _TABLES_BYTES_MAX + table)
        completions = _COMPLETIONS_MAX * (_STATE_BYTES + _ID_BYTES * _EXPANSIONS_PER_SEARCH)
        members = states * (_STATE_BYTES + 8 * longest + _ID_BYTES * (self._expansions_max // 2))
        of_parts = sum(part.bytes_max(_PART_STATES * states) for part in self._space.parts)
        return tables + completions + members + of_parts + 4 * KNOWN_MAX * self.classes

    def _successor(self, state: int, token_class: int) -> int:
        found = self._after(state)
        if found.distance[token_class] == 0:
            return _ACCEPTED
        group = int(found.group[token_class])
        return _DEAD_STATE if group < 0 else self._number(tuple(found.states[group].tolist()), found.witness[group])

    def _number(self, state: State, witness: Witness | None) -> int:
        if self._space.bounds(np.array([state]))[0][0] == UNREACHABLE:
            return _DEAD_STATE
        upper = int(self._space.uppers(np.array([state]))[0])
        if witness is None or upper <= len(witness):
            return self._add_state((state, None), min(upper, UNKNOWN))
        # Rows that met the same obligations in another order carry other witnesses. Equally long ones are made one, so
        # that the rows share their successors.
        if state not in self._own_witness:
            self._own_witness[state] = complete(self._space, state, self._expansions_max // 2).witness
        own = self._own_witness[state]
        return self._add_state((state, own if own and len(own) == len(witness) else witness), len(witness))

    def _add_state(self, member: tuple[State, Witness | None], distance: int) -> int:
        number = self._numbers.setdefault(member, len(self._members))
        if number == len(self._members):
            self._members.append(member)
            if number == len(self._distance):
                self._distance = grown(self._distance, 2 * number)
            self._distance[number] = distance
        return number

    def _is_accepted(self, state: State, witness: Witness | None) -> bool:
        """Whether the witness leads from the state to acceptance."""
        if witness is None:
            return False
        current = np.array([state])
        for token_class in witness[:-1]:
            current = self._space.after(current, np.array([token_class]))
        return int(self._space.bounds(current)[0][0]) == 1 and witness[-1] == self._space.eos_class

    def _after(self, state: int) -> _Successors:
        if state not in self._successors:
            if len(self._completions) >= _COMPLETIONS_MAX:
                self._completions.clear()
            self._successors[state] = found = self._found(state)
            self._tables_bytes += found.nbytes
            while self._tables_bytes > _TABLES_BYTES_MAX and len(self._successors) > 1:
                self._tables_bytes -= self._successors.popitem(last=False)[1].nbytes
        self._successors.move_to_end(state)
        return self._successors[state]

    def _found(self, number: int) -> _Successors:
        space = self._space
        distance = np.full(self.classes, UNREACHABLE, dtype=np.int32)
        group = np.full(self.classes, -1, dtype=np.int32)
        if number <= _ACCEPTED:
            distance[space.eos_class] = 0 if number == _ACCEPTED else UNREACHABLE  # after EOS only EOS may follow
            return _Successors(distance, distance, group, np.zeros((0, len(space.parts)), dtype=np.int64), [])
        state, witness = self._members[number]
        bounds = space.class_bounds(state)[0]
        if bounds[space.eos_class] == 0:
            distance[space.eos_class] = 0
        alive = is_alive(bounds)
        alive[space.eos_class] = False
        live = np.flatnonzero(alive)
        if not len(live):
            return _Successors(bounds, distance, group, np.zeros((0, len(space.parts)), dtype=np.int64), [])
        after = space.after(np.repeat([state], len(live), axis=0), live)
        first, which = unique_rows(after)
        states, group[live] = after[first], which
        search = _Search(space, self._completions, self._expansions_max - self._expansions_max // 2, states)
        if witness is not None:
            if witness[0] != space.eos_class:
                search.witnesses[group[witness[0]]] = witness[1:]
            search.follow(witness)
        search.complete()
        witnesses = search.witnesses
        lengths = np.array([UNKNOWN if each is None else len(each) for each in witnesses], dtype=np.int32)
        distance[live] = np.minimum(lengths, space.uppers(states))[which]
        return _Successors(bounds, distance, group, states, witnesses)


class _Search:
    """Searches witnesses for the successors of one state.

    It expands a bounded number of states.

    completions  what was found from other states; it saves time, but counts as if it were searched
    states       int64 [G, n]  the successors
    witnesses    by successor; None where none is found yet
    """

    def __init__(
        self, space: ProductSpace, completions: dict[State, Completion], expansions_max: int, states: Integers
    ) -> None:
        self._space, self._completions, self._left, self._states = space, completions, expansions_max, states
        self._closed = (space.uppers(states) == space.bounds(states)[0]).tolist()  # these need no witness
        self._found: dict[State, Witness | None] = {}
        self.witnesses: list[Witness | None] = [None] * len(states)

    def follow(self, witness: Witness) -> None:
        """Use the witness of the state before.

        All of it, or its tokens that bring a successor nearer to acceptance, or these after others.
        """
        beginnings, ends = [_NOTHING] * len(self._states), self._states.copy()
        for detour in range(_DETOUR_MAX + 1):
            rows = self._missing()
            if detour:
                rows = rows[: self._left]
                self._detour(rows, beginnings, ends)
            if not rows:
                return
            found, taken, after = self._remaining(ends[rows], witness)
            for row, rest in zip(rows, found, strict=True):
                self.witnesses[row] = None if rest is None else beginnings[row] + rest
            self._complete(rows, [beginnings[row] + part for row, part in zip(rows, taken, strict=True)], after)

    def complete(self) -> None:
        """Search from the successors themselves."""
        rows = self._missing()
        self._complete(rows, [()] * len(rows), self._states[rows])

    def _missing(self) -> list[int]:
        return [row for row, witness in enumerate(self.witnesses) if witness is None and not self._closed[row]]

    def _detour(self, rows: list[int], beginnings: list[Witness], ends: Integers) -> None:
        """Extend some beginnings by the token with the best estimate.

        The token may complete a half-written character.
        """
        self._left -= len(rows)
        moved, best = list[int](), list[int]()
        for row in rows:
            bounds, estimates = self._space.class_bounds(ends[row].tolist())
            classes = np.flatnonzero(is_alive(bounds) & (bounds != 0))
            if len(classes):
                moved.append(row)
                best.append(int(classes[np.argmin(estimates[classes])]))
                beginnings[row] = (*beginnings[row], best[-1])
        if moved:
            ends[moved] = self._space.after(ends[moved], np.array(best))

    def _remaining(
        self, states: Integers, witness: Witness
    ) -> tuple[list[Witness | None], list[Witness], Integers]:
        """What of a witness leads from each state to acceptance.

        It is all of it, or the tokens that bring the state nearer.

        Also these tokens, and the states after them: int64 [N, n].
        """
        space, count = self._space, len(states)
        current = np.concatenate([states, states])
        thrifty = np.arange(2 * count) >= count  # rows that take only tokens of use
        used = np.zeros((2 * count, len(witness)), dtype=np.bool_)
        bounds, estimates = space.bounds(current)
        finished = bounds == 1
        for place, token_class in enumerate(witness[:-1]):
            active = np.flatnonzero(~finished & is_alive(bounds))
            if not len(active):
                break
            after = space.after(current[active], np.full(len(active), token_class))
            bound, estimate = space.bounds(after)
            moved = ~thrifty[active] | (is_alive(bound) & (estimate < estimates[active]))
            rows = active[moved]
            current[rows], bounds[rows], estimates[rows] = after[moved], bound[moved], estimate[moved]
            used[rows, place] = True
            finished[rows] = bound[moved] == 1
        length = np.where(finished, 1 + used.sum(axis=1), UNKNOWN)
        best = np.where(length[count:] < length[:count], np.arange(count, 2 * count), np.arange(count))
        beginnings = [tuple(compress(witness, row)) for row in used[count:].tolist()]
        used[:, -1] = True
        whole = [tuple(compress(witness, row)) if ends else None for row, ends in zip(
            used[best].tolist(), finished[best].tolist(), strict=True
        )]  # fmt: skip
        return whole, beginnings, current[count:]

    def _complete(self, rows: list[int], beginnings: list[Witness], ends: Integers) -> None:
        """Complete the beginnings of missing witnesses. Those that end nearest to acceptance come first.

        ends  int64 [N, n]  the states after the beginnings
        """
        _, estimates = self._space.bounds(ends)
        for place in np.argsort(estimates, kind="stable").tolist():
            if self.witnesses[rows[place]] is None and estimates[place] - len(self._space.parts) < _NEAR:
                end = self._from(tuple(ends[place].tolist()))
                self.witnesses[rows[place]] = None if end is None else beginnings[place] + end

    def _from(self, state: State) -> Witness | None:
        if state not in self._found:
            found = self._completion(state, min(_EXPANSIONS_PER_SEARCH, self._left))
            self._found[state] = found.witness
            self._left -= found.expansions
        return self._found[state]

    def _completion(self, state: State, expansions_max: int) -> Completion:
        """What a search from a state finds. It may be known already."""
        known = self._completions.get(state)
        if known is not None and known.expansions > expansions_max:
            return Completion(None, expansions_max)
        if known is not None:
            return known
        found = complete(self._space, state, expansions_max)
        if found.witness is not None or expansions_max == _EXPANSIONS_PER_SEARCH:
            self._completions[state] = found
        return found
