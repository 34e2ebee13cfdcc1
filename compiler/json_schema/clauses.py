"""The clauses of a conjunction of schema nodes. Plans choose how to eliminate them.

Some clauses take values away from others. `nodes_beside_negations` tells where.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from compiler.json_schema.nodes import Alternatives, Condition, Schema
from compiler.limits import ResourceGuard

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


def negates(node: Schema) -> bool:
    """Whether a node takes values away. `oneOf` and `contains` do so as `not` does."""
    return bool(
        node.none_of
        or any(not condition.only_evaluates() for condition in node.conditions)
        or any(choice.exactly_one for choice in node.choices)
        or (node.arrays is not None and node.arrays.contains)
    )


def nodes_beside_negations(nodes: Sequence[Schema], guard: ResourceGuard) -> frozenset[int]:
    """The nodes whose values a negation may speak of.

    It speaks of the value that it stands beside, and of those inside. Elsewhere values are only united and intersected,
    so that fewer values of a part leave fewer of the whole.
    """
    found, met = set[int](), set[tuple[frozenset[int], bool]]()
    waiting = [(frozenset({0}), False)]
    while waiting:
        guard.check_time()
        node_ids, is_inside = waiting.pop()
        place = _in_place(nodes, node_ids)
        is_negated = is_inside or any(negates(nodes[node]) for node in place)
        if (place, is_negated) not in met:
            met.add((place, is_negated))
            found |= place if is_negated else frozenset()
            waiting += [(frozenset(inner), is_negated) for inner in _inner(nodes, place) if inner]
    return frozenset(found)


def _in_place(nodes: Sequence[Schema], node_ids: Iterable[int]) -> frozenset[int]:
    """The nodes and those beside them, which speak of the same value."""
    met, waiting = set[int](), list(node_ids)
    while waiting:
        node = waiting.pop()
        if node not in met:
            met.add(node)
            waiting += nodes[node].in_place_nodes()
    return frozenset(met)


def _inner(nodes: Sequence[Schema], place: Iterable[int]) -> Iterator[list[int]]:
    """The nodes of each value inside a value, and of its keys. It may yield more than speak of one of them."""
    inside = [nodes[number] for number in place]
    objects = [node.objects for node in inside if node.objects is not None]
    arrays = [node.arrays for node in inside if node.arrays is not None]
    declared = [dict(facts.properties) for facts in objects]
    patterns = [number for facts in objects for _, _, number in facts.patterns]
    for name in {None, *(name for properties in declared for name in properties)}:
        own = [
            facts.additional if name is None else properties.get(name, facts.additional)
            for facts, properties in zip(objects, declared, strict=True)
        ]
        yield [*(number for number in own if number is not None), *patterns]
    yield [facts.names for facts in objects if facts.names is not None]
    contained = [contains.item for facts in arrays for contains in facts.contains]
    for index in range(max((len(facts.prefix) for facts in arrays), default=0) + 1):
        yield [*(number for facts in arrays if (number := facts.item(index)) is not None), *contained]
