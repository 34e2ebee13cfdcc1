"""DFAs that count symbols, keywords or sentences. Keywords may be counted in order.

The symbols are indices of given letters. Knows nothing of what they stand for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from compiler.automata.dfa import Dfa, minimize
from compiler.automata.interning import unique_rows
from compiler.automata.products import SINK, intersection
from compiler.limits import ResourceGuard

Bounds: TypeAlias = tuple[int, int | None]  # at least, and at most where there is a bound
_CELL_BYTES = 48  # a cell of a table, with what its minimization needs beside it


def count_dfa(counted: Sequence[bool] | np.ndarray, minimum: int, maximum: int | None, guard: ResourceGuard) -> Dfa:
    """The minimal DFA of the words with `minimum` to `maximum` counted symbols. None is no upper bound.

    It is written down in its canonical form: to minimise a chain of thousands of states takes a round for each.

    counted  for each symbol whether it counts
    Raises ValueError for a bound below 0 or no symbols, LimitExceeded over `dfa_states_max`.

    >>> from compiler.limits import DEFAULT_LIMITS
    >>> dfa = count_dfa([True, False], 1, 2, ResourceGuard(DEFAULT_LIMITS))  # one or two of symbol 0, any of symbol 1
    >>> [dfa.accepts(word) for word in ([1], [0, 1], [0, 1, 0], [0, 0, 0])]
    [False, True, True, False]
    """
    _check_bounds(minimum, maximum)
    symbols = _symbols(counted)
    top = minimum if maximum is None else maximum + 1  # all counts from here on are alike
    if not symbols.any() or (maximum is not None and maximum < minimum):
        accepts_all = minimum == 0  # without a counted symbol; bounds that exclude each other have a minimum
        return Dfa(np.zeros_like(symbols), np.zeros((1, 1), dtype=np.int32), np.array([accepts_all]), 0)
    guard.check("dfa_states_max", top + 1)
    here = np.arange(top + 1)
    accepting = here >= minimum if maximum is None else (here >= minimum) & (here <= maximum)
    columns = np.column_stack([here, np.minimum(here + 1, top)])
    # The columns are numbered by their first symbol, as `minimize` numbers them.
    kinds = symbols if top else np.zeros_like(symbols)  # with one state all columns are equal
    first, symbol_class = unique_rows(kinds.reshape(-1, 1))
    return Dfa(symbol_class.astype(np.int32), columns[:, kinds[first]].astype(np.int32), accepting, 0)


def _check_bounds(minimum: int, maximum: int | None) -> None:
    if minimum < 0 or (maximum is not None and maximum < 0):
        raise ValueError("a count is not negative")


def _symbols(classes: Sequence[bool] | np.ndarray) -> np.ndarray:
    """The column of each symbol: int32 [A]."""
    if not len(classes):
        raise ValueError("a DFA that counts needs at least one symbol")
    return np.asarray(classes, dtype=np.int32)


def keyword_counts_dfa(
    letters: Sequence[frozenset[str]],
    guard: ResourceGuard,
    *,
    names: Sequence[str],
    bounds: Sequence[Bounds],
    ordered: bool,
) -> Dfa:
    """The minimal DFA of words in which each name's count is bounded. Symbol i is letters[i].

    With `ordered`, names whose minimum is 0 have no duty beyond their maximum. The others are met one after the other:
    where a name occurs, each name before it has by then, that step included, occurred as often as its minimum says;
    and towards its own minimum it counts only from the step after the completion of the name before it. A name
    may stand twice: in order, its second duty begins after its first.

    Raises ValueError for a bound below 0 or no letters, LimitExceeded over `dfa_states_max`,
    `table_bytes_max` or `compile_s_max`.
    """
    if len(names) != len(bounds):
        raise ValueError("each name has its bounds")
    for minimum, maximum in bounds:
        _check_bounds(minimum, maximum)
    holds = np.array([[name in letter for letter in letters] for name in names], dtype=bool)
    holds = holds.reshape(len(names), len(letters))  # [J, A]
    if not ordered:
        return _counts(holds, bounds, guard)
    # Minima are met in order, by one chain; maxima need no order, and are counted beside it.
    duties = [number for number, (minimum, _) in enumerate(bounds) if minimum > 0]
    chain = _in_order([names[number] for number in duties], holds[duties], [bounds[duty][0] for duty in duties], guard)
    capped = [number for number, (_, maximum) in enumerate(bounds) if maximum is not None]
    if not capped:
        return chain
    most = _counts(holds[capped], [(0, bounds[number][1]) for number in capped], guard)
    return intersection([chain, most], guard)


def _columns(holds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct columns of `holds` [J, A], and each symbol's column. The latter is int32 [A]."""
    _symbols(holds[0] if len(holds) else np.zeros(holds.shape[1]))
    # Letters at which the same names hold share a column.
    rows = np.concatenate([np.ones((1, holds.shape[1]), dtype=np.int64), holds])  # so that no column is empty
    first, symbol_class = unique_rows(rows.T)
    return holds[:, first], symbol_class.astype(np.int32)


