"""A constraint as an automaton over texts. It needs no vocabulary to check a text and to replay an answer."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from compiler.automata import NO_END, ByteTransducer, Dfa
from compiler.lifting import UNREACHABLE, TokenAutomaton, lift
from compiler.limits import DEFAULT_LIMITS, Limits, ResourceGuard
from compiler.spec import EOS
from compiler.vocab import byte_vocabulary

_BYTES = byte_vocabulary()


StateDistances: TypeAlias = tuple[int | None, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class TextAutomaton(ABC):
    """A constraint over texts. One subclass for each kind of DFA that is displayed.

    transducer      the byte transducer
    letters       DFA over the transducer's letters
    symbol_names  a printable name of each symbol of `display_dfa`
    letter_names  the propositions of each letter; None for one that the word trace does not show
    text_start    the transducer state an answer is read from
    strips_space  whether one leading space, which the transducer's own start reads, is no part of an answer
    lifted        the byte automaton, where it was made already
    """

    kind: ClassVar[Literal["words", "characters", "labels"]]  # of the symbols of `display_dfa`

    transducer: ByteTransducer
    letters: Dfa
    symbol_names: tuple[str, ...]
    letter_names: tuple[tuple[str, ...] | None, ...]
    text_start: int
    strips_space: bool = False
    limits: Limits = DEFAULT_LIMITS
    lifted: TokenAutomaton | None = None

    def __post_init__(self) -> None:
        if len(self.symbol_names) != self.display_dfa.symbols:
            raise ValueError("one name for each symbol of dfa")
        if len(self.letter_names) != self.letters.symbols:
            raise ValueError("one entry of letter_names for each letter")
        if any(not 0 <= letter < self.letters.symbols for string in self.transducer.outputs for letter in string):
            raise ValueError("the transducer emits a letter that its DFA does not read")
        if not 0 <= self.text_start < self.transducer.boundary_states:
            raise ValueError("text_start lies between characters")

    @property
    def display_dfa(self) -> Dfa:
        """The DFA that is displayed."""
        return self.letters

    @property
    def traced(self) -> bool:
        """Whether the letters make up a word trace."""
        return any(names is not None for names in self.letter_names)

    @functools.cached_property
    def byte_automaton(self) -> TokenAutomaton:
        """The same constraint over single bytes. Ids 0..255 are the bytes, and 256 is EOS. It is built on first use."""
        return self.lifted or lift(self.transducer, self.letters, _BYTES, ResourceGuard(self.limits))

    @property
    def existing_byte_automaton(self) -> TokenAutomaton | None:
        """The byte automaton if it has been built. None before its first use."""
        return vars(self).get("byte_automaton", self.lifted)

    def display_state(self, transducer_state: int, letter_state: int) -> int | None:
        """The state of `display_dfa` in a state of the automaton.

        None where it has no such state, and inside a character.
        """
        return letter_state

    def display_state_of(self, lifted_state: int) -> int | None:
        """The state of `display_dfa` in a state of a lifted automaton. None inside a character and after the end."""
        return self.display_state(*divmod(lifted_state, self.letters.states))

    def reader(self) -> LetterReader:
        """Reads a text from its beginning."""
        return LetterReader(self)

    def violation(self, text: str) -> int:
        """The offset after which a text cannot satisfy any more. It must not satisfy as it is."""
        # The byte automaton knows which states are dead, which the transducer and the letters only know together.
        distance = self.byte_automaton.distance
        states = states_along(self, text)[1:]
        return next((offset for offset, state in enumerate(states) if distance[state] == UNREACHABLE), len(text))

    @abstractmethod
    def state_distances(self, tokens: TokenAutomaton) -> StateDistances:
        """Fewest tokens to acceptance from each state of `display_dfa`. None from a dead state.

        The numbers are those of the paper's Figure 1.

        tokens  the token automaton that was lifted from this one
        """


@dataclass(frozen=True, eq=False, kw_only=True)
class WordTraceAutomaton(TextAutomaton):
    """Displays the letter DFA. Its symbols are the units of the word trace."""

    kind = "words"

    def state_distances(self, tokens: TokenAutomaton) -> StateDistances:
        """Distances from each letter state between words.

        A state that only the step of `eos` enters accepts at distance 0.
        """
        by_state = _by_transducer_state(tokens, self.transducer)
        # int32 [Q]. Without restrictions every state between words behaves as the start does.
        distances = by_state.min(axis=0) if self._restricts_text else by_state[self.transducer.start].copy()
        if any(EOS in (letter or ()) for letter in self.letter_names):
            distances[self.letters.accepting & (distances == UNREACHABLE)] = 0
        return _distances(distances)

    @property
    def _restricts_text(self) -> bool:
        """Whether the transducer does more than read the word trace.

        Then a state's distance is the least over the transducer's states.
        """
        ends = self.transducer.final_output[1 : self.transducer.boundary_states]
        return bool((ends == NO_END).any()) or not self.traced or None in self.letter_names


@dataclass(frozen=True, eq=False, kw_only=True)
class PerCharacterAutomaton(TextAutomaton):
    """Displays the letter DFA, whose symbols are classes of characters."""

    kind = "characters"

    def state_distances(self, tokens: TokenAutomaton) -> StateDistances:
        """From each letter state at the start of an answer."""
        # The state (l, q) has the number l * Q + q.
        first = self.text_start * tokens.letter_states
        return _distances(tokens.distance[first : first + tokens.letter_states])


@dataclass(frozen=True, eq=False, kw_only=True)
class WholeTextAutomaton(TextAutomaton):
    """Displays the whole-text DFA that the transducer runs. Its symbols are classes of characters.

    whole_dfa    that DFA
    whole_state  int32 [B]: its state in each transducer state between characters
    """

    kind = "characters"

    whole_dfa: Dfa
    whole_state: np.ndarray

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.whole_state.shape != (self.transducer.boundary_states,):
            raise ValueError("whole_state is [B]")

    @property
    def display_dfa(self) -> Dfa:
        """The DFA that is displayed."""
        return self.whole_dfa

    def display_state(self, transducer_state: int, letter_state: int) -> int | None:
        """The state of `display_dfa` in a state of the automaton. None inside a character."""
        return int(self.whole_state[transducer_state]) if transducer_state < self.transducer.boundary_states else None

    def state_distances(self, tokens: TokenAutomaton) -> StateDistances:
        """Distances from each state of the whole-text DFA. Each is the least over the other components of the state."""
        distances = np.full(self.whole_dfa.states, UNREACHABLE)
        # int32 [B]: the least distance over the letter states.
        best = _by_transducer_state(tokens, self.transducer).min(axis=1)
        # without letters the transducer's states 1..S are the DFA's own; those behind them have read a leading space
        read = slice(1, None) if self.letters.symbols else slice(1, self.whole_dfa.states + 1)
        np.minimum.at(distances, self.whole_state[read], best[read])
        return _distances(distances)


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelAutomaton(TextAutomaton):
    """Displays a DFA over labels. No bytes spell a label, so the transducer reads no text."""

    kind = "labels"

    def state_distances(self, tokens: TokenAutomaton) -> StateDistances:
        """Fewest steps, the end among them. The token automaton has the DFA's states, after a dead one."""
        return _distances(tokens.distance[1 : self.letters.states + 1])


