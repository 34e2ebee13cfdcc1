"""What constraints have in common: their JSON, how they combine, how they are compared. Knows no form but combinations.

A constraint never changes. Two are equal where their JSON is.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias, cast


class Constraint:
    """A constraint of any form. `&`, `|` and `~` combine it with others, or with a constraint object (a dict).

    FORM  the field of the JSON that names the form
    """

    FORM: ClassVar[str] = ""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        given = {name: value for name, value in options.items() if value is not None and value is not False}
        self.__dict__.update(_arguments=arguments, _options=given)

    def as_dict(self) -> dict[str, Any]:
        """The constraint object, as requests hold it."""
        return {self.FORM: plain(self._body()), **{name: plain(value) for name, value in self._options.items()}}

    def to_json(self) -> str:
        """The constraint object as JSON text."""
        return json.dumps(self.as_dict(), ensure_ascii=False)

    def _body(self) -> Any:
        """What stands in the field FORM."""
        return self._arguments[0]

    @property
    def _arguments(self) -> tuple[Any, ...]:
        found: tuple[Any, ...] = self.__dict__["_arguments"]
        return found

    @property
    def _options(self) -> dict[str, Any]:
        found: dict[str, Any] = self.__dict__["_options"]
        return found

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a constraint never changes: make another")

    def __repr__(self) -> str:
        shown = [*map(repr, self._arguments), *(f"{name}={value!r}" for name, value in self._options.items())]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        return self.as_dict() == other.as_dict() if isinstance(other, Constraint) else NotImplemented

    def __hash__(self) -> int:
        return hash(json.dumps(self.as_dict(), sort_keys=True))

    def __bool__(self) -> bool:
        raise TypeError("a constraint is not true or false: combine constraints with &, | and ~, not with and, or, not")

    def __and__(self, other: ConstraintLike) -> Constraint:
        return _joined(AllOf, self, other)

    def __rand__(self, other: ConstraintLike) -> Constraint:
        return _joined(AllOf, other, self)

    def __or__(self, other: ConstraintLike) -> Constraint:
        return _joined(AnyOf, self, other)

    def __ror__(self, other: ConstraintLike) -> Constraint:
        return _joined(AnyOf, other, self)

    def __invert__(self) -> Constraint:
        return Not(self)

    def over(self, *labels: str) -> Labelled:
        """The same constraint over an alphabet of ids: each output is one of the labels, and one step."""
        return Labelled(self, labels)


ConstraintLike: TypeAlias = Constraint | Mapping[str, Any]


class Raw(Constraint):
    """A constraint object as it is."""

    def __init__(self, constraint: Mapping[str, Any]) -> None:
        super().__init__(plain(constraint))

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = copy.deepcopy(self._arguments[0])
        return found


class AllOf(Constraint):
    """Every one of the constraints holds."""

    FORM = "all"

    def __init__(self, *parts: ConstraintLike) -> None:
        super().__init__(*map(_part, parts))

    def _body(self) -> Any:
        return list(self._arguments)


class AnyOf(Constraint):
    """At least one of the constraints holds."""

    FORM = "any"

    def __init__(self, *parts: ConstraintLike) -> None:
        super().__init__(*map(_part, parts))

    def _body(self) -> Any:
        return list(self._arguments)


class Not(Constraint):
    """The constraint does not hold: exactly the texts that it rejects, the empty one perhaps among them."""

    FORM = "not"

    def __init__(self, part: ConstraintLike) -> None:
        super().__init__(_part(part))

    def __invert__(self) -> Constraint:
        inner: Constraint = self._arguments[0]
        return inner


class Labelled(Constraint):
    """A constraint over an alphabet of ids, for models that do not write text. It combines with no other."""

    def __init__(self, constraint: ConstraintLike, labels: Sequence[str]) -> None:
        if isinstance(labels, str):
            raise TypeError("labels is a sequence of strings, not a string")
        super().__init__(_part(constraint), tuple(labels))

    def as_dict(self) -> dict[str, Any]:
        return {**self._arguments[0].as_dict(), "labels": list(self._arguments[1])}


def constraint_of(given: ConstraintLike) -> Constraint:
    """The constraint; a constraint object is taken as it is. Raises TypeError for anything else."""
    known: object = given
    if isinstance(known, Constraint):
        return known
    if isinstance(known, Mapping):
        return Raw(known)
    advice = "; for a formula write Ltlf(...), for a pattern Regex(...)" if isinstance(given, str) else ""
    raise TypeError(f"a constraint is a Constraint or a dict, not {type(given).__name__}{advice}")


def plain(value: Any) -> Any:
    """A value as JSON has it: tuples are lists, constraints their objects."""
    if isinstance(value, Constraint):
        return value.as_dict()
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [plain(item) for item in value]
    return value


def _part(given: ConstraintLike) -> Constraint:
    part = constraint_of(given)
    if isinstance(part, Labelled):
        raise TypeError("labels stand at the outermost constraint alone: combine first, then call over(...)")
    return part


def _joined(kind: type[AllOf] | type[AnyOf], left: ConstraintLike, right: ConstraintLike) -> Constraint:
    """Both in one combination; what is such a combination already is flattened into it."""
    if not all(isinstance(side, Constraint | Mapping) for side in (left, right)):
        return cast(Constraint, NotImplemented)  # Python then says that the operator does not take it
    parts: list[Constraint] = []
    for side in map(_part, (left, right)):
        parts.extend(side._arguments if type(side) is kind else (side,))
    return kind(*parts)
