"""The positions of a pattern, in order of preference.

The order is that in which a matcher with backtracking tries them. This is Glushkov's construction with lists in place
of sets, for atomic groups. An alternative goes before those to its right, and another turn of a greedy repeat before
its end. A turn that reads nothing is the last one, as in `re`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from compiler.automata import ANYTHING, CharSet, single
from compiler.limits import ResourceGuard
from compiler.regex.bitsets import NO_DEMAND
from compiler.regex.nodes import Alternation, Anchor, AtomicGroup, Chars, Concat, Look, Node, Repeat, Words

EXIT = -1  # in place of a position: what has been read is a match
_STEP_BYTES = 64  # a pair and the reference to it
_NEWLINE = Chars(single(ord("\n")))
# Anchors as look-arounds: these may succeed or fail.
_LOOKS = {
    "start": Look(Chars(ANYTHING), behind=True, negative=True),
    "end": Look(Chars(ANYTHING), behind=False, negative=True),
    "final": Look(Concat((Repeat(_NEWLINE, 0, 1), Anchor("end"))), behind=False, negative=False),
}

Steps: TypeAlias = tuple[tuple[int, int], ...]  # (condition, position or EXIT): the first possible one is tried first
_EMPTY: Steps = ((NO_DEMAND, EXIT),)


@dataclass(frozen=True, slots=True)
class OrderedPositions:
    """Positions and what may follow each of them, in order of preference.

    sets   the characters that each position reads
    entry  the steps before the first character
    after  for each position, the steps behind it
    """

    sets: tuple[CharSet, ...]
    entry: Steps
    after: tuple[Steps, ...]


class Conditions(Protocol):
    """The look-arounds and the atomic groups of a whole pattern."""

    def look(self, node: Look) -> int:
        """The condition that a look-around demands."""

    def atomic_group(self, node: AtomicGroup) -> OrderedPositions:
        """The positions of an atomic group."""


@dataclass(frozen=True, slots=True)
class _Fragment:
    """A part under construction. `ends`: the positions with EXIT among the steps behind them."""

    entry: Steps
    ends: tuple[int, ...] = ()


def ordered_positions(node: Node, conditions: Conditions, guard: ResourceGuard) -> OrderedPositions:
    """The positions of a tree. Raises LimitExceeded over `nfa_positions_max` or `table_bytes_max`."""
    builder = _Builder(conditions, guard)
    entry = builder.build(node).entry
    return OrderedPositions(tuple(builder.sets), entry, tuple(builder.after))


class _Builder:
    """Builds fragments bottom-up. `sets` and `after` are those of OrderedPositions."""

    def __init__(self, conditions: Conditions, guard: ResourceGuard) -> None:
        self._conditions, self._guard = conditions, guard
        self.sets: list[CharSet] = []
        self.after: list[Steps] = []
        self._steps = 0  # that have been written

    def build(self, node: Node) -> _Fragment:
        match node:
            case Chars():
                number = self._add([node.charset], [_EMPTY])
                return _Fragment(((NO_DEMAND, number),), (number,))
            case Anchor():
                return self.build(_LOOKS[node.position])
            case Look():
                return _Fragment(((self._conditions.look(node), EXIT),))
            case AtomicGroup():
                return self._atomic_group(self._conditions.atomic_group(node))
            case Words():
                return self.build(node.spelled())
            case Repeat():
                return self._repeat(node)
            case Alternation():
                parts = [self.build(item) for item in node.items]
                entry = self._distinct(step for part in parts for step in part.entry)
                return _Fragment(entry, tuple(end for part in parts for end in part.ends))
        result = _Fragment(_EMPTY)
        for item in node.items:
            result = self._concatenate(result, self.build(item))
        return result

    def _add(self, sets: Iterable[CharSet], after: Iterable[Steps]) -> int:
        """The number of the first one of new positions."""
        number = len(self.after)
        self.sets += sets
        self.after += after
        self._guard.check("nfa_positions_max", len(self.after))
        return number

    def _atomic_group(self, part: OrderedPositions) -> _Fragment:
        base = len(self.after)

        def moved(steps: Steps) -> Steps:
            return tuple((condition, at if at == EXIT else base + at) for condition, at in steps)

        self._add(part.sets, map(moved, part.after))
        return _Fragment(moved(part.entry), self._ends(range(base, len(self.after))))

    def _repeat(self, node: Repeat) -> _Fragment:
        """Repeats are copies, the optional ones nested: x{2,4} is xx(x(x)?)?."""
        if node.maximum == 0:
            return _Fragment(_EMPTY)
        item = self.build(node.item)
        if not item.ends:  # reads nothing, however often
            return item if node.minimum else _Fragment(self._optional(item.entry, node.lazy), item.ends)
        copies = max(node.minimum, 1) if node.maximum is None else node.maximum
        rest: _Fragment | None = None
        for number in range(copies, 0, -1):
            if number < copies:
                item = self.build(node.item)
            following = rest.entry if rest else _EMPTY
            if node.maximum is None and rest is None:
                following = self._optional(item.entry, node.lazy)
            self._follow(item.ends, following)
            # A mandatory turn that reads nothing is followed by the next turn, an optional one by the end.
            if number > node.minimum:
                entry = self._optional(item.entry, node.lazy)
            else:
                entry = self._replaced(item.entry, following)
            rest = _Fragment(entry, self._ends(item.ends) + (rest.ends if rest else ()))
        assert rest is not None
        return rest

    def _optional(self, entry: Steps, lazy: bool) -> Steps:
        return self._distinct((*_EMPTY, *entry) if lazy else (*entry, *_EMPTY))

    def _concatenate(self, left: _Fragment, right: _Fragment) -> _Fragment:
        """`left`, then `right`."""
        self._follow(left.ends, right.entry)
        return _Fragment(self._replaced(left.entry, right.entry), self._ends(left.ends) + right.ends)

    def _follow(self, ends: Iterable[int], steps: Steps) -> None:
        """Go on with `steps` where the positions `ends` have an exit."""
        for end in ends:
            self.after[end] = self._replaced(self.after[end], steps)

    def _ends(self, positions: Iterable[int]) -> tuple[int, ...]:
        return tuple(each for each in positions if any(at == EXIT for _, at in self.after[each]))

    def _replaced(self, steps: Steps, following: Steps) -> Steps:
        """The steps with `following` in place of each exit."""
        if following == _EMPTY:
            return steps
        pairs = ((step, _EMPTY if step[1] != EXIT else following) for step in steps)
        return self._distinct(
            (condition | further, at if at != EXIT else target)
            for (condition, at), after in pairs
            for further, target in after
        )

    def _distinct(self, steps: Iterable[tuple[int, int]]) -> Steps:
        """The steps without those that an earlier one replaces.

        That one leads to the same position, under fewer conditions.
        """
        earlier: dict[int, list[int]] = {}
        result = []
        for condition, at in steps:
            others = earlier.setdefault(at, [])
            if not any(other & condition == other for other in others):
                others.append(condition)
                result.append((condition, at))
        self._steps += len(result)
        self._guard.check("table_bytes_max", self._steps * _STEP_BYTES)
        self._guard.check_time()
        return tuple(result)