def _by_transducer_state(tokens: TokenAutomaton, transducer: ByteTransducer) -> np.ndarray:
    """The distances of the states between characters: int32 [B, Q]."""
    return tokens.distance[: transducer.boundary_states * tokens.letter_states].reshape(transducer.boundary_states, -1)


def _distances(distances: np.ndarray) -> StateDistances:
    return tuple(None if distance == UNREACHABLE else distance for distance in distances.tolist())


class LetterReader:
    """Reads bytes through a text automaton. It holds the transducer state and the letter state."""

    def __init__(self, automaton: TextAutomaton) -> None:
        self._automaton = automaton
        self.transducer_state = automaton.text_start
        self.letter_state = automaton.letters.start
        self._between_characters = self._automaton.display_state(self.transducer_state, self.letter_state) or 0

    @property
    def state(self) -> int:
        """The state of `display_dfa`; inside a character, the one before that character."""
        state = self._automaton.display_state(self.transducer_state, self.letter_state)
        if state is not None:
            self._between_characters = state
        return self._between_characters

    def read(self, data: bytes) -> list[int]:
        """Read bytes; the letters emitted on the way."""
        letters: list[int] = []
        for byte in data:
            self.transducer_state, emitted = self._automaton.transducer.step(self.transducer_state, byte)
            letters.extend(emitted)
        self.letter_state = self._automaton.letters.run(letters, self.letter_state)
        return letters

    @property
    def accepting(self) -> bool:
        """Whether the letters read so far are accepted."""
        return bool(self._automaton.letters.accepting[self.letter_state])

    def end(self) -> list[int] | None:
        """The letters that the end of the text emits. None where the text may not end here."""
        final_output = int(self._automaton.transducer.final_output[self.transducer_state])
        if final_output == NO_END:
            return None
        letters = list(self._automaton.transducer.outputs[final_output])
        self.letter_state = self._automaton.letters.run(letters, self.letter_state)
        return letters


def states_along(automaton: TextAutomaton, text: str) -> list[int]:
    """The states along a text. The first lies before its first character, then one follows each character.

    They are states of every token automaton that is lifted from this one, whatever its vocabulary.
    """
    reader, states = LetterReader(automaton), list[int]()
    for character in ("", *text):
        reader.read(character.encode())
        states.append(reader.transducer_state * automaton.letters.states + reader.letter_state)
    return states
