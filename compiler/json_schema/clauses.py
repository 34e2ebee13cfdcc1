"""The clauses of a conjunction of schema nodes. Plans choose how to eliminate them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from math import prod

from compiler.json_schema.nodes import Alternatives, Condition

_CONDITIONS_MAX = 3  # branched on together without trying them apart: n of them compile the nodes 2 ** n times
_CONDITIONS_TRIED_MAX = 8  # branched on together at most where branching apart refuses the schema
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

    visited    the nodes, and all that were gathered with them
    branching  how conditions are eliminated; None where that is not chosen yet
    """

    nodes: tuple[int, ...]
    clauses: tuple[Clause, ...]
    visited: frozenset[int]
    branching: Branching | None = None

    def without_first(self) -> Conjunction:
        """The same without its first clause."""
        return replace(self, clauses=self.clauses[1:])

    def combination_count(self) -> int:
        """How many combinations of options its choices have."""
        return prod(len(clause.nodes) for clause in self.clauses if isinstance(clause, Alternatives))

    def branchings(self) -> tuple[Branching, ...]:
        """How its conditions may be eliminated, the cheapest first.

        TOGETHER is more than a matter of speed: an `if` that other conditions narrow can be negated where it could not
        be by itself.
        """
        count = sum(isinstance(clause, Condition) for clause in self.clauses)
        if count <= _CONDITIONS_MAX or self.branching is Branching.TOGETHER:
            return (Branching.TOGETHER,)
        if count > _CONDITIONS_TRIED_MAX or self.branching is Branching.APART:
            return (Branching.APART,)
        return (Branching.APART, Branching.TOGETHER)
