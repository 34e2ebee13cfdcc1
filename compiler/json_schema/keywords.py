"""The keywords of a schema object that concern one type each.

Keywords are checked and turned into facts. Each check raises with the field of the keyword. Knows nothing of automata.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from compiler.errors import SpecSyntaxError
from compiler.json_schema.decimals import SCHEMA_NUMBER_MAX, exact_number, is_integer
from compiler.json_schema.dialects import Dialect, UnenforcedKeywords
from compiler.json_schema.formats import FORMATS, INTEGERS, SILENT
from compiler.json_schema.nodes import (
    ArrayFacts,
    Bound,
    Condition,
    Contains,
    EmbeddedConstraint,
    NumberFacts,
    ObjectFacts,
    Scalar,
    Schema,
    StringFacts,
)
from compiler.json_schema.references import SchemaLocation

_SHORT = f" of at most {SCHEMA_NUMBER_MAX} digits"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TypeKeywords:
    """Reads the keywords of a schema object. Raises SpecSyntaxError or SpecUnsupported.

    value       the keywords that have an effect in `dialect`
    node        the number of the node of a schema in the document
    add         the number of a new node, for what is shorthand in the document
    unenforced  collects what has no effect
    """

    value: dict[str, object]
    dialect: Dialect
    location: SchemaLocation
    node: Callable[[SchemaLocation], int]
    add: Callable[[Schema], int]
    unenforced: UnenforcedKeywords

    def child(self, *steps: str) -> tuple[int, ...]:
        """The node of a subschema, as a tuple of one. `steps` leads to the subschema."""
        return (self.node(self.location.child(*steps)),)

    def children(self, keyword: str) -> tuple[int, ...]:
        """The nodes of a list of schemas, which must not be empty."""
        raw = self.value[keyword]
        if not isinstance(raw, list) or not raw:
            raise self.location.fault(keyword, f"{keyword} holds a list of schemas", "a list")
        # The nodes get their numbers here and are read later.
        return tuple(node for number in range(len(raw)) for node in self.child(keyword, str(number)))

    def mapping(self, keyword: str) -> dict[str, object]:
        """The value of a keyword that maps names. Empty where the keyword is absent."""
        raw = self.value.get(keyword, {})
        if not isinstance(raw, dict):
            raise self.location.fault(keyword, f"{keyword} maps names", "an object")
        return raw

    def optional_children(self, keyword: str) -> tuple[int, ...]:
        """The nodes of a list of schemas. Empty where the keyword is absent."""
        return self.children(keyword) if keyword in self.value else ()

    def _tuple(self) -> tuple[tuple[int, ...], int | None]:
        """The nodes of the first items, and the node of the others."""
        if not isinstance(self.value.get("items"), list):
            return self.optional_children("prefixItems"), self.optional_child("items")
        if not self.dialect.list_items or "prefixItems" in self.value:
            raise self.location.unsupported("items", "a list under items is of older drafts: write prefixItems")
        return self.children("items") if self.value["items"] else (), self.optional_child("additionalItems")

    def optional_child(self, keyword: str) -> int | None:
        """The node of a schema; None where the keyword is absent."""
        return self.child(keyword)[0] if keyword in self.value else None

    def _count(self, keyword: str) -> int | None:
        """A count, which JSON may write as 2.0."""
        if keyword not in self.value:
            return None
        number = exact_number(self.value[keyword])
        if number is None or not is_integer(number) or number < 0:
            raise self.location.fault(keyword, "this is a whole number from 0", "a whole number from 0")
        return int(number)

    def _decimal(self, keyword: str) -> Decimal | None:
        if keyword not in self.value:
            return None
        exact = exact_number(self.value[keyword])
        if exact is None:
            raise self.location.fault(keyword, f"{keyword} is a number{_SHORT}", f"a number{_SHORT}")
        return exact

    def values(self) -> tuple[tuple[Scalar, ...] | None, tuple[int, ...]]:
        """The scalars that `enum` and `const` allow, None for all.

        The second value has a node for each array and object.
        """
        if "const" not in self.value and "enum" not in self.value:
            return None, ()
        constants = self.value.get("enum", [self.value.get("const")])
        if not isinstance(constants, list):
            raise self.location.fault("enum", "enum is a list", "a list")
        if "const" in self.value and "enum" in self.value:
            # Both have to hold: of the listed values, only the constant is left.
            constants = [value for value in constants if equal(value, self.value["const"])]
        # A constant array or object is written as a schema of it: then it is ordered and spelled like any other.
        scalars = [self._scalar(value) for value in constants if not isinstance(value, list | dict)]
        return tuple(scalars), tuple(self._constant(value) for value in constants if isinstance(value, list | dict))

    def _constant(self, value: object) -> int:
        """The node of exactly one value."""
        field = self.location.field
        if isinstance(value, dict):
            properties = tuple((name, self._constant(item)) for name, item in value.items())
            # All its keys are required, and a node that nothing fits forbids others.
            declared = ObjectFacts(
                properties=properties, patterns=(), additional=self.add(Schema(field, never=True)), names=None,
                required=tuple(value),
            )
            types = frozenset({"object"})
            return self.add(Schema(field, types=types, constant=value, objects=declared, order=tuple(value)))
        if isinstance(value, list):
            # An array of exactly these items.
            facts = ArrayFacts(
                prefix=tuple(map(self._constant, value)), items=None, minimum=len(value), maximum=len(value)
            )
            return self.add(Schema(field, types=frozenset({"array"}), constant=value, arrays=facts))
        return self.add(Schema(field, values=(self._scalar(value),)))

    def _scalar(self, value: object) -> Scalar:
        """A listed value that is no array and no object."""
        if isinstance(value, int | float | Decimal) and not isinstance(value, bool) and exact_number(value) is None:
            keyword = "enum" if "enum" in self.value else "const"
            message = f"a listed number has over {SCHEMA_NUMBER_MAX} digits"
            raise self.location.fault(keyword, message, f"a number{_SHORT}")
        return value  # type: ignore[return-value]

    def numbers(self) -> NumberFacts | None:
        """The facts about numbers. None where no keyword speaks of them; likewise for the other types."""
        lower, upper = self._bounds("minimum", "exclusiveMinimum"), self._bounds("maximum", "exclusiveMaximum")
        divisor, bits = self._decimal("multipleOf"), INTEGERS.get(str(self.value.get("format")))
        if bits is not None:
            lower, upper = [*lower, (Decimal(-(2**bits)), False)], [*upper, (Decimal(2**bits - 1), False)]
        if not (lower or upper or divisor is not None):
            return None
        # Of an inclusive and an exclusive bound, the tighter one implies the other.
        multiples = () if divisor is None else (self._divisor(divisor),)
        return NumberFacts(bits is not None, tightest(lower, lower=True), tightest(upper, lower=False), multiples)

    def _bounds(self, inclusive: str, exclusive: str) -> list[Bound]:
        if self.dialect.boolean_bounds and isinstance(self.value.get(exclusive), bool):
            bound = self._decimal(inclusive)
            return [] if bound is None else [(bound, self.value[exclusive] is True)]
        if exclusive in self.value and not self.dialect.numeric_bounds:
            raise self.location.fault(exclusive, f"{exclusive} is true or false in {self.dialect.name}", "a boolean")
        bounds = ((self._decimal(inclusive), False), (self._decimal(exclusive), True))
        return [(bound, excluded) for bound, excluded in bounds if bound is not None]

    def _divisor(self, divisor: Decimal) -> Decimal:
        if divisor <= 0:
            raise self.location.fault("multipleOf", "multipleOf is more than 0", "a positive number")
        return divisor

    def strings(self) -> StringFacts | None:
        value, location = self.value, self.location
        if not {"minLength", "maxLength", "pattern", "format", "constraint"} & value.keys():
            return None
        # A pattern and a constraint keep their fields: they are parsed later, and their faults name them.
        pattern = (string_value(value.get("pattern", ""), location.below("pattern")), location.below("pattern"))
        formats = self._formats(string_value(value["format"], location.below("format"))) if "format" in value else ()
        constraint = "constraint" in value and EmbeddedConstraint(value["constraint"], (*location.path, "constraint"))
        return StringFacts(
            minimum=self._count("minLength") or 0, maximum=self._count("maxLength"),
            patterns=(pattern,) if "pattern" in value else (), formats=formats,
            constraints=(constraint,) if constraint else (),
        )

    def _formats(self, name: str) -> tuple[str, ...]:
        """The format, where it states which texts are meant. Empty where it does not."""
        known = {*FORMATS, *INTEGERS, *SILENT}
        if name not in known:
            self.unenforced.add_format((*self.location.path, "format"), name, known)
        return (name,) if name in FORMATS else ()

    def arrays(self) -> ArrayFacts | None:
        value = self.value
        if not {"prefixItems", "items", "minItems", "maxItems", "contains", "uniqueItems"} & value.keys():
            return None
        # At most one in a schema object; nodes that hold together may have several.
        contains: tuple[Contains, ...] = ()
        if "contains" in value:  # without it, minContains and maxContains say nothing
            minimum = self._count("minContains")
            minimum = 1 if minimum is None else minimum
            item, evaluates = self.child("contains")[0], self.dialect.contains_evaluates
            contains = (Contains(item, minimum, self._count("maxContains"), evaluates),)
        unique = value.get("uniqueItems", False)
        # `uniqueItems: false` is the default.
        if not isinstance(unique, bool):
            raise self.location.fault("uniqueItems", "uniqueItems is true or false", "a boolean")
        prefix, items = self._tuple()
        return ArrayFacts(
            prefix=prefix, items=items, minimum=self._count("minItems") or 0, maximum=self._count("maxItems"),
            contains=contains, unique=(*self.location.path, "uniqueItems") if unique else (),
        )

    def objects(self) -> ObjectFacts | None:
        value, location = self.value, self.location
        keywords = ("properties", "patternProperties", "additionalProperties", "propertyNames", "required")
        if not {*keywords, "minProperties", "maxProperties"} & value.keys():
            return None
        # Facts refer to schemas by the numbers of their nodes, so a schema may contain itself.
        properties = tuple((name, self.child("properties", name)[0]) for name in self.mapping("properties"))
        patterns = tuple(
            (pattern, location.below("patternProperties", pattern), self.child("patternProperties", pattern)[0])
            for pattern in self.mapping("patternProperties")
        )
        return ObjectFacts(
            properties=properties, patterns=patterns, additional=self.optional_child("additionalProperties"),
            names=self.optional_child("propertyNames"),
            required=string_list(value.get("required", []), location.below("required")),
            minimum=self._count("minProperties") or 0, maximum=self._count("maxProperties"),
        )

    def conditions(self) -> tuple[Condition, ...]:
        """The condition of `if`, `then` and `else`. Empty without `if`, since `then` and `else` then have no effect."""
        test, then, otherwise = (self.optional_child(keyword) for keyword in ("if", "then", "else"))
        return () if test is None else (Condition(test, then, otherwise),)


def tightest(bounds: list[Bound], lower: bool) -> Bound | None:
    """The bound that implies all the others, None without any."""
    if not bounds:
        return None
    # Pairs of a value and whether it is excluded. At equal values the excluding bound is the tighter one.
    return max(bounds) if lower else min(bounds, key=lambda bound: (bound[0], not bound[1]))


def equal(left: object, right: object) -> bool:
    """Equality of JSON values: 1 is 1.0, but true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):  # Python's True == 1
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    # The order of keys does not matter.
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(left[name], right[name]) for name in left)
    return left == right


def string_value(value: object, field: str) -> str:
    """The value, once it is known to be a string."""
    if not isinstance(value, str):
        raise SpecSyntaxError("this is a string", expected="a string", field=field)
    return value


def string_list(value: object, field: str) -> tuple[str, ...]:
    """Check that the value is a list of strings. The result has each string once."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise SpecSyntaxError("this is a list of strings", expected="a list of strings", field=field)
    return tuple(dict.fromkeys(value))
