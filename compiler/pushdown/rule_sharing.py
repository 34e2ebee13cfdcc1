"""Finds rules that have the same texts."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from compiler.automata import NO_MINTERM, Dfa, canonical, unique_rows
from compiler.pushdown.network import RuleDfa


def distinct_rules(
    rules: Sequence[RuleDfa], beside: Mapping[int, Hashable]
) -> tuple[list[int], list[RuleDfa]]:
    """The first of equal rules each, and these rules. They call each other by their new numbers.

    rules   minimal automata, over minterms of their own
    beside  by rule, what makes it unlike others with the same texts
    """
    kinds = [(_shape(rule), beside.get(number)) for number, rule in enumerate(rules)]
    first = equal_rules(kinds, [rule.letters for rule in rules])
    kept = sorted(set(first))
    place = {rule: number for number, rule in enumerate(kept)}
    letters = [[place[first[each]] if each >= 0 else each for each in rules[rule].letters] for rule in kept]
    return kept, [replace(rules[rule], letters=tuple(own)) for rule, own in zip(kept, letters, strict=True)]


def equal_rules(kinds: Sequence[Hashable], letters: Sequence[Sequence[int]]) -> list[int]:
    """For each rule the first that equals it. Partition refinement (Moore 1956).

    kinds    what equal rules have in common, besides their letters
    letters  the rules that each calls; a letter below 0 is none
    """
    number, count = [0] * len(kinds), 0
    while True:
        numbers = dict[Hashable, int]()
        number = [
            numbers.setdefault((kind, tuple(number[each] if each >= 0 else each for each in called)), len(numbers))
            for kind, called in zip(kinds, letters, strict=True)
        ]
        if len(numbers) == count:
            break
        count = len(numbers)
    first = dict[int, int]()
    for rule, each in enumerate(number):
        first.setdefault(each, rule)
    return [first[each] for each in number]


def _shape(rule: RuleDfa) -> Hashable:
    """What rules with the same texts have in common.

    It is the same whatever minterms they have, and whatever their letters call.
    """
    dfa, parts = rule.dfa, rule.minterms
    first, number = unique_rows(dfa.next_state.T)
    column = number[dfa.symbol_class]
    # One symbol for each stretch of characters that act alike. Surrogates act like the characters before them.
    known = np.maximum.accumulate(np.where(parts.cell == NO_MINTERM, 0, np.arange(len(parts.cell))))
    characters = column[parts.cell[known]]
    begins = np.flatnonzero(np.diff(characters, prepend=-1))
    symbols = np.append(characters[begins], column[parts.count :]).astype(np.int32)
    whole = canonical(Dfa(symbols, dfa.next_state[:, first], dfa.accepting, dfa.start))
    arrays = parts.cuts[begins].astype(np.int64), whole.symbol_class, whole.next_state, whole.accepting
    return tuple(array.tobytes() for array in arrays)
