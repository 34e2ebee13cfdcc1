"""Compiles arrays. Items follow one another, and are counted only as far as the schema distinguishes counts.

The items of `uniqueItems` are those of a small finite set of values, each with one text. What an array holds is
followed as the set of values so far. Where there are too many sets, letters behind the items name their values, and
the sets are counted beside the automaton. Where letters cannot stand, the values are written in the order of a list:
every set of values has such a text, and the automaton grows with the list's characters alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import TYPE_CHECKING

import numpy as np

from compiler.json_schema.fragments import DEAD, START, Assembler, Fragment, part_by, trim
from compiler.json_schema.nodes import ArrayFacts, Contains, Position, Schema, tightest_counts
from compiler.limits import ResourceGuard

if TYPE_CHECKING:  # `compiler` imports this module
    from compiler.json_schema.compiler import SchemaCompiler

LABEL_TESTS_MAX = 20  # a label of int32 has a bit for each, and a number of up to _WORDS_MAX
_FEW_ITEMS = 8  # a maximum up to which arrays are never shortened
UNIQUE_STATES_MAX = 15_000  # of items with distinct values, each counted as often as it is copied
_WORDS_MAX = 1_000
OPEN, CLOSE = "\3", "\4"  # around the number of a letter; `Assembler` has a meaning for smaller characters
FORGET = 0  # the letter behind an array, whose items are none of the next array
Word = tuple[int, ...]  # the symbols of a text
_Counts = tuple[int, ...]  # what `uniqueItems` remembers, then the items so far for each `contains`, capped
_Control = tuple[int, _Counts]  # the index of the next item, capped, and the counts


@dataclass(frozen=True, slots=True)
class _UniqueItems:
    """The values of the items, and how those so far are remembered.

    words         the text of each value
    ordered       whether they are written in the order of `words`
    first_letter  that of the first word, where a letter stands behind each item; 0 where none does
    """

    words: tuple[Word, ...] = ()
    ordered: bool = False
    first_letter: int = 0

    @property
    def characters(self) -> int:
        """Those of all texts, and an end for each."""
        return sum(map(len, self.words)) + len(self.words)

    def remember(self, used: int, number: int) -> int | None:
        """What is remembered after a value. None where it may not be written.

        It is a bit set of the values so far, or how many values of the list are passed. Letters remember by themselves.
        """
        if not self.words or self.first_letter:
            return 0
        if self.ordered:
            return None if number < used else number + 1
        return None if used >> number & 1 else used | 1 << number


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
        many = self._maximum is not None and self._maximum > max(_FEW_ITEMS, prefix)
        if self._maximum is not None and many and compiler.scalars.shortens_beside(node_ids):
            item = compiler.text(self._item(prefix), position.item(prefix))[0]
            least = max(self._minimum, prefix)
            self._maximum = compiler.scalars.item_count(least, self._maximum, item.states) if item else least
        # From this index on, all items are alike: a larger index is never distinguished from it.
        self._last = max(prefix, position.scope.prefix, self._minimum, self._maximum or 0)
        self._unique = _UniqueItems()
        for node, facts in zip([node for node in nodes if node.arrays is not None], self._facts, strict=True):
            # At most one item is always unique.
            if facts.unique and (self._maximum is None or self._maximum > 1):
                self._unique = self._unique_items(prefix, node, facts.unique)
        if self._unique.first_letter and max(self._minimum, self._maximum or 0) > len(self._unique.words):
            self._maximum = len(self._unique.words)

    def _unique_items(self, prefix: int, node: Schema, path: tuple[str, ...]) -> _UniqueItems:
        """The values of which each occurs at most once. None are followed where the keyword is approximated."""
        whole_text = self._compiler.whole_text
        items = [whole_text(self._item(index), self._position.item(index))[0] for index in range(prefix + 1)]
        unique = _unique_items(items, self._compiler.alphabet.symbol_sizes, self._maximum)
        # In some layouts an array or an object has several texts. Symbols of ASCII are its code points.
        is_unique = self._compiler.layout.is_unique
        if unique is not None and not all(is_unique("".join(map(chr, word))) for word in unique.words):
            unique = None
        if unique is not None:
            # The order is that of the schema where it lists the values.
            ranks = {word: rank for rank, word in enumerate(self._compiler.listed_texts(self._item(prefix)))}
            words = tuple(sorted(unique.words, key=lambda word: ranks.get(word, len(ranks))))
            if not unique.ordered:
                return replace(unique, words=words)
            if first_letter := self._compiler.first_letter(words):
                return _UniqueItems(words, first_letter=first_letter)
            # It would not fit items that have their own places, or take too little away where it is negated.
            if unique.characters * (self._last + 1) <= 2 * UNIQUE_STATES_MAX and not (prefix or self._compiler.negates):
                self._compiler.unique_cut = True
                self._compiler.approximated[path] = None
                return replace(unique, words=words)
        if "uniqueItems" not in self._compiler.approximate:
            message = (
                "uniqueItems is supported where maxItems is 1 or the items are of a small set of values; "
                'with "approximate": ["uniqueItems"] equal items may be written'
            )
            raise node.unsupported("uniqueItems", message, "uniqueItems")
        self._compiler.unique_cut |= self._compiler.negates
        self._compiler.approximated[path] = None
        return _UniqueItems()

    def _item(self, index: int) -> tuple[int, ...]:
        """The nodes of the item at an index."""
        return tuple(node_id for facts in self._facts if (node_id := facts.item(index)) is not None)

    def _item_fragment(self, index: int) -> Fragment | None:
        """The texts of the item at an index. Labels tell which `contains` they fit."""
        inside = self._position.item(index)
        # The values of unique items are distinguished by their texts.
        text = self._compiler.whole_text if self._unique.words else self._compiler.text
        item, safe = text(self._item(index), inside)
        self._safe &= safe
        tests: list[Fragment | None] = []  # bit i of a label is the i-th test
        for contains in self._contains:
            test, safe = text((contains.item,), inside)
            # An item that the test rejects may still fit it once equal keys are resolved, and would not be counted.
            if not safe and contains.maximum is not None:
                message = "maxContains of objects with undeclared properties is not supported"
                raise self._compiler.nodes[contains.item].unsupported("maxContains", message)
            self._safe &= safe
            tests.append(test)
        return self._compiler.labelled(item, tests)

    def _remaining(self, item: Fragment, used: int) -> Fragment | None:
        """The texts of an item that `uniqueItems` allows. Labels also tell which value they are.

        used  what is remembered of the items so far
        """
        labels = {
            word: label + (number << len(self._contains))
            for number, word in enumerate(self._unique.words)
            if self._unique.remember(used, number) is not None and (label := item.run(word))
        }
        return trie(labels, self._compiler.width)

    def _listed(self, item: Fragment) -> tuple[Fragment, list[int]]:
        """The items from each place of the list on; see `list_tries`."""
        label_of = [item.run(word) for word in self._unique.words]
        labels = [label and label + (number << len(self._contains)) for number, label in enumerate(label_of)]
        return list_tries(self._unique.words, labels, self._compiler.width)

    def _counts_after(self, counts: _Counts, label: int) -> _Counts | None:
        """The counts after an item with a label. None where one of them is then too high."""
        number, bits = divmod(label - 1, 1 << len(self._contains))
        used = self._unique.remember(counts[0], number)
        if used is None:
            return None
        # Each count grows by the bit of its test.
        after = [used]
        for bit, (count, contains) in enumerate(zip(counts[1:], self._contains, strict=True)):
            increased, minimum, maximum = count + (bits >> bit & 1), contains.minimum, contains.maximum
            if maximum is not None and increased > maximum:
                return None
            # Once the minimum is reached, and without a maximum, further items change nothing.
            after.append(min(increased, max(minimum, maximum or 0)))
        return tuple(after)

    def _controls_after(self, index: int, counts: _Counts, item: Fragment) -> dict[int, _Control]:
        """The control behind an item, by the item's label. Labels that are not allowed here are absent."""
        counted = {label: self._counts_after(counts, label) for label in sorted(set(item.label.tolist()) - {0})}
        # Behind the last item nothing has to differ from the items so far.
        if index + 1 == self._maximum:
            counted = {label: after and (0, *after[1:]) for label, after in counted.items()}
        return {label: (min(index + 1, self._last), after) for label, after in counted.items() if after is not None}

    def _may_end(self, index: int, counts: _Counts) -> bool:
        """True when the array has enough items, and enough of each `contains`."""
        enough = all(count >= contains.minimum for count, contains in zip(counts[1:], self._contains, strict=True))
        return index >= self._minimum and enough

    def build(self) -> tuple[Fragment | None, bool]:
        """Build the arrays that fit all the nodes.

        The second value is True where equal keys inside cannot change the verdict.
        """
        layout, level = self._compiler.layout, self._position.level
        assembler = Assembler(self._compiler.width, self._compiler.guard)
        end, opened = assembler.new_end(), assembler.new_state()
        assembler.add_text(START, "[", opened)
        start: _Control = (0, (0,) * (1 + len(self._contains)))
        # The empty array has no white space inside, in any layout.
        if self._may_end(*start):
            assembler.add_text(opened, "]", end)
        # The state before the first item is not `opened`: after a comma the array may not end.
        before: dict[_Control, int] = {start: assembler.new_state()}
        after: dict[_Control, int] = {}
        assembler.add_text(opened, layout.inside(level), before[start])
        items: dict[int, Fragment | None] = {}
        # Where values are written in the order of a list, counts that differ in their place in it share the items.
        lists: dict[_Control, tuple[int, list[int]]] = {}
        waiting = [start]
        for index, counts in waiting:  # grows while it is walked
            if self._maximum is not None and index >= self._maximum:
                continue
            # The items at one index are the same for all counts.
            if index not in items:
                items[index] = self._item_fragment(index)
            item, group = items[index], (index, counts[1:])
            if group in lists:
                offset, entries = lists[group]
                assembler.add_start(before[index, counts], offset + entries[counts[0]])
                continue
            if item is not None and self._unique.ordered:
                item, entries = self._listed(item)
            elif item is not None and self._unique.words:
                item = self._remaining(item, counts[0])
            if item is None:
                continue
            passed = (0, *counts[1:]) if self._unique.ordered else counts
            targets = {}
            for label, control in self._controls_after(index, passed, item).items():
                # A control is the product state behind an item. All items that lead to it share its states.
                if control not in after:
                    after[control] = assembler.new_state()
                    if control not in before:
                        before[control] = assembler.new_state()
                        waiting.append(control)
                    self._continue(assembler, control, after[control], before[control], end=end)
                targets[label] = self._behind_letter(assembler, label, after[control])
            # Labels without a target are items that no array may have here: their paths lead nowhere.
            offset = assembler.add_fragment(before[index, counts], item, targets)
            if self._unique.ordered:
                lists[group] = offset, entries
                assembler.add_start(before[index, counts], offset + entries[counts[0]])
        # Otherwise every item leads on to the end.
        few = self._maximum is not None and self._maximum < self._minimum
        stuck = few or self._unique.words or self._contains or None in items.values()
        return trim(assembler.finish()) if stuck else assembler.finish(), self._safe

    def _behind_letter(self, assembler: Assembler, label: int, after: int) -> int:
        """The state behind an item. Where letters stand, it reads that of the item's value."""
        if not self._unique.first_letter:
            return after
        state = assembler.new_state()
        letter = self._unique.first_letter + (label - 1 >> len(self._contains))
        assembler.add_text(state, spelled_letter(letter), after)
        return state

    def _continue(self, assembler: Assembler, control: _Control, after: int, before: int, *, end: int) -> None:
        """Add the continuations after an item. They are a comma with the next item, and the end."""
        layout, level = self._compiler.layout, self._position.level
        if self._maximum is None or control[0] < self._maximum:
            assembler.add_text(after, layout.comma(level), before)
        if self._may_end(*control):
            ends = spelled_letter(FORGET) if self._unique.first_letter else ""
            assembler.add_text(after, layout.closing(level) + "]" + ends, end)


