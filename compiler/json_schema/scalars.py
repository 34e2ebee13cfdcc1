"""Numbers and strings of a schema as fragments: facts are merged, then compiled. Knows no arrays and objects."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from compiler.json_schema.fragments import Fragment, combine, fragment_of, minimal_fragment
from compiler.json_schema.keywords import tightest
from compiler.json_schema.nodes import NumberFacts, Scalar, Schema, StringFacts
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
from compiler.json_schema.value_sets import Trivial, TypeLanguage, ValueSet, from_fragment
from compiler.limits import ResourceGuard


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
        integer = any("number" not in allowed for allowed in types)
        facts = [node.numbers for node in nodes if node.numbers is not None]
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
        """The numbers that fit the facts, in the spellings of numbers that are not listed."""
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
        minimum, maximum = _lengths(facts)
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
        tries = [self._alphabet.texts(spellings(_numbers(values))), self._alphabet.texts(texts)]
        # A trie shares prefixes; its minimal automaton shares suffixes too.
        languages = [
            Trivial.EMPTY if trie is None else from_fragment(minimal_fragment(trie, self._guard)) for trie in tries
        ]
        return ValueSet(frozenset(literals), (*languages, Trivial.EMPTY, Trivial.EMPTY))


def _numbers(values: Sequence[Scalar]) -> list[int | float | Decimal]:
    return [value for value in values if not isinstance(value, str | bool) and value is not None]


def _lengths(facts: Sequence[StringFacts]) -> tuple[int, int | None]:
    """The least and the most characters that all facts allow."""
    maximum = [fact.maximum for fact in facts if fact.maximum is not None]
    return max((fact.minimum for fact in facts), default=0), min(maximum, default=None)


def _spellings(nodes: Sequence[Schema]) -> tuple[NumberSpelling, NumberSpelling]:
    """The spelling of numbers on which the schema places a condition, and of all others.

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
