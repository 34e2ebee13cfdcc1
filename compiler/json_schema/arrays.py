"""Arrays as automata: items one after the other, counted as far as anyone counts."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.errors import SpecUnsupported
from compiler.json_schema.assembler import Assembler, ObjectLayout
from compiler.json_schema.fragments import START, Fragment, classified, trimmed
from compiler.json_schema.nodes import ArrayFacts, Contains, Schema
from compiler.json_schema.texts import Position, Texts

_Counts = tuple[int, ...]  # how many items so far are of each `contains`, no further than it matters


def array_block(texts: Texts, numbers: Sequence[int], spot: Position) -> tuple[Fragment | None, bool]:
    """The arrays that fit all the nodes, and whether equal keys inside cannot change the verdict.

    Raises SpecUnsupported and LimitExceeded.
    """
    if not spot.may_nest():
        return None, True
    return _Arrays(texts, numbers, spot).block()


class _Arrays:
    def __init__(self, texts: Texts, numbers: Sequence[int], spot: Position) -> None:
        self._texts, self._spot = texts, spot
        nodes: list[Schema] = [texts.nodes[number] for number in numbers]
        self._facts: list[ArrayFacts] = [node.arrays for node in nodes if node.arrays is not None]
        self._minimum = max((facts.minimum for facts in self._facts), default=0)
        self._maximum = min((facts.maximum for facts in self._facts if facts.maximum is not None), default=None)
        self._contains: list[Contains] = [one for facts in self._facts for one in facts.contains]
        self._stable = True
        prefix = max((len(facts.prefix) for facts in self._facts), default=0)
        self._last = max(prefix, spot.space.prefix, self._minimum, self._maximum or 0)
        self._once: list[Fragment | None] = []  # values of which each occurs once at most
        for node, facts in zip([node for node in nodes if node.arrays is not None], self._facts, strict=True):
            if facts.unique and (self._maximum is None or self._maximum > 1):
                self._once = self._distinct(prefix, node.field)

    def _distinct(self, prefix: int, field: str) -> list[Fragment | None]:
        """The texts of each value that an item may be, where these are a few scalars."""
        found = self._texts.finite([self._item(index) for index in range(prefix + 1)])
        if found is None:
            raise SpecUnsupported(
                "uniqueItems is supported where maxItems is 1 or the items are of a few constants",
                construct="uniqueItems",
                field=f"{field}.uniqueItems" if field else "uniqueItems",
            )
        return found

    def _item(self, index: int) -> tuple[int, ...]:
        """The nodes of the item at an index."""
        found = []
        for facts in self._facts:
            if index < len(facts.prefix):
                found.append(facts.prefix[index])
            elif facts.rest is not None:
                found.append(facts.rest)
        return tuple(found)

    def _block_at(self, index: int) -> Fragment | None:
        """The texts of the item at an index, labelled by the constants and `contains` that they are of."""
        inner = self._spot.item(index)
        item, stable = self._texts.text(self._item(index), inner)
        self._stable &= stable
        tests = list(self._once)
        for one in self._contains:
            block, stable = self._texts.text((one.item,), inner)
            if not stable and one.maximum is not None:
                raise SpecUnsupported(
                    "maxContains of objects with undeclared properties is not supported",
                    construct="maxContains",
                    field=self._texts.nodes[one.item].field,
                )
            self._stable &= stable
            tests.append(block)
        return classified(item, tests, self._texts.guard)

    def _counted(self, counts: _Counts, label: int) -> _Counts | None:
        """The counts after an item with a label; None where it is one too many."""
        bits, found = label - 1, []
        limits = [(0, 1)] * len(self._once) + [(one.minimum, one.maximum) for one in self._contains]
        for bit, (count, (minimum, maximum)) in enumerate(zip(counts, limits, strict=True)):
            more = count + (bits >> bit & 1)
            if maximum is not None and more > maximum:
                return None
            found.append(min(more, max(minimum, maximum or 0)))
        return tuple(found)

    def _may_end(self, index: int, counts: _Counts) -> bool:
        counted = counts[len(self._once) :]
        enough = all(count >= one.minimum for count, one in zip(counted, self._contains, strict=True))
        return index >= self._minimum and enough

    def block(self) -> tuple[Fragment | None, bool]:
        guard, layout, level = self._texts.guard, self._texts.layout, self._spot.level
        machine = Assembler(self._texts.width, guard)
        done, opened = machine.end(), machine.state()
        machine.write(START, "[", opened)
        start = (0, (0,) * (len(self._once) + len(self._contains)))
        if self._may_end(*start):
            machine.write(opened, "]", done)
        before = {start: machine.state()}  # not `opened`: after a comma the array may not end
        after: dict[tuple[int, _Counts], int] = {}
        machine.write(opened, layout.inside(level), before[start])
        blocks: dict[int, Fragment | None] = {}
        waiting = [start]
        for index, counts in waiting:  # grows while it is walked
            if self._maximum is not None and index >= self._maximum:
                continue
            if index not in blocks:
                blocks[index] = self._block_at(index)
            item = blocks[index]
            if item is None:
                continue
            targets = {}
            for label in sorted(set(item.label.tolist()) - {0}):
                more = self._counted(counts, label)
                if more is None:
                    continue
                control = (min(index + 1, self._last), more)
                if control not in after:
                    after[control] = machine.state()
                    if control not in before:
                        before[control] = machine.state()
                        waiting.append(control)
                    self._continue(machine, layout, control, after[control], before[control], done)
                targets[label] = after[control]
            machine.read(before[index, counts], item, targets)
        return trimmed(machine.finish()), self._stable

    def _continue(
        self, machine: Assembler, layout: ObjectLayout, control: tuple[int, _Counts], after: int, before: int, done: int
    ) -> None:
        """What may follow an item: a comma and the next, or the end."""
        if self._maximum is None or control[0] < self._maximum:
            machine.write(after, "," + layout.inside(self._spot.level), before)
        if self._may_end(*control):
            machine.write(after, layout.closing(self._spot.level) + "]", done)
