"""A constraint as an automaton over texts. It needs no vocabulary to check a text and to replay an answer."""

from __future__ import annotations

import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from compiler.automata import NO_END, ByteTransducer, Dfa
from compiler.lifting import UNREACHABLE, TokenAutomaton, lift
from compiler.limits import DEFAULT_LIMITS, Limits, ResourceGuard
from compiler.spec import EOS
from compiler.vocab import byte_vocabulary

UNIT = re.compile(r"\w+|[^\w\s]")  # the units of a text's word trace: docs/constraints/ltlf.md
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


@dataclass(frozen=True, slots=True)
class WordStep:
    """One unit of a word trace. It has its text, the propositions that hold at it, and the state of `display_dfa` after
    it.
    """

    text: str
    letters: tuple[str, ...]
    state: int


@dataclass(frozen=True, slots=True)
class TextCheck:
    """Whether a text satisfies a constraint.

    violated_at  None where satisfied; else the offset of the first character after which no continuation can
                 satisfy any more, or the text's length where it merely ends too early
    """

    satisfied: bool
    words: tuple[WordStep, ...]
    violated_at: int | None


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """The state after one token, and the letters it wrote. The state is one of `display_dfa`; a letter is a set of
    propositions.
    """

    state: int
    letters: tuple[tuple[str, ...], ...]


class _TextReader:
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

    def end(self) -> list[int] | None:
        """The letters that the end of the text emits. None where the text may not end here."""
        final_output = int(self._automaton.transducer.final_output[self.transducer_state])
        if final_output == NO_END:
            return None
        letters = list(self._automaton.transducer.outputs[final_output])
        self.letter_state = self._automaton.letters.run(letters, self.letter_state)
        return letters


def replay(automaton: TextAutomaton, pieces: Sequence[bytes], before: str | None = None) -> tuple[ReplayStep, ...]:
    """Replay a finished text byte by byte, token by token. The result has one step for each piece and one for EOS.

    before  what the text begins with, where the pieces are only its end
    Without it a leading space that is not part of the answer is passed over.
    """
    reader = _TextReader(automaton)
    if before is None:
        raw = b"".join(pieces).decode()
        # One leading space at most, which the first non-empty piece holds.
        skipped = len(raw) - len(answer_text(automaton, raw))
        first = next((number for number, piece in enumerate(pieces) if piece), 0)
        pieces = [piece[skipped:] if number == first else piece for number, piece in enumerate(pieces)]
    else:
        # The prompt's own states are passed over, not reported.
        reader.read(before.encode())
    steps = [_replay_step(automaton, reader, reader.read(piece)) for piece in pieces]
    # The last step is that of EOS, which writes what the end of the text writes.
    return (*steps, _replay_step(automaton, reader, reader.end() or []))


def _replay_step(automaton: TextAutomaton, reader: _TextReader, letters: list[int]) -> ReplayStep:
    names = (automaton.letter_names[letter] for letter in letters)
    return ReplayStep(reader.state, tuple(propositions for propositions in names if propositions is not None))


def states_along(automaton: TextAutomaton, text: str) -> list[int]:
    """The states along a text. The first lies before its first character, then one follows each character.

    They are states of every token automaton that is lifted from this one, whatever its vocabulary.
    """
    reader, states = _TextReader(automaton), list[int]()
    for character in ("", *text):
        reader.read(character.encode())
        states.append(reader.transducer_state * automaton.letters.states + reader.letter_state)
    return states


def display_state_of(automaton: TextAutomaton, lifted_state: int) -> int | None:
    """The state of `display_dfa` in a state of a lifted automaton. None inside a character and after the end."""
    return automaton.display_state(*divmod(lifted_state, automaton.letters.states))


def check_text(automaton: TextAutomaton, text: str) -> TextCheck:
    """Decide whether a text satisfies the constraint.

    Otherwise the result names the offset from which it cannot any more.

    Raises UnicodeEncodeError where the text holds half of a surrogate pair.

    >>> from compiler.pipeline import compile_text
    >>> from compiler.spec import RegexSpec
    >>> check_text(compile_text(RegexSpec("a+b")), "aac").violated_at
    2
    """
    # The byte automaton is built only where there is a violation to locate.
    violated_at = None if _accepts(automaton, text) else _violation(automaton, text)
    words = _word_steps(automaton, text) if automaton.traced else _unit_steps(automaton, text)
    return TextCheck(violated_at is None, words, violated_at)


def _accepts(automaton: TextAutomaton, text: str) -> bool:
    reader = _TextReader(automaton)
    reader.read(text.encode())
    return reader.end() is not None and bool(automaton.letters.accepting[reader.letter_state])


def _violation(automaton: TextAutomaton, text: str) -> int:
    """Where a text that does not satisfy the constraint goes wrong."""
    # The byte automaton knows which states are dead, which the transducer and the letters only know together.
    distance = automaton.byte_automaton.distance
    states = states_along(automaton, text)[1:]
    return next((offset for offset, state in enumerate(states) if distance[state] == UNREACHABLE), len(text))


def _word_steps(automaton: TextAutomaton, text: str) -> tuple[WordStep, ...]:
    reader = _TextReader(automaton)
    letters = [*reader.read(text.encode()), *(reader.end() or [])]
    units = UNIT.findall(text)
    state, steps = automaton.letters.start, list[WordStep]()
    for letter in letters:
        state = automaton.letters.step(state, letter)
        names = automaton.letter_names[letter]
        if names is not None:
            # Letters and units come in the same order, one letter a unit.
            unit = units[len(steps)] if len(steps) < len(units) else ""  # the step of `eos` has no text
            steps.append(WordStep(unit, names, state))
    return tuple(steps)


def _unit_steps(automaton: TextAutomaton, text: str) -> tuple[WordStep, ...]:
    # Without a word trace the units are those of the text itself, with no propositions.
    reader, at, steps = _TextReader(automaton), 0, []
    for unit in UNIT.finditer(text):
        reader.read(text[at : unit.end()].encode())
        at = unit.end()
        steps.append(WordStep(unit[0], (), reader.state))
    return tuple(steps)


def answer_text(automaton: TextAutomaton, raw: str) -> str:
    """The answer in a generated text.

    One leading space is removed where the constraint allows a space before the text.
    """
    # The space is part of the answer where the answer is wrong without it.
    if automaton.strips_space and raw.startswith(" ") and _accepts(automaton, raw[1:]):
        return raw[1:]
    return raw
