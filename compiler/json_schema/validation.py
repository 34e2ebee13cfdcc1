"""Decides whether a value is valid, at any depth, however written.

Reads the same nodes as the compiler and follows the standard without the bounds of what is written. Conditions on
strings are the compiler's automata of contents. A schema is applied to a value once, so that the work is at most the
product of both sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from decimal import Decimal

from compiler.automata import CharDfa
from compiler.errors import SpecSyntaxError
from compiler.json_schema.decimals import as_decimal, is_integer, is_multiple, significant_digits
from compiler.json_schema.formats import FORMATS
from compiler.json_schema.instances import InstanceSyntaxError, JsonValue, parse_instance
from compiler.json_schema.nodes import (
    Alternatives,
    ArrayFacts,
    Condition,
    NumberFacts,
    ObjectFacts,
    Schema,
    StringFacts,
)
from compiler.json_schema.reader import SchemaReader
from compiler.json_schema.strings import ContentKey, Embed, format_dfa, search_dfa
from compiler.limits import ResourceGuard
from compiler.regex import blame_field

_SHOWN_CHARS_MAX = 40  # of a number or a name in a message


@dataclass(frozen=True, slots=True)
class SchemaViolation:
    """Why an instance is not valid.

    path     the value that is at fault, as `$.items[3].price`
    keyword  the keyword that it violates; `json` where the text is no JSON text
    field    the schema that has the keyword, as errors name it
    offset   of the value in the text, in characters
    """

    path: str
    keyword: str
    field: str
    _: KW_ONLY
    message: str
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class _Failure:
    value: JsonValue
    schema: Schema
    keyword: str
    message: str


_Evaluated = frozenset[str | int]  # the keys or indices of a value that keywords have evaluated
_Outcome = _Failure | _Evaluated
_NOTHING: _Evaluated = frozenset()
_NONE_ASSUMED = 2**62  # above any place on the stack


def schema_violation(
    document: object, text: str, embed: Embed, guard: ResourceGuard, *, schemas: Mapping[str, object] | None = None,
    strict: bool = False,
) -> SchemaViolation | None:
    """Why a JSON text does not fit a schema, in any reading.

    The parameters are those of `schema_dfa`. Raises SpecSyntaxError, SpecUnsupported and LimitExceeded, also over
    `nesting_depth_max` where the interpreter's stack ends before the value.

    >>> from compiler.automata import everything
    >>> from compiler.limits import DEFAULT_LIMITS
    >>> schema = {"items": {"properties": {"price": {"maximum": 10}}}}
    >>> text = '[{"price": 1e1}, {"price": 11}]'
    >>> found = schema_violation(schema, text, lambda *_: everything(), ResourceGuard(DEFAULT_LIMITS))
    >>> found.path, found.keyword, found.offset
    ('$[1].price', 'maximum', 27)
    """
    with guard.recursion():
        nodes = SchemaReader(document, guard, schemas=schemas, strict=strict).document_nodes
        try:
            readings = parse_instance(text, guard)
        except InstanceSyntaxError as error:
            return SchemaViolation("$", "json", nodes[0].field, message=error.message, offset=error.offset)
        validator = _Validator(nodes, embed, guard)
        failures = [each for each in (validator.outcome(0, value) for value in readings) if isinstance(each, _Failure)]
    if not failures:
        return None
    value, field = failures[0].value, failures[0].schema.field
    return SchemaViolation(value.path, failures[0].keyword, field, message=failures[0].message, offset=value.offset)


class _Validator:
    """Applies the nodes of one document to values. An outcome is a failure, or the keys and indices evaluated."""

    def __init__(self, nodes: Sequence[Schema], embed: Embed, guard: ResourceGuard) -> None:
        self._nodes, self._embed, self._guard = nodes, embed, guard
        # All options of a choice are applied only where it matters what they evaluate.
        self._collects = any(
            node.unevaluated_items is not None or node.unevaluated_properties is not None for node in nodes
        )
        self._outcomes: dict[tuple[int, JsonValue], _Outcome] = {}
        # The nodes that are being applied to a value: the place on the stack, and how many negations are around.
        self._active: dict[tuple[int, JsonValue], tuple[int, int]] = {}
        self._negations = 0
        self._assumed = _NONE_ASSUMED  # the outermost place on the stack whose outcome was assumed
        self._contents: dict[ContentKey, CharDfa] = {}
        self._classes: dict[object, int] = {}  # equal values are in one class
        self._listed = {node: {*map(_scalar_key, node.values)} for node in nodes if node.values is not None}

    def outcome(self, number: int, value: JsonValue) -> _Outcome:
        """The outcome of a node for a value. A node that leads back to itself holds unless something else fails."""
        key = (number, value)
        if key in self._outcomes:
            return self._outcomes[key]
        if key in self._active:
            return self._assume(number, *self._active[key])
        self._guard.check_time()
        place, assumed_before = len(self._active), self._assumed
        self._active[key], self._assumed = (place, self._negations), _NONE_ASSUMED
        outcome = self._apply(self._nodes[number], value)
        del self._active[key]
        # An outcome that rests on the assumed one of a node further out holds only there.
        if self._assumed >= place:
            self._outcomes[key], self._assumed = outcome, _NONE_ASSUMED
        self._assumed = min(self._assumed, assumed_before)
        return outcome

    def _assume(self, number: int, place: int, negations: int) -> _Outcome:
        if negations != self._negations:
            field = self._nodes[number].field
            raise SpecSyntaxError("this schema negates itself", expected="a $ref that does not lead back", field=field)
        self._assumed = min(self._assumed, place)
        return _NOTHING

    def _negated(self, number: int, value: JsonValue) -> _Outcome:
        self._negations += 1
        outcome = self.outcome(number, value)
        self._negations -= 1
        return outcome

    def _apply(self, node: Schema, value: JsonValue) -> _Outcome:
        failure = self._scalar_failure(node, value)
        if failure is not None:
            return failure
        evaluated: set[str | int] = set()
        if isinstance(value.value, list) and node.arrays is not None:
            failure = self._array(node, value, evaluated)
        elif isinstance(value.value, dict) and node.objects is not None:
            failure = self._object(node, value, evaluated)
        failure = failure or self._combined(node, value, evaluated) or self._unevaluated(node, value, evaluated)
        # A constant evaluates nothing, though its node is written as a schema with keywords.
        return failure or (_NOTHING if node.constant is not None else frozenset(evaluated))

    def _scalar_failure(self, node: Schema, value: JsonValue) -> _Failure | None:
        inner = value.value
        if node.never:
            return _Failure(value, node, node.field.rpartition(".")[2], "no value is allowed here")
        if node.types is not None and not any(_is_of_type(inner, name, node) for name in node.types):
            return _Failure(value, node, "type", f"the value is not of type {' or '.join(sorted(node.types))}")
        if node.values is not None and _scalar_key(inner) not in self._listed[node]:
            keyword = "const" if len(node.values) == 1 else "enum"
            return _Failure(value, node, keyword, "the value is not one of those that are listed")
        if isinstance(inner, Decimal) and node.numbers is not None:
            return _number_failure(node, node.numbers, value, inner)
        if isinstance(inner, str) and node.strings is not None:
            return self._string(node, node.strings, value, inner)
        return None

    def _string(self, node: Schema, facts: StringFacts, value: JsonValue, text: str) -> _Failure | None:
        if (failure := _count_failure(node, value, len(text), facts)) is not None:
            return failure
        for pattern, field in facts.patterns:
            if not self._matches(pattern, field, text):
                return _Failure(value, node, "pattern", f"the string does not match {_shown(pattern)}")
        for name in facts.formats:
            if not format_dfa(FORMATS[name], name).accepts(text):
                return _Failure(value, node, "format", f"the string is no {name}")
        for constraint in facts.constraints:
            if constraint not in self._contents:
                self._contents[constraint] = self._embed(constraint.value, constraint.field)
            if not self._contents[constraint].accepts(text):
                return _Failure(value, node, "constraint", "the string does not satisfy its constraint")
        return None

    def _matches(self, pattern: str, field: str, text: str) -> bool:
        key = ("pattern", pattern)
        if key not in self._contents:
            with blame_field(field):
                self._contents[key] = search_dfa(pattern, self._guard)
        return self._contents[key].accepts(text)

    def _array(self, node: Schema, value: JsonValue, evaluated: set[str | int]) -> _Failure | None:
        facts, items = node.arrays, value.value
        assert facts is not None and isinstance(items, list)
        if (failure := _count_failure(node, value, len(items), facts)) is not None:
            return failure
        for index, item in enumerate(items):
            if (number := facts.item(index)) is not None:
                if isinstance(outcome := self.outcome(number, item), _Failure):
                    return outcome
                evaluated.add(index)
        if facts.unique and (again := self._repeated(items)) is not None:
            return _Failure(again, node, "uniqueItems", "an earlier item is equal to this one")
        for contains in facts.contains:
            fitting = []
            for index, item in enumerate(items):
                if not isinstance(self.outcome(contains.item, item), _Failure):
                    fitting.append(index)
            found = f"{len(fitting)} items fit contains"
            if len(fitting) < contains.minimum:
                keyword = "contains" if contains.minimum == 1 else "minContains"
                return _Failure(value, node, keyword, f"{found}, of at least {contains.minimum}")
            if contains.maximum is not None and len(fitting) > contains.maximum:
                return _Failure(value, node, "maxContains", f"{found}, of at most {contains.maximum}")
            evaluated.update(fitting if contains.evaluates else ())
        return None

    def _repeated(self, items: list[JsonValue]) -> JsonValue | None:
        """The first item that is equal to an earlier one."""
        seen = set()
        for item in items:
            if (number := self._class(item)) in seen:
                return item
            seen.add(number)
        return None

    def _class(self, value: JsonValue) -> int:
        """The number of the class of equal values."""
        self._guard.check_time()
        inner = value.value
        key: object = inner
        if isinstance(inner, Decimal):
            key = (inner < 0, significant_digits(inner), inner.adjusted() if inner else 0)
        elif isinstance(inner, list):
            key = tuple([self._class(item) for item in inner])
        elif isinstance(inner, dict):
            key = frozenset([(name, self._class(item)) for name, item in inner.items()])
        return self._classes.setdefault((type(inner), key), len(self._classes))

    def _object(self, node: Schema, value: JsonValue, evaluated: set[str | int]) -> _Failure | None:
        facts, members = node.objects, value.value
        assert facts is not None and isinstance(members, dict)
        for name in facts.required:
            if name not in members:
                return _Failure(value, node, "required", f"the property {_shown(name)} is missing")
        if (failure := _count_failure(node, value, len(members), facts)) is not None:
            return failure
        declared = dict(facts.properties)
        for name, member in members.items():
            if facts.names is not None:
                # A key is a value of its own, which stands at its object.
                key = JsonValue(name, member.offset, value)
                if isinstance(outcome := self.outcome(facts.names, key), _Failure):
                    message = f"the key {_shown(name)} is not allowed: {outcome.message}"
                    return _Failure(value, node, "propertyNames", message)
            numbers = [declared[name]] if name in declared else []
            for pattern, field, number in facts.patterns:
                if self._matches(pattern, field, name):
                    numbers.append(number)
            if not numbers and facts.additional is not None:
                numbers.append(facts.additional)
            for number in numbers:
                if isinstance(outcome := self.outcome(number, member), _Failure):
                    return outcome
            if numbers:
                evaluated.add(name)
        return None

    # --- schemas of the same value ----------------------------------------------------------------------------------

    def _combined(self, node: Schema, value: JsonValue, evaluated: set[str | int]) -> _Failure | None:
        for number in node.all_of:
            if isinstance(outcome := self.outcome(number, value), _Failure):
                return outcome
            evaluated |= outcome
        for choice in node.choices:
            if isinstance(outcome := self._choice(node, choice, value), _Failure):
                return outcome
            evaluated |= outcome
        for condition in node.conditions:
            if isinstance(outcome := self._condition(condition, value), _Failure):
                return outcome
            evaluated |= outcome
        for number in node.none_of:
            if not isinstance(self._negated(number, value), _Failure):
                return _Failure(value, node, "not", "the value fits the schema that it must not fit")
        return None

    def _choice(self, node: Schema, choice: Alternatives, value: JsonValue) -> _Outcome:
        evaluated: set[str | int] = set()
        failures: list[_Failure] = []
        fitting = 0
        depends = choice.keyword.startswith("depend")  # where the first option fits, a key is absent
        for number in choice.nodes:
            outcome = self.outcome(number, value)
            if isinstance(outcome, _Failure):
                failures.append(outcome)
                continue
            fitting += 1
            evaluated |= outcome
            if choice.exactly_one and fitting == 2:
                return _Failure(value, node, choice.keyword, "more than one of the schemas fits")
            if depends or not (choice.exactly_one or self._collects):
                break
        if fitting:
            return frozenset(evaluated)
        if depends:
            return failures[1]
        # The option that fails furthest inside is the most likely to be meant.
        deepest = max(failures, key=lambda failure: failure.value.depth)
        message = "the value is not one of those that are listed" if choice.keyword == "enum" else "no schema fits"
        inside = deepest.value.depth > value.depth and choice.keyword != "enum"
        return deepest if inside else _Failure(value, node, choice.keyword, message)

    def _condition(self, condition: Condition, value: JsonValue) -> _Outcome:
        outcome = self._negated(condition.if_, value)
        evaluated = _NOTHING if isinstance(outcome, _Failure) else outcome
        branch = condition.otherwise if isinstance(outcome, _Failure) else condition.then
        if branch is None:
            return evaluated
        outcome = self.outcome(branch, value)
        return outcome if isinstance(outcome, _Failure) else evaluated | outcome

    def _unevaluated(self, node: Schema, value: JsonValue, evaluated: set[str | int]) -> _Failure | None:
        """Apply `unevaluatedItems` or `unevaluatedProperties` to what is left, which it then evaluates."""
        inside: dict[str, JsonValue] | dict[int, JsonValue] = {}
        number = node.unevaluated_properties
        if isinstance(value.value, dict):
            inside = value.value
        elif isinstance(value.value, list):
            inside, number = dict(enumerate(value.value)), node.unevaluated_items
        if number is None:
            return None
        for step, item in inside.items():
            if step not in evaluated:
                if isinstance(outcome := self.outcome(number, item), _Failure):
                    return outcome
                evaluated.add(step)
        return None


def _is_of_type(value: object, name: str, node: Schema) -> bool:
    match value:
        case None:
            return name == "null"
        case bool():
            return name == "boolean"
        case Decimal():
            is_plain = not value.as_tuple().exponent or not node.plain_integers
            return name == "number" or (name == "integer" and is_integer(value) and is_plain)
        case str():
            return name == "string"
        case _:
            return name == ("array" if isinstance(value, list) else "object")


def _scalar_key(value: object) -> object:
    """What equal scalars alone have in common: 1 is 1.0, but true is not 1."""
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return as_decimal(value)
    return type(value), value if isinstance(value, str | bool) else None


def _number_failure(node: Schema, facts: NumberFacts, value: JsonValue, number: Decimal) -> _Failure | None:
    if facts.integer and not is_integer(number):
        return _Failure(value, node, "format", "the number is not whole")
    if facts.lower is not None and (number < facts.lower[0] or (facts.lower[1] and number == facts.lower[0])):
        keyword = "exclusiveMinimum" if facts.lower[1] else "minimum"
        return _Failure(value, node, keyword, f"the number is below the minimum {_shown(str(facts.lower[0]))}")
    if facts.upper is not None and (number > facts.upper[0] or (facts.upper[1] and number == facts.upper[0])):
        keyword = "exclusiveMaximum" if facts.upper[1] else "maximum"
        return _Failure(value, node, keyword, f"the number is over the maximum {_shown(str(facts.upper[0]))}")
    for divisor in facts.multiples:
        if not is_multiple(number, divisor):
            return _Failure(value, node, "multipleOf", f"the number is no multiple of {_shown(str(divisor))}")
    return None


def _count_failure(
    node: Schema, value: JsonValue, count: int, facts: StringFacts | ArrayFacts | ObjectFacts
) -> _Failure | None:
    """The failure of a count that is out of bounds."""
    unit = {StringFacts: "Length", ArrayFacts: "Items", ObjectFacts: "Properties"}[type(facts)]
    noun = "characters" if unit == "Length" else unit.lower()
    if count < facts.minimum:
        return _Failure(value, node, f"min{unit}", f"it has {count} {noun}, of at least {facts.minimum}")
    if facts.maximum is not None and count > facts.maximum:
        return _Failure(value, node, f"max{unit}", f"it has {count} {noun}, of at most {facts.maximum}")
    return None


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "…"
