"""A constraint as an automaton over texts, before any vocabulary: it checks a text and replays an answer."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from compiler.automata import NO_END, ByteTransducer, Dfa
from compiler.lifting import UNREACHABLE, TokenAutomaton, lift
from compiler.limits import DEFAULT_LIMITS, Limits, ResourceGuard
from compiler.vocab import byte_vocabulary

UNIT = re.compile(r"\w+|[^\w\s]")  # the units of a text's word trace (design 3)
_BYTES = byte_vocabulary()


@dataclass(frozen=True, eq=False)
class TextAutomaton:
    """A constraint over texts.

    kind           what people look at, `dfa`: "words" for the letter DFA, "characters" for the DFA over classes of
                   characters that the labeller runs; "labels" for a DFA over labels, which no byte of a text spells
    labeller       the byte transducer
    letters        DFA over the labeller's letters
    symbol_names   a printable name of each symbol of `dfa`
    letter_names   the propositions of each letter; None for one that is no step of the word trace
    dfa_state      int32 [B]: the state of `dfa` in each labeller state between characters, unless it is `letters`
    text_start     the labeller state an answer is read from
    strips_space   whether one leading space, which the labeller's own start reads, is no part of an answer
    """

    kind: Literal["words", "characters", "labels"]
    labeller: ByteTransducer
    letters: Dfa
    dfa: Dfa
    symbol_names: tuple[str, ...]
    letter_names: tuple[tuple[str, ...] | None, ...]
    dfa_state: np.ndarray
    text_start: int
    strips_space: bool = False
    limits: Limits = DEFAULT_LIMITS

    def __post_init__(self) -> None:
        if len(self.symbol_names) != self.dfa.symbols:
            raise ValueError("one name for each symbol of dfa")
        if len(self.letter_names) != self.letters.symbols:
            raise ValueError("one entry of letter_names for each letter")
        if self.kind != "characters" and self.dfa is not self.letters:
            raise ValueError("an automaton over words or labels shows its letter DFA")
        if self.dfa is not self.letters and self.dfa_state.shape != (self.labeller.boundary,):
            raise ValueError("dfa_state is [B]")
        if any(not 0 <= letter < self.letters.symbols for string in self.labeller.strings for letter in string):
            raise ValueError("the labeller emits a letter that its DFA does not read")
        if not 0 <= self.text_start < self.labeller.boundary:
            raise ValueError("text_start lies between characters")

    @property
    def traced(self) -> bool:
        """Whether the letters make up a word trace."""
        return any(names is not None for names in self.letter_names)

    @functools.cached_property
    def byte_automaton(self) -> TokenAutomaton:
        """The same constraint over single bytes: ids 0..255 are the bytes, 256 is EOS. Made when first asked for."""
        return lift(self.labeller, self.letters, _BYTES, ResourceGuard(self.limits))


@dataclass(frozen=True, slots=True)
class WordStep:
    """One unit of a word trace: its text, the propositions that hold at it, the state of `dfa` after it."""

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
    """After one token: the state of `dfa`, and the letters that its bytes emitted, each a set of propositions."""

    state: int
    letters: tuple[tuple[str, ...], ...]


class _TextReader:
    """Reads bytes through a text automaton, keeping the labeller state and the letter state."""

    def __init__(self, automaton: TextAutomaton) -> None:
        self._automaton = automaton
        self.labeller_state = automaton.text_start
        self.letter_state = automaton.letters.start
        self._shown = self.state

    @property
    def state(self) -> int:
        """The state of `dfa`; inside a character, the one before that character."""
        if self._automaton.dfa is self._automaton.letters:
            return self.letter_state
        if self.labeller_state < self._automaton.labeller.boundary:
            self._shown = int(self._automaton.dfa_state[self.labeller_state])
        return self._shown

    def read(self, data: bytes) -> list[int]:
        """Read bytes; the letters emitted on the way."""
        letters: list[int] = []
        for byte in data:
            self.labeller_state, emitted = self._automaton.labeller.step(self.labeller_state, byte)
            letters.extend(emitted)
        self.letter_state = self._automaton.letters.run(letters, self.letter_state)
        return letters

    def end(self) -> list[int] | None:
        """The letters that the end of the text emits, or None where it may not end here."""
        flush = int(self._automaton.labeller.flush[self.labeller_state])
        if flush == NO_END:
            return None
        letters = list(self._automaton.labeller.strings[flush])
        self.letter_state = self._automaton.letters.run(letters, self.letter_state)
        return letters


def replay(automaton: TextAutomaton, pieces: Sequence[bytes], before: str | None = None) -> tuple[ReplayStep, ...]:
    """What each token of a finished text does, read byte by byte: one step for each piece and one for EOS.

    before  what the text begins with, where the pieces are only its end
    Without it a leading space that is not part of the answer is passed over.
    """
    reader = _TextReader(automaton)
    if before is None:
        raw = b"".join(pieces).decode()
        skipped = len(raw) - len(answer_text(automaton, raw))
        first = next((number for number, piece in enumerate(pieces) if piece), 0)
        pieces = [piece[skipped:] if number == first else piece for number, piece in enumerate(pieces)]
    else:
        reader.read(before.encode())
    steps = [_replay_step(automaton, reader, reader.read(piece)) for piece in pieces]
    return (*steps, _replay_step(automaton, reader, reader.end() or []))


def _replay_step(automaton: TextAutomaton, reader: _TextReader, letters: list[int]) -> ReplayStep:
    names = (automaton.letter_names[letter] for letter in letters)
    return ReplayStep(reader.state, tuple(held for held in names if held is not None))


def states_along(automaton: TextAutomaton, text: str) -> list[int]:
    """Where a text leads: the state before its first character, and after each.

    They are states of every token automaton that is lifted from this one, whatever its vocabulary.
    """
    reader = _TextReader(automaton)
    states = [reader.labeller_state * automaton.letters.states + reader.letter_state]
    for character in text:
        reader.read(character.encode())
        states.append(reader.labeller_state * automaton.letters.states + reader.letter_state)
    return states


def shown_state(automaton: TextAutomaton, lifted_state: int) -> int | None:
    """The state of `dfa` in a state of a lifted automaton, None inside a character and after the end."""
    labeller_state, letter_state = divmod(lifted_state, automaton.letters.states)
    if automaton.dfa is automaton.letters:
        return letter_state
    return int(automaton.dfa_state[labeller_state]) if labeller_state < automaton.labeller.boundary else None


def check_text(automaton: TextAutomaton, text: str) -> TextCheck:
    """Decide whether a text satisfies the constraint, and where it first cannot any more.

    Raises UnicodeEncodeError where the text holds half of a surrogate pair.
    """
    violated_at = None if _accepts(automaton, text) else _violation(automaton, text)
    words = _word_steps(automaton, text) if automaton.traced else _unit_steps(automaton, text)
    return TextCheck(violated_at is None, words, violated_at)


def _accepts(automaton: TextAutomaton, text: str) -> bool:
    reader = _TextReader(automaton)
    reader.read(text.encode())
    return reader.end() is not None and bool(automaton.letters.accepting[reader.letter_state])


def _violation(automaton: TextAutomaton, text: str) -> int:
    """Where a text that does not satisfy the constraint goes wrong."""
    over_bytes = automaton.byte_automaton
    state = automaton.text_start * over_bytes.letter_states + automaton.letters.start
    for offset, character in enumerate(text):
        for byte in character.encode():
            state = over_bytes.advance(state, byte)
        if over_bytes.distance[state] == UNREACHABLE:
            return offset
    return len(text)


def _word_steps(automaton: TextAutomaton, text: str) -> tuple[WordStep, ...]:
    reader = _TextReader(automaton)
    letters = [*reader.read(text.encode()), *(reader.end() or [])]
    units = UNIT.findall(text)
    state, steps = automaton.letters.start, list[WordStep]()
    for letter in letters:
        state = automaton.letters.step(state, letter)
        names = automaton.letter_names[letter]
        if names is not None:
            unit = units[len(steps)] if len(steps) < len(units) else ""  # the step of `eos` has no text
            steps.append(WordStep(unit, names, state))
    return tuple(steps)


def _unit_steps(automaton: TextAutomaton, text: str) -> tuple[WordStep, ...]:
    reader, at, steps = _TextReader(automaton), 0, []
    for unit in UNIT.finditer(text):
        reader.read(text[at : unit.end()].encode())
        at = unit.end()
        steps.append(WordStep(unit[0], (), reader.state))
    return tuple(steps)


def answer_text(automaton: TextAutomaton, raw: str) -> str:
    """The answer in a generated text: without its one leading space where the constraint allows one before the text."""
    if automaton.strips_space and raw.startswith(" ") and _accepts(automaton, raw[1:]):
        return raw[1:]
    return raw
