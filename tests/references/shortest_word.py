"""A shortest word of a DFA, by breadth-first search over symbols. It is a reference of the tests."""

from __future__ import annotations

from compiler.automata import Dfa


def shortest_word(dfa: Dfa) -> tuple[int, ...] | None:
    """A shortest accepted word as symbols, or None for the empty language."""
    symbol_of = {int(column): symbol for symbol, column in reversed(list(enumerate(dfa.symbol_class.tolist())))}
    came: dict[int, tuple[int, int]] = {}
    seen, frontier = {dfa.start}, [dfa.start]
    while frontier:
        hit = next((state for state in frontier if dfa.accepting[state]), None)
        if hit is not None:
            word: list[int] = []
            while hit != dfa.start:
                hit, symbol = came[hit]
                word.append(symbol)
            return tuple(reversed(word))
        following = []
        for state in frontier:
            for column, target in enumerate(dfa.next_state[state].tolist()):
                if target not in seen and column in symbol_of:
                    seen.add(target)
                    came[target] = (state, symbol_of[column])
                    following.append(target)
        frontier = following
    return None
