"""A shortest word of a DFA, by breadth-first search over symbols. It is a reference of the tests."""

from __future__ import annotations

from compiler.automata import Dfa


def shortest_word(dfa: Dfa) -> tuple[int, ...] | None:
    """A shortest accepted word as symbols, or None for the empty language."""
    symbol_of = {int(column): symbol for symbol, column in reversed(list(enumerate(dfa.symbol_class.tolist())))}
    origin: dict[int, tuple[int, int]] = {}
    visited, frontier = {dfa.start}, [dfa.start]
    while frontier:
        end = next((state for state in frontier if dfa.accepting[state]), None)
        if end is not None:
            word: list[int] = []
            while end != dfa.start:
                end, symbol = origin[end]
                word.append(symbol)
            return tuple(reversed(word))
        following = []
        for state in frontier:
            for column, target in enumerate(dfa.next_state[state].tolist()):
                if target not in visited and column in symbol_of:
                    visited.add(target)
                    origin[target] = (state, symbol_of[column])
                    following.append(target)
        frontier = following
    return None
