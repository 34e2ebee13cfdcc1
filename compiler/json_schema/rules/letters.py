"""Fragments in which a letter stands for the texts of a rule.

A letter is spelled with control characters, which texts of JSON do not hold. So fragments with letters are assembled,
united and minimized like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Protocol

import numpy as np

from compiler.automata import Dfa, Minterms, minimize, unique_rows
from compiler.json_schema.arrays import CLOSE, LABEL_TESTS_MAX, OPEN, Word, label_by, spelled_letter, trie
from compiler.json_schema.fragments import (
    DEAD,
    START,
    Assembler,
    Fragment,
    Operation,
    combine,
    dfa_of,
    fragment_of,
)
from compiler.limits import ResourceGuard
from compiler.pushdown import RuleDfa

_OPEN, _CLOSE = ord(OPEN), ord(CLOSE)
_FIRST_DIGIT = ord("0")
_PARTS_MAX = 16  # of the values at one place in a difference
_VALUE_BEGINS = [ord(character) for character in '"[{-0123456789tfn']
Edge = tuple[int, int]  # a rule, and the state behind its letter


class OutsideRules(Exception):
    """A combination of texts that letters do not express."""


def word_of(rule: int) -> Word:
    """The spelling of the letter of a rule."""
    return tuple(map(ord, spelled_letter(rule)))


@dataclass(frozen=True, slots=True, eq=False)
class LetterFragment:
    """A fragment with its letters as edges.

    letters  by state, the rules of the letters that it reads and the states behind them
    """

    characters: Fragment
    letters: Mapping[int, list[Edge]]

    @property
    def rules(self) -> set[int]:
        return {rule for edges in self.letters.values() for rule, _ in edges}

    def begins_value(self, state: int) -> bool:
        """Whether a state reads the first character of a value."""
        return bool(self.characters.table[state, self.characters.columns[_VALUE_BEGINS]].any())


def read_letters(fragment: Fragment) -> LetterFragment:
    """The fragment with its letters as edges. States inside their spellings stay, unreachable."""
    opened = fragment.table[:, fragment.columns[_OPEN]]
    letters = {state: _edges(fragment, int(opened[state])) for state in np.flatnonzero(opened != DEAD).tolist()}
    if not letters:
        return LetterFragment(fragment, {})
    # A column that OPEN alone reads: digits, for one, may be read elsewhere.
    columns = fragment.columns.copy()
    columns[_OPEN] = fragment.table.shape[1]
    table = np.concatenate([fragment.table, np.zeros((fragment.states, 1), dtype=np.int32)], axis=1)
    return LetterFragment(Fragment(columns, table, fragment.label), letters)


def _edges(fragment: Fragment, state: int) -> list[Edge]:
    """The letters whose spelling goes on in a state."""
    digit_columns = fragment.columns[_FIRST_DIGIT : _FIRST_DIGIT + 10].tolist()
    close, found, waiting = int(fragment.columns[_CLOSE]), list[Edge](), [(0, state)]
    while waiting:
        value, at = waiting.pop()
        row = fragment.table[at]
        if (behind := int(row[close])) != DEAD:
            found.append((value, behind))
        for digit, column in enumerate(digit_columns):
            if (after := int(row[column])) != DEAD:
                waiting.append((10 * value + digit, after))
    return sorted(found)


def spelled(fragment: LetterFragment, inlined: Mapping[int, Fragment], guard: ResourceGuard) -> Fragment:
    """The fragment with letters spelled again.

    inlined  by rule, the texts that take the place of its letter where no other text begins with them
    """
    characters = fragment.characters
    assembler = Assembler(len(characters.columns), guard)
    offset = assembler.add_fragment(START, characters, {1: assembler.new_end()})
    for state, edges in fragment.letters.items():
        rules = [rule for rule, _ in edges]
        united = None if fragment.begins_value(state) else _united(rules, inlined, guard)
        labels = [1 << bit for bit in range(len(rules))] if united else range(1, 1 + len(rules))
        texts = united or trie(dict(zip(map(word_of, rules), labels, strict=True)), len(characters.columns))
        assert texts is not None
        targets = {label: offset + behind for label, (_, behind) in zip(labels, edges, strict=True)}
        assembler.add_fragment(offset + state, texts, targets)
    return assembler.finish()


def _united(rules: Sequence[int], inlined: Mapping[int, Fragment], guard: ResourceGuard) -> Fragment | None:
    """The texts of rules. Those of the i-th one have the label 2 ** i.

    None where one is not inlined, two have a text in common, or there are too many.
    """
    if len(rules) > LABEL_TESTS_MAX or not all(rule in inlined for rule in rules):
        return None
    parts = [inlined[rule] for rule in rules]
    if len(parts) == 1:
        return parts[0]
    texts = label_by(reduce(lambda left, right: combine(left, right, "or", guard) or left, parts), parts, guard)
    assert texts is not None
    label = np.maximum(texts.label - 1, 0)
    return replace(texts, label=label) if all(each.bit_count() < 2 for each in label.tolist()) else None


def rule_dfa(fragment: Fragment, minterms: Minterms, guard: ResourceGuard) -> RuleDfa:
    """The fragment as a minimal DFA over its characters and letters."""
    read = read_letters(fragment)
    characters, rules = read.characters, sorted(read.rules)
    first, columns = unique_rows(characters.table.T)
    behind = np.zeros((characters.states, len(rules)), dtype=np.int32)
    for state, edges in read.letters.items():
        for rule, target in edges:
            behind[state, rules.index(rule)] = target
    symbols = np.append(columns[characters.columns], len(first) + np.arange(len(rules)))
    dfa = Dfa(symbols.astype(np.int32), np.hstack([characters.table[:, first], behind]), characters.label != 0, START)
    return RuleDfa(minimize(dfa, guard), minterms, tuple(rules))


class RuleAlgebra(Protocol):
    """Rules for the Boolean combinations of others."""

    def both(self, left: int, right: int) -> int | None:
        """The values of both rules. None where there are none."""

    def rest(self, left: int, right: int) -> list[int]:
        """Rules that together have what `left` has and `right` has not."""


def combine_letters(
    left: LetterFragment, right: LetterFragment, operation: Operation, *, algebra: RuleAlgebra, guard: ResourceGuard
) -> Fragment | None:
    """The texts in both fragments, or in `left` alone. It is a product of automata.

    Where both read a value, its rule is that of a combination. Raises OutsideRules where one of them reads a character
    of a value and the other its letter, or where a difference parts values too often.
    """
    return _LetterProduct(left, right, operation == "less", algebra=algebra, guard=guard).fragment()


_Pair = tuple[int, tuple[int, ...]]  # a state of the left fragment, and those that the right one is in


class _LetterProduct:
    """The product of two fragments, determinized.

    Letters at one place may have common values. So the right fragment of a difference may be in several states, and
    several pairs of states may be reached at once, each of which accepts for all of them.
    """

    def __init__(
        self, left: LetterFragment, right: LetterFragment, less: bool, *, algebra: RuleAlgebra, guard: ResourceGuard
    ) -> None:
        self._left, self._right, self._less, self._algebra, self._guard = left, right, less, algebra, guard
        start: _Pair = (START, (START,))
        self._number: dict[tuple[_Pair, ...], int] = {(): DEAD, (start,): START}
        self._order = list(self._number)

    def _at(self, pairs: Iterable[tuple[int, Iterable[int]]]) -> int:
        met = {(left, tuple(sorted({*right} - {DEAD}))) for left, right in pairs if left != DEAD}
        live = tuple(sorted(pair for pair in met if pair[1] or self._less))
        if live not in self._number:
            self._number[live] = len(self._order)
            self._order.append(live)
            self._guard.check("dfa_states_max", len(self._order))
        return self._number[live]

    def fragment(self) -> Fragment | None:
        left, right = self._left.characters, self._right.characters
        first, columns = unique_rows(np.column_stack([left.columns, right.columns]))
        left_table, right_table = left.table[:, left.columns[first]], right.table[:, right.columns[first]]
        rows, labels, letters = list[np.ndarray](), list[bool](), dict[int, list[Edge]]()
        for number, pairs in enumerate(self._order):  # grows while it is walked
            self._guard.check_time()
            lengths = [1 + len(others) for _, others in pairs]
            tables = [np.concatenate([left_table[[one]], right_table[list(others)]]) for one, others in pairs]
            # Columns are few, so that tuples cost less than a sort by numpy.
            after = list(zip(*np.concatenate(tables).tolist(), strict=True)) if tables else [()] * len(first)
            targets = {column: self._at(_split(column, lengths)) for column in sorted(set(after))}
            rows.append(np.array([targets[column] for column in after], dtype=np.int32))
            labels.append(any(left.label[one] and right.label[list(rest)].any() != self._less for one, rest in pairs))
            if edges := self._edges(pairs):
                letters[number] = edges
        product = Fragment(columns.astype(np.int32), np.array(rows), np.array(labels).astype(np.int32))
        return fragment_of(dfa_of(spelled(LetterFragment(product, letters), {}, self._guard), self._guard))

    def _edges(self, pairs: tuple[_Pair, ...]) -> list[Edge]:
        found = dict[int, list[tuple[int, list[int]]]]()
        for left, right in pairs:
            ours = self._left.letters.get(left, [])
            others = [edge for state in right for edge in self._right.letters.get(state, [])]
            if (ours and any(map(self._right.begins_value, right))) or (others and self._left.begins_value(left)):
                raise OutsideRules("one text reads a character of a value where another reads its letter")
            for rule, behind in ours:
                for part, targets in self._parts(rule, others):
                    found.setdefault(part, []).append((behind, targets))
        reached = [(part, self._at(targets)) for part, targets in found.items()]
        return [(part, target) for part, target in reached if target != DEAD]

    def _parts(self, rule: int, others: list[Edge]) -> list[tuple[int, list[int]]]:
        """The parts of a rule's values. Behind each, the right fragment is in other states."""
        if not self._less:
            common = [(self._algebra.both(rule, other), [target]) for other, target in others]
            return [(part, targets) for part, targets in common if part is not None]
        parts = [(rule, list[int]())]
        for other, target in others:
            if len(parts) > _PARTS_MAX:
                raise OutsideRules("a difference parts the values at one place often")
            apart = list[tuple[int, list[int]]]()
            for part, targets in parts:
                both = self._algebra.both(part, other)
                apart += [] if both is None else [(both, [*targets, target])]
                apart += [(rest, targets) for rest in self._algebra.rest(part, other)]
            parts = apart
        return parts


def _split(column: tuple[int, ...], lengths: list[int]) -> list[tuple[int, tuple[int, ...]]]:
    """The pairs of states that a column of a table leads to."""
    pairs, first = [], 0
    for length in lengths:
        pairs.append((column[first], column[first + 1 : first + length]))
        first += length
    return pairs
