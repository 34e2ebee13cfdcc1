"""Glushkov's construction: the positions of a pattern, and their order.

Anchors and look-arounds are conditions on the way from one position to the next. Where only the ends of the text have
conditions the result is a position automaton; else `compiler.regex.lookaround` reads the conditions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from compiler.automata import CharSet
from compiler.limits import ResourceGuard
from compiler.regex.nodes import NO_LETTER, Alternation, Anchor, Chars, Look, Node, Repeat, Words

# What is demanded between two positions, as bits. A condition is the union of demands that hold together.
START = 1  # nothing has been read yet
END = 2  # nothing is left to read
FINAL = 4  # nothing is left to read but, perhaps, one newline
LOOK = 8  # LOOK << 2 * n: look-around n succeeds; LOOK << 2 * n + 1: it fails
_FREE = 0
_CONDITION_OF = {"start": START, "end": END, "final": FINAL}
_TICK_EVERY = 256
_DENSE = 64  # bit sets with more positions than this are unpacked at once
_SIZE_MAX = 10**15

ConditionalPositions = dict[int, int]  # condition -> bit set of positions


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CharNfa:
    """A Glushkov automaton: each position reads one character of a set. P positions; bit p of an int means position p.

    sets          the distinct character sets
    position_set  for each position, its index in `sets`
    first         the positions that may read the first character
    last          the positions that may have read the last one
    follow        for each position, the positions that may read the next character
    nullable      True when the empty text matches
    """

    sets: tuple[CharSet, ...]
    position_set: tuple[int, ...]
    first: int
    last: int
    follow: tuple[int, ...]
    nullable: bool

    @property
    def positions(self) -> int:
        return len(self.position_set)


def positions_of(node: Node) -> int:
    """The number of positions of a tree with its repeats written out. The count stops at _SIZE_MAX."""
    if isinstance(node, Chars):
        return 1
    if isinstance(node, Words):
        return len(node.letters)
    if isinstance(node, Repeat):
        copies = max(node.minimum, 1) if node.maximum is None else node.maximum
        return min(positions_of(node.item) * copies, _SIZE_MAX)
    # A look-around is counted where it is built: all its copies are one.
    return 0 if isinstance(node, Anchor | Look) else min(sum(map(positions_of, node.items)), _SIZE_MAX)


@dataclass(frozen=True, slots=True)
class PositionFragment:
    """A part of the automaton under construction. `nullable` holds the conditions under which it reads nothing."""

    nullable: frozenset[int]
    first: ConditionalPositions
    last: ConditionalPositions


_UNCONDITIONAL = frozenset({_FREE})
_EMPTY = PositionFragment(_UNCONDITIONAL, {}, {})


class PositionBuilder:
    """Builds fragments bottom-up. `follow` and `conditional` hold, per position, what may come next.

    Between two positions one character has been read and one will be, so a condition with START or END forbids the
    step.

    sets, position_set  as in CharNfa
    follow              for each position, the positions behind it without a condition
    conditional         for some positions, those behind them under conditions
    looks               for each look-around, whether it looks behind, and its fragment; those inside it come first
    """

    def __init__(self, guard: ResourceGuard) -> None:
        self._guard = guard
        self.sets: dict[CharSet, int] = {}
        self.position_set: list[int] = []
        self.follow: list[int] = []
        self.conditional: dict[int, ConditionalPositions] = {}
        self.looks: list[tuple[bool, PositionFragment]] = []
        self._look_numbers: dict[tuple[Node, bool], int] = {}

    def build_all(self, node: Node) -> PositionFragment:
        """The fragment of a tree. Raises LimitExceeded over `nfa_positions_max`, before its positions are built."""
        # Counted before anything is built: a{1000}{1000} is refused without its million positions.
        self._guard.check("nfa_positions_max", len(self.follow) + positions_of(node))
        return self.build(node)

    def build(self, node: Node) -> PositionFragment:
        if isinstance(node, Chars):
            bit = {_FREE: 1 << self._position(node.charset)}
            return PositionFragment(frozenset(), bit, bit)
        if isinstance(node, Words):
            return self._words(node)
        if isinstance(node, Anchor):
            return PositionFragment(frozenset({_CONDITION_OF[node.position]}), {}, {})
        if isinstance(node, Look):
            return PositionFragment(frozenset({self._look(node)}), {}, {})
        if isinstance(node, Repeat):
            return self._repeat(node)
        if isinstance(node, Alternation):
            parts = [self.build(item) for item in node.items]
            nullable = frozenset().union(*(part.nullable for part in parts))
            return PositionFragment(nullable, _merge(part.first for part in parts), _merge(part.last for part in parts))
        result = _EMPTY
        for item in node.items:
            result = self._concatenate(result, self.build(item))
        return result

    def finish(self, fragment: PositionFragment) -> CharNfa | None:
        """The automaton of the whole text. None where a condition is on what is read next or was read before."""
        if self.looks or self.conditional or any(condition & FINAL for condition in fragment.first):
            return None
        # A first position under $ would read a character behind the end, and a last one under ^ a character before
        # the start.
        first, last = _allowed_positions(fragment.first, END), _allowed_positions(fragment.last, START)
        return CharNfa(
            sets=tuple(self.sets), position_set=tuple(self.position_set), first=first, last=last,
            follow=tuple(self.follow), nullable=bool(fragment.nullable),
        )

    def _look(self, node: Look) -> int:
        """The condition of a look-around. Equal look-arounds are built once, also those in copies of a repeat."""
        key = (node.item, node.behind)
        if key not in self._look_numbers:
            fragment = self.build_all(node.item)
            self._look_numbers[key] = len(self.looks)
            self.looks.append((node.behind, fragment))
        return LOOK << (2 * self._look_numbers[key] + node.negative)

    def _position(self, char_set: CharSet) -> int:
        if len(self.follow) % _TICK_EVERY == 0:
            self._guard.check_time()
        self.position_set.append(self.sets.setdefault(char_set, len(self.sets)))
        self.follow.append(0)
        return len(self.follow) - 1

    def _words(self, node: Words) -> PositionFragment:
        base, first = len(self.follow), 0
        for char_set, before in zip(node.letters, node.before, strict=True):
            bit = 1 << self._position(char_set)
            # A letter without one before it begins a word; the others follow in their trie.
            if before == NO_LETTER:
                first |= bit
            else:
                self.follow[base + before] |= bit
        last = sum(1 << (base + letter) for letter in node.ends)
        # The trie is written down as it is: its letters are positions, and its edges are `follow`.
        nullable = _UNCONDITIONAL if node.nullable else frozenset[int]()
        return PositionFragment(nullable, {_FREE: first} if first else {}, {_FREE: last} if last else {})

    def _concatenate(self, left: PositionFragment, right: PositionFragment) -> PositionFragment:
        """`left`, then `right`."""
        # The construction's rule for a sequence: first, last and follow of the two sides (Glushkov 1961).
        self._link(left.last, right.first)
        first, last = left.first, right.last
        if left.nullable:
            first = _merge((first, _under_conditions(right.first, left.nullable)))
        if right.nullable:
            last = _merge((last, _under_conditions(left.last, right.nullable)))
        both = frozenset(a | b for a in left.nullable for b in right.nullable)
        return PositionFragment(_UNCONDITIONAL if _FREE in both else both, first, last)

    def _repeat(self, node: Repeat) -> PositionFragment:
        """Bounded repeats are copies, the optional ones nested: x{2,4} is xx(x(x)?)?."""
        if node.maximum == 0:
            return _EMPTY
        result = self.build(node.item)
        if not result.first:  # reads nothing, however often: only its anchors count
            return result if node.minimum else _EMPTY
        # The star: the last positions lead back to the first ones.
        if node.maximum is None:
            self._link(result.last, result.first)
        copies = max(node.minimum, 1) if node.maximum is None else node.maximum
        # From the last copy to the first, so that the optional ones nest to the right.
        for number in range(copies, 0, -1):
            if number < copies:
                result = self._concatenate(self.build(node.item), result)
            if number > node.minimum:
                result = PositionFragment(_UNCONDITIONAL, result.first, result.last)
        return result

    def _link(self, last: ConditionalPositions, first: ConditionalPositions) -> None:
        """Let each position of `first` follow each of `last`. Only pairs whose conditions allow it are linked."""
        for left, sources in last.items():
            for right, targets in first.items():
                condition = left | right
                # Between two characters neither the start nor the end of the text can lie.
                if condition & (START | END):
                    continue
                for position in bits(sources):
                    if condition:
                        following = self.conditional.setdefault(position, {})
                        following[condition] = following.get(condition, 0) | targets
                    else:
                        self.follow[position] |= targets


def _merge(parts: Iterable[ConditionalPositions]) -> ConditionalPositions:
    merged: ConditionalPositions = {}
    for part in parts:
        for condition, positions in part.items():
            merged[condition] = merged.get(condition, 0) | positions
    return merged


def _under_conditions(part: ConditionalPositions, conditions: frozenset[int]) -> ConditionalPositions:
    """Restrict `part` to what follows an empty match under any of `conditions`."""
    # Nothing was demanded on the way, which holds for all patterns without anchors.
    if conditions == _UNCONDITIONAL:
        return part
    return _merge({condition | other: positions} for condition, positions in part.items() for other in conditions)


def _allowed_positions(part: ConditionalPositions, forbidden: int) -> int:
    """The positions under conditions without the bits `forbidden`."""
    positions = 0
    for condition, conditional in part.items():
        if not condition & forbidden:
            positions |= conditional
    return positions


def bits(mask: int) -> list[int]:
    """The positions in a bit set, ascending."""
    # numpy reads the digits of a large mask at once; a small one is read bit by bit.
    if mask.bit_count() > _DENSE:
        digits = np.frombuffer(bin(mask)[:1:-1].encode(), dtype=np.uint8)
        return np.flatnonzero(digits == ord("1")).tolist()
    numbers = []
    while mask:
        low = mask & -mask
        numbers.append(low.bit_length() - 1)
        mask ^= low
    return numbers
