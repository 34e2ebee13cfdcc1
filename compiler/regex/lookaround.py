"""Patterns with conditions inside the text, such as look-arounds, to DFAs.

What follows a place decides a look-ahead, so a position is reached together with obligations on the rest of the text.
The obligations are states of further automata, which are determinized as they are met; a negative look-ahead is the
complement of one. A state of the whole is a set of pairs of obligations and positions, as in the powerset construction
of an alternating automaton (Chandra, Kozen and Stockmeyer 1981). Of two pairs with one position the one with fewer
obligations implies the other. A look-behind is decided by what was read: its automaton starts again at each place and
is followed beside the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TypeAlias

import numpy as np

from compiler.automata import Dfa, Minterms, minimize, minterms, single
from compiler.limits import ResourceGuard
from compiler.regex.bitsets import END, FINAL, LOOK, START, bits
from compiler.regex.glushkov import PositionBuilder, PositionFragment
from compiler.regex.powerset import PowersetStep

# Obligations are a bit set: bit 2 * n is that formula n holds of the rest of the text, bit 2 * n + 1 that it does not.
_NOTHING_LEFT = 1  # formula 0
_NONE = 0
_MANY = 64  # pairs of a formula, from which on the time is looked at in between
Formula: TypeAlias = dict[int, int]  # obligations -> bit set of positions; any pair with one position suffices
_Key: TypeAlias = frozenset[tuple[int, int]]


def conditional_dfa(builder: PositionBuilder, pattern: PositionFragment, guard: ResourceGuard) -> tuple[Dfa, Minterms]:
    """The minimal DFA of the texts that a pattern matches. Its symbols are the minterms of the pattern.

    Raises LimitExceeded over `dfa_states_max`, `table_bytes_max`, `compile_s_max` or `nesting_depth_max`.
    """
    with guard.recursion():
        return _Construction(builder, pattern, guard).build()


class _Construction:
    """The powerset construction. A state is what the look-behinds have read, and a formula on the rest of the text.

    matched   the bit of the position after a match, which may read anything
    ended     the bit of the position at the end of the text, which reads nothing
    newline   the bit of the position that reads a newline at the end
    steps     for some positions, those behind them under conditions
    reads     for each minterm the positions that read it
    formulas  the formulas that obligations refer to
    """

    def __init__(self, builder: PositionBuilder, pattern: PositionFragment, guard: ResourceGuard) -> None:
        self.looks, self.guard, self.parts = builder.looks, guard, minterms([*builder.sets, single(ord("\n"))])
        self.newline, self.ended, self.matched = (1 << len(builder.follow) + number for number in range(3))
        self.steps = {position: list(following.items()) for position, following in builder.conditional.items()}
        follow, position_set = [*builder.follow, self.ended], (*builder.position_set, len(builder.sets))
        goals = [(pattern, self.ended), *((look, self.matched) for behind, look in builder.looks if not behind)]
        for fragment, goal in goals:
            for condition, positions in fragment.last.items():
                for position in bits(positions):
                    if condition:
                        self.steps.setdefault(position, []).append((condition, goal))
                    else:
                        follow[position] |= goal
        self._step = PowersetStep(tuple(follow), position_set, self.parts, 0)
        self._successors: dict[int, dict[int, int]] = {}
        self.conditional = sum(1 << position for position in self.steps)
        by_set = [0] * len(self.parts.members)
        for position, which in enumerate(position_set):
            by_set[which] |= 1 << position
        self.reads = [0] * self.parts.count
        for members, positions in zip(self.parts.members, by_set, strict=True):
            for minterm in members:
                self.reads[minterm] |= positions
        self._pattern = pattern
        self.formulas: list[Formula] = [{_NONE: self.ended}]
        self._numbers = {_key(self.formulas[0]): 0}
        self._ends = {0: True}

    def build(self) -> tuple[Dfa, Minterms]:
        place = _Place(self, None, {})
        formula = place.entered(self._pattern, self.ended)
        states, index = [(place.behind, {}), (place.behind, formula)], {(place.behind, _key(formula)): 1}
        places: dict[_Key, list[_Place]] = {}
        rows: list[list[int]] = []
        for behind, formula in states:  # grows while it is walked
            row = [0] * self.parts.count
            if formula and behind not in places:
                places[behind] = [_Place(self, minterm, dict(behind)) for minterm in range(self.parts.count)]
            for minterm, place in enumerate(places[behind] if formula else ()):
                # Where nothing can match any more, what the look-behinds have read is of no interest.
                if following := place.after(formula):
                    state = (place.behind, _key(following))
                    row[minterm] = index.setdefault(state, len(states))
                    if row[minterm] == len(states):
                        states.append((place.behind, following))
            rows.append(row)
            self.guard.check_time()
            self.guard.check_table(len(states), self.parts.count)
        accepting = np.array([self._ends_with(formula) for _, formula in states])
        table = np.array(rows, dtype=np.int32)
        return minimize(Dfa(np.arange(self.parts.count, dtype=np.int32), table, accepting, 1), self.guard), self.parts

    def successors(self, positions: int) -> dict[int, int]:
        """The positions behind these without a condition, by minterm."""
        if positions not in self._successors:
            self._successors[positions] = self._step.after(positions & self.newline * 2 - 1, {})
        return self._successors[positions]

    def obligation(self, formula: Formula) -> int | None:
        """The obligation that a formula holds. None where it never does."""
        if not formula:
            return None
        # A formula that holds under one obligation is that obligation.
        if len(formula) == 1 and self.matched in formula.values():
            obligations = next(iter(formula))
            if obligations.bit_count() < 2:
                return obligations
        number = self._numbers.setdefault(_key(formula), len(self.formulas))
        if number == len(self.formulas):
            self.formulas.append(formula)
            self.guard.check("dfa_states_max", number)
        return 1 << 2 * number

    def negation(self, obligation: int | None) -> int | None:
        """The obligation that holds where a single one does not."""
        if not obligation:
            return _NONE if obligation is None else None
        return 1 << (obligation.bit_length() - 1 ^ 1)

    def formula(self, pairs: Iterable[tuple[int, int]]) -> Formula:
        """Pairs of obligations and positions without those that others imply."""
        merged: Formula = {}
        for obligations, positions in pairs:
            merged[obligations] = merged.get(obligations, 0) | positions
        result: Formula = {}
        # Each pair is compared with all others.
        for obligations, positions in merged.items():
            if len(merged) > _MANY:
                self.guard.check_time()
            if obligations & _NOTHING_LEFT:
                positions &= self.matched | self.ended
            for others, implied in merged.items():
                if others != obligations and others & obligations == others:
                    positions = 0 if implied & self.matched else positions & ~implied
            if positions:
                result[obligations] = self.matched if positions & self.matched else positions
        return result

    def _ends_with(self, formula: Formula) -> bool:
        """Whether a formula holds where the text ends."""
        return any(
            positions & (self.matched | self.ended) and all(self._ends_so(number) for number in bits(obligations))
            for obligations, positions in formula.items()
        )

    def _ends_so(self, number: int) -> bool:
        formula, negative = divmod(number, 2)
        if formula not in self._ends:
            self._ends[formula] = self._ends_with(self.formulas[formula])
        return self._ends[formula] != bool(negative)


class _Place:
    """A place between two characters. It decides the conditions there, as obligations on the rest of the text.

    minterm  the character before it, None at the start
    read     what the look-behinds may read at the place before it
    """

    def __init__(self, table: _Construction, minterm: int | None, read: Formula) -> None:
        self._table, self._start, self._minterm, self._read = table, minterm is None, minterm or 0, read
        self._reads = 0 if minterm is None else table.reads[minterm]
        self._conditions: dict[int, int | None] = {_NONE: _NONE}
        self._successors: dict[int, int | None] = {0: None}  # after a character there was something left

    def entered(self, fragment: PositionFragment, goal: int) -> Formula:
        """What has to follow if an automaton starts here. `goal` is the position after its last ones."""
        pairs = [*fragment.first.items(), *((condition, goal) for condition in fragment.nullable)]
        return self._table.formula(self._allowed(_NONE, pairs))

    def after(self, formula: Formula) -> Formula:
        """What a formula of the place before demands here."""
        return self._table.formula(self._advanced(formula))

    @cached_property
    def behind(self) -> _Key:
        """What the look-behinds may read next."""
        starts = [pair for behind, look in self._table.looks if behind for pair in look.first.items()]
        return _key(self._table.formula([*self._advanced(self._read), *self._allowed(_NONE, starts)]))

    def _advanced(self, formula: Formula) -> Iterable[tuple[int, int]]:
        for obligations, positions in formula.items():
            remaining = self._advance(obligations)
            if remaining is None:
                continue
            if positions & self._table.matched:
                yield remaining, self._table.matched
            if read := positions & self._reads:
                yield remaining, self._table.successors(positions)[self._minterm]
            for position in bits(read & self._table.conditional):
                yield from self._allowed(remaining, self._table.steps[position])

    def _allowed(self, obligations: int, steps: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
        """The obligations with those of each step's condition, and the step's positions."""
        for condition, positions in steps:
            demanded = self._condition(condition)
            if demanded is not None and (both := _conjunction(obligations, demanded)) is not None:
                yield both, positions

    def _condition(self, condition: int) -> int | None:
        """The obligations under which a condition holds here. None where it does not."""
        if condition not in self._conditions:
            self._conditions[condition] = self._decide(condition)
        return self._conditions[condition]

    def _decide(self, condition: int) -> int | None:
        if condition & START and not self._start:
            return None
        obligations: int | None = _NOTHING_LEFT if condition & END else _NONE
        if condition & FINAL:
            final = self._table.obligation({_NONE: self._table.ended | self._table.newline})
            obligations = _conjunction(obligations, final)
        for number in bits(condition // LOOK):
            look, negative = divmod(number, 2)
            demanded = self._table.obligation(self._look(look))
            obligations = _conjunction(obligations, self._table.negation(demanded) if negative else demanded)
        return obligations

    def _look(self, number: int) -> Formula:
        """What has to follow if a look-around is to succeed here."""
        behind, look = self._table.looks[number]
        if not behind:
            return self.entered(look, self._table.matched)
        matched = self._table.matched
        pairs = list(self._allowed(_NONE, ((condition, matched) for condition in look.nullable)))
        for obligations, positions in self._read.items():
            # Of what the look-behinds read, only this one's ends are looked at: others may depend on its verdict.
            ends = [
                (condition, matched)
                for condition, last in look.last.items()
                if positions & self._reads & last
            ]  # fmt: skip
            if ends and (remaining := self._advance(obligations)) is not None:
                pairs += self._allowed(remaining, ends)
        return self._table.formula(pairs)

    def _advance(self, obligations: int) -> int | None:
        """The obligations at the place before, as obligations here. None where they cannot be met."""
        result: int | None = _NONE
        for number in bits(obligations):
            formula, negative = divmod(number, 2)
            if formula not in self._successors:
                self._successors[formula] = self._table.obligation(self.after(self._table.formulas[formula]))
            successor = self._successors[formula]
            result = _conjunction(result, self._table.negation(successor) if negative else successor)
        return result


def _conjunction(left: int | None, right: int | None) -> int | None:
    """Both obligations. None where they exclude each other, or one of them cannot be met."""
    if left is None or right is None:
        return None
    both = left | right
    # A bit with an even number and the one behind it contradict each other.
    return None if any(not number & 1 and both >> number + 1 & 1 for number in bits(both & both >> 1)) else both


def _key(formula: Formula) -> _Key:
    return frozenset(formula.items())
