"""Products of automata over the same columns. Only states that are reachable, and alive in every part, are built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.automata.dfa import Dfa, complement, live_states, minimize
from compiler.automata.interning import unique_rows
from compiler.limits import ResourceGuard

SINK = 0  # the product's state in which some part is dead
_CODES_MAX = 2**62  # of product states; more parts than fit are joined in halves
_CELLS = 2_000_000  # gathered at once: some 16 MB a part, whatever the constraint


@dataclass(frozen=True, slots=True, eq=False)
class ProductGraph:
    """The reachable product. S states, state 0 is SINK; n parts, K columns.

    next_state  int32 [S, K]
    component   int32 [S, n]  the parts' states; what it says of SINK is arbitrary
    starts      the state of each start, SINK where a part is dead there
    """

    next_state: np.ndarray
    component: np.ndarray
    starts: tuple[int, ...]


def explore(
    tables: Sequence[np.ndarray],
    live: Sequence[np.ndarray],
    starts: Sequence[Sequence[int]],
    guard: ResourceGuard,
    *,
    dead: Sequence[int] | None = None,
) -> ProductGraph:
    """The product of transition tables over the same K columns. It starts from each of `starts`, which has one state
    for each part.

    tables  int [S_i, K] each      live  bool [S_i] each: states worth entering
    dead    one state for each part, which together count as SINK although each alone is live: in a union the parts'
            dead states. Parts that do not fit at once keep a state of their own for it.
    Raises LimitExceeded over `dfa_states_max`, `table_bytes_max` or `compile_s_max`.
    """
    if fits([len(table) for table in tables]):
        return _Product(tables, live, guard, dead).build(starts)
    # The codes of all parts together would overflow 64 bits: each half is explored, then the product of the two.
    half = len(tables) // 2
    left = explore(tables[:half], live[:half], [start[:half] for start in starts], guard)
    right = explore(tables[half:], live[half:], [start[half:] for start in starts], guard)
    alive = [np.arange(len(part.next_state)) != SINK for part in (left, right)]
    pairs = list(zip(left.starts, right.starts, strict=True))
    both = _Product([left.next_state, right.next_state], alive, guard).build(pairs)
    # A state of the outer product is a pair of states of the halves, whose components are looked up.
    first, second = both.component.T
    return ProductGraph(both.next_state, np.hstack([left.component[first], right.component[second]]), both.starts)


def fits(states: Sequence[int]) -> bool:
    """Whether parts with these numbers of states can be joined at once.

    Each product state has an integer code, so the product of the numbers must stay below _CODES_MAX.
    """
    return float(np.prod([float(count) for count in states])) < _CODES_MAX


def intersection(parts: Sequence[Dfa], guard: ResourceGuard) -> Dfa:
    """The minimal DFA of the words that every part accepts. All parts read the same symbols.

    Raises ValueError where there is no part or the alphabets differ, LimitExceeded as `explore` does.

    >>> from compiler.automata.counting import count_dfa
    >>> from compiler.limits import DEFAULT_LIMITS
    >>> guard = ResourceGuard(DEFAULT_LIMITS)
    >>> both = intersection([count_dfa([True, False], 1, None, guard), count_dfa([False, True], 0, 1, guard)], guard)
    >>> both.accepts([0, 1, 0]), both.accepts([1]), both.accepts([0, 1, 1])
    (True, False, False)
    """
    if len({part.symbols for part in parts}) != 1:
        raise ValueError("a product needs automata over the same symbols, at least one")
    if len(parts) == 1:
        return parts[0]
    if not fits([part.states for part in parts]):  # each half minimal before the two meet
        half = len(parts) // 2
        return intersection([intersection(parts[:half], guard), intersection(parts[half:], guard)], guard)
    return minimize(product(parts, [live_states(part) for part in parts], guard), guard)


def product(parts: Sequence[Dfa], live: Sequence[np.ndarray], guard: ResourceGuard) -> Dfa:
    """The reachable product of DFAs over the same symbols.

    It accepts the words that every part accepts, and it is not minimal.

    live  bool [S_i] for each part: states that are worth entering; the product merges all others into its dead state
    Raises LimitExceeded as `explore` does.
    """
    if len(parts) == 1:
        return parts[0]
    # Symbols that every part treats alike share a column: the product has as few columns as the parts allow.
    first, symbol_class = unique_rows(np.column_stack([part.symbol_class for part in parts]))
    tables = [part.next_state[:, part.symbol_class[first]] for part in parts]
    explored = explore(tables, live, [[part.start for part in parts]], guard)
    accepting = np.ones(len(explored.component), dtype=bool)
    for number, part in enumerate(parts):
        accepting &= part.accepting[explored.component[:, number]]
    accepting[SINK] = False
    return Dfa(symbol_class.astype(np.int32), explored.next_state, accepting, explored.starts[0])


def union(parts: Sequence[Dfa], guard: ResourceGuard) -> Dfa:
    """The minimal DFA of the words that some part accepts. Raises as `intersection` does."""
    # De Morgan: one construction serves both operations.
    return complement(intersection([complement(part) for part in parts], guard))


class _Product:
    """A product of automata over states in mixed radix. The code past the last one is the sink."""

    def __init__(
        self,
        tables: Sequence[np.ndarray],
        live: Sequence[np.ndarray],
        guard: ResourceGuard,
        dead: Sequence[int] | None = None,
    ) -> None:
        self._tables, self._live, self._guard = tables, live, guard
        self._columns = tables[0].shape[1]
        # A state (s0, s1, ...) has the code s0 + |S0| * (s1 + |S1| * ...).
        radix = [1]
        for table in tables:
            radix.append(radix[-1] * len(table))
        self._radix, self._sink = radix[:-1], radix[-1]
        self._dead = None if dead is None else self._code(dead)

    def build(self, starts: Sequence[Sequence[int]]) -> ProductGraph:
        # Every state with a dead part has the one code `_sink`: the product of dead states is never built.
        number = {self._sink: SINK}
        first = [self._code(start) for start in starts]
        for code in first:
            number.setdefault(code, len(number))
        frontier = np.array(list(number), dtype=np.int64)
        block = max(1, _CELLS // max(1, self._columns))
        tables = []
        # Breadth first, a level in blocks of bounded size.
        while frontier.size:
            fresh: list[int] = []
            for low in range(0, len(frontier), block):
                # Python looks up each distinct code once; a level has far fewer codes than transitions.
                distinct, inverse = np.unique(self._targets(frontier[low : low + block]), return_inverse=True)
                codes = distinct.tolist()
                new = [code for code in codes if code not in number]
                number.update(zip(new, range(len(number), len(number) + len(new)), strict=True))
                numbers = np.array([number[code] for code in codes], dtype=np.int32)
                tables.append(numbers[inverse.reshape(-1, self._columns)])
                fresh += new
                self._guard.check_table(len(number), self._columns)
                self._guard.check_time()
            frontier = np.array(fresh, dtype=np.int64)
        # The dictionary keeps the order of the numbers, so its keys are the codes of states 0, 1, ...
        every = np.array(list(number), dtype=np.int64)
        component = np.column_stack(
            [every // radix % len(table) for table, radix in zip(self._tables, self._radix, strict=True)]
        )
        return ProductGraph(np.concatenate(tables), component.astype(np.int32), tuple(number[code] for code in first))

    def _code(self, start: Sequence[int]) -> int:
        if not all(live[state] for live, state in zip(self._live, start, strict=True)):
            return self._sink
        return sum(state * radix for state, radix in zip(start, self._radix, strict=True))

    def _targets(self, codes: np.ndarray) -> np.ndarray:
        """The codes after each column: int64 [N, K]."""
        targets = np.zeros((len(codes), self._columns), dtype=np.int64)
        dead = np.repeat((codes == self._sink)[:, None], self._columns, axis=1)
        for table, live, radix in zip(self._tables, self._live, self._radix, strict=True):
            # [N, K]: where this part leads from each code.
            following = table[codes // radix % len(table)]
            targets += following.astype(np.int64) * radix
            dead |= ~live[following]
        targets[dead] = self._sink
        if self._dead is not None:
            targets[targets == self._dead] = self._sink
        return targets
