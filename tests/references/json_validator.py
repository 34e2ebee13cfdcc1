"""Judges texts by the library `jsonschema`, which shares nothing with an engine."""

from __future__ import annotations

import json
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
    exact = json.loads(json.dumps(schema), parse_float=Decimal)
    validator = jsonschema.validators.validator_for(schema, default=_draft_of(schema))
    try:  # the empty registry: nothing is fetched
        return bool(validator(exact, registry=Registry(), format_checker=validator.FORMAT_CHECKER).is_valid(instance))
    except Exception:  # a pattern that is no pattern of Python, a reference that leads nowhere, and others
        return None


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


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
