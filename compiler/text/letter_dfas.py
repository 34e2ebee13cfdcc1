"""DFAs over the letters that a text's transducer emits. There is one for each leaf of a tree, and one for the tree.

The two builders differ in how a whole-text constraint is read: from the outcome in the last letter, or from letters
that name each character's class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial

import numpy as np

from compiler.automata import Dfa, intersection, union
from compiler.limits import ResourceGuard
from compiler.spec import EOS, NOMATCH
from compiler.text.per_character import CharacterClasses
from compiler.text.transducer import LetterAlphabet
from compiler.text.tree import CharLeaf, ConstraintTree, Leaf, LengthLeaf, WordLeaf, boolean_dfa


class _TreeDfaBuilder(ABC):
    """Builds the DFA of a tree over an alphabet of letters."""

    def __init__(self, alphabet: LetterAlphabet, guard: ResourceGuard) -> None:
        self._alphabet, self._guard = alphabet, guard

    def dfa(self, tree: ConstraintTree) -> Dfa:
        """The letter outputs of the texts for which the tree holds in some reading."""
        readings = range(self._alphabet.readings)
        dfas = [boolean_dfa(tree, partial(self._leaf_dfa, reading), self._guard) for reading in readings]
        if len(dfas) == 1:  # the transducer itself drops texts that violate the mandatory constraint
            return dfas[0]
        read = [intersection([self._holds(number, None), dfa], self._guard) for number, dfa in enumerate(dfas)]
        return union(read, self._guard)

    def _leaf_dfa(self, reading: int, leaf: Leaf) -> Dfa:
        match leaf:
            case WordLeaf():
                return _word_dfa(leaf, self._alphabet, self._guard)
            case LengthLeaf():
                # a reading without the leading space has one character less than letters
                return _length_dfa(leaf.max_chars + reading, self._alphabet, self._guard)
            case CharLeaf():
                return self._holds(reading, leaf)

    @abstractmethod
    def _holds(self, reading: int, leaf: CharLeaf | None) -> Dfa:
        """The DFA of a whole-text leaf in a reading; for no leaf, that of the texts that have this reading."""


class LetterDfaBuilder(_TreeDfaBuilder):
    """Builds the DFA of a tree over letters with outcomes. The last letter tells the outcome of the whole-text
    constraints.

    leaves  the whole-text leaves of the tree, in the order of an outcome's entries
    """

    def __init__(self, alphabet: LetterAlphabet, leaves: Sequence[CharLeaf], guard: ResourceGuard) -> None:
        super().__init__(alphabet, guard)
        self._number = {leaf: number for number, leaf in enumerate(leaves)}

    def _holds(self, reading: int, leaf: CharLeaf | None) -> Dfa:
        """Whether this reading meets the mandatory constraint and, if one is named, this optional one."""
        alphabet = self._alphabet
        # Column 1 of a letter that says no, column 2 of one that says yes; column 0 of every letter before the last.
        number = None if leaf is None else self._number[leaf]
        symbol_class = np.zeros(len(alphabet), dtype=np.int32)
        outcomes = [outcome[reading] for outcome in alphabet.outcomes]
        symbol_class[len(alphabet) - len(outcomes) :] = [
            1 + (met is not None and (number is None or met[number])) for met in outcomes
        ]
        table = np.array([[0, 0, 1], [1, 0, 1]], dtype=np.int32)  # the last letter alone decides
        return Dfa(symbol_class, table, np.array([False, True]))


class PerCharacterDfaBuilder(_TreeDfaBuilder):
    """Builds the DFA of a tree over letters with character classes. Whole-text constraints read the class of each
    character.
    """

    def __init__(
        self, alphabet: LetterAlphabet, leaves: Sequence[CharLeaf], classes: CharacterClasses, guard: ResourceGuard
    ) -> None:
        super().__init__(alphabet, guard)
        self._space, self._minterms = classes.space, dict(zip(leaves, classes.minterms, strict=True))

    def _holds(self, reading: int, leaf: CharLeaf | None) -> Dfa:
        """The leaf's DFA over the characters' letters; without a leaf, whether there is a text to read this way."""
        alphabet = self._alphabet
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
        columns = dfa.symbol_class[self._minterms[leaf]].tolist()
        if alphabet.has_space_letter:  # the reading without the space passes over it
            columns.append(ignored if reading else columns[self._space])
        symbol_class[:] = ignored
        symbol_class[characters] = columns
        stay = np.arange(dfa.states, dtype=dfa.next_state.dtype)
        return Dfa(symbol_class, np.column_stack([dfa.next_state, stay]), dfa.accepting, dfa.start)


def _word_dfa(leaf: WordLeaf, alphabet: LetterAlphabet, guard: ResourceGuard) -> Dfa:
    """The leaf's automaton; letters that are no step of its trace leave its state as it is."""
    # Only the letters that this leaf can tell apart are built: what holds of other leaves' propositions is dropped.
    number: dict[frozenset[str], int] = {}
    projected = [_projected(unit, leaf) for unit in alphabet.units]
    for letter in projected:
        if letter is not None:
            number.setdefault(letter, len(number))
    dfa = leaf.build(list(number), guard)
    ignored = dfa.next_state.shape[1]
    # Several letters of the alphabet may read one column: they agree on what this leaf asks.
    column = [ignored if letter is None else int(dfa.symbol_class[number[letter]]) for letter in projected]
    column += [ignored] * (len(alphabet) - len(projected))
    table = dfa.next_state
    if ignored in column:
        table = np.column_stack([table, np.arange(dfa.states, dtype=table.dtype)])
    return Dfa(np.array(column, dtype=np.int32), table, dfa.accepting, dfa.start)


def _projected(unit: frozenset[str], leaf: WordLeaf) -> frozenset[str] | None:
    """The letter that a leaf reads at a unit; None where its trace has no such step."""
    if unit == {EOS}:
        return unit if leaf.with_eos else None
    return unit.intersection(leaf.propositions) or frozenset((NOMATCH,))


def _length_dfa(most: int, alphabet: LetterAlphabet, guard: ResourceGuard) -> Dfa:
    """A chain that each character's letter steps along; its last state is one too many."""
    guard.check("dfa_states_max", most + 2)
    # State c has read c characters.
    states = np.arange(most + 2, dtype=np.int32)
    table = np.column_stack([states, np.minimum(states + 1, most + 1)]).astype(np.int32)
    symbol_class = np.zeros(len(alphabet), dtype=np.int32)
    symbol_class[alphabet.characters] = 1
    return Dfa(symbol_class, table, states <= most)
