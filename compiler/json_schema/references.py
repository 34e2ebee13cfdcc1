"""The places of schemas in a document, and where references lead.

References are resolved by identifiers, anchors and JSON pointers, inside the document and the documents that the caller
sends along; nothing is ever fetched. A dynamic reference depends on the resources that led to it: its scope. Knows
nothing of automata.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urljoin

from compiler.errors import SpecSyntaxError, SpecUnsupported
from compiler.json_schema.dialects import LISTS, MAPS, SINGLE, Dialect, any_dialect, dialect_of, pointer
from compiler.limits import ResourceGuard

DOCUMENT, TABLE = "json_schema", "schemas"  # the first step to the document, and to those sent along
_INDEX = re.compile("0|[1-9][0-9]{0,8}")  # of a list, in a JSON pointer
# The resource that each dynamic anchor leads to, by the steps to its schema; "" is `$recursiveAnchor`.
Scope = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True, eq=False)
class SchemaLocation:
    """A schema within the documents.

    value  its JSON
    path   the steps to it, which no other schema has: DOCUMENT or TABLE and a URI, then those of a JSON pointer
    """

    value: object
    path: tuple[str, ...]

    @property
    def field(self) -> str:
        """The path as errors name it."""
        return ".".join(self.path)

    def below(self, *steps: str) -> str:
        """The field of something inside."""
        return ".".join((*self.path, *steps))

    def fault(self, keyword: str, message: str, expected: str = "") -> SpecSyntaxError:
        """The error for a keyword whose value is malformed."""
        return SpecSyntaxError(message, expected=expected, field=self.below(keyword))

    def unsupported(self, keyword: str, message: str) -> SpecUnsupported:
        """The error for a keyword that is refused."""
        return SpecUnsupported(message, construct=keyword, field=self.below(keyword))

    def child(self, *steps: str) -> SchemaLocation:
        """The location that the steps of a JSON pointer lead to. Raises LookupError where there is none."""
        value = self.value
        for step in steps:
            if isinstance(value, list) and _INDEX.fullmatch(step):
                value = value[int(step)]
            elif isinstance(value, dict):
                value = value[step]
            else:
                raise LookupError(step)
        return SchemaLocation(value, (*self.path, *steps))


def public_pointer(path: tuple[str, ...]) -> str:
    """The JSON pointer of a place. In a document that was sent along, its URI comes first."""
    return pointer(path[1:]) if path[0] == DOCUMENT else f"{path[1]}#{pointer(path[2:])}"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Resource:
    """A schema with a URI, up to the next such schemas inside.

    anchors  the schemas with a name, by name
    dynamic  those of them that a dynamic reference may find
    """

    root: SchemaLocation
    uri: str
    dialect: Dialect
    anchors: dict[str, SchemaLocation] = field(default_factory=dict)
    dynamic: dict[str, SchemaLocation] = field(default_factory=dict)


class References:
    """The schemas of all documents by identifier and anchor.

    schemas  the documents that the caller sends along, by URI
    unknown  the paths of `$schema` whose value is not known
    Raises LimitExceeded over `nesting_depth_max`, SpecUnsupported for a vocabulary.
    """

    def __init__(self, document: object, schemas: Mapping[str, object], guard: ResourceGuard) -> None:
        self.root = SchemaLocation(document, (DOCUMENT,))
        self.unknown: list[tuple[str, ...]] = []
        self._schemas = {uri.rstrip("#"): value for uri, value in schemas.items()}
        self._guard = guard
        self._by_uri: dict[str, _Resource] = {}
        self._resources: dict[tuple[str, ...], _Resource] = {}  # of each registered schema, by path
        self._scoped = False  # whether any reference is dynamic
        # All schemas are registered first: a reference may lead forward.
        self._register_document(self.root, "", None)
        default = self._resources[self.root.path].dialect
        for uri, value in self._schemas.items():
            self._register_document(SchemaLocation(value, (TABLE, uri)), uri, default)

    def _register_document(self, root: SchemaLocation, uri: str, default: Dialect | None) -> None:
        waiting = [(root, self._resource(root, uri, default), 0)]
        while waiting:
            location, around, depth = waiting.pop()
            self._guard.check_time()
            self._guard.check("nesting_depth_max", depth)
            resource = self._register(location, around)
            waiting.extend((inside, resource, depth + 1) for inside in _children(location, resource.dialect))

    def _resource(self, root: SchemaLocation, uri: str, default: Dialect | None) -> _Resource:
        """A new resource. Of two with one URI, the first that is met keeps it."""
        dialect = dialect_of(root.value, self._schemas, default)
        if dialect is None:
            self.unknown.append((*root.path, "$schema"))
            dialect = default or any_dialect(root.value)
        resource = _Resource(root=root, uri=uri, dialect=dialect)
        self._by_uri.setdefault(uri, resource)
        return resource

    def _register(self, location: SchemaLocation, around: _Resource) -> _Resource:
        """Register a schema by its names. Returns its resource, which `around` is unless it has a URI of its own."""
        names = location.value if isinstance(location.value, dict) else {}
        identifier, resource = names.get(around.dialect.identifier), around
        if isinstance(identifier, str) and not (around.dialect.lone_reference and "$ref" in names):
            uri, _, anchor = _resolved_uri(around.uri, identifier).partition("#")
            if identifier.partition("#")[0]:
                # The root has its resource already; now it gets its own URI too.
                root = location.path == around.root.path
                resource = around if root and around.uri == uri else self._resource(location, uri, around.dialect)
            if anchor and not anchor.startswith("/"):
                resource.anchors.setdefault(anchor, location)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := names.get(keyword), str):
                resource.anchors.setdefault(name, location)
                if keyword == "$dynamicAnchor":
                    resource.dynamic.setdefault(name, location)
        if names.get("$recursiveAnchor") is True:
            resource.dynamic.setdefault("", location)
        self._scoped |= "$dynamicRef" in names or "$recursiveRef" in names
        self._resources[location.path] = resource
        return resource

    def _resource_at(self, location: SchemaLocation) -> _Resource:
        around = location.path
        while around not in self._resources:  # a schema that only a pointer leads to is in the resource around it
            around = around[:-1]
        return self._resources[around]

    def dialect(self, location: SchemaLocation) -> Dialect:
        """The dialect of a schema."""
        return self._resource_at(location).dialect

    def enter(self, location: SchemaLocation, scope: Scope) -> Scope:
        """The scope inside a schema. What was met first stays."""
        dynamic = self._resource_at(location).dynamic if self._scoped else {}
        met = {**{name: anchor.path for name, anchor in dynamic.items()}, **dict(scope)}
        return tuple(sorted(met.items()))

    def resolve(self, keyword: str, location: SchemaLocation, scope: Scope) -> SchemaLocation:
        """The schema that the reference under a keyword of `location` leads to.

        Raises SpecUnsupported for a document that is not there, SpecSyntaxError where the reference leads nowhere.
        """
        assert isinstance(location.value, dict)
        reference = location.value[keyword]
        if not isinstance(reference, str):
            raise location.fault(keyword, "a reference is a string", "a string")
        # A fragment is an anchor, or a JSON pointer (RFC 6901) if it begins with a slash.
        uri, _, fragment = _resolved_uri(self._resource_at(location).uri, reference).partition("#")
        fragment = unquote(fragment)
        if uri not in self._by_uri:
            message = "this reference leads to another document: send it along in `schemas`, or copy it into $defs"
            raise location.unsupported(keyword, message)
        resource = self._by_uri[uri]
        try:
            if fragment.startswith("/"):
                # In this order: ~01 is read as ~1.
                steps = [step.replace("~1", "/").replace("~0", "~") for step in fragment[1:].split("/")]
                return resource.root.child(*steps)
            target = resource.anchors[fragment] if fragment else resource.root
        except LookupError:
            raise location.fault(keyword, "this reference leads to no schema") from None
        # A dynamic reference whose target has a dynamic anchor leads to the outermost one of that name.
        if keyword != "$ref" and fragment in resource.dynamic and fragment in (scoped := dict(scope)):
            return self._at(scoped[fragment])
        return target

    def _at(self, path: tuple[str, ...]) -> SchemaLocation:
        root = self.root if path[0] == DOCUMENT else SchemaLocation(self._schemas[path[1]], path[:2])
        return root.child(*path[len(root.path) :])


def _resolved_uri(base: str, reference: str) -> str:
    """A reference relative to a base. A malformed one is unchanged, so it leads to no schema."""
    # urljoin would drop the base of a reference that is a fragment alone where the base is no hierarchical URI.
    if reference.startswith("#"):
        return base + reference
    try:
        return urljoin(base, reference)
    except ValueError:
        return reference


def _children(location: SchemaLocation, dialect: Dialect) -> Iterator[SchemaLocation]:
    """The schemas directly inside a schema. Every keyword of the dialect that may hold one is searched."""
    value = location.value if isinstance(location.value, dict) else {}
    # A value of another kind is no schema here; the reader refuses it by its keyword.
    for keyword in value.keys() & dialect.keywords:
        inside = value[keyword]
        if keyword in SINGLE and not isinstance(inside, list):
            yield location.child(keyword)
        if keyword in LISTS and isinstance(inside, list):
            yield from (location.child(keyword, str(number)) for number in range(len(inside)))
        if keyword in MAPS and isinstance(inside, dict):
            yield from (location.child(keyword, name) for name in inside)
