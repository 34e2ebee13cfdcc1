"""A JSON schema as numbered nodes. Also the order in which the properties of a value are written.

A node holds facts about numbers, strings, arrays and objects, and the nodes that each joins. All schemas that speak of
the same value share one order of properties: the one in which the document first names them. Where any order is
written, all of them have a value's texts in every order. So any two of their automata can be compared text by text. A
`PropertyScope` is a place in a value, a `Position` is one in a text. Knows nothing of references and automata.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import TypeAlias

from compiler.errors import SpecUnsupported
from compiler.limits import ResourceGuard

Scalar: TypeAlias = "str | int | float | Decimal | bool | None"
Bound: TypeAlias = tuple[Decimal, bool]  # the value, and whether the value itself is excluded

TYPES = frozenset({"null", "boolean", "number", "integer", "string", "array", "object"})
UNDECLARED_DEPTH = 1  # levels of nesting in a property of which a schema that declares others says nothing


@dataclass(frozen=True, slots=True)
class NumberFacts:
    """The facts about a number.

    multiples  divisors: it is a multiple of each
    """

    integer: bool = False
    lower: Bound | None = None
    upper: Bound | None = None
    multiples: tuple[Decimal, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddedConstraint:
    """The value of our keyword `constraint`. It is one of our own forms, and it holds of a string.

    It is compared and hashed by identity, so each place in the document is compiled once.
    """

    value: object
    path: tuple[str, ...]

    @property
    def field(self) -> str:
        """The path as errors name it."""
        return ".".join(self.path)


# The facts and nodes below are compared by identity, which is all that is needed and cheap to hash.


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StringFacts:
    """The facts about a string.

    minimum, maximum  its length in code points
    patterns          pairs of a pattern, which is searched for, and its field
    """

    minimum: int = 0
    maximum: int | None = None
    patterns: tuple[tuple[str, str], ...] = ()
    formats: tuple[str, ...] = ()
    constraints: tuple[EmbeddedConstraint, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Contains:
    """Bounds the number of items that fit the node `item`.

    There are `minimum` to `maximum` of them; None is no upper bound. `evaluates` tells whether they count as evaluated.
    """

    item: int
    minimum: int
    maximum: int | None
    evaluates: bool = True


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ArrayFacts:
    """The facts about an array.

    prefix  the nodes of the first items
    items   the node of each item behind them, None for any value
    unique  the path of `uniqueItems`, empty where equal items are allowed
    """

    prefix: tuple[int, ...] = ()
    items: int | None = None
    minimum: int = 0
    maximum: int | None = None
    contains: tuple[Contains, ...] = ()
    unique: tuple[str, ...] = ()

    def item(self, index: int) -> int | None:
        """The node of the item at an index, None for any value."""
        return self.prefix[index] if index < len(self.prefix) else self.items


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ObjectFacts:
    """The facts about an object.

    properties  pairs of a name and a node
    patterns    triples of a pattern of names, its field, and a node
    additional  the node of values under all other keys, None for any value
    names       the node of the keys themselves
    """

    properties: tuple[tuple[str, int], ...] = ()
    patterns: tuple[tuple[str, str, int], ...] = ()
    additional: int | None = None
    names: int | None = None
    required: tuple[str, ...] = ()
    minimum: int = 0
    maximum: int | None = None


def tightest_counts(facts: Sequence[StringFacts | ArrayFacts | ObjectFacts]) -> tuple[int, int | None]:
    """The least and the most characters, items or properties that facts allow. None is no upper bound."""
    # All facts have to hold: the largest minimum and the smallest maximum imply the others.
    maxima = [fact.maximum for fact in facts if fact.maximum is not None]
    return max((fact.minimum for fact in facts), default=0), min(maxima, default=None)


@dataclass(frozen=True, slots=True, eq=False)
class Alternatives:
    """A choice among nodes, by its keyword. Of `oneOf` no two may hold."""

    nodes: tuple[int, ...]
    keyword: str = "anyOf"

    @property
    def exactly_one(self) -> bool:
        return self.keyword == "oneOf"


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A condition with two cases. `if_` and `then` hold, or `if_` does not hold and `otherwise` does."""

    if_: int
    then: int | None
    otherwise: int | None

    def only_evaluates(self) -> bool:
        """True for an `if` alone. Every value is valid, but what it evaluates counts for `unevaluatedItems`."""
        return self.then is None and self.otherwise is None


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """One node. Every fact has to hold; a fact about a type says nothing about values of other types.

    field    where it stands in the document, as `properties.age.anyOf.0`; empty for the document itself
    never    no value at all is valid, as for `false`; the schema `true` has no fact at all
    types    the allowed types, None for all
    plain_integers  whether a number with a fraction or an exponent is no integer, so that 1.0 is none
    values   the allowed scalars, None for all
    constant the array or object that alone is valid, as the other facts say too; None for other nodes
    all_of, choices, none_of, conditions        nodes that speak of the same value
    order    the property names and nodes in the order in which the document has them
    unevaluated_items, unevaluated_properties   nodes, until `unevaluated` has replaced them by plain facts
    """

    field: str
    _: KW_ONLY
    never: bool = False
    types: frozenset[str] | None = None
    plain_integers: bool = False
    values: tuple[Scalar, ...] | None = None
    constant: list[object] | dict[str, object] | None = None
    numbers: NumberFacts | None = None
    strings: StringFacts | None = None
    arrays: ArrayFacts | None = None
    objects: ObjectFacts | None = None
    all_of: tuple[int, ...] = ()
    choices: tuple[Alternatives, ...] = ()
    none_of: tuple[int, ...] = ()
    conditions: tuple[Condition, ...] = ()
    order: tuple[str | int, ...] = ()
    unevaluated_items: int | None = None
    unevaluated_properties: int | None = None

    def is_unconstrained(self) -> bool:
        """True when every value is valid."""
        # None stands for no fact; an empty list of values is a fact, which nothing fits.
        facts = (self.types, self.values, self.numbers, self.strings, self.arrays, self.objects)
        return not self.never and not self.in_place_nodes() and all(fact is None for fact in facts)

    def needs_narrowing(self) -> bool:
        """True for keywords that are refused unless others narrow the values."""
        arrays, objects = self.arrays or ArrayFacts(), self.objects or ObjectFacts()
        counted = any(contains.maximum is not None for contains in arrays.contains)
        return counted or bool(arrays.unique) or objects.minimum > max(1, len(objects.required))

    def unsupported(self, keyword: str, message: str, *steps: str) -> SpecUnsupported:
        """The error for a refused keyword. Its field is the node's, or that of the subschema that `steps` leads to."""
        path = (self.field, *steps) if self.field else steps
        return SpecUnsupported(message, construct=keyword, field=".".join(path))

    def only_constants(self) -> bool:
        """True for a node that only lists the scalars that are valid."""
        return self.values is not None and replace(self, values=None).is_unconstrained()

    def in_place_nodes(self) -> tuple[int, ...]:
        """Every node that speaks of the same value."""
        # `prefixItems`, `properties` and the like speak of other values, inside this one.
        options = [node for choice in self.choices for node in choice.nodes]
        branches = [
            node
            for condition in self.conditions
            for node in (condition.if_, condition.then, condition.otherwise)
            if node is not None
        ]
        return (*self.all_of, *options, *self.none_of, *branches)


