"""Sets of JSON values with Boolean operations, type by type.

A type's language is nothing, everything, or the texts of a fragment; for strings these are the contents between the
quotation marks. Facts about numbers and strings are merged, then compiled. Nothing here knows documents and references.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TypeAlias

import numpy as np

from compiler.errors import SpecUnsupported
from compiler.json_schema.fragments import Fragment, Operation, combine, fragment_of
from compiler.json_schema.keywords import tightest
from compiler.json_schema.nodes import NumberFacts, Scalar, Schema, tightest_counts
from compiler.json_schema.numbers import (
    DIGITS_MAX,
    INTEGER_DIGITS_MAX,
    SYMBOLS,
    NumberSpelling,
    fits,
    nonstandard_spellings,
    number_dfa,
    spellings,
)
from compiler.json_schema.strings import ContentKey, StringAlphabet
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
    return _combine(left, right, left.literals | right.literals, "or", guard=guard)


def intersect(left: ValueSet, right: ValueSet, guard: ResourceGuard) -> ValueSet:
    """The values in `left` and in `right`."""
    return _combine(left, right, left.literals & right.literals, "and", guard=guard)


def _combine(
    left: ValueSet, right: ValueSet, literals: frozenset[str], operation: Operation, *, guard: ResourceGuard
) -> ValueSet:
    """The union or the intersection, of which the literals are given."""
    languages = tuple(_join(*pair, operation, guard) for pair in zip(left.languages, right.languages, strict=True))
    # Safety is inherited only from both sides: the result accepts through either.
    return ValueSet(literals, languages, left.duplicate_key_safe and right.duplicate_key_safe)


def subtract(
    left: ValueSet, right: ValueSet, everything: Callable[[str], Fragment | None], field: str, *, guard: ResourceGuard
) -> ValueSet:
    """The values in `left` that are not in `right`.

    everything  the fragment of all texts of a type
    Raises SpecUnsupported where `right` speaks of the values of undeclared keys, of which a text may hold two alike.
    """
    # A text that such a `right` rejects may still be read as a value of `right`. The difference would accept it, unless
    # the two have no text in common.
    if not right.duplicate_key_safe and any(
        _join(left.language(name), right.language(name), "and", guard) is not Trivial.EMPTY
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


def _join(left: TypeLanguage, right: TypeLanguage, operation: Operation, guard: ResourceGuard) -> TypeLanguage:
    """The union or the intersection."""
    if isinstance(left, Fragment) and isinstance(right, Fragment):
        return from_fragment(combine(left, right, operation, guard))
    # With a union, EMPTY leaves the other side as it is, and ALL decides alone. With an intersection it is the reverse.
    identity, annihilator = (Trivial.EMPTY, Trivial.ALL) if operation == "or" else (Trivial.ALL, Trivial.EMPTY)
    return right if left is identity or right is annihilator else left


def _subtract(
    left: TypeLanguage, right: TypeLanguage, everything: Callable[[], Fragment | None], guard: ResourceGuard
) -> TypeLanguage:
    if left is Trivial.EMPTY or right is Trivial.ALL:
        return Trivial.EMPTY
    if right is Trivial.EMPTY:
        return left
    # ALL minus a fragment is a fragment again, so here ALL needs its automaton.
    base = everything() if left is Trivial.ALL else left
    return from_fragment(combine(base, right, "less", guard))


class ScalarCompiler:
    """Compiles the facts of one document's nodes about numbers and strings. Raises LimitExceeded."""

    def __init__(self, nodes: Sequence[Schema], alphabet: StringAlphabet, guard: ResourceGuard) -> None:
        self._alphabet, self._guard, self._width = alphabet, guard, alphabet.width
        # The spelling depends on the whole document, since automata of all its nodes are compared text by text.
        self._spelling, self._free_spelling = _spellings(nodes)
        listed = [value for node in nodes for value in node.values or ()]
        self._nonstandard = nonstandard_spellings(_numbers(listed), self._spelling)
        self._number_cache: dict[tuple[NumberFacts, NumberSpelling], Fragment | None] = {}
        self.any_text = alphabet.lengths(0, None)

    def any_number(self) -> Fragment | None:
        """All numbers."""
        return self._number(NumberFacts(), self._free_spelling)

    def number_language(self, nodes: Sequence[Schema], types: Sequence[frozenset[str]]) -> TypeLanguage:
        """The numbers that fit all nodes.

        types  the sets of allowed types, of those nodes that have one
        """
        # Every set of types must allow numbers, be it integers alone.
        if not all({"number", "integer"} & allowed for allowed in types):
            return Trivial.EMPTY
        facts = [node.numbers for node in nodes if node.numbers is not None]
        integer = any("number" not in allowed for allowed in types) or any(fact.integer for fact in facts)
        if not facts and not integer:
            return Trivial.ALL
        # The facts of all nodes are merged into one, so that one automaton is built instead of an intersection.
        lower = tightest([fact.lower for fact in facts if fact.lower is not None], lower=True)
        upper = tightest([fact.upper for fact in facts if fact.upper is not None], lower=False)
        multiples = tuple(sorted({divisor for fact in facts for divisor in fact.multiples}))
        return from_fragment(self._number(NumberFacts(integer, lower, upper, multiples), self._spelling))

    def _number(self, facts: NumberFacts, spelling: NumberSpelling) -> Fragment | None:
        """The numbers that fit the facts.

        Numbers that the schema lists are added in the spellings that only they have (1e20 is above 0). Otherwise
        "not above 0" would accept them. Where exponents are read, the schema lists no numbers or negates nothing.
        """
        if (facts, spelling) not in self._number_cache:
            candidates = () if spelling.exponents else self._nonstandard.items()
            listed = self._alphabet.texts(text for text, value in candidates if fits(value, facts))
            self._number_cache[facts, spelling] = combine(self._standard(facts, spelling), listed, "or", self._guard)
        return self._number_cache[facts, spelling]

    def _standard(self, facts: NumberFacts, spelling: NumberSpelling) -> Fragment | None:
        """The numbers that fit the facts, in standard spellings."""
        fragment = fragment_of(number_dfa(facts, spelling))
        if fragment is None:
            return None
        # From the 15 symbols of numbers to the alphabet. Column 0 is of the symbols that no number has.
        columns = np.zeros(self._width, dtype=np.int32)
        columns[[ord(symbol) for symbol in SYMBOLS]] = 1 + fragment.columns
        dead_column = np.zeros((fragment.states, 1), dtype=np.int32)
        return Fragment(columns, np.concatenate([dead_column, fragment.table], axis=1), fragment.label)

    def string_language(self, nodes: Sequence[Schema]) -> TypeLanguage:
        """The contents of the strings that fit all nodes."""
        facts = [node.strings for node in nodes if node.strings is not None]
        keys: dict[ContentKey, None] = {}  # ordered, each once
        for fact in facts:
            keys.update(dict.fromkeys(("pattern", pattern) for pattern, _ in fact.patterns))
            keys.update(dict.fromkeys(("format", name) for name in fact.formats))
            keys.update(dict.fromkeys(fact.constraints))
        parts = [self._alphabet.content(key) for key in keys]
        # All bounds on lengths become one automaton, and none if they say nothing.
        minimum, maximum = tightest_counts(facts)
        if minimum or maximum is not None:
            parts.append(self._alphabet.lengths(minimum, maximum))
        if not parts:
            return Trivial.ALL
        content = parts[0]
        for part in parts[1:]:
            content = combine(content, part, "and", self._guard)
        return from_fragment(content)

    def constants(self, values: Sequence[Scalar]) -> ValueSet:
        """Exactly these scalars; a number in each of its spellings."""
        # null and booleans need no automaton.
        texts = [value for value in values if isinstance(value, str)]
        literals = {json.dumps(value) for value in values if value is None or isinstance(value, bool)}
        languages = [from_fragment(self._alphabet.texts(each)) for each in (spellings(_numbers(values)), texts)]
        return ValueSet(frozenset(literals), (*languages, Trivial.EMPTY, Trivial.EMPTY))


