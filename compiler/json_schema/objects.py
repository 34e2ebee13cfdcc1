"""Automata of objects. Declared properties come in the order of their scope or in any, then undeclared ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from compiler.json_schema.fragments import DEAD, START, Assembler, Fragment, escaped, part_by, trim
from compiler.json_schema.nodes import ObjectFacts, Position, Schema, tightest_counts
from compiler.limits import ResourceGuard

if TYPE_CHECKING:  # `compiler` imports this module
    from compiler.json_schema.compiler import SchemaCompiler

_Control = tuple[int, int]  # a bit set of the names that may no longer come, and the number of properties, capped


class ObjectBuilder:
    """Builds the automaton of the objects that fit several nodes.

    It decides which keys may come where, and their values.

    A key is known by its label: 1 + i for the declared name i, and higher numbers for undeclared keys, one for each
    set of `patternProperties` that they may match. Raises SpecUnsupported and LimitExceeded.
    """

    def __init__(self, compiler: SchemaCompiler, node_ids: Sequence[int], position: Position) -> None:
        self._compiler, self._position, self._duplicate_key_safe = compiler, position, True
        self._nodes: list[Schema] = [compiler.nodes[number] for number in node_ids]
        self._facts: list[ObjectFacts] = [node.objects for node in self._nodes if node.objects is not None]
        self._names, self.escapes = position.scope.names, compiler.alphabet.escapes
        # What `propertyNames` allows of keys.
        self._key_content = compiler.content([facts.names for facts in self._facts if facts.names is not None])
        self._values = [self._declared(name) for name in self._names]
        self._undeclared_values: dict[int, Fragment] = {}  # by the label that `_undeclared` gives the key
        self._undeclared_key_fragment = self._undeclared()
        required = {name for facts in self._facts for name in facts.required}
        self._required = sum(1 << number for number, name in enumerate(self._names) if name in required)
        without_value = sum(1 << number for number, value in enumerate(self._values) if value is None)
        self.start: _Control = (without_value, 0)
        nameable = len(self._names) - without_value.bit_count()
        if self._compiler.layout.any_order:
            compiler.guard.check("unordered_properties_max", nameable)
        self._minimum, self._maximum = tightest_counts(self._facts)
        if self._undeclared_key_fragment is None and self._maximum is not None and self._maximum >= nameable:
            self._maximum = None  # there are no more names
        if self._minimum <= self._required.bit_count():  # the required names are enough
            self._minimum = 0
        self._check_counts()
        # Without a bound on the number of properties, every count is 0, and there is one layer of states.
        counting = self._maximum is not None or self._minimum > 1
        self._count_max = max(self._minimum, self._maximum or 0) if counting else 0

    def _check_counts(self) -> None:
        """Undeclared keys may be equal, and a parser then counts them once."""
        if self._undeclared_key_fragment is None:
            return
        if self._maximum is not None:
            self._duplicate_key_safe = False
        if self._minimum > 1:
            message = (
                "minProperties above 1 is supported where no undeclared properties are: two of them could be alike"
            )
            raise self._nodes[0].unsupported("minProperties", message)

    def _text(self, node_ids: Sequence[int], position: Position) -> Fragment | None:
        fragment, safe = self._compiler.text(node_ids, position)
        self._duplicate_key_safe &= safe
        return fragment

    def _declared(self, name: str) -> Fragment | None:
        """The values under a declared name."""
        if self._key_content is None or not self._key_content.run(self._compiler.alphabet.word(name)):
            return None
        node_ids = self._value_nodes(name, partial(self._compiler.alphabet.matches, text=name))
        return self._text(node_ids, self._position.property(name))

    def _value_nodes(self, name: str | None, matches: Callable[[str], bool]) -> list[int]:
        """The nodes of the values under a key; name: None where the key is undeclared."""
        node_ids = []
        for facts in self._facts:
            inside = [node for declared, node in facts.properties if declared == name]
            inside += [node for pattern, _, node in facts.patterns if matches(pattern)]
            # `additionalProperties` speaks of the keys that nothing else in the same schema object mentions.
            if not inside and facts.additional is not None:
                inside.append(facts.additional)
            node_ids.extend(inside)
        return node_ids

    def _undeclared(self) -> Fragment | None:
        """The undeclared keys, labelled by the patterns that they match. None where no undeclared key is allowed."""
        patterns = list(dict.fromkeys(pattern for facts in self._facts for pattern, _, _ in facts.patterns))
        tests = [self._compiler.alphabet.content(("pattern", pattern)) for pattern in patterns]
        # Declared names are among these keys; the table of keys takes them out.
        keys, matches = part_by(self._key_content, tests, self._compiler.guard)
        if keys is None:
            return None
        position, allowed = self._position.property(None), keys.label.copy()
        for label in sorted(set(keys.label.tolist()) - {0}):
            if self._are_declared(keys, label):
                allowed[keys.label == label] = 0
                continue
            matched = {pattern for bit, pattern in enumerate(patterns) if matches[label - 1] >> bit & 1}
            node_ids = self._value_nodes(None, matched.__contains__)
            fragment = self._text(node_ids, position)
            if fragment is None:  # no value may stand under such a key, so there is no such key
                allowed[keys.label == label] = 0
                continue
            self._undeclared_values[label] = fragment
            # Of two equal keys a parser reads the last value alone; that is harmless where any value fits.
            self._duplicate_key_safe &= all(self._compiler.nodes[node].is_unconstrained() for node in node_ids)
        return Fragment(keys.columns, keys.table, allowed) if self._undeclared_values else None

    def _are_declared(self, keys: Fragment, label: int) -> bool:
        """Whether the keys of a label are declared names alone."""
        if not self._names:
            return False
        labelled = trim(Fragment(keys.columns, keys.table, (keys.label == label).astype(np.int32)))
        listed = [] if labelled is None else self._compiler.alphabet.listed(labelled, len(self._names))
        return listed is not None and set(self._names).issuperset(listed)

    def build(self) -> tuple[Fragment | None, bool]:
        """Build the objects that fit all the nodes.

        The second value is True where equal keys in them cannot change the verdict.
        """
        if self._required & self.start[0]:
            return None, self._duplicate_key_safe
        layout, level = self._compiler.layout, self._position.level
        assembler = Assembler(self._compiler.width, self._compiler.guard)
        end, opened = assembler.new_end(), assembler.new_state()
        assembler.add_text(START, "{", opened)
        if self._minimum == 0 and self.may_end(self.start):
            assembler.add_text(opened, "}", end)
        # The quotation mark that opens a key is part of the text before it, as is the comma.
        graph = _ObjectStateGraph(self, assembler, layout.colon)
        first = graph.before.get(self.start)
        if first is not None:
            assembler.add_text(opened, layout.inside(level) + '"', first)
        graph.add_punctuation(layout.comma(level) + '"', layout.closing(level) + "}", end)
        # A minimum may be out of reach, even from the start: then there is no object.
        objects = trim(assembler.finish()) if self._minimum else assembler.finish()
        return objects, self._duplicate_key_safe

    def next_names(self, control: _Control) -> tuple[list[int], bool]:
        """The names that may come next, and whether an undeclared key may."""
        passed, count = control
        if self._maximum is not None and count >= self._maximum:
            return [], False
        missing = self._required & ~passed
        # In the schema's order the first required name that is missing cannot be passed over.
        in_order = missing and not self._compiler.layout.any_order
        last = (missing & -missing).bit_length() if in_order else len(self._names)
        first = (~passed & passed + 1).bit_length() - 1  # the lowest bit that is not set
        names = [number for number in range(first, last) if not passed >> number & 1]
        return names, not missing and self._undeclared_key_fragment is not None

    def may_end(self, control: _Control) -> bool:
        """True when no required property is left and there are enough."""
        passed, count = control
        return not self._required & ~passed and (not self._count_max or count >= self._minimum)

    def following(self, control: _Control, label: int) -> tuple[Fragment, _Control]:
        """The value of the key with a label, and the next control."""
        # From the cap on, counts are not distinguished.
        count, number = min(control[1] + 1, self._count_max), label - 1
        if number >= len(self._names):  # only undeclared keys may come behind one
            return self._undeclared_values[label - len(self._names)], ((1 << len(self._names)) - 1, count)
        value = self._values[number]
        if value is None:
            raise ValueError("a key without values is no candidate")
        passed = 1 << number if self._compiler.layout.any_order else (2 << number) - 1
        return value, (control[0] | passed, count)

    def layer(self, control: _Control) -> object:
        """What the controls have in common whose keys may share a table."""
        # In the schema's order, a key and the count tell what comes next. In any order, all earlier names do.
        return control if self._compiler.layout.any_order else control[1]

    def undeclared_labels(self) -> list[int]:
        """The labels of undeclared keys."""
        return [len(self._names) + label for label in self._undeclared_values]

    def key_table(self, undeclared: bool) -> _KeyTable:
        """A new table of the keys, without entries. `undeclared` tells whether it may have undeclared ones."""
        words = [self._compiler.alphabet.word(name) for name in self._names]
        fragment = self._undeclared_key_fragment if undeclared else None
        return _KeyTable(words, fragment, self._compiler.width, self._compiler.guard)


class _ObjectStateGraph:
    """The states of an object between its properties. They are a product of the names so far and the count of
    properties.

    A control is a pair (names that may no longer come, count). For `a` and `b` in this order, `b` required, nothing
    else allowed and no bound on the count:

            +------- "a": value -----> after ({a},0) --,--> before ({a},0) --"b": value--+
            |                                                                            v
        before ({},0) ------------------- "b": value ----------------------> after ({a,b},0) --}--> end

    In any order, there is also an `after ({b},0)`. From `before`, inside the quotation mark, a key is read, and its
    label leads to the value. From `after` there is a comma to `before` of the same control where a key may come, and a
    brace where no required name is left. With `minProperties` or `maxProperties` the controls count properties, too.
    """

    def __init__(self, builder: ObjectBuilder, assembler: Assembler, colon: str) -> None:
        self._builder, self._assembler, self._colon = builder, assembler, colon
        self._next: dict[_Control, tuple[list[int], bool]] = {}
        self.before: dict[_Control, int] = {}  # the state of each control in which a key may be read
        self._after: dict[_Control, int] = {}
        self._behind_key: dict[tuple[int, _Control], int] = {}  # by the label, and the control behind the value
        # All controls are found first, so that the keys of a layer can be written at once.
        layers: dict[object, list[_Control]] = {}
        waiting = [builder.start]
        for control in waiting:  # grows while it is walked
            if control in self._next:
                continue
            self._after[control] = assembler.new_state()
            self._next[control] = builder.next_names(control)
            layers.setdefault(builder.layer(control), []).append(control)
            waiting.extend(builder.following(control, label)[1] for label in self._labels(control))
        for controls in layers.values():
            self._add_layer(controls)

    def _labels(self, control: _Control) -> list[int]:
        """The labels of the keys that may come next."""
        names, undeclared = self._next[control]
        return [1 + name for name in names] + (self._builder.undeclared_labels() if undeclared else [])

    def _add_layer(self, controls: Sequence[_Control]) -> None:
        """The keys behind the controls of a layer, with their values."""
        key_table = self._builder.key_table(any(self._next[control][1] for control in controls))
        # All controls of a layer share one table of keys: they differ only in the state in which they enter it.
        entries = {control: key_table.entry(*self._next[control]) for control in controls if self._labels(control)}
        if not entries:
            return
        table, label_of = key_table.finish()
        offset = self._assembler.add_table(escaped(table, self._builder.escapes))
        self.before.update({control: offset + entry for control, entry in entries.items()})
        # Where several controls of a layer have a label, the same comes next.
        before = {label: control for control in controls for label in self._labels(control)}
        for label, control in sorted(before.items()):
            states = np.flatnonzero(label_of == label) + offset
            self._assembler.add_quotes(states, self._value(label, control))

    def _value(self, label: int, control: _Control) -> int:
        """The state behind a key. What comes next depends on its label and the next control."""
        value, following = self._builder.following(control, label)
        key = (label, following)
        if key not in self._behind_key:
            self._behind_key[key], valued = self._assembler.new_state(), self._assembler.new_state()
            self._assembler.add_text(self._behind_key[key], self._colon, valued)
            self._assembler.add_fragment(valued, value, {1: self._after[following]})
        return self._behind_key[key]

    def add_punctuation(self, between: str, closing: str, end: int) -> None:
        """Add the continuations after each property. They are a comma with the next key, and the end."""
        for control, after in self._after.items():
            if control in self.before:
                self._assembler.add_text(after, between, self.before[control])
            if self._builder.may_end(control):
                self._assembler.add_text(after, closing, end)


class _KeyTable:
    """The keys of an object as one table. It has the names from some place in the order on, and undeclared keys.

    A state is a node of the trie of all names, with the names that may still be read below it and whether an
    undeclared key may be. So places in the order share all states that lead to the same names.

    names       the symbols of each declared name; an undeclared key is none of them
    undeclared  the undeclared keys, labelled; None where there are none
    Raises LimitExceeded over `dfa_states_max`.
    """

    def __init__(
        self, names: Sequence[Sequence[int]], undeclared: Fragment | None, width: int, guard: ResourceGuard
    ) -> None:
        self._undeclared, self._width, self._guard, self._count = undeclared, width, guard, len(names)
        # The states of `undeclared` keep their numbers; those of the trie come behind them.
        self._table = np.zeros((START, width), dtype=np.int32) if undeclared is None else undeclared.full_table
        self._children: list[dict[int, int]] = [{}]
        self._name_at: dict[int, int] = {}
        self._below: list[set[int]] = [set(range(len(names)))]  # for each node of the trie, the names that pass it
        for number, word in enumerate(names):
            node = 0
            for symbol in word:
                if symbol not in self._children[node]:
                    self._children[node][symbol] = len(self._children)
                    self._children.append({})
                    self._below.append(set())
                node = self._children[node][symbol]
                self._below[node].add(number)
            self._name_at[node] = number
        self._undeclared_at = self._undeclared_states()
        self._size = undeclared.states if undeclared is not None else START
        self._index: dict[tuple[int, frozenset[int], bool], int] = {}
        self._order: list[tuple[int, frozenset[int], bool]] = []

    def _undeclared_states(self) -> list[int]:
        """The state of `undeclared` at each node of the trie."""
        # Parents come before their children in the trie, so one pass is enough.
        states = [DEAD] * len(self._children)
        if self._undeclared is not None:
            states[0] = START
            for node, children in enumerate(self._children):
                for symbol, child in children.items():
                    states[child] = int(self._table[states[node], symbol])
        return states

    def entry(self, candidates: Sequence[int], undeclared: bool) -> int:
        """The state before a key. The key is one of the candidates, or an undeclared one where those are allowed."""
        return self._state(0, frozenset(candidates), undeclared and self._undeclared is not None)

    def _state(self, node: int, candidates: frozenset[int], undeclared: bool) -> int:
        """The number of a state. A new state is queued for `finish`."""
        # Only names that pass the node, and only undeclared keys that are alive there, tell states apart.
        inside = candidates & self._below[node] if len(candidates) > 1 else candidates
        key = (node, inside, undeclared and self._undeclared_at[node] != DEAD)
        if key not in self._index:
            self._index[key] = self._size + len(self._order)
            self._order.append(key)
            self._guard.check_time()
            self._guard.check("dfa_states_max", self._size + len(self._order))
        return self._index[key]

    def finish(self) -> tuple[np.ndarray, np.ndarray]:
        """The table and the labels of all entries so far. Table: int32 [S, M]; label of each state: int [S].

        The label of name i is 1 + i; that of an undeclared key is the number of names + its label in `undeclared`.
        """
        rows, labels = [], []
        for node, candidates, undeclared in self._order:  # grows while it is walked
            row = np.zeros(self._width, dtype=np.int32)
            # Off the trie, only an undeclared key goes on.
            if undeclared:
                row[:] = self._table[self._undeclared_at[node]]
            for symbol, child in self._children[node].items():
                alive = undeclared and self._undeclared_at[child] != DEAD
                leads = alive or bool(candidates & self._below[child])
                row[symbol] = self._state(child, candidates & self._below[child], undeclared) if leads else DEAD
            rows.append(row)
            labels.append(self._label(node, candidates, undeclared))
        base = self._undeclared.label if self._undeclared is not None else np.zeros(START, dtype=np.int32)
        base = np.where(base != 0, base + self._count, 0)
        table = np.concatenate([self._table, *(row[None] for row in rows)])
        return table, np.concatenate([base, labels]).astype(int)

    def _label(self, node: int, candidates: frozenset[int], undeclared: bool) -> int:
        # A declared name is never an undeclared key, also where it may not be read here.
        if node in self._name_at:
            name = self._name_at[node]
            return 1 + name if name in candidates else 0
        if not undeclared or self._undeclared is None:
            return 0
        label = int(self._undeclared.label[self._undeclared_at[node]])
        return self._count + label if label else 0
