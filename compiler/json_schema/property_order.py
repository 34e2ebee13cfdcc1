"""The order in which properties are written, at every place of a value.

All schemas that speak of the same value share one order, the one in which the document first names the properties, so
that any two of them can be compared text by text. A space is such a place: the nodes that speak of it, and the
spaces of what is inside. Knows nothing of automata.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compiler.json_schema.nodes import Schema
from compiler.limits import ResourceGuard


class PropertyScope:
    """A place in the values of a document.

    members  the nodes about arrays or objects that speak of it; none where any value fits
    names    the property names that any of them mentions, in order
    prefix   how many first items are spoken of one by one
    """

    def __init__(self, spaces: Spaces, members: tuple[int, ...], names: tuple[str, ...]) -> None:
        self._spaces, self.members, self.names = spaces, members, names
        nodes = [spaces.nodes[number] for number in members]
        self._objects = [node.objects for node in nodes if node.objects is not None]
        self._arrays = [node.arrays for node in nodes if node.arrays is not None]
        self.prefix = max((len(facts.prefix) for facts in self._arrays), default=0)
        self._inside: dict[str | int | None, PropertyScope] = {}
        self._counted: bool | None = None

    def property(self, name: str | None) -> PropertyScope:
        """The space of the value of a property; None for one that has no name here."""
        if name not in self._inside:
            found = []
            for facts in self._objects:
                declared = dict(facts.properties)
                patterns = [node for _, _, node in facts.patterns]
                if name in declared:
                    found.append(declared[name])
                elif facts.additional is not None:
                    patterns.append(facts.additional)
                found.extend(patterns)
            self._inside[name] = self._spaces.space(found)
        return self._inside[name]

    def item(self, index: int) -> PropertyScope:
        """The space of an item; all from `prefix` on share one."""
        key = min(index, self.prefix)
        if key not in self._inside:
            found = []
            for facts in self._arrays:
                if key < len(facts.prefix):
                    found.append(facts.prefix[key])
                elif facts.rest is not None:
                    found.append(facts.rest)
                found.extend(one.item for one in facts.contains)
            self._inside[key] = self._spaces.space(found)
        return self._inside[key]

    def inside(self) -> list[PropertyScope]:
        """The spaces of everything that an array or object here holds."""
        keys = [*self.names, None] if self._objects else []
        return [*map(self.property, keys), *(self.item(index) for index in range(self.prefix + 1) if self._arrays)]

    def counted(self) -> bool:
        """True when a level of nesting here counts against the depth: nothing is said, or it leads back to itself."""
        if self._counted is None:
            self._counted = not self.members or self._spaces.recursive(self)
        return self._counted


class Spaces:
    """The spaces of a document's nodes."""

    def __init__(self, nodes: Sequence[Schema], guard: ResourceGuard) -> None:
        self.nodes, self._guard = nodes, guard
        self._known: dict[tuple[tuple[int, ...], tuple[str, ...]], PropertyScope] = {}

    def space(self, numbers: Iterable[int]) -> PropertyScope:
        """The space that these nodes, and all that speak of the same value, make."""
        self._guard.check_time()
        members: dict[int, None] = {}
        names: dict[str, None] = {}
        seen: set[int] = set()
        waiting: list[int | str] = list(reversed(list(numbers)))
        while waiting:
            one = waiting.pop()
            if isinstance(one, str):
                names[one] = None
            elif one not in seen:
                seen.add(one)
                node = self.nodes[one]
                if node.arrays is not None or node.objects is not None:
                    members[one] = None
                waiting.extend(reversed([*node.order, *node.in_place()]))
        key = (tuple(members), tuple(names))
        if key not in self._known:
            self._known[key] = PropertyScope(self, *key)
        return self._known[key]

    def recursive(self, space: PropertyScope) -> bool:
        """True when a value here may hold another of the same space."""
        seen, waiting = {space}, [space]
        while waiting:
            self._guard.check_time()
            for inside in waiting.pop().inside():
                if inside is space:
                    return True
                if inside not in seen:
                    seen.add(inside)
                    waiting.append(inside)
        return False
