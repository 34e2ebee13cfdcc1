"""What a schema allows, type by type, and the Boolean operations on that.

A lane is what is allowed of one type: nothing, everything, or the texts of a block. For strings it holds their
contents. Knows nothing of documents and references.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

from compiler.errors import SpecUnsupported
from compiler.json_schema.fragments import Fragment, combined
from compiler.limits import ResourceGuard


class Whole(enum.Enum):
    """The lanes that need no automaton."""

    NOTHING = enum.auto()
    EVERYTHING = enum.auto()


TypeLanguage: TypeAlias = "Fragment | Whole"
LANES = ("number", "string", "array", "object")
LITERALS = frozenset({"null", "false", "true"})


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """The values that are allowed at some place.

    literals  those of null, false and true that are
    lanes     one for each type of LANES
    stable    a JSON parser keeps only the last of several equal keys; True when that never changes the verdict.
              Where it is False, an accepted text is still valid, but a rejected one need not be invalid
    """

    literals: frozenset[str]
    lanes: tuple[TypeLanguage, ...]
    stable: bool = True

    def lane(self, name: str) -> TypeLanguage:
        """What is allowed of one type."""
        return self.lanes[LANES.index(name)]


NO_VALUE = Value(frozenset(), (Whole.NOTHING,) * len(LANES))
Resolve = Callable[[str], "Fragment | None"]


def lane_of(block: Fragment | None) -> TypeLanguage:
    """The texts of a block as a lane."""
    return Whole.NOTHING if block is None else block


def either(left: Value, right: Value, guard: ResourceGuard) -> Value:
    """The values in `left` or in `right`."""
    lanes = tuple(_either(*pair, guard) for pair in zip(left.lanes, right.lanes, strict=True))
    return Value(left.literals | right.literals, lanes, left.stable and right.stable)


def both(left: Value, right: Value, guard: ResourceGuard) -> Value:
    """The values in `left` and in `right`."""
    lanes = tuple(_both(*pair, guard) for pair in zip(left.lanes, right.lanes, strict=True))
    return Value(left.literals & right.literals, lanes, left.stable and right.stable)


def without(left: Value, right: Value, everything: Resolve, field: str, guard: ResourceGuard) -> Value:
    """The values in `left` that are not in `right`.

    everything  the block of all texts of a lane
    Raises SpecUnsupported where `right` speaks of the values of undeclared keys, of which a text may hold two alike.
    """
    if not right.stable and any(_meet(left.lane(name), right.lane(name), guard) for name in ("array", "object")):
        raise SpecUnsupported(
            "what undeclared properties hold cannot be negated: declare them, or forbid them",
            construct="additionalProperties",
            field=field,
        )
    lanes = tuple(_without(left.lane(name), right.lane(name), partial(everything, name), guard) for name in LANES)
    return Value(left.literals - right.literals, lanes, left.stable)


def _meet(left: TypeLanguage, right: TypeLanguage, guard: ResourceGuard) -> bool:
    """True when some text is in both lanes."""
    return _both(left, right, guard) is not Whole.NOTHING


def _either(left: TypeLanguage, right: TypeLanguage, guard: ResourceGuard) -> TypeLanguage:
    if isinstance(left, Fragment) and isinstance(right, Fragment):
        return _combined(left, right, "or", guard)
    if left is Whole.NOTHING or right is Whole.EVERYTHING:
        return right
    return left


def _both(left: TypeLanguage, right: TypeLanguage, guard: ResourceGuard) -> TypeLanguage:
    if isinstance(left, Fragment) and isinstance(right, Fragment):
        return _combined(left, right, "and", guard)
    if left is Whole.EVERYTHING or right is Whole.NOTHING:
        return right
    return left


def _without(
    left: TypeLanguage, right: TypeLanguage, everything: Callable[[], Fragment | None], guard: ResourceGuard
) -> TypeLanguage:
    if left is Whole.NOTHING or right is Whole.EVERYTHING:
        return Whole.NOTHING
    if right is Whole.NOTHING:
        return left
    base = everything() if left is Whole.EVERYTHING else left
    return lane_of(combined(base, right, "less", guard)) if isinstance(base, Fragment) else Whole.NOTHING


def _combined(left: Fragment, right: Fragment, how: Literal["and", "or", "less"], guard: ResourceGuard) -> TypeLanguage:
    return lane_of(combined(left, right, how, guard))
