"""JSON whose numbers keep the decimals that they are written with.

A number with a fraction or an exponent is read as a float where the shortest decimal of that float, which `repr`
writes, has the same digits and the same exponent. Any other such number is read as a `DecimalFloat`. So most numbers
are floats, and both kinds are written with the decimals that were read.
"""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import Any

_CONTAINERS = (dict, list, tuple)


class DecimalFloat(float):
    """A float that keeps the decimal which it was read from.

    All arithmetic is that of its float. `repr` is the decimal, and `dump_json` writes it; `json.dumps` writes the
    float.
    """

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> DecimalFloat:
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __repr__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[type[DecimalFloat], tuple[str]]:
        return DecimalFloat, (self.text,)  # copies keep the decimal


def read_float(text: str) -> float:
    """A JSON number with a fraction or an exponent.

    >>> [read_float(text) for text in ("0.25", "2.5e-7", "1.50", "1E2", "0.12345678901234567891")]
    [0.25, 2.5e-07, 1.50, 1E+2, 0.12345678901234567891]
    """
    number = float(text)
    if repr(number) == text:
        return number
    try:
        exact = Decimal(text)
    except InvalidOperation:  # an exponent of 19 digits; who reads the number refuses it
        return DecimalFloat(text)
    return number if exact.as_tuple() == Decimal(repr(number)).as_tuple() else DecimalFloat(str(exact))


def load_json(text: str | bytes) -> Any:
    """The value of a JSON text, whose numbers keep their decimals."""
    return json.loads(text, parse_float=read_float)


def dump_json(value: object, *, ensure_ascii: bool = True, separators: tuple[str, str] = (",", ":")) -> str:
    """The JSON text of a value. `Decimal` and `DecimalFloat` are written with all of their digits.

    Raises ValueError for NaN and infinities, TypeError for what JSON does not have.

    >>> dump_json([Decimal("1.50"), 1.5, Decimal(3)])
    '[1.50,1.5,3]'
    """
    encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, separators=separators, allow_nan=False)
    text = _exact_text(value, encoder)
    return encoder.encode(value) if text is None else text


def _exact_text(value: object, encoder: json.JSONEncoder) -> str | None:
    """The text of a value with decimals in it. None for others, which the encoder writes much faster."""
    if not isinstance(value, _CONTAINERS):
        if isinstance(value, DecimalFloat):  # which the encoder would write as a float
            return repr(value)
        return _decimal_text(value) if isinstance(value, Decimal) else None
    items = [*value.values()] if isinstance(value, dict) else value
    exact = [_exact_text(item, encoder) for item in items]
    if all(text is None for text in exact):
        return None
    texts = [encoder.encode(item) if text is None else text for item, text in zip(items, exact, strict=True)]
    if not isinstance(value, dict):
        return f"[{encoder.item_separator.join(texts)}]"
    members = (f"{_key(key, encoder)}{encoder.key_separator}{text}" for key, text in zip(value, texts, strict=True))
    return f"{{{encoder.item_separator.join(members)}}}"


def _key(key: object, encoder: json.JSONEncoder) -> str:
    # As the standard library: a key that is no string becomes one.
    return encoder.encode(key if isinstance(key, str) else encoder.encode(key))


def _decimal_text(value: Decimal) -> str:
    """The text of a Decimal. Raises ValueError for NaN and infinities."""
    if not value.is_finite():
        raise ValueError(f"{value} is no number of JSON")
    text = str(value)
    # Read and written again, so that a Decimal has the text of the same number in a JSON text.
    return text if text.lstrip("-").isdigit() else repr(read_float(text))
