"""A character DFA over the bytes of UTF-8. Tests use it to read texts byte by byte."""

from __future__ import annotations

import numpy as np

from compiler.automata import Dfa, Minterms, live_states
from compiler.automata.transducers import expand
from compiler.limits import Limits, ResourceGuard


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
