"""Products of DFAs in plain Python, the reference of `compiler.automata`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler.automata import Dfa


def product(left: Dfa, right: Dfa, operation: Callable[[bool, bool], bool]) -> Dfa:
    """The product over the reachable pairs of states. A pair accepts where `operation` of both acceptances holds."""
    assert left.symbols == right.symbols
    number, rows = {(left.start, right.start): 0}, []
    for first, second in (pairs := list(number)):  # grows while it is walked
        row = []
        for symbol in range(left.symbols):
            target = left.step(first, symbol), right.step(second, symbol)
            if target not in number:
                number[target] = len(number)
                pairs.append(target)
            row.append(number[target])
        rows.append(row)
    accepting = [operation(bool(left.accepting[first]), bool(right.accepting[second])) for first, second in pairs]
    table = np.array(rows, dtype=np.int32).reshape(len(rows), left.symbols)
    return Dfa(np.arange(left.symbols, dtype=np.int32), table, np.array(accepting))


def equivalent(left: Dfa, right: Dfa) -> bool:
    """True if both accept the same words. No reachable pair of states differs in acceptance."""
    return not product(left, right, lambda first, second: first is not second).accepting.any()


def assert_same(left: Dfa, right: Dfa) -> None:
    """Checks that two canonical minimal automata have equal fields.

    That holds exactly if they accept the same words.
    """
    for name in Dfa.__slots__:
        assert np.array_equal(getattr(left, name), getattr(right, name)), name
