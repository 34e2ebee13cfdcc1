"""The events of a conversation, and the propositions over them.

    call(refund, amount > 100)    a call of the tool, whose arguments satisfy the conditions
    result(refund, ok = true)     the result of such a call
    reply                         an answer in words
    call, result                  a call or a result of any tool
    refund                        a call of the tool; in quotes where the name is no word

A condition compares the value at a path, such as `customer.id`, with a JSON scalar. It does not hold where the path
does not exist.
"""

from __future__ import annotations

import itertools
import json
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Any

from compiler.errors import SpecSyntaxError
from compiler.exact_json import load_json

Scalar = str | int | float | bool | None


class EventKind(StrEnum):
    """The model calls and replies; the results come from its tools."""

    CALL = "call"
    RESULT = "result"
    REPLY = "reply"


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `value` is parsed JSON: the arguments of a call, or the content of a result."""

    kind: EventKind
    tool: str = ""
    value: Any = None


_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_BOUNDS = {"<": "exclusiveMaximum", "<=": "maximum", ">": "exclusiveMinimum", ">=": "minimum"}


@dataclass(frozen=True, slots=True)
class EventCondition:
    """A comparison of what stands at a path. `operation` is one of = != < <= > >=; the last four compare numbers."""

    path: tuple[str, ...]
    operation: str
    value: str  # JSON text

    def holds(self, value: Any) -> bool:
        """Whether the comparison holds for a JSON value."""
        for key in self.path:
            if not isinstance(value, dict) or key not in value:
                return False
            value = value[key]
        wanted = _read(self.value)
        if self.operation in _ORDERS:
            return _is_number(value) and _ORDERS[self.operation](_decimal(value), _decimal(wanted))
        return _equal(value, wanted) is (self.operation == "=")

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the values for which the comparison holds."""
        wanted = load_json(self.value)
        if self.operation in _BOUNDS:
            schema: dict[str, Any] = {"type": "number", _BOUNDS[self.operation]: wanted}
        else:
            schema = {"const": wanted} if self.operation == "=" else {"not": {"const": wanted}}
        for key in reversed(self.path):
            schema = {"type": "object", "properties": {key: schema}, "required": [key]}
        return schema

    def __str__(self) -> str:
        keys = (key if _KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False) for key in self.path)
        return f"{'.'.join(keys)} {self.operation} {self.value}"


def values_apart(conditions: Sequence[EventCondition]) -> Iterator[Any]:
    """JSON values that differ in which conditions on one path hold.

    Every value is like one of them.
    """
    wanted = [_read(condition.value) for condition in conditions]
    numbers = sorted({Fraction(_decimal(value)) for value in wanted if _is_number(value)})
    if numbers:
        numbers += [numbers[0] - 1, *((low + high) / 2 for low, high in itertools.pairwise(numbers)), numbers[-1] + 1]
    yield {}  # nothing stands at the path
    for value in (*wanted, {}, *numbers):  # an object stands for all values that equal none and are no numbers
        for key in reversed(conditions[0].path):
            value = {key: value}
        yield value


def _read(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal | Fraction) and not isinstance(value, bool)


def _decimal(value: int | float | Decimal | Fraction) -> Decimal | Fraction:
    if isinstance(value, Fraction):
        return value
    # A float's shortest spelling is what the JSON text said.
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def _equal(left: Any, right: Any) -> bool:
    """Equality of JSON values: 1 and 1.0 are equal, 1 and true are not."""
    if _is_number(left) and _is_number(right):
        return _decimal(left) == _decimal(right)
    return type(left) is type(right) and bool(left == right)


@dataclass(frozen=True, slots=True)
class EventProposition:
    """What a rule names. It is an event of a kind, of one tool or of any, under conditions."""

    kind: EventKind
    tool: str | None = None
    conditions: tuple[EventCondition, ...] = ()

    def __str__(self) -> str:
        if self.tool is None:
            return self.kind.value
        tool = self.tool if _KEY.fullmatch(self.tool) else json.dumps(self.tool, ensure_ascii=False)
        return f"{self.kind}({', '.join([tool, *map(str, self.conditions)])})"


_KEY = re.compile(r"[^\W\d][\w-]*")
_STRING = r'"(?:[^"\\]|\\.)*"'
_NAME = rf"(?:[^\W\d][\w.-]*|{_STRING})"
_PART = rf"(?:[^\W\d][\w-]*|{_STRING})"
_HEAD = re.compile(rf"(call|result)\s*\(\s*({_NAME})\s*")
_OPENING = re.compile(r"(?:call|result)\s*\(")
_BARE = re.compile(r"(call|result|reply)(?!\w)(?!\s*\()")
_CONDITION = re.compile(
    rf",\s*({_PART}(?:\s*\.\s*{_PART})*)\s*(==?|!=|<=?|>=?)\s*"
    rf"({_STRING}|true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*"
)
_FORMS = "call(tool), call(tool, path > 5) or result(tool, path = true), with JSON scalars as values"


def read_proposition(source: str, position: int) -> tuple[EventProposition, int] | None:
    """The proposition at a position of a rule, and its end. None where none begins.

    Raises SpecSyntaxError where one begins and does not go on as it must.
    """
    # A name that merely begins with one of these words is the name of a tool.
    if position and (source[position - 1].isalnum() or source[position - 1] == "_"):
        return None
    if bare := _BARE.match(source, position):
        return EventProposition(EventKind(bare[1])), bare.end()
    head = _HEAD.match(source, position)
    if head is None:
        if opening := _OPENING.match(source, position):
            raise _fault("a tool's name is missing", source, opening.end())
        return None
    at, conditions = head.end(), []
    while source[at : at + 1] == ",":
        match = _CONDITION.match(source, at)
        if match is None:
            raise _fault("a condition does not read", source, at + 1)
        conditions.append(_condition(match, source))
        at = match.end()
    if source[at : at + 1] != ")":
        raise _fault("the bracket of an event is not closed", source, at)
    return EventProposition(EventKind(head[1]), _unquoted(head[2]), tuple(dict.fromkeys(conditions))), at + 1


def _condition(match: re.Match[str], source: str) -> EventCondition:
    path = tuple(_unquoted(part[0]) for part in re.finditer(_PART, match[1]))
    operation = "=" if match[2] == "==" else match[2]
    if operation in _ORDERS and not _is_number(_read(match[3])):
        raise _fault(f"{operation} compares numbers alone", source, match.start(3))
    return EventCondition(path, operation, match[3])


def _unquoted(text: str) -> str:
    return str(json.loads(text)) if text.startswith('"') else text


def _fault(message: str, source: str, position: int) -> SpecSyntaxError:
    return SpecSyntaxError(message, source=source, position=position, expected=_FORMS, field="policy.rules")