def _in_order(names: Sequence[str], holds: np.ndarray, minima: Sequence[int], guard: ResourceGuard) -> Dfa:
    """The words that meet the names with minima above 0 in order. Row 0 is the sink, and in the last row all are met.
    """
    columns, symbol_class = _columns(holds)
    guard.check_table(sum(minima) + 2, columns.shape[1], _CELL_BYTES)
    rows = [np.full(columns.shape[1], SINK)]
    for stage, minimum in enumerate(minima):
        # A later name before this one is complete breaks the order, unless it is the same name.
        others = [row for row in range(stage + 1, len(names)) if names[row] != names[stage]]
        later = columns[others].any(axis=0)
        for occurrences_left in range(minimum, 0, -1):
            state = len(rows)
            following = np.where(columns[stage], state + 1, state)
            # The step that completes this name may hold a later name as well.
            completes = columns[stage] if occurrences_left == 1 else np.zeros_like(later)
            rows.append(np.where(later & ~completes, SINK, following))
        guard.check_time()
    rows.append(np.full(columns.shape[1], len(rows)))
    accepting = np.arange(len(rows)) == len(rows) - 1
    return minimize(Dfa(symbol_class, np.array(rows, dtype=np.int32), accepting, 1), guard)


def _counts(holds: np.ndarray, bounds: Sequence[Bounds], guard: ResourceGuard) -> Dfa:
    """The words in which each name occurs within its bounds. It is an intersection of counts, in any order."""
    # Without names the intersection still needs one part.
    everything = count_dfa(np.zeros(holds.shape[1], dtype=bool), 0, None, guard)
    return intersection(
        [everything, *(count_dfa(row, *limits, guard) for row, limits in zip(holds, bounds, strict=True))], guard
    )


_OTHER, _WORD, _END, _CLOSER = range(4)
_CLEAN, _DIRTY, _OPEN = range(3)  # since the last end: ends and closers alone; others, but no word; a word


def sentences_dfa(
    is_end: Sequence[bool],
    is_word: Sequence[bool],
    is_closer: Sequence[bool],
    *,
    minimum: int,
    maximum: int | None,
    guard: ResourceGuard,
) -> Dfa:
    """The minimal DFA of words with `minimum` to `maximum` sentences. A maximum of None is no upper bound.

    A sentence ends at an end mark that follows at least one word since the end before; further end marks end nothing.
    After the last end only end marks and closers may stand; a text of no sentence holds no word. For each symbol: is
    it an end mark, a word, a closing quote or bracket, or (none of these) something else. A symbol that counts as
    nothing, `eos`, is given as a closer.

    Raises ValueError where a symbol is two of these, for a bound below 0 or no symbols, LimitExceeded over
    `dfa_states_max` or `compile_s_max`.
    """
    _check_bounds(minimum, maximum)
    kinds = np.array([is_end, is_word, is_closer], dtype=bool).reshape(3, -1)
    if (kinds.sum(axis=0) > 1).any():
        raise ValueError("a symbol is an end mark, a word or a closer, and only one of these")
    symbol_class = _symbols(kinds[0] * _END + kinds[1] * _WORD + kinds[2] * _CLOSER)
    top = max(minimum, 1) if maximum is None else maximum + 1  # no sentence is never like some
    guard.check("dfa_states_max", (top + 1) * 3)
    count = np.arange(top + 1)[:, None]
    following = np.minimum(count + 1, top)
    # The state (count, since the last end) has the number 3 * count + since.
    states = count * 3 + np.arange(3)  # [N, 3]
    table = np.zeros((top + 1, 3, 4), dtype=np.int32)
    table[:, :, _OTHER] = count * 3 + np.array([_DIRTY, _DIRTY, _OPEN])
    table[:, :, _WORD] = count * 3 + _OPEN
    table[:, :, _END] = states
    # An end mark after a word completes a sentence; any other end mark changes nothing.
    table[:, _OPEN, _END] = following[:, 0] * 3 + _CLEAN
    table[:, :, _CLOSER] = states
    in_range = (count >= minimum) & (count <= (top if maximum is None else maximum))
    accepting = in_range & np.array([True, False, False])
    accepting[0, _DIRTY] = minimum == 0  # before any end there is nothing to stand after
    return minimize(Dfa(symbol_class, table.reshape(-1, 4), accepting.reshape(-1), _CLEAN), guard)
