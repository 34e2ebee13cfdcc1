"""Strict reading of JSON values. A fault names the field that it is in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from compiler.errors import SpecSyntaxError, SpecUnsupported, require

T = TypeVar("T")
_NAME_CHARS_MAX = 40


@contextmanager
def field_prefix(prefix: str) -> Iterator[None]:
    """Prefix the fields in a part's errors with the part's path."""
    try:
        yield
    except (SpecSyntaxError, SpecUnsupported) as error:
        # The path grows from the inside out, while the error passes through the parts around it.
        error.field = prefix if error.field in ("", "constraint") else f"{prefix}.{error.field}"
        raise


def printable_name(name: str) -> str:
    """A caller's name for an error message. A long or unprintable name is not repeated."""
    return name if len(name) <= _NAME_CHARS_MAX and name.isprintable() else "(a long name)"


def refuse_unknown_fields(fields: Mapping[str, object], allowed: tuple[str, ...], form: str) -> None:
    """Raise SpecSyntaxError for a field that the form does not take."""
    expected = ", ".join(allowed)
    for name in fields:
        text = printable_name(name)
        require(name in allowed, f"unknown field {text!r} in {form}; it takes {expected}", text, expected)


def bound(fields: Mapping[str, object], name: str, field: str) -> int | None:
    value = fields.get(name)
    return None if value is None else typed(value, int, field, "an integer")


def strings(value: object, field: str, expected: str = "a list of strings", each: str = "a string") -> tuple[str, ...]:
    """A list of strings. The field of an item ends in its index."""
    items = typed(value, list, field, expected)
    return tuple(typed(item, str, f"{field}.{number}", each) for number, item in enumerate(items))


def typed(value: object, kind: type[T], field: str, expected: str) -> T:
    """Check that the value is of this kind, and return it. A bool is no int."""
    # A bool is an int in Python, but JSON's true is no number.
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise SpecSyntaxError(f"{field} must be {expected}", field=field, expected=expected)
    return value


def fields_of(value: object, allowed: tuple[str, ...], field: str) -> Mapping[str, object]:
    """The fields of an object. Raises SpecSyntaxError for one that is not allowed."""
    fields = typed(value, dict, field, f"an object with {', '.join(allowed)}")
    expected = ", ".join(allowed)
    require(set(fields) <= set(allowed), f"{field} has an unknown field; it takes {expected}", field, expected)
    return fields
