"""Strict reading of JSON values. A fault names the field that it is in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TypeVar

from compiler.errors import Edit, SpecSyntaxError, SpecUnsupported, require
from compiler.spec.near_misses import unknown_field

T = TypeVar("T")
_NAME_CHARS_MAX = 40
_INTEGER = re.compile("0|[1-9][0-9]{0,8}")  # as JSON writes it


@contextmanager
def field_prefix(prefix: str) -> Iterator[None]:
    """Prefix the fields in a part's errors with the part's path."""
    try:
        yield
    except (SpecSyntaxError, SpecUnsupported) as error:
        # The path grows from the inside out, while the error passes through the parts around it.
        error.field = prefix if error.field in ("", "constraint") else f"{prefix}.{error.field}"
        if isinstance(error, SpecSyntaxError):
            error.suggestion = tuple(moved(edit, pointer(prefix)) for edit in error.suggestion)
        raise


def pointer(field: str) -> str:
    """The JSON pointer (RFC 6901) of a field's path."""
    return "".join(f"/{name.replace('~', '~0').replace('/', '~1')}" for name in field.split("."))


def moved(edit: Edit, below: str) -> Edit:
    """An edit whose paths begin below another place. Paths that begin at the request stay."""
    paths = {name: str(edit[name]) for name in ("from", "path") if name in edit}
    return edit | {name: path if path.startswith("#") else below + path for name, path in paths.items()}


def printable_name(name: str) -> str:
    """A caller's name for an error message. A long or unprintable name is not repeated."""
    return name if len(name) <= _NAME_CHARS_MAX and name.isprintable() else "(a long name)"


def refuse_unknown_fields(fields: Mapping[str, object], allowed: tuple[str, ...], form: str, at: str = "") -> None:
    """Raise SpecSyntaxError for a field that the form does not take. `at` is the path of the object, if it has one."""
    unknown = next((name for name in fields if name not in allowed), None)
    if unknown is not None:
        with field_prefix(at) if at else nullcontext():
            raise unknown_field(fields, unknown, allowed, form)


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
        message, edits = f"{field} must be {expected}", tuple[Edit, ...]()
        if kind in (bool, int) and isinstance(value, str):
            message += ", without quotes"
            if kind is bool and value.lower() in ("true", "false"):
                edits = ({"op": "replace", "path": pointer(field), "value": value.lower() == "true"},)
            elif kind is int and _INTEGER.fullmatch(value):
                edits = ({"op": "parse", "path": pointer(field)},)
        raise SpecSyntaxError(message, field=field, expected=expected, suggestion=edits)
    return value


def fields_of(value: object, allowed: tuple[str, ...], field: str) -> Mapping[str, object]:
    """The fields of an object. Raises SpecSyntaxError for one that is not allowed."""
    fields = typed(value, dict, field, f"an object with {', '.join(allowed)}")
    expected = ", ".join(allowed)
    require(set(fields) <= set(allowed), f"{field} has an unknown field; it takes {expected}", field, expected)
    return fields
