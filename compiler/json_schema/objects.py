"""Objects as automata: declared properties in the order of their space, then undeclared ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.errors import SpecUnsupported
from compiler.json_schema.assembler import Assembler, escaped
from compiler.json_schema.fragments import START, Fragment, classified, trimmed
from compiler.json_schema.keys import Keys
from compiler.json_schema.nodes import ObjectFacts, Schema
from compiler.json_schema.texts import Position, Texts

_Control = tuple[int, int]  # the next name that may come, and how many properties there are, as far as it matters


def object_block(texts: Texts, numbers: Sequence[int], spot: Position) -> tuple[Fragment | None, bool]:
    """The objects that fit all the nodes, and whether equal keys in them cannot change the verdict.

    Raises SpecUnsupported and LimitExceeded.
    """
    if not spot.may_nest():
        return None, True
    objects = _Objects(texts, numbers, spot)
    return objects.block(), objects.stable


class _Objects:
    def __init__(self, texts: Texts, numbers: Sequence[int], spot: Position) -> None:
        self._texts, self._spot, self.stable = texts, spot, True
        self._nodes: list[Schema] = [texts.nodes[number] for number in numbers]
        self._facts: list[ObjectFacts] = [node.objects for node in self._nodes if node.objects is not None]
        self._names = spot.space.names
        self._key_content = self._key_texts()
        self._values = [self._declared(name) for name in self._names]
        self._free_values: dict[int, Fragment] = {}
        self._free = self._undeclared()
        wanted = {name for facts in self._facts for name in facts.required}
        self._required = [name in wanted for name in self._names]
        self._maximum = min((facts.maximum for facts in self._facts if facts.maximum is not None), default=None)
        self._minimum = max((facts.minimum for facts in self._facts), default=0)
        if self._minimum <= sum(self._required):
            self._minimum = 0
        self._check_counts()
        counting = self._maximum is not None or self._minimum > 1
        self._count_max = max(self._minimum, self._maximum or 0) if counting else 0

    def _key_texts(self) -> Fragment | None:
        """What `propertyNames` allows of keys."""
        return self._texts.content([facts.names for facts in self._facts if facts.names is not None])

    def _check_counts(self) -> None:
        if self._free is None:
            return
        if self._maximum is not None:
            self.stable = False
        if self._minimum > 1:
            raise SpecUnsupported(
                "minProperties above 1 is supported where no undeclared properties are: two of them could be alike",
                construct="minProperties",
                field=self._nodes[0].field,
            )

    def _text(self, found: Sequence[int], spot: Position) -> Fragment | None:
        block, stable = self._texts.text(found, spot)
        self.stable &= stable
        return block

    def _declared(self, name: str) -> Fragment | None:
        """The values of a property that has a name."""
        if self._key_content is None or not self._key_content.run(self._texts.alphabet.word(name)):
            return None
        found = []
        for facts in self._facts:
            inside = [node for declared, node in facts.properties if declared == name]
            inside += [node for pattern, _, node in facts.patterns if self._texts.alphabet.matches(pattern, name)]
            if not inside and facts.additional is not None:
                inside.append(facts.additional)
            found.extend(inside)
        return self._text(found, self._spot.property(name))

    def _undeclared(self) -> Fragment | None:
        """The keys without a name, labelled by the patterns they match; None where there may be none."""
        patterns = list(dict.fromkeys(pattern for facts in self._facts for pattern, _, _ in facts.patterns))
        tests = [self._texts.alphabet.content("pattern", pattern) for pattern in patterns]
        keys = classified(self._key_content, tests, self._texts.guard)
        if keys is None:
            return None
        spot, allowed = self._spot.property(None), keys.label.copy()
        for label in sorted(set(keys.label.tolist()) - {0}):
            matched = {pattern for bit, pattern in enumerate(patterns) if (label - 1) >> bit & 1}
            found = []
            for facts in self._facts:
                inside = [node for pattern, _, node in facts.patterns if pattern in matched]
                if not inside and facts.additional is not None:
                    inside.append(facts.additional)
                found.extend(inside)
            block = self._text(found, spot)
            if block is None:
                allowed[keys.label == label] = 0
                continue
            self._free_values[label] = block
            self.stable &= all(self._texts.nodes[node].says_nothing() for node in found)
        return Fragment(keys.columns, keys.table, allowed) if self._free_values else None

    def block(self) -> Fragment | None:
        """The texts of the objects."""
        if any(must and value is None for must, value in zip(self._required, self._values, strict=True)):
            return None
        layout, level = self._texts.layout, self._spot.level
        machine = Assembler(self._texts.width, self._texts.guard)
        done, opened = machine.end(), machine.state()
        machine.write(START, "{", opened)
        if not any(self._required) and self._minimum == 0:
            machine.write(opened, "}", done)
        walk = _Walk(self, machine)
        first = walk.before((0, 0))
        if first is not None:
            machine.write(opened, layout.inside(level) + '"', first)
        walk.punctuate(f',{layout.inside(level)}"', layout.closing(level) + "}", done)
        return trimmed(machine.finish()) if self._minimum else machine.finish()

    def candidates(self, control: _Control) -> tuple[list[int], bool]:
        """The names that may come next, and whether an undeclared key may."""
        at, count = control
        if self._maximum is not None and count >= self._maximum:
            return [], False
        found = []
        for number in range(at, len(self._names)):
            if self._values[number] is not None:
                found.append(number)
            if self._required[number]:
                return found, False
        return found, self._free is not None

    def may_end(self, control: _Control) -> bool:
        """True when no required property is left and there are enough."""
        at, count = control
        return not any(self._required[at:]) and (not self._count_max or count >= self._minimum)

    def following(self, control: _Control, label: int) -> tuple[Fragment, _Control]:
        """The value of the key with a label, and what its property leads to."""
        count, names = min(control[1] + 1, self._count_max), len(self._names)
        value = self._values[label - 1] if label <= names else self._free_values[label - names]
        if value is None:
            raise ValueError("a key without values is no candidate")
        return value, (min(label, names), count)

    def free_labels(self) -> list[int]:
        """The labels of undeclared keys."""
        return [len(self._names) + label for label in self._free_values]

    @property
    def colon(self) -> str:
        return self._texts.layout.colon

    def keys(self) -> Keys:
        """A fresh table of the keys, without entries."""
        words = [self._texts.alphabet.word(name) for name in self._names]
        return Keys(words, self._free, self._texts.width, self._texts.guard)


class _Walk:
    """The states of an object: before and after each property, for each count of properties that matters."""

    def __init__(self, objects: _Objects, machine: Assembler) -> None:
        self._objects, self._machine = objects, machine
        self._open: dict[_Control, tuple[list[int], bool]] = {}
        self._before: dict[_Control, int] = {}
        self._after: dict[_Control, int] = {}
        waiting: list[_Control] = [(0, 0)]
        for control in waiting:  # grows while it is walked
            if control in self._open:
                continue
            self._after[control] = machine.state()
            self._open[control] = objects.candidates(control)
            waiting.extend(objects.following(control, label)[1] for label in self._labels(control))
        for count in sorted({count for _, count in self._open}):
            self._layer(count)

    def _labels(self, control: _Control) -> list[int]:
        """What keys may come next."""
        names, free = self._open[control]
        return [1 + name for name in names] + (self._objects.free_labels() if free else [])

    def before(self, control: _Control) -> int | None:
        """The state within the quotes of the next key, None where none may come."""
        return self._before.get(control)

    def _layer(self, count: int) -> None:
        """The keys that come after `count` properties, and the values behind them."""
        keys, machine = self._objects.keys(), self._machine
        controls = [control for control in self._open if control[1] == count]
        entries = {control: keys.entry(*self._open[control]) for control in controls if self._labels(control)}
        if not entries:
            return
        table, label = keys.finish()
        offset = machine.place(escaped(table))
        self._before.update({control: offset + entry for control, entry in entries.items()})
        for one in sorted({one for control in controls for one in self._labels(control)}):
            value, after = self._objects.following((0, count), one)
            quoted, valued = machine.state(), machine.state()
            machine.close(np.flatnonzero(label == one) + offset, quoted)
            machine.write(quoted, self._objects.colon, valued)
            machine.read(valued, value, {1: self._after[after]})

    def punctuate(self, between: str, end: str, done: int) -> None:
        """What may follow each property: a comma and the next key, or the end."""
        for control, after in self._after.items():
            if control in self._before:
                self._machine.write(after, between, self._before[control])
            if self._objects.may_end(control):
                self._machine.write(after, end, done)
