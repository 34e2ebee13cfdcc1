"""The clauses of a conjunction of schema nodes. Plans choose how to eliminate them."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from compiler.json_schema.nodes import Alternatives, Condition

_CONDITIONS_TOGETHER_MAX = 3  # eliminated together in any case: n of them compile the nodes 2 ** n times
_CONDITIONS_PLANNED_MAX = 8  # of which some may be eliminated together, because their `if` needs it
Clause = Alternatives | Condition | int  # a choice, a condition, or a node that must not hold


class ChoicePlan(enum.Enum):
    """How a choice is eliminated from a conjunction.

    LIST        its options are scalars alone: one set of constants, intersected with the others
    DISTRIBUTE  each option is compiled with all other clauses, then the options are united
    INTERSECT   the options are compiled without the other clauses, then intersected with them
    """

    LIST = enum.auto()
    DISTRIBUTE = enum.auto()
    INTERSECT = enum.auto()


class Branching(enum.Enum):
    """How the conditions of a conjunction are eliminated.

    TOGETHER  each branch keeps the clauses behind it: n conditions make up to 2 ** n branches
    APART     each condition is compiled without the others, then intersected with them: 2 * n branches
    """

    TOGETHER = enum.auto()
    APART = enum.auto()


@dataclass(frozen=True, slots=True)
class Conjunction:
    """Nodes that hold together, and their clauses that are not yet eliminated.

    visited  the nodes, and all that were gathered with them
    """

    nodes: tuple[int, ...]
    clauses: tuple[Clause, ...]
    visited: frozenset[int]

    def without(self, removed: Clause) -> Conjunction:
        """The same without one of its clauses."""
        return replace(self, clauses=tuple(clause for clause in self.clauses if clause != removed))

    def combination_count(self) -> int:
        """How many combinations of options its choices have."""
        return prod(len(clause.nodes) for clause in self.clauses if isinstance(clause, Alternatives))

    def condition_plan(self, can_negate: Callable[[Condition], bool]) -> tuple[Condition, Branching]:
        """The condition to eliminate first, and how.

        can_negate  whether the `if` of a condition can be negated without the other clauses
        """
        conditions = [clause for clause in self.clauses if isinstance(clause, Condition)]
        if len(conditions) <= _CONDITIONS_TOGETHER_MAX:
            return conditions[0], Branching.TOGETHER
        if len(conditions) <= _CONDITIONS_PLANNED_MAX:
            for condition in conditions:
                # What it cannot negate by itself, it may be able to beside all that the other clauses narrow.
                if not can_negate(condition):
                    return condition, Branching.TOGETHER
        return conditions[0], Branching.APART
