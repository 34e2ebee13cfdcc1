"""Sets of JSON values with Boolean operations, type by type.

A type's language is nothing, everything, the texts of a list, or those of a fragment; for strings these are the
contents between the quotation marks. A list becomes an automaton only where that is needed, so that long ones stay
cheap. Facts about numbers and strings are merged, then compiled. Nothing here knows documents and references.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import TypeAlias

import numpy as np

from compiler.automata import Dfa
from compiler.errors import SpecUnsupported
from compiler.json_schema.clauses import negates, nodes_beside_negations
from compiler.json_schema.decimals import as_decimal, numbers_of
from compiler.json_schema.formats import SHORT_CHARS_MAX
from compiler.json_schema.fragments import Fragment, ObjectLayout, Operation, combine, fragment_of, trim
from compiler.json_schema.keywords import tightest
from compiler.json_schema.nodes import NumberFacts, Position, Scalar, Schema, tightest_counts
from compiler.json_schema.numbers import (
    OPEN_DIGITS_MAX,
    SYMBOLS,
    fits,
    number_dfa,
    number_texts,
    open_number_dfa,
)
from compiler.json_schema.strings import ContentKey, FiniteLanguage, StringAlphabet
from compiler.json_schema.witnesses import exceeded_bound
from compiler.limits import ResourceGuard


class Trivial(enum.Enum):
    """The languages that need no automaton."""

    EMPTY = enum.auto()
    ALL = enum.auto()


TypeLanguage: TypeAlias = "Fragment | FiniteLanguage | Trivial"
Combine: TypeAlias = Callable[[Fragment | None, Fragment | None, Operation, ResourceGuard], Fragment | None]
"""What combines the texts of arrays or of objects."""
# Types whose values are too many to list; null and booleans are literals.
AUTOMATON_TYPES = ("number", "string", "array", "object")
CONTAINER_TYPES = ("array", "object")


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

    def texts(self) -> list[str] | None:
        """The JSON texts of the values. None where some are not listed."""
        texts = sorted(self.literals)
        for name, language in zip(AUTOMATON_TYPES, self.languages, strict=True):
            if isinstance(language, FiniteLanguage):
                spelled = (json.dumps(text, ensure_ascii=False) for text in language.texts)
                texts += spelled if name == "string" else language.texts
            elif language is not Trivial.EMPTY:
                return None
        return texts


_COUNTED_STATES = 8_192  # of an array or a string whose length has a maximum, about
# The empty set, for nodes that no value fits.
NO_VALUES = ValueSet(frozenset(), (Trivial.EMPTY,) * len(AUTOMATON_TYPES))


def from_fragment(fragment: Fragment | None) -> TypeLanguage:
    """The texts of a fragment as the language of a type."""
    return Trivial.EMPTY if fragment is None else fragment


def _listed(language: FiniteLanguage) -> TypeLanguage:
    return language if language.texts else Trivial.EMPTY


def unite(left: ValueSet, right: ValueSet, guard: ResourceGuard, combine: Combine = combine) -> ValueSet:
    """The values in `left` or in `right`."""
    join = partial(_join, guard=guard, combine=combine)
    return _combine(left, right, left.literals | right.literals, "or", join=join)


def intersect(left: ValueSet, right: ValueSet, guard: ResourceGuard, combine: Combine = combine) -> ValueSet:
    """The values in `left` and in `right`."""
    join = partial(_join, guard=guard, combine=combine)
    return _combine(left, right, left.literals & right.literals, "and", join=join)


def _combine(
    left: ValueSet, right: ValueSet, literals: frozenset[str], operation: Operation, *,
    join: Callable[..., TypeLanguage],
) -> ValueSet:
    """The union or the intersection, of which the literals are given."""
    languages = tuple(join(left.language(name), right.language(name), operation, name) for name in AUTOMATON_TYPES)
    # Safety is inherited only from both sides: the result accepts through either.
    return ValueSet(literals, languages, left.duplicate_key_safe and right.duplicate_key_safe)


def subtract(
    left: ValueSet, right: ValueSet, everything: Callable[[str], Fragment | None], field: str, *,
    guard: ResourceGuard, combine: Combine = combine,
) -> ValueSet:
    """The values in `left` that are not in `right`.

    everything  the fragment of all texts of a type
    Raises SpecUnsupported where `right` speaks of the values of undeclared keys, of which a text may hold two alike.
    """
    # A text that such a `right` rejects may still be read as a value of `right`. The difference would accept it, unless
    # the two have no text in common.
    join = partial(_join, guard=guard, combine=combine)
    if not right.duplicate_key_safe and any(
        join(left.language(name), right.language(name), "and", name) is not Trivial.EMPTY for name in CONTAINER_TYPES
    ):
        raise SpecUnsupported(
            "what undeclared properties hold cannot be negated: declare them, or forbid them",
            construct="additionalProperties",
            field=field,
        )
    languages = tuple(
        _subtract(
            left.language(name), right.language(name), partial(everything, name), name, guard=guard, combine=combine
        )
        for name in AUTOMATON_TYPES
    )
    return ValueSet(left.literals - right.literals, languages, left.duplicate_key_safe)


def without_symbol(values: ValueSet, symbol: int) -> ValueSet:
    """The values whose texts do not hold a symbol."""
    return replace(values, languages=tuple(
        language if isinstance(language, Trivial) else _without_symbol(language, symbol)
        for language in values.languages
    ))


def _without_symbol(language: Fragment | FiniteLanguage, symbol: int) -> TypeLanguage:
    if isinstance(language, FiniteLanguage):  # the symbol is an ASCII character
        return _listed(language.without(chr(symbol)))
    fragment = language
    columns = fragment.columns.copy()
    columns[symbol] = fragment.table.shape[1]
    dead_column = np.zeros((fragment.states, 1), dtype=np.int32)
    return from_fragment(trim(Fragment(columns, np.concatenate([fragment.table, dead_column], axis=1), fragment.label)))


# The operations on one type: only where no operand is trivial does an automaton have to be built.


def _combined(
    left: Fragment | FiniteLanguage, right: Fragment | FiniteLanguage, operation: Operation, name: str, *,
    guard: ResourceGuard, combine_containers: Combine,
) -> TypeLanguage:
    is_listed = (isinstance(left, FiniteLanguage), isinstance(right, FiniteLanguage))
    if operation == "and" and is_listed == (False, True):
        left, right = right, left
    # A fragment of arrays or objects may spell calls in place of values, which no listed text does.
    if isinstance(left, FiniteLanguage) and (isinstance(right, FiniteLanguage) or name not in CONTAINER_TYPES):
        if operation != "or":
            return _listed(left.part(right, inside=operation == "and"))
        if isinstance(right, FiniteLanguage):
            return left.union(right)
    # Contents of strings may hold the characters that spell calls.
    join = combine_containers if name in CONTAINER_TYPES else combine
    first, second = (each.fragment() if isinstance(each, FiniteLanguage) else each for each in (left, right))
    return from_fragment(join(first, second, operation, guard))


def _join(
    left: TypeLanguage, right: TypeLanguage, operation: Operation, name: str, *, guard: ResourceGuard, combine: Combine
) -> TypeLanguage:
    """The union or the intersection."""
    if not isinstance(left, Trivial) and not isinstance(right, Trivial):
        return _combined(left, right, operation, name, guard=guard, combine_containers=combine)
    # With a union, EMPTY leaves the other side as it is, and ALL decides alone. With an intersection it is the reverse.
    identity, annihilator = (Trivial.EMPTY, Trivial.ALL) if operation == "or" else (Trivial.ALL, Trivial.EMPTY)
    return right if left is identity or right is annihilator else left


def _subtract(
    left: TypeLanguage, right: TypeLanguage, everything: Callable[[], Fragment | None], name: str, *,
    guard: ResourceGuard, combine: Combine,
) -> TypeLanguage:
    if left is Trivial.EMPTY or right is Trivial.ALL:
        return Trivial.EMPTY
    if right is Trivial.EMPTY:
        return left
    # ALL minus a fragment is a fragment again, so here ALL needs its automaton.
    base = everything() if left is Trivial.ALL else left
    if base is None:
        return Trivial.EMPTY
    return _combined(base, right, "less", name, guard=guard, combine_containers=combine)


class ScalarCompiler:
    """Compiles the facts of one document's nodes about numbers and strings. Raises LimitExceeded.

    spelling  how numbers are written
    listed    the numbers that the schema lists
    shortens  whether numbers, strings and arrays may be shorter than the schema allows, to keep automata small.
              Numbers are not where the schema negates anything, the others not where a negation may speak of them
    """

    def __init__(
        self, nodes: Sequence[Schema], alphabet: StringAlphabet, guard: ResourceGuard, extra: Sequence[Decimal] = (),
        *, shortens: bool = True,
    ) -> None:
        """extra: numbers that are written too."""
        self._alphabet, self._guard, self._width = alphabet, guard, alphabet.width
        self.spelling, self.listed = number_texts(nodes, guard, extra)
        negated = any(map(negates, nodes))
        self.shortens, self._shortens_numbers = shortens, shortens and not negated
        self._exact_nodes = nodes_beside_negations(nodes, guard) if shortens and negated else frozenset[int]()
        # Numbers beyond the bounds, and those that the schema writes in its own way: their other text is left out.
        standard = {value: self.spelling.text(value) for value in self.listed}
        self._own_texts = {
            value: text
            for value, text in self.listed.items()
            if text != standard[value] or exceeded_bound(value, self.spelling) is not None
        }
        self._left_out = alphabet.texts(
            [standard[value] for value, text in self._own_texts.items() if text != standard[value]]
        )
        self._bounds: dict[str, int] = {}  # beyond which there may be values that are not written
        self._number_cache: dict[NumberFacts, Fragment | None] = {}
        self.any_text = alphabet.lengths(0, None)

    def any_number(self) -> Fragment | None:
        """All numbers."""
        return self._number(NumberFacts())

    def open_number(self) -> Fragment | None:
        """The numbers of a value of which the schema says nothing.

        Such values may be copied often, so short numbers keep their automaton small.
        """
        if not self._shortens_numbers:
            return self.any_number()
        self._bounds["open_digits"] = OPEN_DIGITS_MAX
        return self._fragment(open_number_dfa(self.spelling.integer_digits))

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
        return from_fragment(self._number(NumberFacts(integer, lower, upper, multiples)))

    def _number(self, facts: NumberFacts) -> Fragment | None:
        """The numbers that fit the facts, each in its only text."""
        if facts not in self._number_cache:
            standard = combine(self._fragment(number_dfa(facts, self.spelling)), self._left_out, "less", self._guard)
            own = self._alphabet.texts([text for value, text in self._own_texts.items() if fits(value, facts)])
            self._number_cache[facts] = combine(standard, own, "or", self._guard)
        return self._number_cache[facts]

    def bounds(self) -> list[tuple[str, int]]:
        """The bounds that may leave out values, by what was compiled."""
        return list(self._bounds.items())

    def shortens_beside(self, node_ids: Sequence[int]) -> bool:
        """Whether values of these nodes may be shorter than they allow."""
        return self.shortens and self._exact_nodes.isdisjoint(node_ids)

    def item_count(self, minimum: int, maximum: int, states: int) -> int:
        """The most items of an array that may be shortened. `states` is how many states an item has."""
        cap = min(maximum, max(minimum, 1, _COUNTED_STATES // states))
        if cap < maximum:
            self._bounds["array_items"] = min(cap, self._bounds.get("array_items", cap))
        return cap

    def _fragment(self, numbers: Dfa) -> Fragment | None:
        """The fragment of an automaton over the symbols of numbers."""
        self._bounds["integer_digits_max"] = self.spelling.integer_digits
        fragment = fragment_of(numbers)
        if fragment is None:
            return None
        # From the 14 symbols of numbers to the alphabet. Column 0 is of the symbols that no number has.
        columns = np.zeros(self._width, dtype=np.int32)
        columns[[ord(symbol) for symbol in SYMBOLS]] = 1 + fragment.columns
        dead_column = np.zeros((fragment.states, 1), dtype=np.int32)
        return Fragment(columns, np.concatenate([dead_column, fragment.table], axis=1), fragment.label)

    def string_language(self, nodes: Sequence[Schema], *, shortens: bool) -> TypeLanguage:
        """The contents of the strings that fit all nodes. `shortens` is whether they may be shorter."""
        facts = [node.strings for node in nodes if node.strings is not None]
        keys: dict[ContentKey, None] = {}  # ordered, each once
        for fact in facts:
            patterns = [("pattern", pattern) for pattern, _ in fact.patterns]
            keys |= dict.fromkeys([*patterns, *(("format", name) for name in fact.formats), *fact.constraints])
        minimum, maximum = tightest_counts(facts)
        short_keys = [self._alphabet.short_key(key, counted=maximum is not None) for key in keys]
        if shortens and (maximum is not None or short_keys != list(keys)):
            # Counting multiplies the states, so fewer of both are written where that leaves anything.
            short = self._counted(short_keys, minimum, maximum, short=maximum is not None)
            if isinstance(short, Fragment):
                return short
        return self._counted(list(keys), minimum, maximum, shortens=shortens)

    def _counted(
        self, keys: Sequence[ContentKey], minimum: int, maximum: int | None, *, shortens: bool = True,
        short: bool = False,
    ) -> TypeLanguage:
        """The strings of all these contents with lengths within bounds.

        shortens  whether the maximum may be lower
        short     whether that keeps the automaton small; else it only ensures that some string is left
        """
        contents = [self._alphabet.content(key) for key in keys]
        content = contents[0] if contents else None
        short_format = any(isinstance(key, tuple) and key[0] == "short format" for key in keys)
        if short_format:  # counted texts may be shorter still
            self._bounds.setdefault("string_chars", SHORT_CHARS_MAX)
        for other in contents[1:]:
            content = combine(content, other, "and", self._guard)
        if contents and (content is None or (not minimum and maximum is None)):
            return from_fragment(content)
        if not minimum and maximum is None:
            return Trivial.ALL
        if shortens and maximum is not None:
            states = content.states if content is not None else 2
            # Of n states, some string is shorter than n, or than the minimum and n.
            cap = min(SHORT_CHARS_MAX if short_format else maximum, maximum)
            cap = min(cap, max(minimum, _COUNTED_STATES // states) if short else minimum + states)
            if cap < maximum:
                self._bounds["string_chars"] = min(cap, self._bounds.get("string_chars", cap))
            maximum = cap
        # All bounds on lengths become one automaton.
        lengths = self._alphabet.lengths(minimum, maximum)
        return from_fragment(combine(content, lengths, "and", self._guard) if contents else lengths)

    def text(self, value: Scalar) -> str:
        """The text of a listed scalar."""
        if isinstance(value, bool | str) or value is None:
            return json.dumps(value, ensure_ascii=False)
        return self.listed[as_decimal(value)]

    def constant_text(self, value: object, position: Position, layout: ObjectLayout) -> str | None:
        """The text of a listed value. None where it is nested too deep."""
        parts: list[str | None] = []
        if isinstance(value, list | dict) and not position.may_nest():
            return None
        if isinstance(value, list):
            parts += [self.constant_text(item, position.item(index), layout) for index, item in enumerate(value)]
        elif isinstance(value, dict):
            for name in sorted(value, key=position.scope.names.index):
                text = self.constant_text(value[name], position.property(name), layout)
                parts.append(text and json.dumps(name, ensure_ascii=False) + layout.colon + text)
        else:
            return self.text(value)  # type: ignore[arg-type]
        if None in parts:
            return None
        opening, closing = "[]" if isinstance(value, list) else "{}"
        text = layout.comma(position.level).join(map(str, parts))
        inner = layout.inside(position.level) + text + layout.closing(position.level) if parts else ""
        text = opening + inner + closing
        return text if layout.is_unique(text) else None

    def constants(self, values: Sequence[Scalar], containers: Iterable[str] = ()) -> ValueSet:
        """Exactly these scalars, and the arrays and objects of these texts."""
        strings = [value for value in values if isinstance(value, str)]
        literals = {json.dumps(value) for value in values if value is None or isinstance(value, bool)}  # no automaton
        numbers = map(self.text, numbers_of(values))
        arrays, objects = ([text for text in containers if text[0] == bracket] for bracket in "[{")
        languages = (_listed(FiniteLanguage.of(each, self._alphabet)) for each in (numbers, strings, arrays, objects))
        return ValueSet(frozenset(literals), tuple(languages))
