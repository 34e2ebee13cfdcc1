"""The keywords of a schema that a search for contradictions drops.

Without any of them, every value of the schema is still one. What other keywords depend on stays: names of properties,
positions of items, references, and all that stands below a negation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

_ANNOTATIONS = frozenset({"id", "title", "description", "default", "examples", "definitions", "nullable"})
_OF_NAMES = ("properties", "patternProperties")  # schemas by name
_OF_POSITIONS = ("allOf", "prefixItems", "items")  # lists of schemas
_OF_ONE = ("items", "additionalItems", "additionalProperties")  # one schema
# Keywords that have an effect together. In draft 4 a bound may be marked as excluded.
_GROUPS = (
    ("if", "then", "else"), ("contains", "minContains", "maxContains"), ("minimum", "exclusiveMinimum"),
    ("maximum", "exclusiveMaximum"),
)  # fmt: skip
_NEGATIVE = frozenset({"not", "if", "oneOf", "contains"})
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_UNEVALUATED = frozenset({"unevaluatedProperties", "unevaluatedItems"})
# Keywords beside which fewer properties or items are unevaluated, unless they are false.
_EVALUATING = _UNEVALUATED | {
    "additionalProperties", "items", "additionalItems", "contains", "anyOf", "oneOf", "if", "dependentSchemas",
    "dependencies",
}


@dataclass(frozen=True, slots=True)
class SchemaKeyword:
    """Keywords of one schema object that have an effect together, mostly one.

    path      the steps to the schema
    keywords  their names and values; none for the schema `false`, in place of which `true` may stand
    """

    path: tuple[str, ...]
    keywords: tuple[tuple[str, Any], ...]


def schema_keywords(schema: object) -> tuple[SchemaKeyword, ...]:
    """The keywords that may be left out. Empty where it is not known which.

    >>> schema = {"type": "array", "items": {"minimum": 2}, "not": {"maxItems": 3}}
    >>> [each.keywords[0][0] for each in schema_keywords(schema)]
    ['type', 'minimum', 'not']
    """
    names = set(_names(schema))
    # What a reference leads to may stand below a negation, where less means more.
    if names & _REFERENCES and names & _NEGATIVE:
        return ()
    kept = _EVALUATING if names & _UNEVALUATED else frozenset[str]()
    return tuple(
        each for each in _keywords(schema, ())
        if all(value is False or name not in kept for name, value in each.keywords)
    )


def without_keywords(schema: object, left_out: Collection[SchemaKeyword], path: tuple[str, ...] = ()) -> object:
    """The schema without these keywords."""
    below = [keyword for keyword in left_out if keyword.path[: len(path)] == path]
    if not below:
        return schema
    if isinstance(schema, list):
        return [without_keywords(part, below, (*path, str(number))) for number, part in enumerate(schema)]
    if not isinstance(schema, dict):
        return True
    dropped = {name for keyword in below if keyword.path == path for name, _ in keyword.keywords}
    return {name: without_keywords(part, below, (*path, name)) for name, part in schema.items() if name not in dropped}


def _names(schema: object) -> Iterator[str]:
    """All names of a document, also those of properties."""
    if isinstance(schema, dict):
        yield from schema
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _names(part)


def _keywords(schema: object, path: tuple[str, ...]) -> Iterator[SchemaKeyword]:
    if schema is False:
        yield SchemaKeyword(path, ())
    if not isinstance(schema, dict):
        return
    done = set[str]()
    for name, value in schema.items():
        if name in (*_OF_NAMES, "$defs", "definitions") and isinstance(value, dict):
            for key, part in value.items():
                yield from _keywords(part, (*path, name, key))
        elif schema.keys() & _REFERENCES:  # in older drafts nothing beside a reference has an effect
            continue
        elif name in _OF_POSITIONS and isinstance(value, list):
            for number, part in enumerate(value):
                yield from _keywords(part, (*path, name, str(number)))
        elif name in _OF_ONE and isinstance(value, dict):
            yield from _keywords(value, (*path, name))
        elif name not in done and name not in _ANNOTATIONS and not name.startswith("$"):
            group = next((group for group in _GROUPS if name in group), (name,))
            done.update(group)
            yield SchemaKeyword(path, tuple((each, schema[each]) for each in group if each in schema))
