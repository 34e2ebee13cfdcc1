"""A JSON schema as numbered nodes: facts about numbers, strings, arrays and objects, and the nodes that each joins.

Holds the vocabulary of keywords. Knows nothing of references, texts or automata.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TypeAlias

Scalar: TypeAlias = "str | int | float | Decimal | bool | None"
Bound: TypeAlias = tuple[Decimal, bool]  # the value, and whether the value itself is excluded

TYPES = frozenset({"null", "boolean", "number", "integer", "string", "array", "object"})
# Keywords by the kind of their value: a schema, a list of schemas, an object that maps names to schemas.
SINGLE = (
    *("additionalProperties", "propertyNames", "items", "contains", "not", "if", "then", "else"),
    *("unevaluatedItems", "unevaluatedProperties", "contentSchema"),
)
LISTS = ("prefixItems", "allOf", "anyOf", "oneOf")
MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
# Keywords that hold no schema and decide which values are valid.
ASSERTIONS = (
    *("type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "pattern", "format", "constraint", "minItems", "maxItems", "minContains"),
    *("maxContains", "uniqueItems", "required", "minProperties", "maxProperties", "dependentRequired", "$ref"),
)
# Keywords that are ignored: they do not decide which values are valid. The last four are OpenAPI's.
ANNOTATIONS = (
    *("title", "description", "default", "examples", "$comment", "$schema", "$id", "$anchor", "$dynamicAnchor"),
    *("$defs", "definitions", "deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType"),
    *("contentSchema", "discriminator", "example", "externalDocs", "xml"),
)
EXTENSION = "x-"  # the prefix of OpenAPI's own extensions, which are ignored too


@dataclass(frozen=True, slots=True)
class NumberFacts:
    """What holds of a number.

    multiples  divisors: it is a multiple of each
    """

    integer: bool = False
    lower: Bound | None = None
    upper: Bound | None = None
    multiples: tuple[Decimal, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddedConstraint:
    """The value of our keyword `constraint`: one of our own forms, which holds of a string.

    It is compared and hashed by identity, so each place in the document is compiled once.
    """

    value: object
    field: str


# The facts and nodes below are compared by identity, which is all that is needed and cheap to hash.


@dataclass(frozen=True, slots=True, eq=False)
class StringFacts:
    """What holds of a string.

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
    """Between `minimum` and `maximum` items are of the node `item`; None is no upper bound."""

    item: int
    minimum: int
    maximum: int | None


@dataclass(frozen=True, slots=True, eq=False)
class ArrayFacts:
    """What holds of an array.

    prefix  the nodes of the first items
    items   the node of each item behind them, None for any value
    """

    prefix: tuple[int, ...] = ()
    items: int | None = None
    minimum: int = 0
    maximum: int | None = None
    contains: tuple[Contains, ...] = ()
    unique: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ObjectFacts:
    """What holds of an object.

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


@dataclass(frozen=True, slots=True, eq=False)
class Alternatives:
    """A choice among nodes: `anyOf`, or `oneOf` with `exactly_one`, where no two of them may hold."""

    nodes: tuple[int, ...]
    exactly_one: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """`if_` holds and so does `then`, or `if_` does not hold and `otherwise` does."""

    if_: int
    then: int | None
    otherwise: int | None

    def only_evaluates(self) -> bool:
        """True for an `if` alone: every value is valid, but what it evaluates counts for `unevaluatedItems`."""
        return self.then is None and self.otherwise is None


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """One node. Every fact has to hold; a fact about a type says nothing about values of other types.

    field    where it stands in the document, as `properties.age.anyOf.0`; empty for the document itself
    never    no value at all is valid
    types    the allowed types, None for all
    values   the allowed scalars, None for all
    all_of, choices, none_of, conditions        nodes that speak of the same value
    order    the property names and nodes in the order in which the document has them
    unevaluated_items, unevaluated_properties   nodes, until `unevaluated` has replaced them by plain facts
    """

    field: str
    # What `false` stands for; the schema `true` has no fact at all.
    never: bool = False
    types: frozenset[str] | None = None
    values: tuple[Scalar, ...] | None = None
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

    def only_constants(self) -> bool:
        """True when it lists the scalars that are valid, and says nothing else."""
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