class PropertyScope:
    """A place in the values of a document.

    members  the nodes about arrays or objects that speak of it; none where any value fits
    names    the property names that any of them mentions, in the order of writing
    prefix   how many first items have nodes of their own
    """

    def __init__(self, scopes: PropertyScopes, members: tuple[int, ...], names: tuple[str, ...]) -> None:
        self._scopes, self.members, self.names = scopes, members, names
        nodes = [scopes.nodes[number] for number in members]
        self._objects = [node.objects for node in nodes if node.objects is not None]
        self._arrays = [node.arrays for node in nodes if node.arrays is not None]
        self.prefix = max((len(facts.prefix) for facts in self._arrays), default=0)
        # The scopes inside, by property name, by index of an item, and under None for undeclared properties.
        self._child: dict[str | int | None, PropertyScope] = {}

    def property(self, name: str | None) -> PropertyScope:
        """The scope of a property's value. None for a name that is not in `names`."""
        if name not in self._child:
            self._child[name] = self._scopes.scope(self._value_nodes(name))
        return self._child[name]

    def _value_nodes(self, name: str | None) -> list[int]:
        """The nodes of a property's value."""
        node_ids = []
        for facts in self._objects:
            declared = dict(facts.properties)
            # Every pattern is taken, also one that the name does not match: the scope then has more names than it
            # needs, never fewer.
            patterns = [node for _, _, node in facts.patterns]
            if name in declared:
                node_ids.append(declared[name])
            elif facts.additional is not None:
                patterns.append(facts.additional)
            node_ids.extend(patterns)
        return node_ids

    def item(self, index: int) -> PropertyScope:
        """The scope of an item; all from `prefix` on share one."""
        # Items behind the prefixes of all nodes fit the same nodes.
        key = min(index, self.prefix)
        if key not in self._child:
            node_ids = []
            for facts in self._arrays:
                if (node_id := facts.item(key)) is not None:
                    node_ids.append(node_id)
                node_ids.extend(contains.item for contains in facts.contains)
            self._child[key] = self._scopes.scope(node_ids)
        return self._child[key]

    def inside(self) -> list[PropertyScope]:
        """The scopes of everything that an array or object here holds."""
        keys = [*self.names, None] if self._objects else []
        # An item behind `prefix` stands for all of them.
        return [*map(self.property, keys), *(self.item(index) for index in range(self.prefix + 1) if self._arrays)]

    @cached_property
    def ignores_undeclared(self) -> bool:
        """Whether properties are declared here, and nothing is said of any others."""
        return bool(self.names) and all(map(self._scopes.is_unconstrained, self._value_nodes(None)))

    def is_open(self) -> bool:
        """Whether objects here or inside have properties of which nothing is said. It may miss some."""
        visited, waiting = {self}, [self]
        while waiting:
            scope = waiting.pop()
            if scope._objects and all(map(self._scopes.is_unconstrained, scope._value_nodes(None))):
                return True
            further = set(scope.inside()) - visited
            visited |= further
            waiting += further
        return False

    @cached_property
    def counts_against_depth(self) -> bool:
        """Whether a level of nesting here uses up `max_depth`. It does where the schema leaves the value open, or leads
        back to itself.
        """
        # Otherwise the document spells the level out, and ends after finitely many.
        return not self.members or self._scopes.recursive(self)