def _numbers(values: Sequence[Scalar]) -> list[int | float | Decimal]:
    return [value for value in values if not isinstance(value, str | bool) and value is not None]


def _spellings(nodes: Sequence[Schema]) -> tuple[NumberSpelling, NumberSpelling]:
    """The spelling of constrained numbers, and that of all others.

    Exponents are read in the second alone, and only where no number has a condition or the schema negates nothing.
    Otherwise the complement of a condition would accept with an exponent what the condition holds of without one.
    """
    facts = [node.numbers for node in nodes if node.numbers is not None]
    compared = bool(facts) or any(
        node.values is not None or (node.types is not None and "integer" in node.types and "number" not in node.types)
        for node in nodes
    )
    # `oneOf`, `uniqueItems` and `contains` subtract or count, which negates as `not` does.
    negated = any(
        node.none_of
        or any(not condition.only_evaluates() for condition in node.conditions)
        or any(choice.exactly_one for choice in node.choices)
        or (node.arrays is not None and (node.arrays.unique or node.arrays.contains))
        for node in nodes
    )
    # Validators divide doubles by fractions, so integers are kept to the digits that a double holds.
    fractions = any(divisor != int(divisor) for fact in facts for divisor in fact.multiples)
    digits = DIGITS_MAX if fractions else INTEGER_DIGITS_MAX
    return NumberSpelling(False, digits), NumberSpelling(not (compared and negated), digits)
