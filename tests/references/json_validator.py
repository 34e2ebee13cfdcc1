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


# What ECMAScript, whose patterns those of JSON Schema are, means by the classes, a dot and an end.
_CLASSES = {  # as they stand within brackets
    r"\d": "0-9", r"\D": r"\0-/:-\U0010ffff", r"\w": "A-Za-z0-9_", r"\W": r"\0-/:-@\[-\^`\{-\U0010ffff",
    r"\s": r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff",
    r"\S": r"\0-\x08\x0e-\x1f!-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e\u2060-\u2fff"
            r"\u3001-\ufefe\uff00-\U0010ffff",
}  # fmt: skip
_MEANINGS = {".": r"[^\n\r\u2028\u2029]", "$": r"\Z"} | {name: f"[{text}]" for name, text in _CLASSES.items()}
_PIECE = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|.", re.DOTALL)
_WITHIN = re.compile(r"(-?)(\\.)(-?)", re.DOTALL)


def _of_python(pattern: str) -> str:
    """A pattern with the meaning of ECMAScript in Python's syntax."""
    pieces = _PIECE.findall(pattern)
    return "".join(_WITHIN.sub(_within, each) if each[0] == "[" else _MEANINGS.get(each, each) for each in pieces)


def _within(found: re.Match[str]) -> str:
    """A class within brackets. A hyphen beside it is itself."""
    before, name, after = found.groups()
    if name not in _CLASSES:
        return found[0]
    return before.replace("-", r"\-") + _CLASSES[name] + after.replace("-", r"\-")


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
