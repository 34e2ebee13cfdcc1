"""The order in which properties are written, at every place of a value, and the places of a text.

All schemas that speak of the same value share one order: the one in which the document first names the properties. So
any two of their automata can be compared text by text. A `PropertyScope` is a place in a value, a `Position` is one in
a text. Knows nothing of automata.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compiler.json_schema.nodes import Schema
from compiler.limits import ResourceGuard


class PropertyScope:
    """A place in the values of a document.

    members  the nodes about arrays or objects that speak of it; none where any value fits
    names    the property names that any of them mentions, in the order of writing
    prefix   how many first items have nodes of their own
    """

    def __init__(self, scopes: PropertyScopes, members: tuple[int, ...], names: tuple[str, ...]) -> None:
        self._scopes, self.members, self.names = scopes, members, names
        nodes = [scopes.nodes[number] for number in members]
        self._objects = [node.objects for node in nodes if node.objects is not None]
        self._arrays = [node.arrays for node in nodes if node.arrays is not None]
        self.prefix = max((len(facts.prefix) for facts in self._arrays), default=0)
        # The scopes inside, by property name, by index of an item, and under None for undeclared properties.
        self._inside: dict[str | int | None, PropertyScope] = {}
        self._counts: bool | None = None

    def property(self, name: str | None) -> PropertyScope:
        """The scope of the value of a property; None for a name that is not in `names`."""
        if name not in self._inside:
            node_ids = []
            for facts in self._objects:
                declared = dict(facts.properties)
                # Every pattern is taken, also one that the name does not match: the scope then has more names than it
                # needs, never fewer.
                patterns = [node for _, _, node in facts.patterns]
                if name in declared:
                    node_ids.append(declared[name])
                elif facts.additional is not None:
                    patterns.append(facts.additional)
                node_ids.extend(patterns)
            self._inside[name] = self._scopes.scope(node_ids)
        return self._inside[name]

    def item(self, index: int) -> PropertyScope:
        """The scope of an item; all from `prefix` on share one."""
        # Items behind the prefixes of all nodes fit the same nodes.
        key = min(index, self.prefix)
        if key not in self._inside:
            node_ids = []
            for facts in self._arrays:
                if key < len(facts.prefix):
                    node_ids.append(facts.prefix[key])
                elif facts.items is not None:
                    node_ids.append(facts.items)
                node_ids.extend(contains.item for contains in facts.contains)
            self._inside[key] = self._scopes.scope(node_ids)
        return self._inside[key]

    def inside(self) -> list[PropertyScope]:
        """The scopes of everything that an array or object here holds."""
        keys = [*self.names, None] if self._objects else []
        # An item behind `prefix` stands for all of them.
        return [*map(self.property, keys), *(self.item(index) for index in range(self.prefix + 1) if self._arrays)]

    def counts_against_depth(self) -> bool:
        """True when a level of nesting here uses up depth: nothing is said of it, or it leads back to itself."""
        # Otherwise the document spells the level out, and ends after finitely many.
        if self._counts is None:
            self._counts = not self.members or self._scopes.recursive(self)
        return self._counts


class PropertyScopes:
    """The scopes of a document's nodes; equal ones are the same object, so positions can be compared."""

    def __init__(self, nodes: Sequence[Schema], guard: ResourceGuard) -> None:
        self.nodes, self._guard = nodes, guard
        self._scopes: dict[tuple[tuple[int, ...], tuple[str, ...]], PropertyScope] = {}

    def scope(self, node_ids: Iterable[int]) -> PropertyScope:
        """The scope that these nodes, and all that speak of the same value, make."""
        self._guard.check_time()
        members: dict[int, None] = {}
        names: dict[str, None] = {}
        visited: set[int] = set()
        # Depth first in document order: the stack is reversed, so that what comes first is popped first.
        stack: list[int | str] = list(reversed(list(node_ids)))
        while stack:
            entry = stack.pop()
            if isinstance(entry, str):
                names[entry] = None
            elif entry not in visited:
                visited.add(entry)
                node = self.nodes[entry]
                if node.arrays is not None or node.objects is not None:
                    members[entry] = None
                # In-place nodes that `order` does not list come last.
                stack.extend(reversed([*node.order, *node.in_place_nodes()]))
        key = (tuple(members), tuple(names))
        if key not in self._scopes:
            self._scopes[key] = PropertyScope(self, *key)
        return self._scopes[key]

    def recursive(self, scope: PropertyScope) -> bool:
        """True when a value here may hold another of the same scope."""
        # Reachability in the graph of scopes, which is finite: scopes are sets of nodes.
        visited, waiting = {scope}, [scope]
        while waiting:
            self._guard.check_time()
            for inside in waiting.pop().inside():
                if inside is scope:
                    return True
                if inside not in visited:
                    visited.add(inside)
                    waiting.append(inside)
        return False


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a text.

    depth     how many more levels may be nested, of those that count against the depth
    level     how many arrays and objects are around it, where the white space shows that; else 0
    indented  whether the white space shows it
    """

    scope: PropertyScope
    depth: int
    level: int
    indented: bool

    def may_nest(self) -> bool:
        """True when an array or object may stand here."""
        return self.depth > 0 or not self.scope.counts_against_depth()

    def item(self, index: int) -> Position:
        """The position of an item of an array here."""
        return self._inside(self.scope.item(index))

    def property(self, name: str | None) -> Position:
        """The position of the value of a property of an object here."""
        return self._inside(self.scope.property(name))

    def _inside(self, scope: PropertyScope) -> Position:
        depth = self.depth - 1 if self.scope.counts_against_depth() else self.depth
        # Without indentation all levels are 0: then equal values at different levels share one automaton.
        return Position(scope, depth, self.level + 1 if self.indented else self.level, self.indented)
