"""Where a `$ref` leads inside one document: identifiers, anchors and JSON pointers. Nothing is ever fetched."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urljoin

from compiler.errors import SpecSyntaxError, SpecUnsupported
from compiler.json_schema.nodes import LISTS, MAPS, SINGLE
from compiler.limits import ResourceGuard


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A schema within the document: its value, its field, and the base that its references are relative to."""

    value: object
    field: str
    base: str

    def below(self, *steps: str) -> str:
        """The field of something inside."""
        return ".".join((self.field, *steps) if self.field else steps)


class References:
    """The identified schemas of a document.

    Raises LimitExceeded over `nesting_depth_max`.
    """

    def __init__(self, document: object, guard: ResourceGuard) -> None:
        self._named: dict[tuple[str, str], Place] = {}
        self._bases: dict[int, str] = {}
        self.root = self._register(Place(document, "", ""))
        waiting = [(self.root, 0)]
        while waiting:
            place, depth = waiting.pop()
            guard.check_time()
            guard.check("nesting_depth_max", depth)
            for inside in children(place):
                waiting.append((self._register(inside), depth + 1))
        self._named.setdefault(("", ""), self.root)

    def _register(self, place: Place) -> Place:
        value = place.value
        if not isinstance(value, dict):
            return place
        identifier, base = value.get("$id"), place.base
        if isinstance(identifier, str):
            base = urljoin(base, identifier).rstrip("#")
        found = Place(value, place.field, base)
        self._bases[id(value)] = base
        if isinstance(identifier, str) or not place.field:
            self._named.setdefault((base, ""), found)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(value.get(keyword), str):
                self._named.setdefault((base, value[keyword]), found)
        return found

    def base_of(self, value: object, otherwise: str) -> str:
        """The base inside a schema of the document."""
        return self._bases.get(id(value), otherwise)

    def resolve(self, reference: str, place: Place) -> Place:
        """The schema that a `$ref` in `place` leads to.

        Raises SpecUnsupported for one outside the document, SpecSyntaxError where it leads nowhere.
        """
        whole = place.base + reference if reference.startswith("#") else urljoin(place.base, reference)
        resource, _, fragment = whole.partition("#")
        anchor = "" if fragment.startswith("/") else fragment
        found = self._named.get((resource, anchor))
        if found is None:
            if (resource, "") in self._named:
                raise SpecSyntaxError("this reference leads to no schema", field=place.below("$ref"))
            raise SpecUnsupported(
                "a reference to another document is not supported: copy the schema into $defs",
                construct="$ref",
                field=place.below("$ref"),
            )
        return self._follow(found, fragment, place) if fragment.startswith("/") else found

    def _follow(self, found: Place, pointer: str, place: Place) -> Place:
        """The schema at a JSON pointer below `found`."""
        for step in pointer.split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            inside = found.value
            if isinstance(inside, dict) and name in inside:
                value = inside[name]
            elif isinstance(inside, list) and name.isascii() and name.isdigit() and int(name) < len(inside):
                value = inside[int(name)]
            else:
                raise SpecSyntaxError("this reference leads to no schema", field=place.below("$ref"))
            found = Place(value, found.below(name), self.base_of(value, found.base))
        return found


def children(place: Place) -> list[Place]:
    """The schemas directly inside a schema, wherever a keyword may hold one."""
    value, found = place.value, []
    if not isinstance(value, dict):
        return []
    for keyword in SINGLE:
        if keyword in value:
            found.append(Place(value[keyword], place.below(keyword), place.base))
    for keyword in LISTS:
        items = value.get(keyword)
        for number, item in enumerate(items if isinstance(items, list) else ()):
            found.append(Place(item, place.below(keyword, str(number)), place.base))
    for keyword in MAPS:
        named = value.get(keyword)
        for name, item in named.items() if isinstance(named, dict) else ():
            found.append(Place(item, place.below(keyword, name), place.base))
    return found