def _unique_items(
    items: Sequence[Fragment | None], symbol_sizes: np.ndarray, maximum: int | None
) -> _UniqueItems | None:
    """The values that items may be. They are ordered where they have too many sets. None where they are too many.

    items         the texts of the items at each index, and behind it
    symbol_sizes  how many characters each symbol stands for: int64 [M]
    """
    words: dict[Word, None] = {}
    for item in items:
        live = None if item is None else trim(item)
        texts = [] if live is None else _finite_texts(live, symbol_sizes)
        if texts is None:
            return None
        words.update(dict.fromkeys(texts))
    unique, count = _UniqueItems(tuple(words)), len(words)
    most = count if maximum is None else min(count, maximum)
    # The items behind a set are those that it lacks, about half of all. None are behind the largest sets.
    few = unique.characters * sum(comb(count, size) for size in range(most)) <= 2 * UNIQUE_STATES_MAX
    return replace(unique, ordered=not few)


def _finite_texts(fragment: Fragment, symbol_sizes: np.ndarray) -> list[Word] | None:
    """The texts of a fragment all of whose states are live. None where there are over _WORDS_MAX."""
    # A symbol of several characters stands for several texts. Control characters are marks of values left out, or
    # spell calls, which stand for values; only the line break is white space.
    codes = np.arange(len(symbol_sizes))
    several = (symbol_sizes != 1) | ((codes < ord(" ")) & (codes != ord("\n")))
    edges: dict[int, list[tuple[int, int]] | None] = {}
    found, level = list[Word](), [(START, Word())]
    while level:
        longer = []
        for state, word in level:
            if fragment.label[state]:
                found.append(word)
            if state not in edges:
                targets = fragment.table[state, fragment.columns]
                symbols = np.flatnonzero(targets != DEAD)
                edges[state] = None if several[symbols].any() else [(int(s), int(targets[s])) for s in symbols]
            following = edges[state]
            if following is None:
                return None
            longer += [(target, (*word, symbol)) for symbol, target in following]
            # From each state some text ends, so there are at least as many texts as there are beginnings.
            if len(found) + len(longer) > _WORDS_MAX:
                return None
        level = longer
    return found


