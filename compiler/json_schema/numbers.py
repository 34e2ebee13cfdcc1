"""Automata over the texts of numbers: exact comparison with bounds, and exact division.

A number is written without an exponent, with at most 19 digits as an integer and 15 with a fraction. A validator that
reads it as a double then compares it as this module does. Short exponents are allowed where the schema places no
condition on numbers. Where a schema divides by fractions, integers have at most 15 digits too, since validators divide
doubles. Values that a schema lists by name may be written otherwise; they are compared by value.
This module knows nothing of schemas beyond the facts about numbers.
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
INTEGER_DIGITS_MAX = 19
DIGITS_MAX = 15
_EXPONENT_DIGITS_MAX = 2
_STATES_MAX = DEFAULT_LIMITS.dfa_states_max


@dataclass(frozen=True, slots=True)
class NumberSpelling:
    """Which numbers are written at all: with exponents or not, and with how many digits as an integer."""

    exponents: bool = False
    integer_digits: int = INTEGER_DIGITS_MAX


@dataclass(frozen=True, slots=True)
class _At:
    """What has been read. `phase`: start, minus, zero, digits, point, fraction, e, sign, exponent.

    digits     how many digits, a zero before the point not counted
    after      how many of them behind the point, as far as the bounds and divisors care
    compared   for each bound, how the magnitude compares so far: -1, 0, 1
    remainder  for each divisor, the remainder of the digits so far
    """

    phase: str
    negative: bool
    digits: int
    after: int
    compared: tuple[int, ...]
    remainder: tuple[int, ...]


class _Scanner:
    """Steps over the symbols of a number under some facts."""

    def __init__(self, facts: NumberFacts, spelling: NumberSpelling) -> None:
        self._facts, self._spelling = facts, spelling
        self._bounds = [bound for bound in (facts.lower, facts.upper) if bound is not None]
        self._whole, self._part = [], []
        for value, _ in self._bounds:
            whole, _, part = f"{abs(value):f}".partition(".")
            self._whole.append(whole.lstrip("0"))
            self._part.append(part.rstrip("0"))
        self._places = [max(0, -int(one.normalize().as_tuple().exponent)) for one in facts.multiples]
        self._modulus = [int(one.scaleb(places)) for one, places in zip(facts.multiples, self._places, strict=True)]
        self._after_max = max([len(part) for part in self._part] + self._places, default=0)
        self.start = _At("start", False, 0, 0, (0,) * len(self._bounds), (0,) * len(facts.multiples))

    def step(self, at: _At, symbol: str) -> _At | None:
        """What has been read after one symbol more; None where no number goes on so."""
        if symbol == "-" and at.phase == "start":
            return replace(at, phase="minus", negative=True)
        if symbol == "." and at.phase in ("zero", "digits") and at.digits < DIGITS_MAX:
            compared = tuple(self._whole_order(at, which) for which in range(len(self._bounds)))
            return replace(at, phase="point", compared=compared)
        if symbol in "eE+":
            return self._exponent(at, symbol)
        if symbol == "-":
            return replace(at, phase="sign") if at.phase == "e" else None
        return self._digit(at, symbol) if symbol != "." else None

    def _exponent(self, at: _At, symbol: str) -> _At | None:
        if symbol == "+":
            return replace(at, phase="sign") if at.phase == "e" else None
        allowed = self._spelling.exponents and at.phase in ("zero", "digits", "fraction") and at.digits <= DIGITS_MAX
        return replace(self.start, phase="e") if allowed else None

    def _digit(self, at: _At, symbol: str) -> _At | None:
        if at.phase in ("e", "sign", "exponent"):
            return replace(at, phase="exponent", digits=at.digits + 1) if at.digits < _EXPONENT_DIGITS_MAX else None
        if at.phase in ("start", "minus"):
            return replace(at, phase="zero") if symbol == "0" else self._whole_digit(at, symbol)
        if at.phase == "digits":
            return self._whole_digit(at, symbol) if at.digits < self._spelling.integer_digits else None
        if at.phase == "zero" or at.digits >= DIGITS_MAX:
            return None
        return self._fraction_digit(at, symbol)

    def _whole_digit(self, at: _At, symbol: str) -> _At:
        compared = tuple(
            old or (_order(symbol, whole[at.digits]) if at.digits < len(whole) else 0)
            for old, whole in zip(at.compared, self._whole, strict=True)
        )
        return replace(
            at, phase="digits", digits=at.digits + 1, compared=compared, remainder=self._divided(at.remainder, symbol)
        )

    def _fraction_digit(self, at: _At, symbol: str) -> _At | None:
        if symbol != "0" and (self._facts.integer or any(places <= at.after for places in self._places)):
            return None
        compared = tuple(
            old or _order(symbol, part[at.after] if at.after < len(part) else "0")
            for old, part in zip(at.compared, self._part, strict=True)
        )
        remainder = tuple(
            (old * 10 + int(symbol)) % modulus if at.after < places else old
            for old, modulus, places in zip(at.remainder, self._modulus, self._places, strict=True)
        )
        after = min(at.after + 1, self._after_max)
        return replace(at, phase="fraction", digits=at.digits + 1, after=after, compared=compared, remainder=remainder)

    def _divided(self, remainder: tuple[int, ...], symbol: str) -> tuple[int, ...]:
        return tuple((old * 10 + int(symbol)) % modulus for old, modulus in zip(remainder, self._modulus, strict=True))

    def _whole_order(self, at: _At, which: int) -> int:
        """How the digits before the point compare with those of a bound."""
        return _order(at.digits, len(self._whole[which])) or at.compared[which]

    def accepts(self, at: _At) -> bool:
        """True when a number may end here and is within all bounds."""
        if at.phase in ("start", "minus", "point", "e", "sign"):
            return False
        if at.phase == "exponent":
            return True
        for which, (value, strict) in enumerate(self._bounds):
            order = self._order_of(at, which, value)
            is_lower = self._facts.lower is not None and which == 0
            if (order == 0 and strict) or order == (-1 if is_lower else 1):
                return False
        return all(
            old * 10 ** (places - min(at.after, places)) % modulus == 0
            for old, modulus, places in zip(at.remainder, self._modulus, self._places, strict=True)
        )

    def _order_of(self, at: _At, which: int, value: Decimal) -> int:
        """How the number read compares with a bound."""
        if (at.negative and value > 0) or (not at.negative and value < 0):
            return -1 if at.negative else 1
        order = at.compared[which] if at.phase == "fraction" else self._whole_order(at, which)
        if order == 0 and len(self._part[which]) > at.after:
            order = -1
        return -order if at.negative else order


def _order(left: str | int, right: str | int) -> int:
    """-1, 0 or 1 as `left` is less than, equal to or more than `right`, both of one kind."""
    return (left > right) - (left < right)  # type: ignore[operator]


@lru_cache(maxsize=256)
def number_dfa(facts: NumberFacts, spelling: NumberSpelling) -> Dfa:
    """The minimal DFA over SYMBOLS of the numbers that fit the facts. Raises LimitExceeded over `dfa_states_max`."""
    scanner = _Scanner(facts, spelling)
    index, order, rows = {scanner.start: 1}, [scanner.start], []
    for at in order:  # grows while it is walked
        row = []
        for symbol in SYMBOLS:
            found = scanner.step(at, symbol)
            if found is not None and found not in index:
                index[found] = len(index) + 1
                order.append(found)
            row.append(0 if found is None else index[found])
        rows.append(row)
        if len(rows) > _STATES_MAX:
            raise LimitExceeded("dfa_states_max", _STATES_MAX, len(rows))
    accepting = np.array([False, *map(scanner.accepts, order)])
    table = np.array([[0] * len(SYMBOLS), *rows], dtype=np.int32)
    return minimize(Dfa(np.arange(len(SYMBOLS), dtype=np.int32), table, accepting, 1))


def spellings(values: Iterable[int | float | Decimal]) -> list[str]:
    """Every text of each value: 2 is 2 and 2.0 and 2.00; one that needs more digits than we write has one text.

    A whole number of more digits that a double holds exactly may still end in one ".0", as others print it.
    """
    texts: dict[str, None] = {}
    for value in values:
        exact = as_decimal(value)
        whole, _, part = f"{abs(exact):f}".partition(".")
        part = part.rstrip("0")
        digits = len(whole.lstrip("0")) + len(part)
        if digits > (DIGITS_MAX if part else INTEGER_DIGITS_MAX) or len(part) > DIGITS_MAX:
            texts[json.dumps(float(value) if isinstance(value, Decimal) else value)] = None
            continue
        for sign in ("-",) if exact < 0 else ("",) if exact else ("", "-"):
            zeros = range(0 if part else 1, DIGITS_MAX - digits + 1)
            texts.update(dict.fromkeys(f"{sign}{whole}.{part}{'0' * count}" for count in zeros))
            if not part:
                texts[f"{sign}{whole}"] = None
            if digits >= DIGITS_MAX and not part and int(float(whole)) == int(whole):
                texts[f"{sign}{whole}.0"] = None
    return list(texts)


def unusual(values: Iterable[int | float | Decimal], spelling: NumberSpelling) -> dict[str, Decimal]:
    """Those spellings of the values that `number_dfa` does not read, and what each stands for."""
    return {text: as_decimal(value) for value in values for text in spellings([value]) if not _is_usual(text, spelling)}


def _is_usual(text: str, spelling: NumberSpelling) -> bool:
    """True for a number that is written without an exponent and in few enough digits."""
    whole, _, part = text.lstrip("-").partition(".")
    digits = len(whole.lstrip("0")) + len(part)
    return "e" not in text and digits <= (DIGITS_MAX if part else spelling.integer_digits)


def fits(value: Decimal, facts: NumberFacts) -> bool:
    """True when the facts hold of the value, exactly. Fractions, for decimals divide in a precision of their own."""
    if facts.lower is not None and (value < facts.lower[0] or (value == facts.lower[0] and facts.lower[1])):
        return False
    if facts.upper is not None and (value > facts.upper[0] or (value == facts.upper[0] and facts.upper[1])):
        return False
    divisors = (*facts.multiples, *((Decimal(1),) if facts.integer else ()))
    return all((Fraction(value) / Fraction(divisor)).denominator == 1 for divisor in divisors)


def as_decimal(value: int | float | Decimal) -> Decimal:
    """The value of a number, for floats with a fraction the shortest spelling that reads back as the same double.

    Whole floats exactly: past 2 ** 53 the shortest spelling is another whole number, which readers would tell apart.
    """
    return Decimal(repr(value)) if isinstance(value, float) and not value.is_integer() else Decimal(value)
