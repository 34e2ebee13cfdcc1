"""Sets of JSON values, type by type, and their Boolean operations.

A type's language is nothing, everything, or the texts of a fragment; for strings these are the contents between the
quotation marks. Nothing here knows documents and references.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from compiler.errors import SpecUnsupported
from compiler.json_schema.fragments import Fragment, Operation, combine
from compiler.limits import ResourceGuard


class Trivial(enum.Enum):
    """The languages that need no automaton."""

    EMPTY = enum.auto()
    ALL = enum.auto()


TypeLanguage: TypeAlias = "Fragment | Trivial"
# Types whose values are too many to list; null and booleans are literals.
AUTOMATON_TYPES = ("number", "string", "array", "object")


@dataclass(frozen=True, slots=True, eq=False)
class ValueSet:
    """The values that are allowed at some place.

    literals            those of null, false and true that are allowed
    languages           one for each type of AUTOMATON_TYPES
    duplicate_key_safe  a JSON parser keeps only the last of several equal keys; True when that never changes the
                        verdict. Where it is False, an accepted text is still valid, but a rejected one may be valid
    """

    literals: frozenset[str]
    languages: tuple[TypeLanguage, ...]
    duplicate_key_safe: bool = True

    def language(self, name: str) -> TypeLanguage:
        """The allowed values of one type."""
        return self.languages[AUTOMATON_TYPES.index(name)]


# The empty set, for nodes that no value fits.
NO_VALUES = ValueSet(frozenset(), (Trivial.EMPTY,) * len(AUTOMATON_TYPES))


def from_fragment(fragment: Fragment | None) -> TypeLanguage:
    """The texts of a fragment as the language of a type."""
    return Trivial.EMPTY if fragment is None else fragment


def unite(left: ValueSet, right: ValueSet, guard: ResourceGuard) -> ValueSet:
    """The values in `left` or in `right`."""
    languages = tuple(_unite(*pair, guard) for pair in zip(left.languages, right.languages, strict=True))
    # Safety is inherited only from both sides: the result accepts through either.
    safe = left.duplicate_key_safe and right.duplicate_key_safe
    return ValueSet(left.literals | right.literals, languages, safe)


def intersect(left: ValueSet, right: ValueSet, guard: ResourceGuard) -> ValueSet:
    """The values in `left` and in `right`."""
    languages = tuple(_intersect(*pair, guard) for pair in zip(left.languages, right.languages, strict=True))
    safe = left.duplicate_key_safe and right.duplicate_key_safe
    return ValueSet(left.literals & right.literals, languages, safe)


def subtract(
    left: ValueSet, right: ValueSet, everything: Callable[[str], Fragment | None], field: str, guard: ResourceGuard
) -> ValueSet:
    """The values in `left` that are not in `right`.

    everything  the fragment of all texts of a type
    Raises SpecUnsupported where `right` speaks of the values of undeclared keys, of which a text may hold two alike.
    """
    # A text that such a `right` rejects may still be read as a value of `right`. The difference would accept it, unless
    # the two have no text in common.
    if not right.duplicate_key_safe and any(
        _intersect(left.language(name), right.language(name), guard) is not Trivial.EMPTY
        for name in ("array", "object")
    ):
        raise SpecUnsupported(
            "what undeclared properties hold cannot be negated: declare them, or forbid them",
            construct="additionalProperties",
            field=field,
        )
    languages = tuple(
        _subtract(left.language(name), right.language(name), partial(everything, name), guard)
        for name in AUTOMATON_TYPES
    )
    return ValueSet(left.literals - right.literals, languages, left.duplicate_key_safe)


# The operations on one type: only where no operand is trivial does an automaton have to be built.


def _unite(left: TypeLanguage, right: TypeLanguage, guard: ResourceGuard) -> TypeLanguage:
    if isinstance(left, Fragment) and isinstance(right, Fragment):
        return _combine(left, right, "or", guard)
    if left is Trivial.EMPTY or right is Trivial.ALL:
        return right
    return left


def _intersect(left: TypeLanguage, right: TypeLanguage, guard: ResourceGuard) -> TypeLanguage:
    if isinstance(left, Fragment) and isinstance(right, Fragment):
        return _combine(left, right, "and", guard)
    if left is Trivial.ALL or right is Trivial.EMPTY:
        return right
    return left


def _subtract(
    left: TypeLanguage, right: TypeLanguage, everything: Callable[[], Fragment | None], guard: ResourceGuard
) -> TypeLanguage:
    if left is Trivial.EMPTY or right is Trivial.ALL:
        return Trivial.EMPTY
    if right is Trivial.EMPTY:
        return left
    # ALL minus a fragment is a fragment again, so here ALL needs its automaton.
    base = everything() if left is Trivial.ALL else left
    return _combine(base, right, "less", guard) if isinstance(base, Fragment) else Trivial.EMPTY


def _combine(left: Fragment, right: TypeLanguage, operation: Operation, guard: ResourceGuard) -> TypeLanguage:
    assert isinstance(right, Fragment)
    return from_fragment(combine(left, right, operation, guard))
