"""The keywords of one schema object that speak of one type each, checked and turned into facts.

Knows nothing of references, texts or automata.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal

from compiler.errors import SpecSyntaxError, SpecUnsupported
from compiler.json_schema.formats import FORMATS, SILENT
from compiler.json_schema.nodes import (
    ArrayFacts,
    Bound,
    Condition,
    Contains,
    NumberFacts,
    ObjectFacts,
    Scalar,
    Schema,
    StringFacts,
)
from compiler.json_schema.numbers import as_decimal
from compiler.json_schema.references import Place

_EXPONENT_MAX = 400  # beyond what a double holds


class TypeKeywords:
    """Reads the keywords of `value`, which stands at `place`. Raises SpecSyntaxError or SpecUnsupported.

    child  the node of the schema at some steps below, in a tuple of its own
    add    the number of a new node that stands for shorthand
    """

    def __init__(
        self,
        value: dict[str, object],
        place: Place,
        child: Callable[..., tuple[int, ...]],
        add: Callable[[Schema], int],
    ) -> None:
        self._value, self._place, self._child, self._add = value, place, child, add

    def children(self, keyword: str) -> tuple[int, ...]:
        """The nodes of a list of schemas, which has to hold one at least."""
        given = self._value[keyword]
        if not isinstance(given, list) or not given:
            raise SpecSyntaxError(
                f"{keyword} holds a list of schemas", expected="a list", field=self._place.below(keyword)
            )
        return tuple(node for number in range(len(given)) for node in self._child(keyword, str(number)))

    def named(self, keyword: str) -> dict[str, object]:
        """The value of a keyword that maps names; empty where it is absent."""
        given = self._value.get(keyword, {})
        if not isinstance(given, dict):
            raise SpecSyntaxError(f"{keyword} maps names", expected="an object", field=self._place.below(keyword))
        return given

    def _only(self, keyword: str) -> int | None:
        return self._child(keyword)[0] if keyword in self._value else None

    def _count(self, keyword: str) -> int | None:
        return whole_number(self._value[keyword], self._place.below(keyword)) if keyword in self._value else None

    def _decimal(self, keyword: str) -> Decimal | None:
        if keyword not in self._value:
            return None
        given = self._value[keyword]
        exact = as_decimal(given) if isinstance(given, int | float | Decimal) and not isinstance(given, bool) else None
        if exact is None or not exact.is_finite() or abs(exact.adjusted()) > _EXPONENT_MAX:
            raise SpecSyntaxError(
                f"{keyword} is a number", expected="a number that a double holds", field=self._place.below(keyword)
            )
        return exact

    def values(self) -> tuple[tuple[Scalar, ...] | None, tuple[int, ...]]:
        """The scalars that `enum` and `const` allow, None for all, and a node for each array and object."""
        if "const" not in self._value and "enum" not in self._value:
            return None, ()
        listed = self._value.get("enum", [self._value.get("const")])
        if not isinstance(listed, list):
            raise SpecSyntaxError("enum is a list", expected="a list", field=self._place.below("enum"))
        if "const" in self._value and "enum" in self._value:
            listed = [one for one in listed if same(one, self._value["const"])]
        scalars: list[Scalar] = [one for one in listed if not isinstance(one, list | dict)]
        return tuple(scalars), tuple(self._constant(one) for one in listed if isinstance(one, list | dict))

    def _constant(self, value: object) -> int:
        """The node of exactly one value."""
        field = self._place.field
        if isinstance(value, dict):
            properties = tuple((name, self._constant(item)) for name, item in value.items())
            facts = ObjectFacts(properties, (), self._add(Schema(field, never=True)), None, tuple(value))
            types = frozenset({"object"})
            return self._add(Schema(field, types=types, objects=facts, order=tuple(value)))
        if isinstance(value, list):
            prefix = tuple(self._constant(item) for item in value)
            return self._add(
                Schema(field, types=frozenset({"array"}), arrays=ArrayFacts(prefix, None, len(value), len(value)))
            )
        return self._add(Schema(field, values=(value,)))  # type: ignore[arg-type]

    def numbers(self) -> NumberFacts | None:
        lower = [(bound, False) for bound in (self._decimal("minimum"),) if bound is not None]
        lower += [(bound, True) for bound in (self._decimal("exclusiveMinimum"),) if bound is not None]
        upper = [(bound, False) for bound in (self._decimal("maximum"),) if bound is not None]
        upper += [(bound, True) for bound in (self._decimal("exclusiveMaximum"),) if bound is not None]
        divisor = self._decimal("multipleOf")
        if not (lower or upper or divisor is not None):
            return None
        multiples = () if divisor is None else (self._divisor(divisor),)
        return NumberFacts(False, tightest(lower, lower=True), tightest(upper, lower=False), multiples)

    def _divisor(self, divisor: Decimal) -> Decimal:
        """Check that a divisor is positive and that a double holds it exactly.

        A validator that checks values with doubles may disagree about other divisors.
        """
        field = self._place.below("multipleOf")
        if divisor <= 0:
            raise SpecSyntaxError("multipleOf is more than 0", expected="a positive number", field=field)
        if Decimal(float(divisor)) != divisor:
            raise SpecUnsupported(
                "multipleOf is supported for whole numbers and for fractions such as 0.5 that a double holds exactly",
                construct="multipleOf",
                field=field,
            )
        return divisor

    def strings(self) -> StringFacts | None:
        value, place = self._value, self._place
        if not {"minLength", "maxLength", "pattern", "format", "constraint"} & value.keys():
            return None
        pattern = (text_of(value.get("pattern", ""), place.below("pattern")), place.below("pattern"))
        formats = self._formats(text_of(value["format"], place.below("format"))) if "format" in value else ()
        constraints = ((value["constraint"], place.below("constraint")),) if "constraint" in value else ()
        return StringFacts(
            self._count("minLength") or 0,
            self._count("maxLength"),
            (pattern,) if "pattern" in value else (),
            formats,
            constraints,
        )

    def _formats(self, name: str) -> tuple[str, ...]:
        """The format where it says which texts are meant; none where it does not."""
        if name in SILENT:
            return ()
        if name not in FORMATS:
            raise SpecUnsupported(
                f"this format is not supported; these are: {', '.join(sorted(FORMATS))}",
                construct="format",
                field=self._place.below("format"),
            )
        return (name,)

    def arrays(self) -> ArrayFacts | None:
        value = self._value
        if not {"prefixItems", "items", "minItems", "maxItems", "contains", "uniqueItems"} & value.keys():
            return None
        if isinstance(value.get("items"), list):
            raise SpecUnsupported(
                "a list under items is of older drafts: write prefixItems",
                construct="items",
                field=self._place.below("items"),
            )
        contains: tuple[Contains, ...] = ()
        if "contains" in value:
            least = self._count("minContains")
            contains = (
                Contains(self._child("contains")[0], 1 if least is None else least, self._count("maxContains")),
            )
        unique = value.get("uniqueItems", False)
        if not isinstance(unique, bool):
            field = self._place.below("uniqueItems")
            raise SpecSyntaxError("uniqueItems is true or false", expected="a boolean", field=field)
        prefix = self.children("prefixItems") if "prefixItems" in value else ()
        least = self._count("minItems") or 0
        return ArrayFacts(prefix, self._only("items"), least, self._count("maxItems"), contains, unique)

    def objects(self) -> ObjectFacts | None:
        value, place = self._value, self._place
        keywords = ("properties", "patternProperties", "additionalProperties", "propertyNames", "required")
        if not {*keywords, "minProperties", "maxProperties"} & value.keys():
            return None
        properties = tuple((name, self._child("properties", name)[0]) for name in self.named("properties"))
        patterns = tuple(
            (pattern, place.below("patternProperties", pattern), self._child("patternProperties", pattern)[0])
            for pattern in self.named("patternProperties")
        )
        return ObjectFacts(
            properties,
            patterns,
            self._only("additionalProperties"),
            self._only("propertyNames"),
            strings_of(value.get("required", []), place.below("required")),
            self._count("minProperties") or 0,
            self._count("maxProperties"),
        )

    def conditions(self) -> tuple[Condition, ...]:
        """Without `if`, the others say nothing."""
        test, then, otherwise = (self._only(keyword) for keyword in ("if", "then", "else"))
        return () if test is None else (Condition(test, then, otherwise),)


def tightest(bounds: list[Bound], lower: bool) -> Bound | None:
    """The bound that implies all the others, None without any."""
    if not bounds:
        return None
    return max(bounds) if lower else min(bounds, key=lambda bound: (bound[0], not bound[1]))


def same(left: object, right: object) -> bool:
    """Equality of JSON values: 1 is 1.0, but true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    return left == right


def whole_number(value: object, field: str) -> int:
    """A count; 2.0 is one too."""
    number = value if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else -1
    if not math.isfinite(number) or number != int(number) or number < 0:
        raise SpecSyntaxError("this is a whole number from 0", expected="a whole number from 0", field=field)
    return int(number)


def text_of(value: object, field: str) -> str:
    if not isinstance(value, str):
        raise SpecSyntaxError("this is a string", expected="a string", field=field)
    return value


def strings_of(value: object, field: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise SpecSyntaxError("this is a list of strings", expected="a list of strings", field=field)
    return tuple(dict.fromkeys(value))
