"""The base class of constraints, and their combinations.

A constraint is immutable. Two constraints are equal if their JSON is equal.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias, cast

from abs_client._json import dump


class Constraint:
    """A constraint of any form.

    `&`, `|` and `~` combine it with other constraints and with constraint objects (dicts).

    FORM  the field of the JSON that names the form

    >>> (Keywords("dog") & ~Regex(".*cat.*")).to_json()
    '{"all": [{"keywords": ["dog"]}, {"not": {"regex": ".*cat.*"}}]}'
    """

    FORM: ClassVar[str] = ""
    _arguments: tuple[Any, ...]
    _options: dict[str, Any]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        # An option at its default is left out, so that equal constraints have equal JSON.
        present = {name: value for name, value in options.items() if value is not None and value is not False}
        self.__dict__.update(_arguments=arguments, _options=present)  # __setattr__ raises

    def as_dict(self) -> dict[str, Any]:
        """The constraint object of the API."""
        options = {name: json_value(value) for name, value in self._options.items()}
        return {self.FORM: json_value(self._body()), **options}

    def to_json(self) -> str:
        """The constraint object as JSON text."""
        return dump(self.as_dict())

    def _body(self) -> Any:
        """The value of the field FORM."""
        return self._arguments[0]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a constraint is immutable: create another")

    def __repr__(self) -> str:
        arguments = [*map(repr, self._arguments), *(f"{name}={value!r}" for name, value in self._options.items())]
        return f"{type(self).__name__}({', '.join(arguments)})"

    def __eq__(self, other: object) -> bool:
        return self.as_dict() == other.as_dict() if isinstance(other, Constraint) else NotImplemented

    def __hash__(self) -> int:
        # Sorted, because dicts are equal whatever the order of their names.
        return hash(json.dumps(self.as_dict(), sort_keys=True, default=str))  # of a Decimal

    def __bool__(self) -> bool:
        # `a and b` would silently drop a constraint.
        raise TypeError("a constraint is not true or false: combine constraints with &, | and ~, not with and, or, not")

    def __and__(self, other: ConstraintLike) -> Constraint:
        return _combine(AllOf, self, other)

    def __rand__(self, other: ConstraintLike) -> Constraint:
        return _combine(AllOf, other, self)

    def __or__(self, other: ConstraintLike) -> Constraint:
        return _combine(AnyOf, self, other)

    def __ror__(self, other: ConstraintLike) -> Constraint:
        return _combine(AnyOf, other, self)

    def __invert__(self) -> Constraint:
        return Not(self)

    def over(self, *labels: str) -> LabelledConstraint:
        """The constraint over an alphabet of labels. Each step is one label instead of a word."""
        return LabelledConstraint(self, labels)


ConstraintLike: TypeAlias = Constraint | Mapping[str, Any]


class RawConstraint(Constraint):
    """A constraint object, unchanged.

    >>> RawConstraint({"max_words": 5}) == Length(max_words=5)
    True
    """

    def __init__(self, constraint: Mapping[str, Any]) -> None:
        super().__init__(json_value(constraint))

    def as_dict(self) -> dict[str, Any]:
        # A copy: what the caller changes in it must not change the constraint.
        return cast("dict[str, Any]", copy.deepcopy(self._arguments[0]))


class _Combination(Constraint):
    def __init__(self, *parts: ConstraintLike) -> None:
        super().__init__(*map(_part, parts))

    def _body(self) -> Any:
        return list(self._arguments)


class AllOf(_Combination):
    """All of the constraints hold.

    >>> AllOf(F("dog"), {"max_words": 5}).as_dict()
    {'all': [{'ltlf': 'F(dog)'}, {'max_words': 5}]}
    """

    FORM = "all"


class AnyOf(_Combination):
    """At least one of the constraints holds.

    >>> AnyOf(Choice("yes"), Choice("no")).as_dict()
    {'any': [{'choice': ['yes']}, {'choice': ['no']}]}
    """

    FORM = "any"


class Not(Constraint):
    """The constraint does not hold. It accepts exactly the texts that the constraint rejects, even the empty text.

    >>> Not(Keywords("man")).as_dict()
    {'not': {'keywords': ['man']}}
    """

    FORM = "not"

    def __init__(self, part: ConstraintLike) -> None:
        super().__init__(_part(part))

    def __invert__(self) -> Constraint:
        inner: Constraint = self._arguments[0]
        return inner


class LabelledConstraint(Constraint):
    """A constraint over an alphabet of labels. It cannot be combined with others.

    >>> F("b").over("a", "b").as_dict()
    {'ltlf': 'F(b)', 'labels': ['a', 'b']}
    """

    def __init__(self, constraint: ConstraintLike, labels: Sequence[str]) -> None:
        if isinstance(labels, str):
            raise TypeError("labels is a sequence of strings, not a string")
        super().__init__(_part(constraint), tuple(labels))

    def as_dict(self) -> dict[str, Any]:
        return {**self._arguments[0].as_dict(), "labels": list(self._arguments[1])}


def constraint_of(value: ConstraintLike) -> Constraint:
    """A Constraint of a Constraint or a constraint object (a dict). Raises TypeError for any other value.

    >>> constraint_of({"regex": "a"})
    RawConstraint({'regex': 'a'})
    """
    unchecked: object = value  # callers without a type checker pass anything
    if isinstance(unchecked, Constraint):
        return unchecked
    if isinstance(unchecked, Mapping):
        return RawConstraint(unchecked)
    advice = "; for a formula write Ltlf(...), for a pattern Regex(...)" if isinstance(unchecked, str) else ""
    raise TypeError(f"a constraint is a Constraint or a dict, not {type(unchecked).__name__}{advice}")


def json_value(value: Any) -> Any:
    """The value as JSON: iterables become lists, constraints their objects."""
    if isinstance(value, Constraint):
        return value.as_dict()
    if isinstance(value, Mapping):
        return {str(name): json_value(item) for name, item in value.items()}
    # A string is iterable too, but stands for itself.
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [json_value(item) for item in value]
    return value


def _part(value: ConstraintLike) -> Constraint:
    part = constraint_of(value)
    if isinstance(part, LabelledConstraint):
        raise TypeError("only the outermost constraint can have labels: combine first, then call over(...)")
    return part


def _combine(kind: type[AllOf] | type[AnyOf], left: ConstraintLike, right: ConstraintLike) -> Constraint:
    """Both sides in one combination. A side that is such a combination itself is flattened into it."""
    if not all(isinstance(side, Constraint | Mapping) for side in (left, right)):
        return cast(Constraint, NotImplemented)  # Python then tries the other side, and raises TypeError
    parts: list[Constraint] = []
    for side in map(_part, (left, right)):
        # Nested, a chain of many `&` would exceed the depth that JSON may have.
        parts.extend(side._arguments if type(side) is kind else (side,))
    return kind(*parts)
