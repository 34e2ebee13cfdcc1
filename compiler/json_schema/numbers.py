"""Automata over the texts of numbers, with exact bounds and division.

A number is written without an exponent, with at most 19 digits as an integer and 15 with a fraction. A validator that
reads it as a double then compares it as this module does. Short exponents are allowed where the schema places no
condition on numbers. Where a schema divides by fractions, integers have at most 15 digits too, since validators divide
doubles. Values that a schema lists may be written otherwise; they are compared by value. This module knows nothing of
schemas beyond the facts about numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np

from compiler.automata import Dfa, minimize
from compiler.errors import LimitExceeded
from compiler.json_schema.nodes import NumberFacts
from compiler.limits import DEFAULT_LIMITS

SYMBOLS = "-0123456789.eE+"
INTEGER_DIGITS_MAX = 19  # such integers are below 2 ** 64
DIGITS_MAX = 15  # decimals of 15 digits survive the way through a double
_EXPONENT_DIGITS_MAX = 2
_STATES_MAX = DEFAULT_LIMITS.dfa_states_max  # not the caller's limit, as automata are cached for all callers


@dataclass(frozen=True, slots=True)
class NumberSpelling:
    """Which spellings of numbers are read. The fields allow exponents and bound the digits of integers."""

    exponents: bool = False
    integer_digits: int = INTEGER_DIGITS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScanState:
    """The part of a number that has been read.

    phase       start, minus, zero, digits, point, fraction, e, sign or exponent
    digits      the number of digits; a zero before the point is not counted
    decimals    the number of digits behind the point, capped where more of them are not distinguished
    orders      for each bound, how the magnitude so far compares with the same part of it: -1, 0, 1
    remainders  for each divisor, the remainder of the digits so far
    """

    phase: str
    negative: bool
    digits: int
    decimals: int
    orders: tuple[int, ...]
    remainders: tuple[int, ...]


class _Scanner:
    """The transition function and acceptance of numbers that fit some facts."""

    def __init__(self, facts: NumberFacts, spelling: NumberSpelling) -> None:
        self._facts, self._spelling = facts, spelling
        self._bounds = [bound for bound in (facts.lower, facts.upper) if bound is not None]
        # The digits of each bound's magnitude before and behind the point.
        self._integer_parts, self._fraction_parts = [], []
        for value, _ in self._bounds:
            integer_part, _, fraction_part = f"{abs(value):f}".partition(".")
            self._integer_parts.append(integer_part.lstrip("0"))
            self._fraction_parts.append(fraction_part.rstrip("0"))
        # A multiple of the divisor modulus / 10 ** scale: with `scale` decimals, its digits are a multiple of modulus.
        self._scales = [max(0, -int(divisor.normalize().as_tuple().exponent)) for divisor in facts.multiples]
        scaled = zip(facts.multiples, self._scales, strict=True)
        self._moduli = [int(divisor.scaleb(scale)) for divisor, scale in scaled]
        # Positions behind the last decimal of every bound and divisor are not distinguished.
        self._decimals_max = max([*map(len, self._fraction_parts), *self._scales], default=0)
        self.start = _ScanState(
            phase="start", negative=False, digits=0, decimals=0, orders=(0,) * len(self._bounds),
            remainders=(0,) * len(facts.multiples),
        )

    def step(self, state: _ScanState, symbol: str) -> _ScanState | None:
        """The state after a symbol. None where no number continues with it."""
        if symbol == "-" and state.phase == "start":
            return replace(state, phase="minus", negative=True)
        # A plus sign occurs in exponents alone.
        if symbol in "+-" and state.phase == "e":
            return replace(state, phase="sign")
        if symbol == "." and state.phase in ("zero", "digits") and state.digits < DIGITS_MAX:
            # Only now is the number of digits before the point known, which decides before the digits do.
            orders = tuple(self._integer_order(state, which) for which in range(len(self._bounds)))
            return replace(state, phase="point", orders=orders)
        if symbol in "eE" and self._spelling.exponents and state.phase in ("zero", "digits", "fraction"):
            # Exponents are read only where nothing is compared, so all else can be forgotten.
            return replace(self.start, phase="e") if state.digits <= DIGITS_MAX else None
        return self._digit(state, symbol) if symbol.isdigit() else None

    def _digit(self, state: _ScanState, symbol: str) -> _ScanState | None:
        if state.phase in ("e", "sign", "exponent"):
            full = state.digits >= _EXPONENT_DIGITS_MAX
            return None if full else replace(state, phase="exponent", digits=state.digits + 1)
        if state.phase in ("start", "minus"):
            return replace(state, phase="zero") if symbol == "0" else self._integer_digit(state, symbol)
        if state.phase == "digits":
            return self._integer_digit(state, symbol) if state.digits < self._spelling.integer_digits else None
        if state.phase == "zero" or state.digits >= DIGITS_MAX:  # a leading zero, or too many digits
            return None
        return self._fraction_digit(state, symbol)

    def _integer_digit(self, state: _ScanState, symbol: str) -> _ScanState:
        # The first digit that differs decides, as long as both parts turn out to have as many digits.
        orders = tuple(
            order or (_order(symbol, integer_part[state.digits]) if state.digits < len(integer_part) else 0)
            for order, integer_part in zip(state.orders, self._integer_parts, strict=True)
        )
        remainders = tuple(
            (remainder * 10 + int(symbol)) % modulus
            for remainder, modulus in zip(state.remainders, self._moduli, strict=True)
        )
        return replace(state, phase="digits", digits=state.digits + 1, orders=orders, remainders=remainders)

    def _fraction_digit(self, state: _ScanState, symbol: str) -> _ScanState | None:
        # Behind the decimals of a divisor, a multiple of it has only zeros; so has an integer behind the point.
        if symbol != "0" and (self._facts.integer or any(scale <= state.decimals for scale in self._scales)):
            return None
        orders = tuple(
            order or _order(symbol, fraction_part[state.decimals] if state.decimals < len(fraction_part) else "0")
            for order, fraction_part in zip(state.orders, self._fraction_parts, strict=True)
        )
        remainders = tuple(
            (remainder * 10 + int(symbol)) % modulus if state.decimals < scale else remainder
            for remainder, modulus, scale in zip(state.remainders, self._moduli, self._scales, strict=True)
        )
        decimals = min(state.decimals + 1, self._decimals_max)
        return replace(
            state, phase="fraction", digits=state.digits + 1, decimals=decimals, orders=orders, remainders=remainders
        )

    def _integer_order(self, state: _ScanState, which: int) -> int:
        """Compare the digits before the point with those of a bound. More digits are a larger number."""
        return _order(state.digits, len(self._integer_parts[which])) or state.orders[which]

    def accepts(self, state: _ScanState) -> bool:
        """True when a number may end here and is within all bounds."""
        if state.phase in ("start", "minus", "point", "e", "sign"):
            return False
        if state.phase == "exponent":  # nothing is compared
            return True
        for which, (value, strict) in enumerate(self._bounds):
            order = self._order_of(state, which, value)
            is_lower = self._facts.lower is not None and which == 0
            if (order == 0 and strict) or order == (-1 if is_lower else 1):
                return False
        # Missing decimals are zeros: the digits are shifted as if they had been written.
        return all(
            remainder * 10 ** (scale - min(state.decimals, scale)) % modulus == 0
            for remainder, modulus, scale in zip(state.remainders, self._moduli, self._scales, strict=True)
        )

    def _order_of(self, state: _ScanState, which: int, value: Decimal) -> int:
        """How the number compares with a bound, if it ends here."""
        if (state.negative and value > 0) or (not state.negative and value < 0):
            return -1 if state.negative else 1
        order = state.orders[which] if state.phase == "fraction" else self._integer_order(state, which)
        if order == 0 and len(self._fraction_parts[which]) > state.decimals:
            order = -1  # the bound has more decimals, and the last of them is not zero
        return -order if state.negative else order


def _order(left: str | int, right: str | int) -> int:
    """The order of two numbers or digits: -1, 0 or 1. Both operands are numbers, or both are digits."""
    return (left > right) - (left < right)  # type: ignore[operator]


@lru_cache(maxsize=256)
def number_dfa(facts: NumberFacts, spelling: NumberSpelling) -> Dfa:
    """The minimal DFA over SYMBOLS of the numbers that fit the facts. Raises LimitExceeded over `dfa_states_max`.

    >>> dfa = number_dfa(NumberFacts(lower=(Decimal("0.5"), False)), NumberSpelling())
    >>> [dfa.accepts(map(SYMBOLS.index, text)) for text in ("0.49", "0.5", "12", "-1")]
    [False, True, True, False]
    """
    # The states of the scanner that can be reached, numbered from 1 in breadth-first order; 0 is the dead state.
    scanner = _Scanner(facts, spelling)
    index, order, rows = {scanner.start: 1}, [scanner.start], []
    for state in order:  # grows while it is walked
        row = []
        for symbol in SYMBOLS:
            following = scanner.step(state, symbol)
            if following is not None and following not in index:
                index[following] = len(index) + 1
                order.append(following)
            row.append(0 if following is None else index[following])
        rows.append(row)
        if len(rows) > _STATES_MAX:
            raise LimitExceeded("dfa_states_max", _STATES_MAX, len(rows))
    accepting = np.array([False, *map(scanner.accepts, order)])
    table = np.array([[0] * len(SYMBOLS), *rows], dtype=np.int32)
    return minimize(Dfa(np.arange(len(SYMBOLS), dtype=np.int32), table, accepting, 1))


def spellings(values: Iterable[int | float | Decimal]) -> list[str]:
    """Every text of each value: 2 is 2 and 2.0 and 2.00. A value of more digits than are read has one text.

    An integer of more digits that a double holds exactly may still end in ".0", as many programs print doubles.
    """
    texts: dict[str, None] = {}
    for value in values:
        exact = as_decimal(value)
        integer_part, _, fraction_part = f"{abs(exact):f}".partition(".")
        fraction_part = fraction_part.rstrip("0")
        digits = len(integer_part.lstrip("0")) + len(fraction_part)
        if digits > (DIGITS_MAX if fraction_part else INTEGER_DIGITS_MAX) or len(fraction_part) > DIGITS_MAX:
            texts[json.dumps(float(value) if isinstance(value, Decimal) else value)] = None
            continue
        # Zero has both signs.
        for sign in ("-",) if exact < 0 else ("",) if exact else ("", "-"):
            zeros = range(0 if fraction_part else 1, DIGITS_MAX - digits + 1)
            texts.update(dict.fromkeys(f"{sign}{integer_part}.{fraction_part}{'0' * count}" for count in zeros))
            if not fraction_part:
                texts[f"{sign}{integer_part}"] = None
            if digits >= DIGITS_MAX and not fraction_part and int(float(integer_part)) == int(integer_part):
                texts[f"{sign}{integer_part}.0"] = None
    return list(texts)


def nonstandard_spellings(values: Iterable[int | float | Decimal], spelling: NumberSpelling) -> dict[str, Decimal]:
    """The spellings of the values that `number_dfa` does not read. Each maps to its value."""
    return {
        text: as_decimal(value) for value in values for text in spellings([value]) if not _is_standard(text, spelling)
    }


def _is_standard(text: str, spelling: NumberSpelling) -> bool:
    """True for a number without an exponent and with few enough digits."""
    integer_part, _, fraction_part = text.lstrip("-").partition(".")
    digits = len(integer_part.lstrip("0")) + len(fraction_part)
    return "e" not in text and digits <= (DIGITS_MAX if fraction_part else spelling.integer_digits)


def fits(value: Decimal, facts: NumberFacts) -> bool:
    """True when the facts hold of the value, exactly."""
    if facts.lower is not None and (value < facts.lower[0] or (value == facts.lower[0] and facts.lower[1])):
        return False
    if facts.upper is not None and (value > facts.upper[0] or (value == facts.upper[0] and facts.upper[1])):
        return False
    divisors = (*facts.multiples, *((Decimal(1),) if facts.integer else ()))
    # Decimals would divide in the limited precision of their context.
    return all((Fraction(value) / Fraction(divisor)).denominator == 1 for divisor in divisors)


def as_decimal(value: int | float | Decimal) -> Decimal:
    """The value of a number as a decimal. A float with a fraction counts as the shortest decimal that reads back as the
    same double.

    Floats without a fraction are exact: past 2 ** 53 the shortest spelling may be another integer.
    """
    return Decimal(repr(value)) if isinstance(value, float) and not value.is_integer() else Decimal(value)
