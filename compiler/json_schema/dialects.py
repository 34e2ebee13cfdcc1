"""The keywords of JSON Schema, and those without effect. Knows nothing of nodes and automata."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from compiler.errors import SpecUnsupported

# Keywords by the kind of their value: a schema, a list of schemas, an object that maps names to schemas.
SINGLE = (
    *("additionalProperties", "propertyNames", "items", "contains", "not", "if", "then", "else"),
    *("unevaluatedItems", "unevaluatedProperties", "contentSchema"),
)
LISTS = ("prefixItems", "allOf", "anyOf", "oneOf")
MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
# Keywords that hold no schema and decide which values are valid.
ASSERTIONS = (
    *("type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "pattern", "format", "constraint", "minItems", "maxItems", "minContains"),
    *("maxContains", "uniqueItems", "required", "minProperties", "maxProperties", "dependentRequired", "$ref"),
)
# Keywords that are ignored: they do not decide which values are valid. The last four are OpenAPI's.
ANNOTATIONS = (
    *("title", "description", "default", "examples", "$comment", "$schema", "$id", "$anchor", "$dynamicAnchor"),
    *("$defs", "definitions", "deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType"),
    *("contentSchema", "discriminator", "example", "externalDocs", "xml"),
)
EXTENSION = "x-"  # the prefix of OpenAPI's own extensions, which are ignored too
REFUSED = ("$dynamicRef", "$recursiveRef", "additionalItems", "dependencies", "id")  # known, and refused by name
KNOWN_KEYWORDS = frozenset((*ASSERTIONS, *SINGLE, *LISTS, *MAPS, *ANNOTATIONS))
_SHOWN_CHARS_MAX = 40  # of a name in a message
_POINTERS_MAX, _POINTER_CHARS_MAX = 100, 8_192  # of one report


class UnenforcedKeywords:
    """Collects the keywords and formats that have no effect. With `strict` it refuses the first of them.

    paths  the steps of their JSON pointers
    """

    def __init__(self, strict: bool) -> None:
        self._strict = strict
        self.paths: list[tuple[str, ...]] = []

    def add(self, path: tuple[str, ...], name: str, known: Iterable[str], kind: str = "schema keyword") -> None:
        """Add the keyword at the end of `path`. Raises SpecUnsupported in a strict schema.

        name   what is unknown: the keyword, or the value of `format`
        known  the names that would have had an effect
        """
        if not self._strict:
            self.paths.append(path)
            return
        shown = name if len(name) <= _SHOWN_CHARS_MAX else name[:_SHOWN_CHARS_MAX] + "…"
        similar = get_close_matches(name[:_SHOWN_CHARS_MAX], sorted(known), n=1)
        hint = f"; did you mean {similar[0]}?" if similar else ""
        message = f"the {kind} {shown} is unknown{hint}"
        raise SpecUnsupported(message, construct=shown if kind == "schema keyword" else kind, field=".".join(path))


def pointer(path: Sequence[str]) -> str:
    """The JSON pointer (RFC 6901) of some steps.

    >>> pointer(["properties", "a/b", "format"])
    '/properties/a~1b/format'
    """
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in path)


def report(pointers: Iterable[str]) -> tuple[str, ...]:
    """The pointers in order, each once. A list that is too long is cut, and `…` is its last entry."""
    listed: list[str] = []
    chars = 0
    for entry in sorted(set(pointers)):
        chars += len(entry)
        if len(listed) == _POINTERS_MAX or chars > _POINTER_CHARS_MAX:
            return (*listed, "…")
        listed.append(entry)
    return tuple(listed)
