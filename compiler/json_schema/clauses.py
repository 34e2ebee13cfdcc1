"""The clauses of a conjunction of schema nodes. Plans choose how to eliminate them.

Some clauses take values away from others. `nodes_beside_negations` tells where. `merge_equal_nodes` finds nodes that
say the same.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from compiler.json_schema.nodes import Alternatives, ArrayFacts, Condition, ObjectFacts, Schema
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


def merge_equal_nodes(nodes: Sequence[Schema], guard: ResourceGuard) -> tuple[Schema, ...]:
    """The nodes with one number wherever they name equal ones.

    All stay where they are. Schemas repeat themselves: a type with a description at each property, a definition copied
    to each of its uses. They are compared from the inside out, so that most of those that recur are taken for distinct.
    """
    # Beside a negation values are never shortened, so such a node has other texts than its equals elsewhere.
    exact = nodes_beside_negations(nodes, guard) if any(map(negates, nodes)) else frozenset[int]()
    merged, first, numbers = list(nodes), dict[object, int](), dict[int, int]()

    def number_of(node: int) -> int:
        return numbers.get(node, node)  # itself where it is still open, as it leads back

    for number in _inside_out(nodes):
        merged[number] = renumbered(nodes[number], number_of)
        numbers[number] = first.setdefault((*_content(merged[number]), number in exact), number)
    return tuple(merged)


def _inside_out(nodes: Sequence[Schema]) -> Iterator[int]:
    """The nodes behind node 0, each after those it leads to.

    Where these lead back to it, it comes behind the others.
    """
    met, waiting = {0}, [(0, iter(_led_to(nodes[0])))]
    while waiting:
        number, following = waiting[-1]
        inner = next((each for each in following if each not in met), None)
        if inner is None:
            waiting.pop()
            yield number
        else:
            met.add(inner)
            waiting.append((inner, iter(_led_to(nodes[inner]))))


def _led_to(node: Schema) -> list[int]:
    """The nodes that a node names."""
    found = [*node.in_place_nodes(), *(each for each in node.order if isinstance(each, int))]
    optional = list[int | None]()
    if node.arrays is not None:
        found += [*node.arrays.prefix, *(contains.item for contains in node.arrays.contains)]
        optional.append(node.arrays.items)
    if node.objects is not None:
        found += [number for _, number in node.objects.properties]
        found += [number for _, _, number in node.objects.patterns]
        optional += [node.objects.additional, node.objects.names]
    return found + [number for number in optional if number is not None]


def renumbered(node: Schema, number_of: Callable[[int], int]) -> Schema:
    """The node with other numbers for those that it names."""
    if not node.in_place_nodes() and not node.order and node.arrays is None and node.objects is None:
        return node

    def optional(number: int | None) -> int | None:
        return None if number is None else number_of(number)

    def of_arrays(facts: ArrayFacts) -> ArrayFacts:
        contains = tuple(replace(each, item=number_of(each.item)) for each in facts.contains)
        prefix = tuple(map(number_of, facts.prefix))
        return replace(facts, prefix=prefix, items=optional(facts.items), contains=contains)

    def of_objects(facts: ObjectFacts) -> ObjectFacts:
        return replace(
            facts, properties=tuple((name, number_of(number)) for name, number in facts.properties),
            patterns=tuple((pattern, field, number_of(number)) for pattern, field, number in facts.patterns),
            additional=optional(facts.additional), names=optional(facts.names),
        )  # fmt: skip

    return replace(
        node, all_of=tuple(map(number_of, node.all_of)), none_of=tuple(map(number_of, node.none_of)),
        choices=tuple(Alternatives(tuple(map(number_of, each.nodes)), each.keyword) for each in node.choices),
        conditions=tuple(
            Condition(number_of(each.if_), optional(each.then), optional(each.otherwise)) for each in node.conditions
        ),
        order=tuple(number_of(each) if isinstance(each, int) else each for each in node.order),
        arrays=node.arrays and of_arrays(node.arrays), objects=node.objects and of_objects(node.objects),
    )  # fmt: skip


def _content(node: Schema) -> tuple[object, ...]:
    """What a node says, wherever it stands."""
    strings, arrays, objects = node.strings, node.arrays, node.objects
    return (
        # Numbers of different types are equal, but their representations are not.
        node.never, node.types, node.plain_integers, repr(node.values), repr(node.constant), repr(node.numbers),
        node.all_of, node.none_of, tuple((choice.keyword, choice.nodes) for choice in node.choices),
        tuple((each.if_, each.then, each.otherwise) for each in node.conditions), node.order,
        strings and (
            strings.minimum, strings.maximum, tuple(pattern for pattern, _ in strings.patterns), strings.formats,
            strings.constraints,
        ),
        arrays and (
            arrays.prefix, arrays.items, arrays.minimum, arrays.maximum, arrays.unique,
            tuple((each.item, each.minimum, each.maximum, each.evaluates) for each in arrays.contains),
        ),
        objects and (
            objects.properties, tuple((pattern, number) for pattern, _, number in objects.patterns),
            objects.additional, objects.names, objects.required, objects.minimum, objects.maximum,
        ),
    )  # fmt: skip
