"""Glushkov's construction: the positions of a pattern, and their order.

Anchors and look-arounds are conditions on the way from one position to the next. Where only the ends of the text have
conditions the result is a position automaton; else `compiler.regex.lookaround` reads the conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compiler.automata import CharSet
from compiler.limits import ResourceGuard
from compiler.regex.atomic import first_match
from compiler.regex.bitsets import END, FINAL, LOOK, NO_DEMAND, START, bits
from compiler.regex.nodes import NO_LETTER, Alternation, Anchor, AtomicGroup, Chars, Look, Node, Repeat, Words
from compiler.regex.preferences import EXIT, OrderedPositions, Steps

_CONDITION_OF = {"start": START, "end": END, "final": FINAL}
_TICK_EVERY = 256
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
    if isinstance(node, AtomicGroup):  # its positions are counted once more where they are known
        return positions_of(node.item)
    # A look-around is counted where it is built: all its copies are one.
    return 0 if isinstance(node, Anchor | Look) else min(sum(map(positions_of, node.items)), _SIZE_MAX)


@dataclass(frozen=True, slots=True)
class PositionFragment:
    """A part of the automaton under construction. `nullable` holds the conditions under which it reads nothing."""

    nullable: frozenset[int]
    first: ConditionalPositions
    last: ConditionalPositions


_UNCONDITIONAL = frozenset({NO_DEMAND})
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
        self._atomic_groups: dict[AtomicGroup, OrderedPositions] = {}

    def build_all(self, node: Node) -> PositionFragment:
        """The fragment of a tree. Raises LimitExceeded over `nfa_positions_max`, before its positions are built."""
        # Counted before anything is built: a{1000}{1000} is refused without its million positions.
        self._guard.check("nfa_positions_max", len(self.follow) + positions_of(node))
        return self.build(node)

    def build(self, node: Node) -> PositionFragment:
        if isinstance(node, Chars):
            bit = {NO_DEMAND: 1 << self._position(node.charset)}
            return PositionFragment(frozenset(), bit, bit)
        if isinstance(node, Words):
            return self._words(node)
        if isinstance(node, Anchor):
            return PositionFragment(frozenset({_CONDITION_OF[node.position]}), {}, {})
        if isinstance(node, Look):
            return PositionFragment(frozenset({self.look(node)}), {}, {})
        if isinstance(node, AtomicGroup):
            return self._place(self.atomic_group(node))
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

    def look(self, node: Look) -> int:
        """The condition of a look-around. Equal look-arounds are built once, also those in copies of a repeat."""
        key = (node.item, node.behind)
        if key not in self._look_numbers:
            fragment = self.build_all(node.item)
            self._look_numbers[key] = len(self.looks)
            self.looks.append((node.behind, fragment))
        return LOOK << (2 * self._look_numbers[key] + node.negative)

    def atomic_group(self, node: AtomicGroup) -> OrderedPositions:
        """The positions of an atomic group. All its copies share their look-aheads."""
        if node not in self._atomic_groups:
            self._atomic_groups[node] = first_match(node, self, self._guard)
        return self._atomic_groups[node]

    def look_aheads(self, part: OrderedPositions, entries: Sequence[Steps]) -> list[int]:
        """The conditions of new look-aheads, one for each entry of a part."""
        base, last = len(self.follow), self._place(part).last
        numbers = range(len(self.looks), len(self.looks) + len(entries))
        for entry in entries:
            exits, first = _split(entry, base)
            self.looks.append((False, PositionFragment(frozenset(exits), first, last)))
        return [LOOK << 2 * number for number in numbers]

    def _place(self, part: OrderedPositions) -> PositionFragment:
        """The fragment of a part whose order does not matter."""
        base = len(self.follow)
        self._guard.check("nfa_positions_max", base + len(part.sets))
        for char_set in part.sets:
            self._position(char_set)
        last: ConditionalPositions = {}
        for position, steps in enumerate(part.after, base):
            exits, following = _split(steps, base)
            for condition in exits:
                last[condition] = last.get(condition, 0) | 1 << position
            self._link({NO_DEMAND: 1 << position}, following)
        exits, first = _split(part.entry, base)
        return PositionFragment(frozenset(exits), first, last)

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
        return PositionFragment(nullable, {NO_DEMAND: first} if first else {}, {NO_DEMAND: last} if last else {})

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
        return PositionFragment(_UNCONDITIONAL if NO_DEMAND in both else both, first, last)

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


def _split(steps: Steps, base: int) -> tuple[list[int], ConditionalPositions]:
    """The conditions of the exits, and the other steps. `base` is the number of the part's first position."""
    exits = [condition for condition, at in steps if at == EXIT]
    return exits, _merge({condition: 1 << base + at} for condition, at in steps if at != EXIT)


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
