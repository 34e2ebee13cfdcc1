"""Automata over the texts of numbers, and how each number is written.

Every value has one text, so automata over texts combine as sets of values do. It is that of ECMAScript's
Number.toString, which is also that of RFC 8785: `7`, `0.5`, `1e+21`, `1.5e-7`. All comparisons and divisions are exact
over decimals. What is written is bounded: integers have at most `integer_digits` digits; other numbers have 15
significant digits, which survive the way through a double, and an exponent of three digits. This module knows nothing
of schemas beyond the facts about numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from math import gcd
from typing import NamedTuple

import numpy as np

from compiler.automata import Dfa, minimize
from compiler.errors import LimitExceeded
from compiler.json_schema.clauses import negates
from compiler.json_schema.decimals import (
    PLAIN_DIGITS_MAX,
    PLAIN_EXPONENT_MAX,
    as_decimal,
    canonical_text,
    is_integer,
    is_multiple,
    numbers_of,
    significant_digits,
)
from compiler.json_schema.nodes import Bound, NumberFacts, Schema
from compiler.limits import DEFAULT_LIMITS, ResourceGuard
from compiler.regex import pattern_dfa

SYMBOLS = "-0123456789.e+"
DIGITS_MAX = 15  # significant digits of a number that is no integer: they survive the way through a double
EXPONENT_MAX = 307  # such numbers are normal doubles, whatever their digits
INTEGER_DIGITS_DEFAULT = DEFAULT_LIMITS.integer_digits_max
OPEN_DIGITS_MAX = 15  # of an integer that a schema leaves open
_OPEN_PLACES = 9, 6  # digits before and behind the point of another such number, which is then no less than 1e-6
_STATES_MAX = DEFAULT_LIMITS.dfa_states_max  # not the caller's limit, as automata are cached for all callers


@dataclass(frozen=True, slots=True)
class NumberSpelling:
    """Bounds of what is written.

    integer_digits  the most digits of an integer
    long_integers   whether a larger integer is written too, with 15 significant digits; facts that ask for integers or
                    multiples never allow it
    exponents       whether numbers that need an exponent are written
    """

    integer_digits: int = INTEGER_DIGITS_DEFAULT
    long_integers: bool = True
    exponents: bool = True

    def text(self, value: Decimal) -> str:
        """The text of a value, with all of its digits."""
        return canonical_text(value, max(self.integer_digits, PLAIN_DIGITS_MAX))

    def own_text(self, value: int | float | Decimal, whole: bool) -> str:
        """The text of a number that a schema lists.

        It is as the schema writes it, unless that has an exponent.

        whole  whether integers are written without a fraction all the same
        """
        if isinstance(value, int):
            return str(value)
        exact, text = as_decimal(value), str(as_decimal(value))
        return self.text(exact) if "E" in text or not exact or (whole and is_integer(exact)) else text


class _ScanState(NamedTuple):
    """The part of a magnitude that has been read.

    phase       start, zero, integer, fraction, placed (a fraction that no exponent follows) or exponent
    digits      the number of digits from the first that is not zero on
    exponent    that of the first digit, in a fraction
    orders      for each bound, how the digits compare with its digits: -1, 0, 1, or _HOLDS
    remainders  for each divisor, the remainder of the digits
    incomplete  a fraction's last digit is zero or missing; or an integer has a digit behind the 15th that is not zero
    rest        what may follow, in the exponent
    """

    phase: str
    digits: int = 0
    exponent: int = 0
    orders: tuple[int, ...] = ()
    remainders: tuple[int, ...] = ()
    incomplete: bool = False
    rest: frozenset[str] = frozenset()


_HOLDS = 2  # the bound holds whatever follows
_Magnitude = tuple[int, str, bool, bool]  # exponent and digits of a bound, whether it is the lower one and excluded


class _Scanner:
    """The transition function and acceptance of positive numbers that fit some facts.

    bounds  the lower and the upper bound of the magnitude, both positive; None where there is none
    """

    def __init__(self, facts: NumberFacts, bounds: tuple[Bound | None, Bound | None], spelling: NumberSpelling) -> None:
        self._integer, self._spelling = facts.integer, spelling
        self._long = spelling.long_integers and not facts.integer and not facts.multiples
        self._bounds: list[_Magnitude] = [
            (bound[0].adjusted(), significant_digits(bound[0]), number == 0, bound[1])
            for number, bound in enumerate(bounds) if bound is not None
        ]
        self._divisors = [divisor for value in facts.multiples for divisor in _divisors(value)]
        self.start = _ScanState("start", orders=(0,) * len(self._bounds), remainders=(0,) * len(self._divisors))
        self._classes: dict[tuple[int, ...], int] = {}
        self._exponents: dict[tuple[tuple[int, ...], tuple[int, ...], int], frozenset[str]] = {}

    def step(self, state: _ScanState, symbol: str) -> _ScanState | None:
        """The state after a symbol. None where no number continues with it."""
        if state.phase == "exponent":
            rest = frozenset(text[1:] for text in state.rest if text.startswith(symbol))
            return state._replace(rest=rest) if rest else None
        if symbol == "e":
            return self._exponent_of(state)
        if symbol == ".":
            return self._point(state)
        return self._digit(state, symbol) if symbol.isdigit() else None

    def _point(self, state: _ScanState) -> _ScanState | None:
        if self._integer or state.phase not in ("zero", "integer") or state.digits >= DIGITS_MAX:
            return None
        if state.phase == "zero":
            return state._replace(phase="fraction", exponent=-1, incomplete=True)
        # Behind one digit an exponent may follow, which decides first how the number compares.
        point = state._replace(phase="fraction", exponent=state.digits - 1, incomplete=True)
        return point if state.digits == 1 and self._spelling.exponents else self._placed(point)

    def _placed(self, state: _ScanState) -> _ScanState | None:
        """The state of a fraction that no exponent follows. Bounds that are certain to hold are settled.

        None where one is certain not to hold, or the last digit is behind those that multiples have.
        """
        orders = []
        for order, bound in zip(state.orders, self._bounds, strict=True):
            order = order if order == _HOLDS else _order(state.exponent, bound[0]) or order
            if order and order != _HOLDS:
                if (order > 0) is not bound[2]:
                    return None
                order = _HOLDS
            orders.append(order)
        place = state.exponent - state.digits + 1  # of the last digit
        left = min((place + divisor.scale for divisor in self._divisors), default=DIGITS_MAX)  # digits that may follow
        if left < 0:
            return None
        state = state._replace(phase="placed", orders=tuple(orders))
        if any(order != _HOLDS for order in orders):
            return state
        # States that the following digits cannot tell apart are the same.
        digits = state.digits if state.digits + left > DIGITS_MAX else 1
        return state._replace(digits=digits, exponent=place + digits - 1 if self._divisors else 0)

    def _digit(self, state: _ScanState, symbol: str) -> _ScanState | None:
        if state.phase == "start":
            phase = "zero" if symbol == "0" else "integer"
            return state._replace(phase=phase) if symbol == "0" else self._read(state._replace(phase=phase), symbol)
        if state.phase == "integer":
            return self._integer_digit(state, symbol)
        if state.phase == "zero" or state.digits >= DIGITS_MAX:
            return None
        if state.digits == 0 and symbol == "0":  # zeros behind the point
            return state._replace(exponent=state.exponent - 1) if state.exponent > -PLAIN_EXPONENT_MAX else None
        following = self._read(state, symbol)._replace(incomplete=symbol == "0")
        return following if state.exponent == 0 and state.phase == "fraction" else self._placed(following)

    def _integer_digit(self, state: _ScanState, symbol: str) -> _ScanState | None:
        # An integer that is longer than others may be has zeros behind its significant digits.
        incomplete = state.incomplete or (state.digits >= DIGITS_MAX and symbol != "0")
        longest = PLAIN_DIGITS_MAX if self._long and not incomplete else 0
        before_point = 0 if self._integer else DIGITS_MAX - 1
        if state.digits >= max(self._spelling.integer_digits, longest, before_point):
            return None
        return self._read(state, symbol)._replace(incomplete=incomplete)

    def _read(self, state: _ScanState, symbol: str) -> _ScanState:
        # Bounds are compared digit by digit; behind its last digit a bound has zeros.
        orders = tuple(
            order or _order(symbol, digits[state.digits] if state.digits < len(digits) else "0")
            for order, (_, digits, _, _) in zip(state.orders, self._bounds, strict=True)
        )
        remainders = tuple(
            self._class_of((remainder * 10 + int(symbol)) % divisor.modulus, divisor)
            for remainder, divisor in zip(state.remainders, self._divisors, strict=True)
        )
        return state._replace(digits=state.digits + 1, orders=orders, remainders=remainders)

    def _class_of(self, remainder: int, divisor: _Divisor) -> int:
        """The first remainder met that the same further digits make a multiple."""
        if not divisor.zeros:
            return remainder
        return self._classes.setdefault((divisor.modulus, *_needed(remainder, divisor)), remainder)

    def _exponent_of(self, state: _ScanState) -> _ScanState | None:
        """The state behind an `e`.

        One digit precedes it, or a complete fraction behind one digit.
        """
        one_digit = state.phase == "integer" and state.digits == 1
        fraction = state.phase == "fraction" and state.exponent == 0 and not state.incomplete
        if not self._spelling.exponents or not (one_digit or fraction):
            return None
        # The number of digits matters to divisors, and to a bound that begins with these digits.
        digits = state.digits if self._divisors or 0 in state.orders else 0
        key = (state.orders, state.remainders, digits)
        if key not in self._exponents:
            large = range(max(PLAIN_DIGITS_MAX, self._spelling.integer_digits), EXPONENT_MAX + 1) if self._long else ()
            small = () if self._integer else range(PLAIN_EXPONENT_MAX + 1, EXPONENT_MAX + 1)
            texts = [f"+{exponent}" for exponent in large if self._fits(state, exponent)]
            texts += [f"-{exponent}" for exponent in small if self._fits(state, -exponent)]
            self._exponents[key] = frozenset(texts)
        rest = self._exponents[key]
        return _ScanState("exponent", rest=rest) if rest else None

    def accepts(self, state: _ScanState) -> bool:
        """True when a number may end here and fits the facts."""
        if state.phase == "exponent":
            return "" in state.rest
        if state.phase in ("fraction", "placed"):
            return not state.incomplete and self._fits(state, state.exponent)
        long = state.digits > self._spelling.integer_digits and (state.incomplete or not self._long)
        return state.phase == "integer" and not long and self._fits(state, state.digits - 1)

    def _fits(self, state: _ScanState, exponent: int) -> bool:
        """Whether the number fits, given the exponent of its first digit."""
        for order, (place, digits, is_lower, strict) in zip(state.orders, self._bounds, strict=True):
            if order == _HOLDS:
                continue
            order = _order(exponent, place) or order or (-1 if state.digits < len(digits) else 0)
            if (order == 0 and strict) or (order != 0 and (order > 0) is not is_lower):
                return False
        shift = exponent - state.digits + 1  # of the last digit
        return all(
            shift + divisor.scale >= 0
            and remainder * pow(10, shift + divisor.scale, divisor.modulus) % divisor.modulus == 0
            for remainder, divisor in zip(state.remainders, self._divisors, strict=True)
        )


def _order(left: str | int, right: str | int) -> int:
    """The order of two numbers or digits: -1, 0 or 1. Both operands are numbers, or both are digits."""
    return (left > right) - (left < right)  # type: ignore[operator]


class _Divisor(NamedTuple):
    """A factor of a divisor, for digits and their exponent.

    It divides digits * 10 ** n if the modulus divides digits * 10 ** (n + scale).

    zeros  how many zeros behind them make any digits a multiple; 0 where none do
    """

    modulus: int
    scale: int
    zeros: int = 0


def _divisors(value: Decimal) -> list[_Divisor]:
    """The factors of a divisor: powers of 2 and 5, and others."""
    digits = significant_digits(value)
    shift = value.adjusted() - len(digits) + 1
    modulus, scale = int(digits) * 10 ** max(0, shift), max(0, -shift)
    powers = gcd(modulus, 10 ** modulus.bit_length())
    zeros = next(count for count in range(modulus.bit_length() + 1) if 10**count % powers == 0)
    return [_Divisor(powers, scale, zeros), _Divisor(modulus // powers, scale)]


def _needed(remainder: int, divisor: _Divisor) -> tuple[int, ...]:
    """The further digits that make a multiple, by their number.

    It is -1 where none do.
    """
    needed = (-remainder * 10**count % divisor.modulus for count in range(divisor.zeros))
    return tuple(digits if digits < 10**count else -1 for count, digits in enumerate(needed))


@lru_cache(maxsize=256)
def number_dfa(facts: NumberFacts, spelling: NumberSpelling) -> Dfa:
    """The minimal DFA over SYMBOLS of the numbers that fit the facts. Raises LimitExceeded over `dfa_states_max`.

    >>> dfa = number_dfa(NumberFacts(lower=(Decimal("0.5"), False)), NumberSpelling())
    >>> [dfa.accepts(map(SYMBOLS.index, text)) for text in ("0.49", "0.5", "0.50", "12", "-1", "1e+21")]
    [False, True, False, True, False, True]
    """
    # State 0 is dead, 1 the start, 2 behind a minus, 3 behind a zero: zero has no sign.
    rows: list[list[int]] = [[0] * len(SYMBOLS) for _ in range(4)]
    accepting = [False, False, False, fits(Decimal(0), facts)]
    starts = {}
    # The magnitudes of both signs share their states where they have the same bounds.
    for source, bounds in ((1, _magnitudes(facts.lower, facts.upper)), (2, _negative_magnitudes(facts))):
        if bounds is None:
            continue
        if bounds not in starts:
            starts[bounds] = _explore(_Scanner(facts, bounds, spelling), rows, accepting)
        rows[source] = rows[starts[bounds]].copy()
        zero = rows[source][SYMBOLS.index("0")]
        if source == 1:
            rows[3] = rows[zero].copy()
    rows[1][SYMBOLS.index("0")] = 3
    rows[1][SYMBOLS.index("-")] = 2 if _negative_magnitudes(facts) is not None else 0
    table = np.array(rows, dtype=np.int32)
    return minimize(Dfa(np.arange(len(SYMBOLS), dtype=np.int32), table, np.array(accepting), 1))


@lru_cache(maxsize=8)
def open_number_dfa(integer_digits: int) -> Dfa:
    """The minimal DFA over SYMBOLS of short numbers. Values that a schema leaves open hold only these.

    integer_digits  the most digits of an integer elsewhere

    >>> [open_number_dfa(19).accepts(map(SYMBOLS.index, text)) for text in ("-12.5", "0", "1.50", "-0", "0.0000001")]
    [True, True, False, False, False]
    """
    longest, before, behind = (min(digits, integer_digits) for digits in (OPEN_DIGITS_MAX, *_OPEN_PLACES))
    pattern = rf"0|-?[1-9][0-9]{{0,{longest - 1}}}|-?(0|[1-9][0-9]{{0,{before - 1}}})\.[0-9]{{0,{behind - 1}}}[1-9]"
    dfa, minterms = pattern_dfa(pattern, ResourceGuard(DEFAULT_LIMITS))
    return Dfa(dfa.symbol_class[minterms.word(SYMBOLS)], dfa.next_state, dfa.accepting, dfa.start)


def _explore(scanner: _Scanner, rows: list[list[int]], accepting: list[bool]) -> int:
    """Add the states of a scanner that can be reached, breadth first. Returns the start's number."""
    offset = len(rows)
    index, order = {scanner.start: offset}, [scanner.start]
    for state in order:  # grows while it is walked
        row = []
        for symbol in SYMBOLS:
            following = scanner.step(state, symbol)
            if following is not None and following not in index:
                index[following] = offset + len(index)
                order.append(following)
            row.append(0 if following is None else index[following])
        rows.append(row)
        accepting.append(scanner.accepts(state))
        if offset + len(index) > _STATES_MAX:  # states that are found get rows later
            raise LimitExceeded("dfa_states_max", _STATES_MAX, offset + len(index))
    return offset


