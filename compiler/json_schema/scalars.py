"""Numbers and strings of a schema as blocks: facts merged, then compiled. Knows nothing of arrays and objects."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from compiler.json_schema.fragments import Fragment, block_of, combined, minimal
from compiler.json_schema.keywords import tightest
from compiler.json_schema.nodes import NumberFacts, Scalar, Schema, StringFacts
from compiler.json_schema.numbers import (
    DIGITS_MAX,
    INTEGER_DIGITS_MAX,
    SYMBOLS,
    NumberSpelling,
    fits,
    number_dfa,
    spellings,
    unusual,
)
from compiler.json_schema.strings import StringAlphabet
from compiler.json_schema.value_sets import TypeLanguage, Value, Whole, lane_of
from compiler.limits import ResourceGuard


class Scalars:
    """Compiles what the nodes of one document say of numbers and strings. Raises LimitExceeded."""

    def __init__(self, nodes: Sequence[Schema], alphabet: StringAlphabet, guard: ResourceGuard) -> None:
        self._alphabet, self._guard, self._width = alphabet, guard, alphabet.width
        self._spelling, self._open_spelling = _spellings(nodes)
        listed = [value for node in nodes for value in node.values or ()]
        self._unusual = unusual(_numbers(listed), self._spelling)
        self._known: dict[tuple[NumberFacts, NumberSpelling], Fragment | None] = {}
        self.any_text = alphabet.lengths(0, None)

    def any_number(self) -> Fragment | None:
        """All numbers."""
        return self._number(NumberFacts(), self._open_spelling)

    def numbers(self, nodes: Sequence[Schema], types: Sequence[frozenset[str]]) -> TypeLanguage:
        """The numbers that fit all nodes, whose types are `types` where they are given."""
        if not all({"number", "integer"} & allowed for allowed in types):
            return Whole.NOTHING
        integer = any("number" not in allowed for allowed in types)
        facts = [node.numbers for node in nodes if node.numbers is not None]
        if not facts and not integer:
            return Whole.EVERYTHING
        lower = tightest([one.lower for one in facts if one.lower is not None], lower=True)
        upper = tightest([one.upper for one in facts if one.upper is not None], lower=False)
        multiples = tuple(sorted({divisor for one in facts for divisor in one.multiples}))
        return lane_of(self._number(NumberFacts(integer, lower, upper, multiples), self._spelling))

    def _number(self, facts: NumberFacts, spelling: NumberSpelling) -> Fragment | None:
        """The numbers that fit the facts.

        Where they are compared or subtracted (so that exponents are not read), those that the schema lists are among
        them as they are written there: 1e20 is above 0, and what is not above 0 must not leave it.
        """
        if (facts, spelling) not in self._known:
            listed = () if spelling.exponents else self._unusual.items()
            more = self._alphabet.texts(text for text, value in listed if fits(value, facts))
            self._known[facts, spelling] = combined(self._usual(facts, spelling), more, "or", self._guard)
        return self._known[facts, spelling]

    def _usual(self, facts: NumberFacts, spelling: NumberSpelling) -> Fragment | None:
        """Those in the spellings that numbers have where they are not listed."""
        found = block_of(number_dfa(facts, spelling))
        if found is None:
            return None
        columns = np.zeros(self._width, dtype=np.int32)  # column 0 is of the symbols that no number has
        columns[[ord(symbol) for symbol in SYMBOLS]] = 1 + found.columns
        nothing = np.zeros((found.states, 1), dtype=np.int32)
        return Fragment(columns, np.concatenate([nothing, found.table], axis=1), found.label)

    def contents(self, nodes: Sequence[Schema]) -> TypeLanguage:
        """The contents of the strings that fit all nodes."""
        facts = [node.strings for node in nodes if node.strings is not None]
        wanted: dict[tuple[str, str | int], None] = {}
        for one in facts:
            wanted.update(dict.fromkeys(("pattern", pattern) for pattern, _ in one.patterns))
            wanted.update(dict.fromkeys(("format", name) for name in one.formats))
            wanted.update(dict.fromkeys(("constraint", id(value)) for value, _ in one.constraints))
        parts = [self._alphabet.content(*key) for key in wanted]
        minimum, maximum = _lengths(facts)
        if minimum or maximum is not None:
            parts.append(self._alphabet.lengths(minimum, maximum))
        if not parts:
            return Whole.EVERYTHING
        whole = parts[0]
        for part in parts[1:]:
            whole = combined(whole, part, "and", self._guard)
        return lane_of(whole)

    def listed(self, values: Sequence[Scalar]) -> Value:
        """Exactly these scalars; a number in each of its spellings."""
        texts = [value for value in values if isinstance(value, str)]
        literals = {json.dumps(value) for value in values if value is None or isinstance(value, bool)}
        blocks = [self._alphabet.texts(spellings(_numbers(values))), self._alphabet.texts(texts)]
        lanes = [Whole.NOTHING if block is None else lane_of(minimal(block, self._guard)) for block in blocks]
        return Value(frozenset(literals), (*lanes, Whole.NOTHING, Whole.NOTHING))


def _numbers(values: Sequence[Scalar]) -> list[int | float | Decimal]:
    return [value for value in values if not isinstance(value, str | bool) and value is not None]


def _lengths(facts: Sequence[StringFacts]) -> tuple[int, int | None]:
    maximum = [one.maximum for one in facts if one.maximum is not None]
    return max((one.minimum for one in facts), default=0), min(maximum, default=None)


def _spellings(nodes: Sequence[Schema]) -> tuple[NumberSpelling, NumberSpelling]:
    """How numbers are written where something is asked of them, and where nothing is.

    Exponents only where nothing is, and only if nothing is asked of any number or nothing is negated.
    """
    facts = [node.numbers for node in nodes if node.numbers is not None]
    compared = bool(facts) or any(
        node.values is not None or (node.types is not None and "integer" in node.types and "number" not in node.types)
        for node in nodes
    )
    negated = any(
        node.none_of
        or any(not condition.says_nothing() for condition in node.conditions)
        or any(choice.exactly_one for choice in node.either)
        or (node.arrays is not None and (node.arrays.unique or node.arrays.contains))
        for node in nodes
    )
    fractions = any(divisor != int(divisor) for one in facts for divisor in one.multiples)
    digits = DIGITS_MAX if fractions else INTEGER_DIGITS_MAX
    return NumberSpelling(False, digits), NumberSpelling(not (compared and negated), digits)