def spelled_letter(number: int) -> str:
    """A letter among the characters of a text. Control characters, which texts of JSON do not hold, stand around it."""
    return f"{OPEN}{number}{CLOSE}"


def trie(words: Mapping[Word, int], width: int) -> Fragment | None:
    """The fragment of words, each with its label. None without words."""
    rows: list[dict[int, int]] = [{}, {}]  # of DEAD and START
    labels = {}
    for word, label in words.items():
        state = START
        for symbol in word:
            state = rows[state].setdefault(symbol, len(rows))
            if state == len(rows):
                rows.append({})
        labels[state] = label
    return _fragment_of_rows(rows, labels, width) if words else None


def list_tries(words: Sequence[Word], labels: Sequence[int | None], width: int) -> tuple[Fragment, list[int]]:
    """The tries of a list's words from each place on, together.

    labels  of the words; None for those that are left out
    Returns the roots by the place, too. The tries share all but the path of a word, so that there are as many states as
    characters. START reads nothing.
    """
    rows: list[dict[int, int]] = [{}, {}]
    found: dict[int, int] = {}
    roots = [START]

    def copied(state: int) -> int:
        rows.append(dict(rows[state]))
        if state in found:
            found[len(rows) - 1] = found[state]
        return len(rows) - 1

    for word, label in zip(reversed(words), reversed(labels), strict=True):
        if not label:
            roots.append(roots[-1])
            continue
        state = copied(roots[-1])
        roots.append(state)
        for symbol in word:
            following = copied(rows[state].get(symbol, DEAD))
            rows[state][symbol] = following
            state = following
        found[state] = label
    return _fragment_of_rows(rows, found, width), roots[::-1]


