"""Products and byte automata of DFAs in plain Python."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler.automata import Dfa, Minterms, live_states
from compiler.automata.transducers import expand
from compiler.limits import Limits, ResourceGuard


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


def byte_dfa(dfa: Dfa, minterms: Minterms, guard: ResourceGuard | None = None) -> tuple[Dfa, int]:
    """The byte DFA of the texts whose minterms `dfa` accepts, and B. B is the number of states between characters.

    State 0 is dead, states 1..B-1 are the live ones of `dfa` in their order, those from B on are inside a character.
    Minimal where `dfa` is.
    """
    live = np.flatnonzero(live_states(dfa))
    index = np.zeros(dfa.states, dtype=np.int64)
    index[live] = np.arange(1, len(live) + 1)
    table = np.zeros((len(live) + 1, minterms.count), dtype=np.int64)
    table[1:] = index[dfa.next_state[live]][:, dfa.symbol_class]
    expanded = expand(table, minterms, 0, guard or ResourceGuard(Limits()))
    boundary = expanded.boundary
    next_state = np.where(expanded.table < 0, boundary - 1 - expanded.table, expanded.table)
    accepting = np.zeros(len(next_state), dtype=bool)
    accepting[1:boundary] = dfa.accepting[live]
    return Dfa(expanded.byte_class, next_state.astype(np.int32), accepting, int(index[dfa.start])), boundary
