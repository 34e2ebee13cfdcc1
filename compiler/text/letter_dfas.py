"""DFAs over the letters that a text's transducer emits. There is one for each leaf of a tree, and one for the tree.

How a whole-text constraint is read differs: from the outcome in the last letter, or from letters that name each
character's class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from compiler.automata import Dfa, count_dfa, intersection, union
from compiler.limits import ResourceGuard
from compiler.spec import EOS, NOMATCH
from compiler.text.per_character import CharacterClasses
from compiler.text.transducer import LetterAlphabet
from compiler.text.tree import CharLeaf, ConstraintTree, LengthLeaf, RegularLeaf, WordLeaf, boolean_dfa

# The DFA of a whole-text leaf in a reading; for no leaf, that of the texts that have this reading.
Holds: TypeAlias = Callable[[int, CharLeaf | None], Dfa]


def letter_dfa(tree: ConstraintTree, alphabet: LetterAlphabet, holds: Holds, guard: ResourceGuard) -> Dfa:
    """The DFA of the letter sequences that satisfy the tree. The tree must hold in some reading of the text."""

    def leaf_dfa(reading: int, leaf: RegularLeaf) -> Dfa:
        match leaf:
            case WordLeaf():
                return _word_dfa(leaf, alphabet, guard)
            case LengthLeaf():
                # a reading without the leading space has one character less than letters
                return _length_dfa(leaf.max_chars + reading, alphabet, guard)
            case CharLeaf():
                return holds(reading, leaf)

    dfas = [boolean_dfa(tree, partial(leaf_dfa, reading), guard) for reading in range(alphabet.readings)]
    if len(dfas) == 1:  # the transducer itself drops texts that violate the mandatory constraint
        return dfas[0]
    return union([intersection([holds(number, None), dfa], guard) for number, dfa in enumerate(dfas)], guard)


def holds_by_outcome(alphabet: LetterAlphabet, leaves: Sequence[CharLeaf]) -> Holds:
    """Evaluates leaves by the outcome of the whole-text constraints. The last letter is that outcome.

    leaves  in the order of an outcome's entries
    """
    numbers = {leaf: number for number, leaf in enumerate(leaves)}

    def holds(reading: int, leaf: CharLeaf | None) -> Dfa:
        """Accepts where this reading meets the constraint.

        The constraint is the mandatory one and, if a leaf is named, that leaf.
        """
        # Column 1 of a letter that says no, column 2 of one that says yes; column 0 of every letter before the last.
        number = None if leaf is None else numbers[leaf]
        symbol_class = np.zeros(len(alphabet), dtype=np.int32)
        outcomes = [outcome[reading] for outcome in alphabet.outcomes]
        symbol_class[len(alphabet) - len(outcomes) :] = [
            1 + (met is not None and (number is None or met[number])) for met in outcomes
        ]
        table = np.array([[0, 0, 1], [1, 0, 1]], dtype=np.int32)  # the last letter alone decides
        return Dfa(symbol_class, table, np.array([False, True]))

    return holds


def holds_by_characters(alphabet: LetterAlphabet, leaves: Sequence[CharLeaf], classes: CharacterClasses) -> Holds:
    """Evaluates whole-text leaves over letters that name each character's class. The leaves read those letters."""
    minterms = dict(zip(leaves, classes.minterms, strict=True))

    def holds(reading: int, leaf: CharLeaf | None) -> Dfa:
        """The leaf's DFA over the characters' letters.

        Without a leaf it accepts every text that can be read this way.
        """
        symbol_class = np.zeros(len(alphabet), dtype=np.int32)
        characters = alphabet.characters
        if leaf is None:
            if alphabet.has_space_letter:
                symbol_class[characters.stop - 1] = 1
            table = np.array([[0, 1], [1, 1]], dtype=np.int32)
            return Dfa(symbol_class, table, np.array([reading == 0, True]))
        # Letters of units and outcomes are passed over: the constraint reads characters alone.
        dfa = leaf.texts.dfa
        ignored = dfa.next_state.shape[1]  # one more column, in which every state stays
        columns = dfa.symbol_class[minterms[leaf]].tolist()
        if alphabet.has_space_letter:  # the reading without the space passes over it
            columns.append(ignored if reading else columns[classes.space])
        symbol_class[:] = ignored
        symbol_class[characters] = columns
        stay = np.arange(dfa.states, dtype=dfa.next_state.dtype)
        return Dfa(symbol_class, np.column_stack([dfa.next_state, stay]), dfa.accepting, dfa.start)

    return holds


def _word_dfa(leaf: WordLeaf, alphabet: LetterAlphabet, guard: ResourceGuard) -> Dfa:
    """The leaf's automaton over the alphabet. Letters that are no step of its trace leave its state unchanged."""
    # Only the letters that this leaf can tell apart are built: what holds of other leaves' propositions is dropped.
    number: dict[frozenset[str], int] = {}
    projections = [_projection(unit, leaf) for unit in alphabet.units]
    for letter in projections:
        if letter is not None:
            number.setdefault(letter, len(number))
    dfa = leaf.build(list(number), guard)
    ignored = dfa.next_state.shape[1]
    # Several letters of the alphabet may read one column: they agree on what this leaf asks.
    column = [ignored if letter is None else int(dfa.symbol_class[number[letter]]) for letter in projections]
    column += [ignored] * (len(alphabet) - len(projections))
    table = dfa.next_state
    if ignored in column:
        table = np.column_stack([table, np.arange(dfa.states, dtype=table.dtype)])
    return Dfa(np.array(column, dtype=np.int32), table, dfa.accepting, dfa.start)


def _projection(unit: frozenset[str], leaf: WordLeaf) -> frozenset[str] | None:
    """The letter that a leaf reads at a unit. None where its trace has no such step."""
    if unit == {EOS}:
        return unit if leaf.with_eos else None
    return unit.intersection(leaf.propositions) or frozenset((NOMATCH,))


def _length_dfa(most: int, alphabet: LetterAlphabet, guard: ResourceGuard) -> Dfa:
    """At most `most` letters of characters; the other letters are not counted."""
    counted = np.zeros(len(alphabet), dtype=bool)
    counted[alphabet.characters] = True
    return count_dfa(counted, 0, most, guard)
