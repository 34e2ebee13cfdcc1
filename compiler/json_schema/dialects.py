"""The keywords of JSON Schema by draft, and those without effect.

Knows nothing of nodes and automata.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.errors import SpecUnsupported, did_you_mean, shown_name

# Keywords by the kind of their value: a schema, a list of schemas, an object that maps names to schemas.
SINGLE = (
    *("additionalProperties", "propertyNames", "items", "additionalItems", "contains", "not", "if", "then", "else"),
    *("unevaluatedItems", "unevaluatedProperties", "contentSchema"),
)
LISTS = ("items", "prefixItems", "allOf", "anyOf", "oneOf")
MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
# Keywords that are ignored in every draft: they do not decide which values are valid. The last four are OpenAPI's.
ANNOTATIONS = frozenset({
    "title", "description", "default", "examples", "$comment", "$schema", "$id", "$anchor", "$dynamicAnchor",
    "$recursiveAnchor", "$vocabulary", "$defs", "definitions", "deprecated", "readOnly", "writeOnly",
    "contentEncoding", "contentMediaType", "contentSchema", "discriminator", "example", "externalDocs", "xml",
})  # fmt: skip
NULLABLE = "nullable"  # of OpenAPI 3.0: adds null to the `type` beside it
EXTENSION = "x-"  # the prefix of OpenAPI's own extensions, which are ignored too
# The keywords of 2020-12 by vocabulary. Keywords of the core are known in every dialect, and so is our `constraint`.
_CORE = frozenset({"$ref", "$defs", "definitions", "constraint"})
_VOCABULARIES = {
    "core": frozenset({"$dynamicRef"}),
    "applicator": frozenset({
        "prefixItems", "items", "contains", "additionalProperties", "properties", "patternProperties",
        "dependentSchemas", "propertyNames", "if", "then", "else", "allOf", "anyOf", "oneOf", "not", "dependencies",
    }),
    "unevaluated": frozenset({"unevaluatedItems", "unevaluatedProperties"}),
    "validation": frozenset({
        "type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
        "minLength", "maxLength", "pattern", "minItems", "maxItems", "minContains", "maxContains", "uniqueItems",
        "required", "minProperties", "maxProperties", "dependentRequired",
    }),
    "format-annotation": frozenset({"format"}), "format-assertion": frozenset({"format"}),
    "content": frozenset({"contentSchema"}), "meta-data": frozenset[str](),
}  # fmt: skip
_ALL_2020 = _CORE.union(*_VOCABULARIES.values())
_OF_2020 = {"prefixItems", "$dynamicRef"}
_OF_2019 = {"additionalItems", "$recursiveRef"}
_SINCE_2019 = {
    *("$defs", "dependentRequired", "dependentSchemas", "unevaluatedItems", "unevaluatedProperties", "minContains"),
    *("maxContains", "contentSchema"),
}
_POINTERS_MAX, _POINTER_CHARS_MAX = 100, 8_192  # of one report


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A draft of JSON Schema, or a part of one.

    keywords        those that have an effect
    identifier      the keyword that gives a schema its URI
    lone_reference  whether the keywords beside `$ref` have no effect
    boolean_bounds  whether `exclusiveMinimum` and `exclusiveMaximum` may be booleans
    numeric_bounds  whether they may be numbers
    list_items      whether `items` may be a list
    contains_evaluates  whether the items that fit `contains` count as evaluated
    plain_integers  whether integers are written without fraction and exponent
    """

    name: str
    keywords: frozenset[str]
    identifier: str = "$id"
    lone_reference: bool = False
    boolean_bounds: bool = False
    numeric_bounds: bool = True
    list_items: bool = True
    contains_evaluates: bool = True
    plain_integers: bool = False

    def may_have(self, keyword: str) -> bool:
        """Whether a schema may have this keyword without a report."""
        return keyword in self.keywords or keyword in ANNOTATIONS or keyword.startswith(EXTENSION)


_2020 = Dialect(name="draft 2020-12", keywords=_ALL_2020, list_items=False)
_2019 = Dialect(name="draft 2019-09", keywords=(_ALL_2020 - _OF_2020) | _OF_2019, contains_evaluates=False)
_7 = Dialect(name="draft-07", keywords=_2019.keywords - _SINCE_2019 - {"$recursiveRef"}, lone_reference=True)
_6 = replace(_7, name="draft-06", keywords=_7.keywords - {"if", "then", "else"})
_4 = replace(
    _6, name="draft-04", keywords=_6.keywords - {"const", "contains", "propertyNames"}, identifier="id",
    boolean_bounds=True, numeric_bounds=False, plain_integers=True,
)  # fmt: skip
# Without `$schema`, each keyword has the meaning of the drafts that have it, and `nullable` that of OpenAPI 3.0.
ASSERTIONS = _ALL_2020 | _OF_2019 | {NULLABLE}  # every keyword that has an effect in some draft
_ANY = Dialect(name="any draft", keywords=ASSERTIONS, boolean_bounds=True)
_BY_PATH = {
    "draft-04": _4, "draft-05": _4, "draft-06": _6, "draft-07": _7, "draft/2019-09": _2019, "draft/2020-12": _2020,
    "": _ANY,
}  # fmt: skip
_ORIGIN = "://json-schema.org/"