def _fragment_of_rows(rows: Sequence[Mapping[int, int]], labels: Mapping[int, int], width: int) -> Fragment:
    """The fragment of states with targets by symbol. The first two are DEAD and START."""
    used = sorted({symbol for row in rows for symbol in row})
    columns = np.zeros(width, dtype=np.int32)
    columns[used] = np.arange(1, len(used) + 1)
    table = np.zeros((len(rows), len(used) + 1), dtype=np.int32)
    kinds = np.zeros(len(rows), dtype=np.int32)
    for state, row in enumerate(rows):
        for symbol, target in row.items():
            table[state, columns[symbol]] = target
    kinds[list(labels)] = list(labels.values())
    return Fragment(columns, table, kinds)


def label_by(base: Fragment | None, tests: Sequence[Fragment | None], guard: ResourceGuard) -> Fragment | None:
    """The texts of `base`, labelled by the tests that accept them: 1 + the sum of 2 ** i over accepting tests i."""
    if len(tests) > LABEL_TESTS_MAX:  # what counts each of them has a state for each set
        guard.check("dfa_states_max", 1 << len(tests))
    parted, masks = part_by(base, tests, guard)
    return parted and replace(parted, label=np.array([0, *(1 + mask for mask in masks)], dtype=np.int32)[parted.label])
