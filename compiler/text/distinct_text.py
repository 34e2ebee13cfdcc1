"""A constraint over texts that write letters, none of them twice. No set of letters is a state.

A reader keeps the letters that it has met. Only the place of a violation is found with an automaton over bytes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from compiler.automata import (
    DEAD,
    NO_END,
    SINK,
    ByteTransducer,
    CharDfa,
    CharTransducer,
    Dfa,
    common_minterms,
    explore,
    live_states,
    minimize_transducer,
    to_byte_transducer,
)
from compiler.errors import SpecUnsatisfiable
from compiler.lifting import UNREACHABLE, lift
from compiler.limits import DEFAULT_LIMITS, Limits, ResourceGuard
from compiler.products import DistinctAutomaton, DistinctPart, distinct_automaton, distinct_letters, first_states
from compiler.pushdown import Stacks
from compiler.text.tree import DistinctLeaf
from compiler.text.whole_text import SPACE, space_apart
from compiler.vocab import Vocabulary, byte_vocabulary

_BYTES = byte_vocabulary()


@dataclass(frozen=True, eq=False, kw_only=True)
class DistinctText:
    """The texts that a transducer reads, where it writes no letter twice.

    transducer    its letter 0 forgets the others
    letters       how many there are beside letter 0
    text_start    the transducer state an answer is read from
    strips_space  whether one leading space, which the transducer's own start reads, is no part of an answer
    lifted        the automaton over bytes, where it was made already
    """

    kind: ClassVar[Literal["distinct"]] = "distinct"
    letter_names: ClassVar[tuple[tuple[str, ...] | None, ...]] = ()  # the word trace shows no letters

    transducer: ByteTransducer
    letters: int
    text_start: int
    strips_space: bool
    limits: Limits = DEFAULT_LIMITS
    lifted: DistinctAutomaton | None = None

    def __post_init__(self) -> None:
        if any(not 0 <= letter <= self.letters for string in self.transducer.outputs for letter in string):
            raise ValueError("the transducer emits a letter that there is not")
        if not 0 <= self.text_start < self.transducer.boundary_states:
            raise ValueError("text_start lies between characters")

    @functools.cached_property
    def letter_dfa(self) -> Dfa:
        """The DFAs of the letters."""
        return distinct_letters(self.letters)

    def over(self, vocabulary: Vocabulary, guard: ResourceGuard) -> DistinctAutomaton:
        """The automaton over the tokens of a vocabulary. Raises what `lift` raises."""
        return distinct_automaton(lift(self.transducer, self.letter_dfa, vocabulary, guard), guard)

    @functools.cached_property
    def byte_automaton(self) -> DistinctAutomaton:
        """The same constraint over single bytes. Ids 0..255 are the bytes, and 256 is EOS. It is built on first use."""
        return self.lifted or self.over(_BYTES, ResourceGuard(self.limits))

    @property
    def existing_byte_automaton(self) -> DistinctAutomaton | None:
        """The byte automaton if it has been built. None before its first use."""
        return vars(self).get("byte_automaton", self.lifted)

    def display_state_of(self, control: int) -> int | None:
        """The state that is shown for a transducer state. None inside a character and after the end."""
        return control if control < self.transducer.boundary_states else None

    def reader(self) -> DistinctReader:
        """Reads a text from its beginning."""
        return DistinctReader(self)

    def violation(self, text: str) -> int:
        """The offset after which a text cannot satisfy any more. It must not satisfy as it is."""
        return self.after(self.byte_automaton, text)[1]

    def after(self, tokens: DistinctAutomaton, text: str) -> tuple[Stacks, int]:
        """The state of the token automaton after a text.

        Also how many of its characters tokens can continue: the state means nothing where that is not the whole text.
        """
        reader = DistinctReader(self)
        state, alive = reader.stacks, 0
        for offset, character in enumerate(text, 1):
            reader.read(character.encode())
            state = reader.stacks
            part = DistinctPart(tokens, state)
            if part.distances(np.array([part.start]))[0] == UNREACHABLE:
                break
            alive = offset
        return state, alive


class DistinctReader:
    """Reads bytes, and remembers the letters that they write."""

    def __init__(self, text: DistinctText) -> None:
        self._text = text
        self._transducer_state = text.text_start
        self._states = np.array(first_states(text.letter_dfa.states))
        self._between_characters = text.text_start

    @property
    def state(self) -> int:
        """The transducer state; inside a character, the one before that character."""
        if self._transducer_state < self._text.transducer.boundary_states:
            self._between_characters = self._transducer_state
        return self._between_characters

    @property
    def stacks(self) -> Stacks:
        """The state, between characters, as token automata name it."""
        return ((self._transducer_state, tuple(self._states.tolist())),) if self._transducer_state else ()

    @property
    def accepting(self) -> bool:
        """Whether no letter was written twice."""
        return bool((self._states != DEAD).all())

    def read(self, data: bytes) -> list[int]:
        """Read bytes. The letters are none of the word trace."""
        for byte in data:
            self._transducer_state, letters = self._text.transducer.step(self._transducer_state, byte)
            self._write(letters)
        return []

    def end(self) -> list[int] | None:
        """Read the end of the text. None where it may not end here."""
        final_output = int(self._text.transducer.final_output[self._transducer_state])
        if final_output == NO_END:
            return None
        self._write(self._text.transducer.outputs[final_output])
        return []

    def _write(self, letters: tuple[int, ...]) -> None:
        for letter in letters:
            self._states = self._text.letter_dfa.next_state[self._states, letter]


def distinct_text(leaf: DistinctLeaf, guard: ResourceGuard) -> DistinctText:
    """The texts of a leaf. Where it allows a leading space, one may stand before an answer."""
    transducer, start = leaf.transducer, leaf.start
    if leaf.leading_space:
        transducer, start = behind_space(transducer, leaf.start, optional=True)
    return DistinctText(
        transducer=to_byte_transducer(transducer, start, guard), letters=leaf.letters, text_start=leaf.start,
        strips_space=leaf.leading_space, limits=guard.limits,
    )


def in_both(leaf: DistinctLeaf, texts: CharDfa, guard: ResourceGuard) -> DistinctLeaf:
    """The leaf of those texts that a language has, too. They write the same letters.

    Raises SpecUnsatisfiable where there is none, and what `explore` raises.
    """
    old, dfa = leaf.transducer, texts.dfa
    minterms, (of_leaf, of_texts) = common_minterms([old.minterms, texts.minterms])
    tables = [old.next_state[:, of_leaf], dfa.next_state[:, dfa.symbol_class[of_texts]]]
    live = [np.arange(len(old.next_state)) != DEAD, live_states(dfa)]
    graph = explore(tables, live, [(leaf.start, dfa.start)], guard)
    if graph.starts[0] == SINK:
        raise SpecUnsatisfiable("no text satisfies the constraint")
    state, beside = graph.component.T
    alive = np.arange(len(state)) != SINK
    joined = CharTransducer(
        next_state=graph.next_state, output=np.where(graph.next_state == SINK, 0, old.output[state][:, of_leaf]),
        final_output=np.where(alive & dfa.accepting[beside], old.final_output[state], NO_END), outputs=old.outputs,
        minterms=minterms,
    )
    smaller, number = minimize_transducer(joined, guard)
    return replace(leaf, transducer=smaller, start=int(number[graph.starts[0]]))


def behind_space(transducer: CharTransducer, start: int, *, optional: bool) -> tuple[CharTransducer, int]:
    """The transducer of texts behind a space, and its start. No text begins with a space.

    optional  whether the space may be missing
    """
    minterms, old = space_apart(transducer.minterms)
    next_state, output = transducer.next_state[:, old], transducer.output[:, old]
    row, written = next_state[start].copy(), output[start].copy()
    if not optional:
        row[:] = DEAD
        written[:] = 0
    row[minterms.word(SPACE)[0]] = start
    ends = transducer.final_output[start] if optional else NO_END
    added = CharTransducer(
        next_state=np.vstack([next_state, row]), output=np.vstack([output, written]),
        final_output=np.append(transducer.final_output, ends).astype(np.int32), outputs=transducer.outputs,
        minterms=minterms,
    )
    return added, len(next_state)
