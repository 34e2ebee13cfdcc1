"""DFAs of large repetitions, put together from those of their parts.

The DFA of a repetition is a chain of copies. That takes time in proportion to its states, where the positions of
Glushkov's construction take the square. A join is only made where the next character tells whether a part goes on or
the next one begins; then it needs no powerset construction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compiler.automata import CharSet, Dfa, Minterms, live_states, minimize, minterms
from compiler.limits import ResourceGuard
from compiler.regex.glushkov import PositionBuilder, positions_of
from compiler.regex.nodes import Alternation, Chars, Concat, Node, Repeat, Words, concat, has_condition
from compiler.regex.powerset import determinize

_SMALL = 500  # positions of a pattern, or of a part, that Glushkov's construction translates
_DEAD, _START = 0, 1


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """The DFA of a part. No transition leads to its start.

    table      int32 [S, M], with the states _DEAD and _START; nothing is accepted from _DEAD
    accepting  bool  [S]
    """

    table: np.ndarray
    accepting: np.ndarray

    def may_precede(self, other: _Part) -> bool:
        """Whether the next character tells where this part ends."""
        going_on = self.table[self.accepting].any(axis=0)
        return not (going_on & (other.table[_START] != _DEAD)).any()


def counted_dfa(node: Node, guard: ResourceGuard) -> tuple[Dfa, Minterms] | None:
    """The minimal DFA of a tree with large repetitions.

    None where the tree is small, or the next character does not decide at a join.

    Raises LimitExceeded over `dfa_states_max` or `table_bytes_max`.
    """
    if positions_of(node) <= _SMALL:
        return None
    parts = minterms([*dict.fromkeys(_charsets(node))])
    part = _Joiner(parts, guard).build(node)
    if part is None:
        return None
    symbols = np.arange(parts.count, dtype=np.int32)
    return minimize(Dfa(symbols, part.table, part.accepting, _START), guard), parts


def _charsets(node: Node) -> Iterator[CharSet]:
    match node:
        case Chars():
            yield node.charset
        case Words():
            yield from node.letters
        case Concat() | Alternation():
            for item in node.items:
                yield from _charsets(item)
        case Repeat() if node.maximum != 0:
            yield from _charsets(node.item)


class _Joiner:
    """Builds the parts of one tree over its minterms."""

    def __init__(self, parts: Minterms, guard: ResourceGuard) -> None:
        self._parts, self._guard = parts, guard
        self._characters = np.array([ord(parts.representative(number)) for number in range(parts.count)])

    def build(self, node: Node) -> _Part | None:
        """The part of a tree. None where it cannot be put together."""
        self._guard.check_time()
        if positions_of(node) <= _SMALL:
            return self._small(node)
        match node:
            case Concat():
                return self._sequence(node.items)
            case Alternation():
                return self._fold(node.items, self._either)
            case Repeat():
                item = self.build(node.item)
                return None if item is None else self._repeat(item, node.minimum, node.maximum)
        return None

    def _small(self, node: Node) -> _Part | None:
        """The part of a tree by Glushkov's construction. None where it holds an anchor or a look-around."""
        if has_condition(node):
            return None
        builder = PositionBuilder(self._guard)
        nfa = builder.finish(builder.build_all(node))
        assert nfa is not None  # which only conditions cause
        dfa, own_parts = determinize(nfa, self._guard)
        columns = dfa.symbol_class[own_parts.of(self._characters)]
        # The start is copied where a transition leads to it.
        live = live_states(dfa)
        live[dfa.start] &= bool((dfa.next_state[live] == dfa.start).any())
        order = np.append(dfa.start, np.flatnonzero(live))
        number = np.zeros(dfa.states, dtype=np.int32)
        number[order[1:]] = _START + 1 + np.arange(len(order) - 1)
        rows = number[dfa.next_state[order][:, columns]]
        return _Part(np.concatenate([np.zeros_like(rows[:1]), rows]), np.append(False, dfa.accepting[order]))

    def _sequence(self, items: Sequence[Node]) -> _Part | None:
        """The items one after the other. Small neighbours are translated together."""
        groups: list[list[Node]] = [[]]
        size = 0
        for item in items:
            size += positions_of(item)
            if groups[-1] and size > _SMALL:
                groups.append([])
                size = positions_of(item)
            groups[-1].append(item)
        return self._fold(map(concat, groups), self._then)

    def _fold(self, nodes: Iterable[Node], join: Callable[[_Part, _Part], _Part | None]) -> _Part | None:
        joined: _Part | None = None
        for node in nodes:
            part = self.build(node)
            joined = join(joined, part) if joined and part else part
            if joined is None:
                return None
        return joined

    def _then(self, left: _Part, right: _Part) -> _Part | None:
        """`left`, then `right`."""
        if not left.may_precede(right):
            return None
        table, accepting, offset = self._side_by_side(left, right)
        ends = np.flatnonzero(left.accepting)
        table[ends] = np.maximum(table[ends], table[offset + _START])
        accepting[ends] = right.accepting[_START]
        return _Part(table, accepting)

    def _either(self, left: _Part, right: _Part) -> _Part | None:
        """`left` or `right`, which the first character tells apart."""
        if ((left.table[_START] != _DEAD) & (right.table[_START] != _DEAD)).any():
            return None
        table, accepting, offset = self._side_by_side(left, right)
        table[_START] = np.maximum(table[_START], table[offset + _START])
        accepting[_START] |= right.accepting[_START]
        return _Part(table, accepting)

    def _side_by_side(self, left: _Part, right: _Part) -> tuple[np.ndarray, np.ndarray, int]:
        """The states of both, and what to add to those of `right`."""
        offset = len(left.table) - 1
        self._check(offset + len(right.table))
        shifted = np.where(right.table == _DEAD, _DEAD, right.table + offset)
        return np.concatenate([left.table, shifted[1:]]), np.concatenate([left.accepting, right.accepting[1:]]), offset

    def _repeat(self, item: _Part, minimum: int, maximum: int | None) -> _Part | None:
        """The item `minimum` to `maximum` times."""
        minimum = 0 if item.accepting[_START] else minimum
        item = replace(item, accepting=item.accepting & (np.arange(len(item.table)) != _START))
        if not item.may_precede(item):
            return None
        copies = max(minimum, 1) if maximum is None else maximum
        body = len(item.table) - 2  # the states of a copy: all share one start
        self._check(2 + copies * body)
        # [copies, body, M]: the rows of each copy, whose states follow those of the copy before.
        shift = body * np.arange(copies, dtype=np.int32)[:, None, None]
        rows = np.where(item.table[2:] == _DEAD, _DEAD, item.table[2:] + shift)
        ends = np.flatnonzero(item.accepting[2:])
        # Behind a copy the next one begins; without a maximum the last one begins again.
        following = shift[1:, 0] if maximum is not None else np.concatenate([shift[1:, 0], shift[-1:, 0]])
        begins = np.where(item.table[_START] == _DEAD, _DEAD, item.table[_START] + following)
        rows[: len(begins), ends] = np.maximum(rows[: len(begins), ends], begins[:, None])
        accepting = np.zeros((copies, body), dtype=bool)
        accepting[max(minimum - 1, 0) :, ends] = True
        head = np.stack([np.zeros_like(item.table[0]), item.table[_START]])
        return _Part(
            np.concatenate([head, rows.reshape(-1, self._parts.count)]),
            np.concatenate([[False, minimum == 0], accepting.reshape(-1)]),
        )

    def _check(self, states: int) -> None:
        self._guard.check_time()
        self._guard.check_table(states, self._parts.count)
