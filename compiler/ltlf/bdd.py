"""Monotone Boolean functions as binary decision diagrams. Knows nothing of formulas: variables are numbers.

A node reads `low | (variable & high)`, and low implies high; the greatest variable is on top. There is no negation.
Equal functions are one node, so comparing functions is comparing numbers. Nothing here recurses, as a formula of
some thousand characters gives diagrams deeper than Python's stack.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.limits import ResourceGuard

FALSE, TRUE = 0, 1
_CONSTANT = -1  # the variable of FALSE and TRUE: below every real one
_CHECK_EVERY = 1_024  # new nodes and remembered results between two looks at the guard


class MonotoneBdd:
    """A growing set of shared nodes. `variable[i]`, `low[i]` and `high[i]` describe node i, which comes after its
    children.

    Every method that makes nodes raises LimitExceeded over bdd_nodes_max (nodes and remembered results) or
    compile_s_max.

    >>> from compiler.limits import DEFAULT_LIMITS
    >>> bdd = MonotoneBdd(ResourceGuard(DEFAULT_LIMITS))
    >>> a, b = bdd.atom(0), bdd.atom(1)
    >>> bdd.disjoin(a, bdd.conjoin(a, b)) == a  # equal functions are one node
    True
    """

    def __init__(self, guard: ResourceGuard) -> None:
        self._guard = guard
        self.variable = [_CONSTANT, _CONSTANT]
        self.low = [FALSE, TRUE]
        self.high = [FALSE, TRUE]
        self._unique: dict[tuple[int, int, int], int] = {}
        self._results: tuple[dict[tuple[int, int], int], ...] = ({}, {})  # of disjoin, of conjoin
        self._size = 0
        self._next_look = _CHECK_EVERY

    def node(self, variable: int, low: int, high: int) -> int:
        """The function `low | (variable & high)`. Both children test smaller variables only, and low implies high."""
        # The reduction rule: a node whose children are equal does not depend on its variable.
        if low == high:
            return low
        key = (variable, low, high)
        index = self._unique.get(key)
        if index is None:
            index = self._unique[key] = len(self.variable)
            self.variable.append(variable)
            self.low.append(low)
            self.high.append(high)
            self._grow(1)
        return index

    def atom(self, variable: int) -> int:
        """The function that is the variable itself."""
        return self.node(variable, FALSE, TRUE)

    def disjoin(self, left: int, right: int) -> int:
        return self._apply(left, right, FALSE)

    def conjoin(self, left: int, right: int) -> int:
        return self._apply(left, right, TRUE)

    def substitute(self, function: int, values: Sequence[int], results: dict[int, int]) -> int:
        """The function with every variable v replaced by the function `values[v]`.

        `results` remembers what nodes became under this one substitution; share it between calls.
        """
        results.setdefault(FALSE, FALSE)
        results.setdefault(TRUE, TRUE)
        new_nodes = self._new_nodes(function, results)
        self._grow(len(new_nodes))
        for index in new_nodes:
            # Shannon's expansion of a monotone function: low | (variable & high).
            high_branch = self.conjoin(values[self.variable[index]], results[self.high[index]])
            results[index] = self.disjoin(results[self.low[index]], high_branch)
        return results[function]

    def holds(self, function: int, values: Sequence[bool], results: dict[int, bool]) -> bool:
        """The function's truth under an assignment.

        Variable v has the value `values[v]`; `results` as for `substitute`.
        """
        results.setdefault(FALSE, False)
        results.setdefault(TRUE, True)
        for index in self._new_nodes(function, results):
            high_branch = values[self.variable[index]] and results[self.high[index]]
            results[index] = results[self.low[index]] or high_branch
        return results[function]

    def _new_nodes(self, function: int, seen: dict[int, int] | dict[int, bool]) -> list[int]:
        """The nodes below `function` that are not in `seen`.

        Children come first, since they have the smaller numbers.
        """
        if function in seen:
            return []
        nodes = {function}
        pending = [function]
        while pending:
            index = pending.pop()
            for child in (self.low[index], self.high[index]):
                if child not in seen and child not in nodes:
                    nodes.add(child)
                    pending.append(child)
        return sorted(nodes)

    def _apply(self, left: int, right: int, unit: int) -> int:
        """The disjunction (unit FALSE) or the conjunction (unit TRUE) of two functions."""
        result = _trivial_result(left, right, unit)
        if result is not None:
            return result
        results = self._results[unit]
        # Both operations commute: a sorted pair is remembered once.
        root = (left, right) if left < right else (right, left)
        pending = [] if root in results else [root]
        while pending:
            pair = pending[-1]
            top, lows, highs = self._cofactors(*pair)
            low, high = self._result(lows, unit), self._result(highs, unit)
            if low is None:
                pending.append(lows)
            if high is None:
                pending.append(highs)
            if low is not None and high is not None:
                pending.pop()
                results[pair] = self.node(top, low, high)
                self._grow(1)
        return results[root]

    def _result(self, pair: tuple[int, int], unit: int) -> int | None:
        result = _trivial_result(*pair, unit)
        return self._results[unit].get(pair) if result is None else result

    def _cofactors(self, left: int, right: int) -> tuple[int, tuple[int, int], tuple[int, int]]:
        """The Shannon cofactors of two nodes by their top variable. Returns the variable, and the sorted pairs of the
        nodes' parts where it is false and where it is true.
        """
        # A node with a smaller variable does not test the top one: it is its own cofactor on both sides.
        above = self.variable[left] - self.variable[right]
        low_left, high_left = (self.low[left], self.high[left]) if above >= 0 else (left, left)
        low_right, high_right = (self.low[right], self.high[right]) if above <= 0 else (right, right)
        lows = (low_left, low_right) if low_left < low_right else (low_right, low_left)
        highs = (high_left, high_right) if high_left < high_right else (high_right, high_left)
        return self.variable[left if above >= 0 else right], lows, highs

    def _grow(self, entries: int) -> None:
        """Report to the guard. A remembered result costs what a node costs, or the cap would not bound the memory."""
        self._size += entries
        if self._size >= self._next_look:
            self._next_look = self._size + _CHECK_EVERY
            self._guard.check("bdd_nodes_max", self._size)
            self._guard.check_time()


def _trivial_result(left: int, right: int, unit: int) -> int | None:
    """The result of joining two functions where it is plain, else None."""
    # x | FALSE = x and x | TRUE = TRUE; for & the two constants swap.
    absorbing = TRUE - unit
    if left == right or right == unit:
        return left
    if left == unit:
        return right
    return absorbing if absorbing in (left, right) else None
