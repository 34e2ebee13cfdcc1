"""Translates patterns to character automata. Glushkov's construction gives positions, the powerset construction over
minterms gives a DFA, which is then minimized.

The symbols of the resulting DFA are minterms, not characters; `compiler.automata.transducers` turns them into bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from compiler.automata import CharSet, Dfa, Minterms, contains, minimize, minterms, single
from compiler.limits import ResourceGuard
from compiler.regex.syntax import NO_LETTER, Alternation, Anchor, Chars, Node, Repeat, Words, parse_pattern

# What the anchors passed on the way between two positions demand, as bits. A condition is their union.
_START = 1  # nothing has been read yet
_END = 2  # nothing is left to read
_FINAL = 4  # nothing is left to read but, perhaps, one newline
_FREE = 0
_CONDITION_OF = {"start": _START, "end": _END, "final": _FINAL}
_TICK_EVERY = 256
_DENSE = 64  # bit sets with more positions than this are unpacked at once
_WIDE = 4  # minterms in a set whose positions are kept apart from the others
_SHARED_MAX = 256  # parts of states that are kept
_SIZE_MAX = 10**15
_DEAD_SET = 0  # nothing may be read and the text may not end here

_ConditionalPositions = dict[int, int]  # condition -> bit set of positions


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


def pattern_dfa(pattern: str, guard: ResourceGuard) -> tuple[Dfa, Minterms]:
    """The minimal DFA of the texts that `re.fullmatch(pattern, text)` accepts.

    Its symbols are the minterms of the pattern.

    Raises what `parse_pattern` raises, and LimitExceeded over `nfa_positions_max` or `dfa_states_max`.

    >>> from compiler.limits import DEFAULT_LIMITS
    >>> dfa, parts = pattern_dfa("[0-9]+", ResourceGuard(DEFAULT_LIMITS))
    >>> dfa.accepts(parts.word("2024")), dfa.accepts(parts.word("20x4"))
    (True, False)
    """
    return node_to_dfa(parse_pattern(pattern, guard), guard)


def node_to_dfa(node: Node, guard: ResourceGuard) -> tuple[Dfa, Minterms]:
    """Our own engine for patterns; raises LimitExceeded as `node_nfa` and `determinize` do."""
    # Glushkov's construction, then the powerset construction.
    return determinize(node_nfa(node, guard), guard)


def node_nfa(node: Node, guard: ResourceGuard) -> CharNfa:
    """The position automaton of a tree. Anchors speak of the whole text.

    Raises LimitExceeded over `nfa_positions_max`, before anything is built.
    """
    with guard.recursion():
        # Counted before anything is built: a{1000}{1000} is refused without its million positions.
        guard.check("nfa_positions_max", _size(node))
        builder = _Builder(guard)
        return builder.finish(builder.build(node))


def _size(node: Node) -> int:
    """The number of positions of a tree with its repeats written out. The count stops at _SIZE_MAX."""
    if isinstance(node, Chars):
        return 1
    if isinstance(node, Words):
        return len(node.letters)
    if isinstance(node, Repeat):
        copies = max(node.minimum, 1) if node.maximum is None else node.maximum
        return min(_size(node.item) * copies, _SIZE_MAX)
    return 0 if isinstance(node, Anchor) else min(sum(map(_size, node.items)), _SIZE_MAX)


@dataclass(frozen=True, slots=True)
class _Fragment:
    """A part of the automaton under construction. `nullable` holds the conditions under which it reads nothing."""

    nullable: frozenset[int]
    first: _ConditionalPositions
    last: _ConditionalPositions


_UNCONDITIONAL = frozenset({_FREE})
_EMPTY = _Fragment(_UNCONDITIONAL, {}, {})


class _Builder:
    """Builds fragments bottom-up. `_follow` and `_follow_final` hold, per position, what may come next.

    Between two positions one character has been read and one will be, so a condition with _START or _END forbids the
    step; _FINAL allows it only for a newline that ends the text. All such newlines act alike and share one position.
    """

    def __init__(self, guard: ResourceGuard) -> None:
        self._guard = guard
        self._sets: dict[CharSet, int] = {}
        self._position_set: list[int] = []
        self._follow: list[int] = []
        self._follow_final: dict[int, int] = {}

    def build(self, node: Node) -> _Fragment:
        if isinstance(node, Chars):
            bit = {_FREE: 1 << self._position(node.charset)}
            return _Fragment(frozenset(), bit, bit)
        if isinstance(node, Words):
            return self._words(node)
        if isinstance(node, Anchor):
            return _Fragment(frozenset({_CONDITION_OF[node.position]}), {}, {})
        if isinstance(node, Repeat):
            return self._repeat(node)
        if isinstance(node, Alternation):
            parts = [self.build(item) for item in node.items]
            nullable = frozenset().union(*(part.nullable for part in parts))
            return _Fragment(nullable, _merge(part.first for part in parts), _merge(part.last for part in parts))
        result = _EMPTY
        for item in node.items:
            result = self._concatenate(result, self.build(item))
        return result

    def finish(self, fragment: _Fragment) -> CharNfa:
        """The automaton of the whole text: every condition is now decided."""
        # A first position under $ would read a character behind the end, and a last one under ^ a character before
        # the start.
        first, last = _allowed_positions(fragment.first, _END | _FINAL), _allowed_positions(fragment.last, _START)
        # Positions that may come first only if they read the one newline that ends the text.
        before_newline = _allowed_positions(fragment.first, _END) & ~first
        newlines = self._newlines() & last if before_newline or self._follow_final else 0
        # One position for all newlines behind a $: what follows it is the end, whatever came before.
        shared = 1 << len(self._follow)
        extra = {position for position, targets in self._follow_final.items() if targets & newlines}
        for position in extra:
            self._follow[position] |= shared
        if before_newline & newlines:
            first |= shared
        if extra or before_newline & newlines:
            self._position(single(ord("\n")))
            last |= shared
        return CharNfa(
            sets=tuple(self._sets), position_set=tuple(self._position_set), first=first, last=last,
            follow=tuple(self._follow), nullable=bool(fragment.nullable),
        )

    def _newlines(self) -> int:
        """The positions that may read a newline."""
        # Decided once for each set, not once for each position.
        holds = [contains(char_set, ord("\n")) for char_set in self._sets]
        return sum(1 << position for position, which in enumerate(self._position_set) if holds[which])

    def _position(self, char_set: CharSet) -> int:
        if len(self._follow) % _TICK_EVERY == 0:
            self._guard.check_time()
        self._position_set.append(self._sets.setdefault(char_set, len(self._sets)))
        self._follow.append(0)
        return len(self._follow) - 1

    def _words(self, node: Words) -> _Fragment:
        base, first = len(self._follow), 0
        for char_set, before in zip(node.letters, node.before, strict=True):
            bit = 1 << self._position(char_set)
            # A letter without one before it begins a word; the others follow in their trie.
            if before == NO_LETTER:
                first |= bit
            else:
                self._follow[base + before] |= bit
        last = sum(1 << (base + letter) for letter in node.ends)
        # The trie is written down as it is: its letters are positions, and its edges are `follow`.
        nullable = _UNCONDITIONAL if node.nullable else frozenset[int]()
        return _Fragment(nullable, {_FREE: first} if first else {}, {_FREE: last} if last else {})

    def _concatenate(self, left: _Fragment, right: _Fragment) -> _Fragment:
        """`left`, then `right`."""
        # The construction's rule for a sequence: first, last and follow of the two sides (Glushkov 1961).
        self._link(left.last, right.first)
        first, last = left.first, right.last
        if left.nullable:
            first = _merge((first, _under_conditions(right.first, left.nullable)))
        if right.nullable:
            last = _merge((last, _under_conditions(left.last, right.nullable)))
        both = frozenset(a | b for a in left.nullable for b in right.nullable)
        return _Fragment(_UNCONDITIONAL if _FREE in both else both, first, last)

    def _repeat(self, node: Repeat) -> _Fragment:
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
                result = _Fragment(_UNCONDITIONAL, result.first, result.last)
        return result

    def _link(self, last: _ConditionalPositions, first: _ConditionalPositions) -> None:
        """Let each position of `first` follow each of `last`. Only pairs whose conditions allow it are linked."""
        for left, sources in last.items():
            for right, targets in first.items():
                condition = left | right
                # Between two characters neither the start nor the end of the text can lie.
                if condition & (_START | _END):
                    continue
                for position in _bits(sources):
                    if condition & _FINAL:
                        self._follow_final[position] = self._follow_final.get(position, 0) | targets
                    else:
                        self._follow[position] |= targets


def _merge(parts: Iterable[_ConditionalPositions]) -> _ConditionalPositions:
    merged: _ConditionalPositions = {}
    for part in parts:
        for condition, positions in part.items():
            merged[condition] = merged.get(condition, 0) | positions
    return merged


def _under_conditions(part: _ConditionalPositions, conditions: frozenset[int]) -> _ConditionalPositions:
    """Restrict `part` to what follows an empty match under any of `conditions`."""
    # Nothing was demanded on the way, which holds for all patterns without anchors.
    if conditions == _UNCONDITIONAL:
        return part
    return _merge({condition | other: positions} for condition, positions in part.items() for other in conditions)


def _allowed_positions(part: _ConditionalPositions, forbidden: int) -> int:
    """The positions under conditions without the bits `forbidden`."""
    positions = 0
    for condition, conditional in part.items():
        if not condition & forbidden:
            positions |= conditional
    return positions


def _bits(mask: int) -> list[int]:
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


def determinize(nfa: CharNfa, guard: ResourceGuard) -> tuple[Dfa, Minterms]:
    """The minimal complete DFA of a position automaton. Its symbols are the minterms of the character sets.

    Raises LimitExceeded over `dfa_states_max` or `table_bytes_max`.
    """
    parts = minterms(nfa.sets)
    # One more bit says that the text may end here. It follows the last positions as if it were a position.
    accept = 1 << nfa.positions
    follow = list(nfa.follow)
    for position in _bits(nfa.last):
        follow[position] |= accept
    start = nfa.first | (accept if nfa.nullable else 0)
    index = {_DEAD_SET: 0, start: 1} if start else {_DEAD_SET: 0}
    step = _Step(tuple(follow), nfa.position_set, parts, start & ~accept)
    order, rows = list(index), []
    # The powerset construction: a state of the DFA is the set of positions that may read next.
    for state in order:  # grows while it is walked
        # The bit of acceptance reads nothing.
        shared, successors = step.successors(state & ~accept)
        # States are numbered in the order in which they are met, also inside the shared row.
        shared.number(successors, index, order)
        row = shared.row.copy()
        for minterm, successor in successors.items():
            row[minterm] = _number(successor, index, order)
        rows.append(row)
        guard.check_time()
        guard.check_table(len(index), parts.count)
    accepting = np.array([bool(state & accept) for state in order])
    table = np.array(rows, dtype=np.int32)
    return minimize(Dfa(np.arange(parts.count, dtype=np.int32), table, accepting, index[start]), guard), parts


def _number(state: int, index: dict[int, int], order: list[int]) -> int:
    number = index.setdefault(state, len(order))
    if number == len(order):
        order.append(state)
    return number


class _SharedTransitions:
    """The transitions of a component that many states share.

    They are the positions after each minterm, and the numbers of those states.

    A state is numbered when it is first met: where every state with this part leads further, it may not exist.
    """

    def __init__(self, successors: dict[int, int], minterms: int) -> None:
        self.successors = successors
        self.row = [_DEAD_SET] * minterms
        self._successors_left = dict(successors)

    def number(self, extra_successors: dict[int, int], index: dict[int, int], order: list[int]) -> None:
        """Number the successors of a state.

        Beyond the shared part, it has other successors only after the minterms in `extra_successors`.
        """
        # The minterms in `extra_successors` lead to larger sets than the shared part alone does.
        for minterm in [minterm for minterm in self._successors_left if minterm not in extra_successors]:
            self.row[minterm] = _number(self._successors_left.pop(minterm), index, order)


class _Step:
    """One step of the powerset construction. A state is the bit set of the positions that may read next.

    Most states of a search (`.*word.*`) have positions in common that read much: those of wide sets, and often those of
    the first state. What these lead to is kept, and only the rest of a state is read.
    """

    def __init__(self, follow: tuple[int, ...], position_set: tuple[int, ...], parts: Minterms, first: int) -> None:
        self._follow = follow
        self._position_set = position_set
        self._members = parts.members
        # Positions of wide sets, such as those of a dot, occur in most states of a search: what they lead to is
        # computed once.
        wide = [len(members) > _WIDE for members in parts.members]
        self._wide_positions = sum(1 << position for position, which in enumerate(position_set) if wide[which])
        self._first = first
        self._minterms = parts.count
        self._cache: dict[int, _SharedTransitions] = {}

    def successors(self, state: int) -> tuple[_SharedTransitions, dict[int, int]]:
        """The shared component of a state, and its other successors.

        The latter are the positions after each minterm that leads elsewhere.
        """
        frequent = self._wide_positions | self._first if state & self._first == self._first else self._wide_positions
        part = state & frequent
        if part not in self._cache:
            # The cache is bounded; dropping all of it is simpler than choosing, and rare.
            if len(self._cache) == _SHARED_MAX:
                self._cache.clear()
            self._cache[part] = _SharedTransitions(self._after(part, {}), self._minterms)
        shared = self._cache[part]
        return shared, self._after(state & ~frequent, shared.successors)

    def _after(self, state: int, extra_successors: dict[int, int]) -> dict[int, int]:
        """The successors of the positions of `state` and `extra_successors`. The keys are minterms."""
        by_set: dict[int, int] = {}
        # Positions with the same character set are read together: one union a set, not one a minterm.
        for position in _bits(state):
            which = self._position_set[position]
            by_set[which] = by_set.get(which, 0) | self._follow[position]
        successors: dict[int, int] = {}
        for which, targets in by_set.items():
            for minterm in self._members[which]:
                earlier = successors.get(minterm)
                successors[minterm] = targets | (extra_successors.get(minterm, 0) if earlier is None else earlier)
        return successors
