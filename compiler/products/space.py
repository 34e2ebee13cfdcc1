"""The graph of a product's states, with bounds of their distances.

A state is a row of the parts' states: int64 [n]. Several states are int64 [N, n].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from compiler.lifting import UNREACHABLE, TokenAutomaton
from compiler.products.distinct import DistinctAutomaton, DistinctPart
from compiler.products.formula import Formula, estimate, fold, has_alternatives, least, needed
from compiler.pushdown import Configurations, ExitCosts, PushdownAutomaton, Stacks

PartStart: TypeAlias = int | Stacks
"""A state of a part apart from any generation. 0 and no stacks are dead. That of distinct letters is like a stack."""
Part: TypeAlias = TokenAutomaton | PushdownAutomaton | DistinctAutomaton
"""A part of a product."""
Integers = NDArray[np.int64]
_DEAD_PART = 0
KNOWN_MAX = 512  # states of parts whose distances after each class are kept


@dataclass(frozen=True, slots=True, eq=False)
class ProductCosts:
    """Costs of a product's tokens, and of its parts to acceptance.

    classes  float64 [C], of a token of each class
    eos      of EOS
    token    of a token where no witness tells it
    parts    float64 [S] of an explicit automaton's states, or those of a pushdown automaton; EOS is included. Empty
             where no part is an alternative: the cost to go is that of a state's witness then
    """

    classes: np.ndarray
    eos: float
    token: float
    parts: tuple[np.ndarray | ExitCosts, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return int(self.classes.nbytes) + sum(part.nbytes for part in self.parts)


class PartStates(Protocol):
    """The states of one part. State 0 is dead."""

    @property
    def dropped_readings(self) -> bool:
        """Whether a reading of some text was dropped."""

    def distances(self, states: Integers) -> np.ndarray:
        """Fewest tokens to acceptance, or a lower bound: int32 [N]."""

    def class_distances(self, state: int) -> np.ndarray:
        """The distance after one token of each class: int32 [C]."""

    def costs(self, states: Integers) -> np.ndarray:
        """The cost to acceptance, of a part that has costs: float64 [N]."""

    def after(self, states: Integers, classes: Integers) -> Integers:
        """The states after one token of a class each: int64 [N]."""

    def control_of(self, state: int) -> int:
        """What is shown of a state."""

    def bytes_max(self, states: int) -> int:
        """The most bytes of this many states."""


class ExplicitPart:
    """The states of an explicit automaton."""

    dropped_readings = False

    def __init__(self, automaton: TokenAutomaton, costs: np.ndarray | None = None) -> None:
        self._automaton, self._costs = automaton, costs

    def distances(self, states: Integers) -> np.ndarray:
        return self._automaton.distances(states)

    def class_distances(self, state: int) -> np.ndarray:
        return self._automaton.expand(state)[0]

    def costs(self, states: Integers) -> np.ndarray:
        assert self._costs is not None
        return self._costs[states]

    def after(self, states: Integers, classes: Integers) -> Integers:
        tables = self._automaton
        row, letter = np.divmod(states, tables.letter_states)
        edge = tables.edges_after(row, classes)
        letters = tables.function[tables.edge_function[edge], letter]
        return np.asarray(tables.edge_target[edge].astype(np.int64) * tables.letter_states + letters)

    def control_of(self, state: int) -> int:
        return state

    def bytes_max(self, states: int) -> int:
        return 0


class PushdownPart:
    """The states of a pushdown automaton, numbered as they are met."""

    def __init__(self, configurations: Configurations) -> None:
        self._configurations = configurations

    @property
    def dropped_readings(self) -> bool:
        return self._configurations.dropped_readings

    def distances(self, states: Integers) -> np.ndarray:
        return self._configurations.distances(states)

    def class_distances(self, state: int) -> np.ndarray:
        return self._configurations.distances_after(state)

    def costs(self, states: Integers) -> np.ndarray:
        return self._configurations.costs(states)

    def after(self, states: Integers, classes: Integers) -> Integers:
        return self._configurations.successors(states, classes)

    def control_of(self, state: int) -> int:
        return self._configurations.control_of(state)

    def bytes_max(self, states: int) -> int:
        return self._configurations.bytes_max(1, states)


class ProductSpace:
    """The states of a product. Not thread-safe.

    part_class  int32 [n, C]  the class that the tokens of a class have in each part
    start       the state from the parts' starts

    Numbers of a pushdown part's states depend on the order of calls, everything else does not.
    """

    def __init__(
        self, parts: Sequence[Part], formula: Formula, part_class: np.ndarray,
        starts: Sequence[PartStart], *, eos_class: int, members_max: int, costs: ProductCosts | None = None,
    ) -> None:
        self.part_class, self.eos_class, self.formula = part_class.astype(np.int64), eos_class, formula
        self._alternatives, self._costs = has_alternatives(formula), costs
        self._known: dict[tuple[int, int], np.ndarray] = {}  # it saves time alone
        self.parts = list[PartStates]()
        first = list[int]()
        costs_of = costs.parts if costs is not None and costs.parts else [None] * len(parts)
        for part, at, cost in zip(parts, starts, costs_of, strict=True):
            if isinstance(part, PushdownAutomaton):
                assert not isinstance(at, int) and not isinstance(cost, np.ndarray)
                configurations = Configurations(part, members_max=members_max, costs=cost, start=at)
                self.parts.append(PushdownPart(configurations))
                first.append(configurations.start)
            elif isinstance(part, DistinctAutomaton):
                assert not isinstance(at, int) and not isinstance(cost, ExitCosts)
                distinct = DistinctPart(part, at, cost)
                self.parts.append(distinct)
                first.append(distinct.start)
            else:
                assert isinstance(at, int) and not isinstance(cost, ExitCosts)
                self.parts.append(ExplicitPart(part, cost))
                first.append(at)
        start = np.array([first], dtype=np.int64)
        self.start = self.key(self._without_dead(start, self._part_distances(start))[0])

    @property
    def classes(self) -> int:
        return int(self.part_class.shape[1])

    def key(self, state: Integers) -> tuple[int, ...]:
        """A state as a key of a dict."""
        return tuple(state.tolist())

    @property
    def dropped_readings(self) -> bool:
        """Whether a pushdown part has dropped a reading of some text."""
        return any(part.dropped_readings for part in self.parts)

    def bounds(self, states: Integers) -> tuple[np.ndarray, np.ndarray]:
        """The lower bound of each state's distance, and its estimate: [N]."""
        distances = self._part_distances(states)
        return least(self.formula, distances), estimate(self.formula, distances)

    def class_bounds(self, state: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """The same after one token of each class: [C]."""
        found = [self._distances_after(part, number) for part, number in enumerate(state)]
        return least(self.formula, found), estimate(self.formula, found)

    def uppers(self, states: Integers) -> np.ndarray:
        """Upper bounds of distances that need no witness: int32 [N]. UNREACHABLE where none is known.

        From each state with one, some token leads to a state with a smaller one.
        """
        (part, *others) = self.parts
        if isinstance(part, DistinctPart) and not others:
            return part.uppers(states[:, 0])
        return np.full(len(states), UNREACHABLE, dtype=np.int32)

    def costs(self, states: Integers, witnesses: Sequence[Sequence[int] | None]) -> np.ndarray:
        """The cost to acceptance of some states, with their witnesses: float64 [N].

        It is that of the witness, or of as many tokens as an upper bound has. It is 0 without both, where no row goes
        on. Where there are alternatives, a witness
        takes one of them, so the costs of the parts are summed, as if no token but EOS served two parts.
        """
        assert self._costs is not None
        if not self._costs.parts:
            classes, unknown = self._costs.classes, np.array([each is None for each in witnesses], dtype=np.bool_)
            found = np.array([0.0 if each is None else classes[list(each)].sum() for each in witnesses])
            uppers = self.uppers(states)
            return np.where(unknown & (uppers != UNREACHABLE), self._costs.token * uppers, found)
        eos = self._costs.eos
        of_parts = [
            np.where(distance == UNREACHABLE, np.inf, part.costs(states[:, number]) - eos)
            for number, (part, distance) in enumerate(zip(self.parts, self._part_distances(states), strict=True))
        ]
        return np.asarray(eos + fold(self.formula, of_parts.__getitem__, np.add, np.minimum))

    def after(self, states: Integers, classes: Integers) -> Integers:
        """The states after one token of a class each. All parts of a dead alternative are dead."""
        found = np.empty_like(states)
        for number, part in enumerate(self.parts):
            found[:, number] = part.after(states[:, number], self.part_class[number][classes])
        return self._without_dead(found, self._part_distances(found)) if self._alternatives else found

    def _distances_after(self, part: int, state: int) -> np.ndarray:
        """The distances of a part after each token class: int32 [C]."""
        if (part, state) not in self._known:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[part, state] = self.parts[part].class_distances(state)[self.part_class[part]]
        return self._known[part, state]

    def _part_distances(self, states: Integers) -> list[np.ndarray]:
        return [part.distances(states[:, number]) for number, part in enumerate(self.parts)]

    def _without_dead(self, states: Integers, distances: list[np.ndarray]) -> Integers:
        """The states in which parts that contribute nothing are dead.

        So equal states are found equal.
        """
        return np.where(needed(self.formula, distances).T, states, _DEAD_PART)


def is_alive(bound: np.ndarray) -> np.ndarray:
    """Where a lower bound does not rule acceptance out."""
    return np.asarray(bound != UNREACHABLE)
