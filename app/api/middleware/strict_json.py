"""JSON that reads in one way: what two readers could understand differently is refused."""

from __future__ import annotations

import json
import math
import re

from app.errors import InvalidJson

NESTING_MAX = 64
INTEGER_DIGITS_MAX = 19  # those of a 64-bit number
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_json(data: bytes) -> object:
    """The value of a JSON text that every reader understands alike.

    Raises InvalidJson for what is no JSON, and for NaN, infinities, numbers beyond a double, integers beyond
    19 digits, keys given twice, half surrogate pairs and nesting deeper than 64. The message never quotes the text.
    """
    try:
        value: object = json.loads(
            data.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite, parse_int=_bounded,
            object_pairs_hook=_no_duplicates,
        )
    except UnicodeDecodeError as error:
        raise InvalidJson(f"the JSON is not UTF-8: byte {error.start}") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InvalidJson(f"this is not JSON: {error.msg.lower()} at {place}") from None
    except RecursionError:
        raise InvalidJson(f"the JSON is nested deeper than {NESTING_MAX}") from None
    _check_values(value)
    return value


def _no_constant(name: str) -> object:
    raise InvalidJson(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise InvalidJson("a number is beyond the range of a double")
    return value


def _bounded(text: str) -> int:
    if len(text.lstrip("-")) > INTEGER_DIGITS_MAX:
        raise InvalidJson(f"an integer has more than {INTEGER_DIGITS_MAX} digits")
    return int(text)


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidJson("an object has the same key twice")
    return found


def _check_values(value: object) -> None:
    """Depth and surrogates, level by level, without recursion."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > NESTING_MAX:
            raise InvalidJson(f"the JSON is nested deeper than {NESTING_MAX}")
        following: list[object] = []
        for item in level:
            if isinstance(item, str) and _SURROGATE.search(item):
                raise InvalidJson("a string holds half of a surrogate pair")
            if isinstance(item, dict):
                following += [*item.keys(), *item.values()]
            elif isinstance(item, list):
                following += item
        level = following