def _magnitudes(lower: Bound | None, upper: Bound | None) -> tuple[Bound | None, Bound | None] | None:
    """The bounds of positive numbers; None where there are none."""
    if upper is not None and upper[0] <= 0:
        return None
    return (lower if lower is not None and lower[0] > 0 else None, upper)


def _negative_magnitudes(facts: NumberFacts) -> tuple[Bound | None, Bound | None] | None:
    """The bounds of the magnitudes of negative numbers."""
    bounds = (facts.lower, facts.upper)
    lower, upper = (None if bound is None else (bound[0].copy_negate(), bound[1]) for bound in bounds)
    return _magnitudes(upper, lower)


def fits(value: Decimal, facts: NumberFacts) -> bool:
    """True when the facts hold of the value, exactly."""
    if facts.lower is not None and (value < facts.lower[0] or (value == facts.lower[0] and facts.lower[1])):
        return False
    if facts.upper is not None and (value > facts.upper[0] or (value == facts.upper[0] and facts.upper[1])):
        return False
    divisors = (*facts.multiples, *((Decimal(1),) if facts.integer else ()))
    return all(is_multiple(value, divisor) for divisor in divisors)


def number_texts(
    nodes: Sequence[Schema], guard: ResourceGuard, extra: Sequence[Decimal] = ()
) -> tuple[NumberSpelling, dict[Decimal, str]]:
    """The spelling of a document's numbers, and the texts of listed ones.

    Both hold for the whole document, since automata of all its nodes are compared text by text. Integers of too many
    digits are no integers to `type`, though they are numbers. Where the schema negates, the complement of an integer
    would accept them, so there they are not written at all.

    extra  numbers to list beside those of the document
    """
    facts = [node.numbers for node in nodes if node.numbers is not None]
    integers = any(node.types is not None and "integer" in node.types and "number" not in node.types for node in nodes)
    # Validators may divide doubles by fractions, so integers are kept to the digits that a double holds.
    fractions = any(not is_integer(divisor) for fact in facts for divisor in fact.multiples)
    digits = min(guard.limits.integer_digits_max, DIGITS_MAX if fractions else guard.limits.integer_digits_max)
    negated, selective = any(map(negates, nodes)), integers or any(fact.multiples for fact in facts)
    # Products of automata grow with each number, so exponents are left out where the schema's numbers need none.
    bounds = [bound[0] for fact in facts for bound in (fact.lower, fact.upper) if bound is not None]
    wide = not negated or any(bound and not 1 - PLAIN_EXPONENT_MAX <= bound.adjusted() < digits for bound in bounds)
    spelling = NumberSpelling(digits, long_integers=wide and not (negated and selective), exponents=wide)
    listed: dict[Decimal, str] = {}
    for number in (*numbers_of([value for node in nodes for value in node.values or ()]), *extra):
        listed.setdefault(as_decimal(number), spelling.own_text(number, whole=integers))
    return spelling, listed
