"""The numbers of a schema as exact decimals, and their texts.

Nothing here computes with large integers before the length and the exponent of a number are known to be small.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation

from compiler.errors import SpecSyntaxError

PLAIN_DIGITS_MAX = 21  # ECMAScript writes integers of more digits with an exponent
PLAIN_EXPONENT_MAX = 6  # and numbers below 1e-6
SCHEMA_NUMBER_MAX = 400  # digits and exponent of a number in a schema; a double has an exponent of 308 at most


def as_decimal(value: int | float | Decimal) -> Decimal:
    """The value of a number as it is written.

    A float counts as its shortest text.
    """
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def numbers_of(values: Iterable[object]) -> list[int | float | Decimal]:
    """The numbers among the values of a schema."""
    return [value for value in values if isinstance(value, int | float | Decimal) and not isinstance(value, bool)]


def exact_number(value: object) -> Decimal | None:
    """The value of a number in a schema.

    None for what is no number, or has over 400 digits or such an exponent.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):  # booleans are ints in Python
        return None
    if isinstance(value, int) and value.bit_length() > 4 * SCHEMA_NUMBER_MAX:
        return None
    # Infinities are no numbers of JSON, though 1e999 is read as one.
    exact = as_decimal(value)
    if not exact.is_finite():
        return None
    first, last = exact.adjusted(), int(exact.as_tuple().exponent)
    return exact if max(abs(first), abs(last)) <= SCHEMA_NUMBER_MAX else None


def read_decimal(text: str) -> Decimal:
    """A number of a JSON text with a fraction or an exponent.

    Raises SpecSyntaxError where no decimal can hold it.
    """
    try:
        return Decimal(text)
    except InvalidOperation:
        raise SpecSyntaxError("the schema holds a number whose exponent is too large") from None


def canonical_text(value: Decimal, plain_digits: int = PLAIN_DIGITS_MAX) -> str:
    """The text of a value as ECMAScript writes it, without rounding.

    plain_digits  the most digits of an integer without an exponent

    >>> [canonical_text(Decimal(text)) for text in ("-0.0", "3.00", "1E+2", "1e21", "0.0000015", "-1e-7")]
    ['0', '3', '100', '1e+21', '0.0000015', '-1e-7']
    """
    sign, digits, place = "-" if value < 0 else "", significant_digits(value), value.adjusted()
    if not value:
        return "0"
    if len(digits) - 1 <= place < plain_digits:
        return sign + digits.ljust(place + 1, "0")
    if -PLAIN_EXPONENT_MAX <= place < plain_digits:
        digits = digits.rjust(len(digits) - min(place, 0), "0")
        point = max(place, 0) + 1
        return f"{sign}{digits[:point]}.{digits[point:]}"
    return f"{sign}{digits[0]}{'.' if digits[1:] else ''}{digits[1:]}e{place:+d}"


def is_integer(value: Decimal) -> bool:
    """True for a whole number."""
    return not value or len(significant_digits(value)) - 1 <= value.adjusted()


def significant_digits(value: Decimal) -> str:
    """The significant digits of a number, without zeros at the end."""
    return "".join(map(str, value.as_tuple().digits)).rstrip("0") or "0"


def is_multiple(number: Decimal, divisor: Decimal) -> bool:
    """Whether a number is a multiple of a divisor, exactly."""
    if not number:
        return True
    (digits, exponent), (step, place) = _scaled(number), _scaled(divisor)
    if exponent >= place:
        return digits * pow(10, exponent - place, step) % step == 0
    return False  # the digits do not end in 0, so that they are no multiple of ten


def _scaled(value: Decimal) -> tuple[int, int]:
    """The significant digits as an integer, and its power of ten."""
    digits = significant_digits(value)
    return int(Decimal(digits)), value.adjusted() - len(digits) + 1