class PropertyScopes:
    """The scopes of a document's nodes. Equal scopes are the same object, so positions can be compared."""

    def __init__(self, nodes: Sequence[Schema], guard: ResourceGuard) -> None:
        self.nodes, self._guard = nodes, guard
        self._scopes: dict[tuple[tuple[int, ...], tuple[str, ...]], PropertyScope] = {}

    def is_unconstrained(self, node: int) -> bool:
        """Whether every value fits a node."""
        return self.nodes[node].is_unconstrained()

    def scope(self, node_ids: Iterable[int]) -> PropertyScope:
        """The scope that these nodes and their closure make.

        The closure is every node that applies to the same value.
        """
        self._guard.check_time()
        members: dict[int, None] = {}
        names: dict[str, None] = {}
        visited: set[int] = set()
        # Depth first in document order: the stack is reversed, so that what comes first is popped first.
        stack: list[int | str] = list(reversed(list(node_ids)))
        while stack:
            entry = stack.pop()
            if isinstance(entry, str):
                names[entry] = None
            elif entry not in visited:
                visited.add(entry)
                node = self.nodes[entry]
                if node.arrays is not None or node.objects is not None:
                    members[entry] = None
                # In-place nodes that `order` does not list come last.
                stack.extend(reversed([*node.order, *node.in_place_nodes()]))
        key = (tuple(members), tuple(names))
        if key not in self._scopes:
            self._scopes[key] = PropertyScope(self, *key)
        return self._scopes[key]

    def recursive(self, scope: PropertyScope) -> bool:
        """True when a value here may hold another of the same scope."""
        # Reachability in the graph of scopes, which is finite: scopes are sets of nodes.
        visited, waiting = {scope}, [scope]
        while waiting:
            self._guard.check_time()
            for inside in waiting.pop().inside():
                if inside is scope:
                    return True
                if inside not in visited:
                    visited.add(inside)
                    waiting.append(inside)
        return False


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a text.

    depth     how many more levels may be nested, of those that count against the depth; None without a bound
    bound     the name and the value of the bound that the depth comes from
    level     how many arrays and objects are around it, where the white space shows that; else 0
    indented  whether the white space shows it
    """

    scope: PropertyScope
    depth: int | None
    _: KW_ONLY
    bound: tuple[str, int]
    level: int
    indented: bool

    def may_nest(self) -> bool:
        """True when an array or object may stand here."""
        return self.depth is None or self.depth > 0 or not self.scope.counts_against_depth

    def item(self, index: int) -> Position:
        """The position of an item of an array here."""
        return self._child(self.scope.item(index))

    def property(self, name: str | None) -> Position:
        """The position of the value of a property of an object here."""
        inside = self._child(self.scope.property(name))
        # The states of an open value double with each level, and every object with declared properties holds one.
        deep = inside.depth is not None and inside.depth > UNDECLARED_DEPTH
        if name is None and deep and self.scope.ignores_undeclared:
            return replace(inside, depth=UNDECLARED_DEPTH, bound=("undeclared_depth", UNDECLARED_DEPTH))
        return inside

    def _child(self, scope: PropertyScope) -> Position:
        depth = self.depth - 1 if self.depth is not None and self.scope.counts_against_depth else self.depth
        # Without indentation all levels are 0: then equal values at different levels share one automaton.
        return replace(self, scope=scope, depth=depth, level=self.level + 1 if self.indented else self.level)
