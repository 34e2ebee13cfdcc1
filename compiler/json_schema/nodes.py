"""A JSON schema as numbered nodes: what each says of numbers, strings, arrays and objects, and which others it joins.

Owns the vocabulary of keywords. Knows nothing of references, texts or automata.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TypeAlias

Scalar: TypeAlias = "str | int | float | Decimal | bool | None"
Bound: TypeAlias = tuple[Decimal, bool]  # the value, and whether the value itself is excluded

TYPES = frozenset({"null", "boolean", "number", "integer", "string", "array", "object"})
SINGLE = (  # keywords whose value is a schema
    *("additionalProperties", "propertyNames", "items", "contains", "not", "if", "then", "else"),
    *("unevaluatedItems", "unevaluatedProperties", "contentSchema"),
)
LISTS = ("prefixItems", "allOf", "anyOf", "oneOf")  # keywords whose value is a list of schemas
MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")  # a name to a schema each
ASSERTIONS = (
    *("type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "pattern", "format", "constraint", "minItems", "maxItems", "minContains"),
    *("maxContains", "uniqueItems", "required", "minProperties", "maxProperties", "dependentRequired", "$ref"),
)
ANNOTATIONS = (  # read, and left alone: they say nothing about which values are valid
    *("title", "description", "default", "examples", "$comment", "$schema", "$id", "$anchor", "$dynamicAnchor"),
    *("$defs", "definitions", "deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType"),
    *("contentSchema", "discriminator", "example", "externalDocs", "xml"),  # the last four are OpenAPI's
)
EXTENSION = "x-"  # how OpenAPI's own extensions begin


@dataclass(frozen=True, slots=True)
class NumberFacts:
    """What holds of a number. `multiples`: it is a multiple of each."""

    integer: bool = False
    lower: Bound | None = None
    upper: Bound | None = None
    multiples: tuple[Decimal, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class StringFacts:
    """What holds of a string. Each pattern is searched for; `constraints` are pairs of our own forms and their fields.

    minimum, maximum  its length in code points
    """

    minimum: int = 0
    maximum: int | None = None
    patterns: tuple[tuple[str, str], ...] = ()  # pattern and field
    formats: tuple[str, ...] = ()
    constraints: tuple[tuple[object, str], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Contains:
    """Between `minimum` and `maximum` items are of the node `item`; None for any number."""

    item: int
    minimum: int
    maximum: int | None


@dataclass(frozen=True, slots=True, eq=False)
class ArrayFacts:
    """What holds of an array. `rest` is the node of the items behind `prefix`, None where it is not given."""

    prefix: tuple[int, ...] = ()
    rest: int | None = None
    minimum: int = 0
    maximum: int | None = None
    contains: tuple[Contains, ...] = ()
    unique: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ObjectFacts:
    """What holds of an object; each int is a node. `additional` is that of the keys which nothing else mentions."""

    properties: tuple[tuple[str, int], ...] = ()
    patterns: tuple[tuple[str, str, int], ...] = ()  # pattern, field, node
    additional: int | None = None
    names: int | None = None
    required: tuple[str, ...] = ()
    minimum: int = 0
    maximum: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Either:
    """A choice among nodes; with `exactly_one`, no two of them may hold."""

    nodes: tuple[int, ...]
    exactly_one: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """`if_` holds and so does `then`, or `if_` does not hold and `otherwise` does."""

    if_: int
    then: int | None
    otherwise: int | None

    def says_nothing(self) -> bool:
        """True for an `if` alone, which only evaluates."""
        return self.then is None and self.otherwise is None


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """One node. Everything that is given has to hold; a fact about a type says nothing about values of other types.

    field    where it stands in the document, as `properties.age.anyOf.0`; empty for the whole
    never    no value at all is valid
    types    the allowed types, None for all
    values   the allowed scalars, None for all
    all_of   nodes that hold of the same value; `either`, `none_of` and `conditions` likewise
    order    the property names and nodes in the order in which the document has them
    unevaluated_items, unevaluated_properties   nodes, until `unevaluated` has written them out
    """

    field: str
    never: bool = False
    types: frozenset[str] | None = None
    values: tuple[Scalar, ...] | None = None
    numbers: NumberFacts | None = None
    strings: StringFacts | None = None
    arrays: ArrayFacts | None = None
    objects: ObjectFacts | None = None
    all_of: tuple[int, ...] = ()
    either: tuple[Either, ...] = ()
    none_of: tuple[int, ...] = ()
    conditions: tuple[Condition, ...] = ()
    order: tuple[str | int, ...] = ()
    unevaluated_items: int | None = None
    unevaluated_properties: int | None = None

    def says_nothing(self) -> bool:
        """True when every value is valid."""
        given = (self.types, self.values, self.numbers, self.strings, self.arrays, self.objects)
        return not self.never and not self.in_place() and all(part is None for part in given)

    def only_lists(self) -> bool:
        """True when it lists the scalars that are valid, and says nothing else."""
        return self.values is not None and replace(self, values=None).says_nothing()

    def in_place(self) -> tuple[int, ...]:
        """Every node that speaks of the same value."""
        among = [node for choice in self.either for node in choice.nodes]
        tests = [
            node
            for condition in self.conditions
            for node in (condition.if_, condition.then, condition.otherwise)
            if node is not None
        ]
        return (*self.all_of, *among, *self.none_of, *tests)
