"""Compiles arrays. Items follow one another, and are counted only as far as the schema distinguishes counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from compiler.json_schema.fragments import START, Assembler, Fragment, label_by, trim
from compiler.json_schema.nodes import ArrayFacts, Contains, Position, Schema, tightest_counts

if TYPE_CHECKING:  # `compiler` imports this module
    from compiler.json_schema.compiler import SchemaCompiler

_FEW_ITEMS = 8  # a maximum up to which arrays are never shortened
_Counts = tuple[int, ...]  # of items so far, for each constant of `uniqueItems` and each `contains`; capped
_Control = tuple[int, _Counts]  # the index of the next item, capped, and the counts


class ArrayBuilder:
    """Builds the automaton of the arrays that fit several nodes.

    That is the product of the items' order with the counts: two states for each index and tuple of counts.
    Raises SpecUnsupported and LimitExceeded.
    """

    def __init__(self, compiler: SchemaCompiler, node_ids: Sequence[int], position: Position) -> None:
        self._compiler, self._position = compiler, position
        nodes: list[Schema] = [compiler.nodes[number] for number in node_ids]
        self._facts: list[ArrayFacts] = [node.arrays for node in nodes if node.arrays is not None]
        self._minimum, self._maximum = tightest_counts(self._facts)
        self._contains: list[Contains] = [contains for facts in self._facts for contains in facts.contains]
        self._safe = True
        prefix = max((len(facts.prefix) for facts in self._facts), default=0)
        if self._maximum is not None and self._maximum > max(_FEW_ITEMS, prefix) and not self._contains:
            item = compiler.text(self._item(prefix), position.item(prefix))[0]
            least = max(self._minimum, prefix)
            self._maximum = compiler.scalars.item_count(least, self._maximum, item.states) if item else least
        # From this index on, all items are alike: a larger index is never distinguished from it.
        self._last = max(prefix, position.scope.prefix, self._minimum, self._maximum or 0)
        self._constants: list[Fragment | None] = []  # values of which each occurs at most once, for `uniqueItems`
        for node, facts in zip([node for node in nodes if node.arrays is not None], self._facts, strict=True):
            # At most one item is always unique.
            if facts.unique and (self._maximum is None or self._maximum > 1):
                self._constants = self._distinct(prefix, node)

    def _distinct(self, prefix: int, node: Schema) -> list[Fragment | None]:
        """The texts of the values that an item may be.

        They are listed only where an item may be one of a few scalars.
        """
        texts = self._compiler.scalar_texts([self._item(index) for index in range(prefix + 1)])
        if texts is None:
            message = "uniqueItems is supported where maxItems is 1 or the items are of a few constants"
            raise node.unsupported("uniqueItems", message, "uniqueItems")
        return texts

    def _item(self, index: int) -> tuple[int, ...]:
        """The nodes of the item at an index."""
        return tuple(node_id for facts in self._facts if (node_id := facts.item(index)) is not None)

    def _item_fragment(self, index: int) -> Fragment | None:
        """The texts of the item at an index. Labels tell which constants and which `contains` they fit."""
        inside = self._position.item(index)
        item, safe = self._compiler.text(self._item(index), inside)
        self._safe &= safe
        # Bit i of a label is the i-th test: the constants first, then each `contains`.
        tests = list(self._constants)
        for contains in self._contains:
            test, safe = self._compiler.text((contains.item,), inside)
            # An item that the test rejects may still fit it once equal keys are resolved, and would not be counted.
            if not safe and contains.maximum is not None:
                message = "maxContains of objects with undeclared properties is not supported"
                raise self._compiler.nodes[contains.item].unsupported("maxContains", message)
            self._safe &= safe
            tests.append(test)
        return label_by(item, tests, self._compiler.guard)

    def _counts_after(self, counts: _Counts, label: int) -> _Counts | None:
        """The counts after an item with a label. None where one of them is then too high."""
        # Each count grows by the bit of its test.
        bits, after = label - 1, []
        limits = [(0, 1)] * len(self._constants) + [(contains.minimum, contains.maximum) for contains in self._contains]
        for bit, (count, (minimum, maximum)) in enumerate(zip(counts, limits, strict=True)):
            increased = count + (bits >> bit & 1)
            if maximum is not None and increased > maximum:
                return None
            # Once the minimum is reached, and without a maximum, further items change nothing.
            after.append(min(increased, max(minimum, maximum or 0)))
        return tuple(after)

    def _controls_after(self, index: int, counts: _Counts, item: Fragment) -> dict[int, _Control]:
        """The control behind an item, by the item's label. Labels that are not allowed here are absent."""
        counted = {label: self._counts_after(counts, label) for label in sorted(set(item.label.tolist()) - {0})}
        return {label: (min(index + 1, self._last), after) for label, after in counted.items() if after is not None}

    def _may_end(self, index: int, counts: _Counts) -> bool:
        """True when the array has enough items, and enough of each `contains`."""
        of_contains = counts[len(self._constants) :]
        enough = all(count >= contains.minimum for count, contains in zip(of_contains, self._contains, strict=True))
        return index >= self._minimum and enough

    def build(self) -> tuple[Fragment | None, bool]:
        """Build the arrays that fit all the nodes.

        The second value is True where equal keys inside cannot change the verdict.
        """
        layout, level = self._compiler.layout, self._position.level
        assembler = Assembler(self._compiler.width, self._compiler.guard)
        end, opened = assembler.new_end(), assembler.new_state()
        assembler.add_text(START, "[", opened)
        start: _Control = (0, (0,) * (len(self._constants) + len(self._contains)))
        # The empty array has no white space inside, in any layout.
        if self._may_end(*start):
            assembler.add_text(opened, "]", end)
        # The state before the first item is not `opened`: after a comma the array may not end.
        before: dict[_Control, int] = {start: assembler.new_state()}
        after: dict[_Control, int] = {}
        assembler.add_text(opened, layout.inside(level), before[start])
        items: dict[int, Fragment | None] = {}
        waiting = [start]
        for index, counts in waiting:  # grows while it is walked
            if self._maximum is not None and index >= self._maximum:
                continue
            # The items at one index are the same for all counts.
            if index not in items:
                items[index] = self._item_fragment(index)
            item = items[index]
            if item is None:
                continue
            targets = {}
            for label, control in self._controls_after(index, counts, item).items():
                # A control is the product state behind an item. All items that lead to it share its states.
                if control not in after:
                    after[control] = assembler.new_state()
                    if control not in before:
                        before[control] = assembler.new_state()
                        waiting.append(control)
                    self._continue(assembler, control, after[control], before[control], end=end)
                targets[label] = after[control]
            # Labels without a target are items that no array may have here: their paths lead nowhere.
            assembler.add_fragment(before[index, counts], item, targets)
        # Otherwise every item leads on to the end.
        few = self._maximum is not None and self._maximum < self._minimum
        stuck = few or self._constants or self._contains or None in items.values()
        return trim(assembler.finish()) if stuck else assembler.finish(), self._safe

    def _continue(self, assembler: Assembler, control: _Control, after: int, before: int, *, end: int) -> None:
        """Add the continuations after an item. They are a comma with the next item, and the end."""
        layout, level = self._compiler.layout, self._position.level
        if self._maximum is None or control[0] < self._maximum:
            assembler.add_text(after, layout.comma(level), before)
        if self._may_end(*control):
            assembler.add_text(after, layout.closing(level) + "]", end)
