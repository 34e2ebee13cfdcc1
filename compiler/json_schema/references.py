"""Where a `$ref` leads inside one document: identifiers, anchors and JSON pointers. Nothing is ever fetched."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urljoin

from compiler.errors import SpecSyntaxError, SpecUnsupported
from compiler.json_schema.nodes import LISTS, MAPS, SINGLE
from compiler.limits import ResourceGuard


@dataclass(frozen=True, slots=True, eq=False)
class SchemaLocation:
    """A schema within the document.

    value  its JSON
    path   the steps of its JSON pointer, which no other schema of the document has
    base   the URI that its references are relative to
    """

    value: object
    path: tuple[str, ...]
    base: str

    @property
    def field(self) -> str:
        """The path as errors name it."""
        return ".".join(self.path)

    def below(self, *steps: str) -> str:
        """The field of something inside."""
        return ".".join((*self.path, *steps))

    def child(self, value: object, *steps: str) -> SchemaLocation:
        """The location of a schema inside; its base is this one's until its own `$id` is read."""
        return SchemaLocation(value, (*self.path, *steps), self.base)


class References:
    """The schemas of a document by identifier and anchor.

    root  the location of the document itself
    Raises LimitExceeded over `nesting_depth_max`.
    """

    def __init__(self, document: object, guard: ResourceGuard) -> None:
        self._by_name: dict[tuple[str, str], SchemaLocation] = {}  # by URI and anchor
        self._bases: dict[tuple[str, ...], str] = {}  # by path
        self.root = self._register(SchemaLocation(document, (), ""))
        # All schemas are registered first: a reference may lead forward.
        waiting = [(self.root, 0)]
        while waiting:
            location, depth = waiting.pop()
            guard.check_time()
            guard.check("nesting_depth_max", depth)
            for inside in _children(location):
                waiting.append((self._register(inside), depth + 1))
        self._by_name.setdefault(("", ""), self.root)

    def _register(self, location: SchemaLocation) -> SchemaLocation:
        """The location with the base that its own `$id` sets, once its names are registered."""
        value = location.value
        if not isinstance(value, dict):
            return location
        identifier, base = value.get("$id"), location.base
        if isinstance(identifier, str):
            base = urljoin(base, identifier).rstrip("#")
        registered = SchemaLocation(value, location.path, base)
        self._bases[location.path] = base
        # Of two schemas with one name, the first that is met keeps it.
        if isinstance(identifier, str) or not location.path:
            self._by_name.setdefault((base, ""), registered)
        # Without `$dynamicRef`, which is refused, a dynamic anchor is an anchor like any other.
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(value.get(keyword), str):
                self._by_name.setdefault((base, value[keyword]), registered)
        return registered

    def base_of(self, location: SchemaLocation) -> str:
        """The base of references inside a schema; its parent's for one that only a pointer leads to."""
        return self._bases.get(location.path, location.base)

    def resolve(self, reference: str, location: SchemaLocation) -> SchemaLocation:
        """The schema that a `$ref` in `location` leads to.

        Raises SpecUnsupported for one outside the document, SpecSyntaxError where it leads nowhere.
        """
        # urljoin would drop the base of a reference that is a fragment alone where the base is no hierarchical URI.
        uri = location.base + reference if reference.startswith("#") else urljoin(location.base, reference)
        # A fragment is an anchor, or a JSON pointer if it begins with a slash.
        resource, _, fragment = uri.partition("#")
        anchor = "" if fragment.startswith("/") else fragment
        target = self._by_name.get((resource, anchor))
        if target is None:
            # The document has the resource, but not the anchor.
            if (resource, "") in self._by_name:
                raise SpecSyntaxError("this reference leads to no schema", field=location.below("$ref"))
            raise SpecUnsupported(
                "a reference to another document is not supported: copy the schema into $defs",
                construct="$ref",
                field=location.below("$ref"),
            )
        return self._follow(target, fragment, location) if fragment.startswith("/") else target

    def _follow(self, target: SchemaLocation, pointer: str, location: SchemaLocation) -> SchemaLocation:
        """The schema at a JSON pointer (RFC 6901) below `target`."""
        for step in pointer.split("/")[1:]:
            # The URI's escapes are decoded before the pointer's. ~1 comes before ~0, so that ~01 is read as ~1.
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            inside = target.value
            if isinstance(inside, dict) and name in inside:
                child = target.child(inside[name], name)
            elif isinstance(inside, list) and name.isascii() and name.isdigit() and int(name) < len(inside):
                child = target.child(inside[int(name)], str(int(name)))
            else:
                raise SpecSyntaxError("this reference leads to no schema", field=location.below("$ref"))
            target = SchemaLocation(child.value, child.path, self.base_of(child))
        return target


def _children(location: SchemaLocation) -> list[SchemaLocation]:
    """The schemas directly inside a schema, under every keyword that may hold one."""
    value, inside = location.value, []
    if not isinstance(value, dict):
        return []
    for keyword in SINGLE:
        if keyword in value:
            inside.append(location.child(value[keyword], keyword))
    # A value of another kind is no schema here; the reader refuses it by its keyword.
    for keyword in LISTS:
        items = value.get(keyword)
        for number, item in enumerate(items if isinstance(items, list) else ()):
            inside.append(location.child(item, keyword, str(number)))
    for keyword in MAPS:
        schemas = value.get(keyword)
        for name, item in schemas.items() if isinstance(schemas, dict) else ():
            inside.append(location.child(item, keyword, name))
    return inside
