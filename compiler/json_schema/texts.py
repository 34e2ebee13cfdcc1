"""What arrays and objects need of the rest: the texts of the values inside them, and where those stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from compiler.json_schema.assembler import ObjectLayout
from compiler.json_schema.fragments import Fragment
from compiler.json_schema.nodes import Schema
from compiler.json_schema.property_order import PropertyScope
from compiler.json_schema.strings import StringAlphabet
from compiler.limits import ResourceGuard


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a text.

    depth  how many more levels of arrays and objects may be nested where nothing is said, or where it recurs
    level  how many arrays and objects are around it, where that shows in the white space; else 0
    """

    space: PropertyScope
    depth: int
    level: int
    indented: bool

    def may_nest(self) -> bool:
        """True when an array or object may stand here."""
        return self.depth > 0 or not self.space.counted()

    def item(self, index: int) -> Position:
        """The place of an item of an array here."""
        return self._inside(self.space.item(index))

    def property(self, name: str | None) -> Position:
        """The place of the value of a property of an object here."""
        return self._inside(self.space.property(name))

    def _inside(self, space: PropertyScope) -> Position:
        depth = self.depth - 1 if self.space.counted() else self.depth
        return Position(space, depth, self.level + 1 if self.indented else self.level, self.indented)


class Texts(Protocol):
    """The compiler of values, as arrays and objects see it."""

    nodes: Sequence[Schema]
    alphabet: StringAlphabet
    layout: ObjectLayout
    guard: ResourceGuard
    width: int

    def text(self, numbers: Sequence[int], spot: Position) -> tuple[Fragment | None, bool]:
        """The texts of the values that fit all the nodes, and whether equal keys cannot change that."""
        ...

    def content(self, numbers: Sequence[int]) -> Fragment | None:
        """The contents of the strings that fit all the nodes."""
        ...

    def finite(self, items: Sequence[Sequence[int]]) -> list[Fragment | None] | None:
        """The texts of each distinct scalar that the items may be; None where they may be many, or no scalars."""
        ...