def dialect_of(schema: object, schemas: Mapping[str, object], default: Dialect | None = None) -> Dialect | None:
    """The dialect of a document; None where its `$schema` is not known.

    schemas  the documents that the caller sends along, among which may be the metaschema
    default  the dialect without `$schema`; None is that of the keywords that the schema has
    Raises SpecUnsupported with the construct `$vocabulary` or `$schema`.
    """
    name = schema.get("$schema") if isinstance(schema, dict) else None
    if name is None:
        return default or any_dialect(schema)
    visited: set[str] = set()
    vocabulary: object = None
    while isinstance(name, str) and name.rstrip("#") not in visited:
        visited.add(name.rstrip("#"))
        if (known := _standard(name)) is not None:
            return known if vocabulary is None else _restricted(known, vocabulary)
        metaschema = schemas.get(name.rstrip("#"))
        if not isinstance(metaschema, dict):
            break
        vocabulary = metaschema.get("$vocabulary") if vocabulary is None else vocabulary
        name = metaschema.get("$schema")
    return None


def _standard(name: str) -> Dialect | None:
    """The dialect of a metaschema of json-schema.org; hyper-schemas are read like schemas."""
    _, _, path = name.rstrip("#").partition(_ORIGIN)
    path = path.removesuffix("/schema").removesuffix("/hyper-schema").removesuffix("schema")
    return _BY_PATH.get(path) if _ORIGIN in name else None


def any_dialect(schema: object) -> Dialect:
    """The dialect of a document as if it had no `$schema`."""
    if isinstance(schema, dict) and isinstance(schema.get("id"), str) and "$id" not in schema:
        return replace(_ANY, identifier="id")
    return _ANY


def _restricted(dialect: Dialect, vocabulary: object) -> Dialect:
    """The part of a dialect that the `$vocabulary` of a metaschema selects."""
    keywords = _CORE | {"$dynamicRef", "$recursiveRef"}
    for uri, required in vocabulary.items() if isinstance(vocabulary, dict) else ():
        name = {"format": "format-annotation"}.get(last := uri.rpartition("/")[2], last)
        if _ORIGIN in uri and name in _VOCABULARIES:
            keywords |= _VOCABULARIES[name]
            # Draft 2019-09 has these keywords in another vocabulary.
            keywords |= _VOCABULARIES["unevaluated"] | {"additionalItems"} if name == "applicator" else set()
        elif required:
            message = f"the vocabulary {shown_name(uri)} is not supported"
            raise SpecUnsupported(message, construct="$vocabulary", field="json_schema.$schema")
    return replace(dialect, keywords=dialect.keywords & keywords)


class UnenforcedKeywords:
    """Collects the keywords and formats that have no effect. With `strict` it refuses the first of them.

    paths  the steps that lead to them
    """

    def __init__(self, strict: bool) -> None:
        self._strict = strict
        self.paths: dict[tuple[str, ...], None] = {}  # ordered, each once

    def add_keyword(self, path: tuple[str, ...], dialect: Dialect) -> None:
        """Add the keyword at the end of `path`. Raises SpecUnsupported in a strict schema."""
        if not self._strict:
            self.paths[path] = None
            return
        name = path[-1]
        message = (
            f"the schema keyword {shown_name(name)} is unknown{did_you_mean(name, dialect.keywords | ANNOTATIONS)}"
        )
        if name in _ANY.keywords or name == "id":
            where = " without type" if name == NULLABLE else " beside $ref"
            beside = where if name in dialect.keywords else ""
            message = f"the schema keyword {name} has no effect{beside} in {dialect.name}"
        raise SpecUnsupported(message, construct=shown_name(name), field=".".join(path))

    def add_format(self, path: tuple[str, ...], name: str, known: Iterable[str]) -> None:
        """Add an unknown format. `path` leads to its keyword. Raises SpecUnsupported in a strict schema."""
        if self._strict:
            message = f"the format {shown_name(name)} is unknown{did_you_mean(name, known)}"
            raise SpecUnsupported(message, construct="format", field=".".join(path))
        self.paths[path] = None

    def add_dialect(self, path: tuple[str, ...]) -> None:
        """Add a `$schema` that is not known. Raises SpecUnsupported in a strict schema."""
        if self._strict:
            message = "this $schema is unknown: only the drafts 4 to 2020-12 are read"
            raise SpecUnsupported(message, construct="$schema", field=".".join(path))
        self.paths[path] = None


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
