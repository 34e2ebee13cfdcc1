"""Judges texts by the library `jsonschema`, which shares nothing with an engine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import jsonschema
from referencing import Registry


def is_valid(schema: Any, text: str) -> bool | None:
    """Whether a text is JSON that the validator accepts.

    Formats are among its rules, and numbers are exact. None where the validator fails.
    """
    try:
        instance = json.loads(text, parse_float=Decimal, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    exact = _with_patterns_of_python(json.loads(json.dumps(schema), parse_float=Decimal))
    validator = jsonschema.validators.validator_for(schema, default=_draft_of(schema))
    try:  # the empty registry: nothing is fetched
        return bool(validator(exact, registry=Registry(), format_checker=validator.FORMAT_CHECKER).is_valid(instance))
    except Exception:  # a pattern that is no pattern of Python, a reference that leads nowhere, and others
        return None


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


# What ECMAScript, whose patterns those of JSON Schema are, means by a dot, the classes and an end.
_MEANINGS = {
    ".": r"[^\n\r\u2028\u2029]", r"\d": "[0-9]", r"\D": "[^0-9]", r"\w": "[A-Za-z0-9_]", r"\W": "[^A-Za-z0-9_]",
    "$": r"\Z",
}  # fmt: skip
_PIECE = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|.", re.DOTALL)


def _of_python(pattern: str) -> str:
    """A pattern with the meaning of ECMAScript in Python's syntax. What is within brackets stays."""
    return "".join(_MEANINGS.get(piece, piece) for piece in _PIECE.findall(pattern))


def _with_patterns_of_python(value: Any) -> Any:
    """The schema with the patterns of its keywords translated."""
    if isinstance(value, list):
        return [_with_patterns_of_python(item) for item in value]
    if not isinstance(value, dict):
        return value
    translated = {name: _with_patterns_of_python(item) for name, item in value.items()}
    if isinstance(pattern := value.get("pattern"), str):
        translated["pattern"] = _of_python(pattern)
    if isinstance(patterns := translated.get("patternProperties"), dict):
        translated["patternProperties"] = {_of_python(name): item for name, item in patterns.items()}
    return translated


def _draft_of(schema: Any) -> Any:
    """The newest draft that has the keywords' forms of a schema."""
    objects = list(_objects(schema))
    if any(isinstance(each.get(f"exclusive{bound}"), bool) for each in objects for bound in ("Minimum", "Maximum")):
        return jsonschema.Draft4Validator
    if any(isinstance(each.get("items"), list) for each in objects):
        return jsonschema.Draft201909Validator
    return jsonschema.Draft202012Validator


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(item)
