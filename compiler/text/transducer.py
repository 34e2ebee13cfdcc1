"""One transducer for all parts that read a text. These are the word trace, the whole-text constraints and the count of
characters.

It emits letters of three kinds: what holds at a unit; one for each character, where characters are counted; and, at the
end of the text, which whole-text constraints were met, where a formula still asks. Knows no formula and no token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.automata import (
    DEAD,
    NO_END,
    SINK,
    CharDfa,
    CharTransducer,
    Minterms,
    ProductGraph,
    common_minterms,
    everything,
    explore,
    minimize_transducer,
)
from compiler.limits import ResourceGuard
from compiler.text.whole_text import SPACE, WholeText, space_apart, whole_text
from compiler.text.word_trace import WordTransducer

EMPTY = 0  # the empty string of letters
Outcome = tuple[tuple[bool, ...] | None, ...]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LetterAlphabet:
    """The letters of a text's transducer. They are numbered in the order of these fields.

    units             what can hold at a unit of the word trace, `eos` among them
    character_letters how many letters of characters follow, of which each character emits one: none, one for all
                      characters, or one for each class of them
    has_space_letter  whether one more follows, for a space before the raw text's first character
    outcomes          then one letter for each outcome of the whole-text constraints, the last letter of every text
                      where there are optional ones: for each reading of the text None where the mandatory constraint
                      is not met, else for each optional one whether it is met
    readings          2 where a raw text that begins with a space may be read with that space (reading 0) or without it
                      (reading 1), else 1
    """

    units: tuple[frozenset[str], ...] = ()
    character_letters: int = 0
    has_space_letter: bool = False
    outcomes: tuple[Outcome, ...] = ()
    readings: int = 1

    def __len__(self) -> int:
        return len(self.units) + self.character_letters + self.has_space_letter + len(self.outcomes)

    @property
    def characters(self) -> slice:
        """The letters of which each character emits one."""
        return slice(len(self.units), len(self.units) + self.character_letters + self.has_space_letter)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TextTransducer:
    """A transducer over characters, the states it starts in, and its letters.

    start, text_start  before a raw text, and before an answer, which may lack one leading space of the raw text
    display_state      int32 [S]: the state of the mandatory whole-text DFA in each state; empty where it runs none
    """

    transducer: CharTransducer
    start: int
    text_start: int
    display_state: np.ndarray
    alphabet: LetterAlphabet


def joint_transducer(
    words: WordTransducer | None,
    mandatory: CharDfa | None,
    optional: Sequence[CharDfa],
    counts_characters: bool,
    *,
    leading_space: bool,
    guard: ResourceGuard,
) -> TextTransducer:
    """The transducer of a text.

    words              the word trace, None where the constraint does not use it
    mandatory          a whole-text constraint that must hold, None where there is none
    optional           whole-text constraints whose outcome the last letter reports
    counts_characters  whether each character emits a letter
    leading_space      whether a raw text may have one space more than its answer; where an answer may begin with a
                       space itself, both readings are followed
    Raises LimitExceeded over `dfa_states_max`, `table_bytes_max` or `compile_s_max`.
    """
    if not optional and not counts_characters:
        whole_part = whole_text(mandatory or everything(), leading_space, guard)
        if words is None:
            return _single_transducer(whole_part)
        return _ProductBuilder(words, whole_part, (), False, leading_space=leading_space, guard=guard).one_reading()
    # Two readings or a start of its own take care of the leading space below.
    whole_part = whole_text(mandatory or everything(), False, guard)
    builder = _ProductBuilder(words, whole_part, optional, counts_characters, leading_space=leading_space, guard=guard)
    if not leading_space:
        return builder.one_reading()
    space = whole_part.minterms.word(SPACE)[0]
    # Where no answer begins with a space, the space before a raw text can be nothing else.
    both = bool(whole_part.live[whole_part.next_state[whole_part.start, space]])
    return builder.two_readings() if both else builder.without_space()


def _single_transducer(whole_part: WholeText) -> TextTransducer:
    """A whole-text constraint by itself: no letters at all. State s of its table is state s + 1."""
    # Steps into dead states lead to the transducer's own dead state, so that they can be dropped early.
    dead = ~whole_part.live[whole_part.next_state]
    table = np.where(dead, DEAD, whole_part.next_state + 1)
    table[~whole_part.live] = DEAD
    next_state = np.concatenate([np.zeros((1, table.shape[1]), dtype=table.dtype), table]).astype(np.int32)
    final_output = np.concatenate([[NO_END], np.where(whole_part.accepting, EMPTY, NO_END)]).astype(np.int32)
    transducer = CharTransducer(
        next_state=next_state, output=np.zeros_like(next_state), final_output=final_output, outputs=((),),
        minterms=whole_part.minterms,
    )
    dead_state = int(np.argmin(whole_part.live))  # where there is one, else any: nothing leads to DEAD but bad bytes
    display_state = np.concatenate([[dead_state], whole_part.display_state]).astype(np.int32)
    return TextTransducer(
        transducer=transducer, start=whole_part.start + 1, text_start=whole_part.text_start + 1,
        display_state=display_state, alphabet=LetterAlphabet(),
    )


class _ProductBuilder:
    """Builds the product of the components that read a text. It also writes the product's letters."""

    def __init__(
        self,
        words: WordTransducer | None,
        whole_part: WholeText,
        optional: Sequence[CharDfa],
        counts_characters: bool,
        *,
        leading_space: bool,
        guard: ResourceGuard,
    ) -> None:
        self._guard = guard
        self._mandatory, self._optional, self._counts_characters = whole_part, optional, counts_characters
        self._optional_starts = [part.dfa.start for part in optional]
        self._words = words or silent_words()
        # All parts read the same minterms: the coarsest ones that each part's are made of.
        families = [self._words.transducer.minterms, whole_part.minterms, *(part.minterms for part in optional)]
        minterms, members = common_minterms(families)
        if leading_space:
            minterms, old = space_apart(minterms)
            members = [part[old] for part in members]
        self._minterms = minterms
        self._members = members  # for each part, which of its own minterms holds each shared one: int64 [M]
        self._outputs: dict[tuple[int, ...], int] = {(): EMPTY}
        self._outcome_letters: dict[Outcome, int] = {}

    def one_reading(self) -> TextTransducer:
        """The transducer of one reading. The mandatory constraint's start decides whether it reads a leading space."""
        firsts = (self._mandatory.start, self._mandatory.text_start)
        starts = [[self._words.start, first, *self._optional_starts] for first in firsts]
        explored = explore(self._tables(), self._live(), starts, self._guard)
        start, text_start = explored.starts
        return self._text_transducer(explored, start, text_start)

    def without_space(self) -> TextTransducer:
        """The transducer for answers that never begin with a space. A raw text that does is read without it."""
        text_starts = [self._words.start, self._mandatory.start, *self._optional_starts]
        explored = explore(self._tables(), self._live(), [text_starts], self._guard)
        text_start = explored.starts[0]
        # one more state, the start of raw texts: like the start of answers, but a space leads to that start
        row = explored.next_state[text_start].copy()
        row[self._minterms.word(SPACE)[0]] = text_start
        with_start = ProductGraph(
            np.vstack([explored.next_state, row]),
            np.vstack([explored.component, explored.component[text_start]]),
            explored.starts,
        )
        # At the leading space the word trace has no step yet, so this state emits nothing.
        start = len(with_start.next_state) - 1
        return self._text_transducer(with_start, start, text_start, silent=start)

    def two_readings(self) -> TextTransducer:
        """The transducer with two runs of each whole-text constraint.

        One starts at the raw text's start, the other behind its first space.
        """
        tables, live = self._tables(), self._live()
        space = self._minterms.word(SPACE)[0]
        whole_tables, own_starts = tables[1:], [self._mandatory.start, *self._optional_starts]
        delayed = [_after_space(table, start, space) for table, start in zip(whole_tables, own_starts, strict=True)]
        # one reading may fail while the other goes on, so that no whole-text part ends the product by itself
        always = [np.ones(len(table), dtype=bool) for table in (*whole_tables, *delayed)]
        before_space = [len(table) for table in whole_tables]
        missed_space = [len(table) + 1 for table in whole_tables]
        starts = [[self._words.start, *own_starts, *second] for second in (before_space, missed_space)]
        explored = explore([*tables, *delayed], [live[0], *always], starts, self._guard)
        start, text_start = explored.starts
        return self._text_transducer(explored, start, text_start, readings=2)

    def _tables(self) -> list[np.ndarray]:
        """The tables of all components over the shared minterms.

        The word trace comes first, then the mandatory and the optional constraints.
        """
        # [S, M] over each part's own minterms, which `_members` maps to the shared ones.
        optional = [part.dfa.next_state[:, part.dfa.symbol_class] for part in self._optional]
        tables = [self._words.transducer.next_state, self._mandatory.next_state, *optional]
        return [table[:, members] for table, members in zip(tables, self._members, strict=True)]

    def _live(self) -> list[np.ndarray]:
        """The live states of each component.

        The mandatory constraint must be alive, and an optional one may be in any state.
        """
        alive = np.arange(len(self._words.transducer.final_output)) != DEAD
        return [alive, self._mandatory.live, *(np.ones(part.dfa.states, dtype=bool) for part in self._optional)]

    def _text_transducer(
        self, explored: ProductGraph, start: int, text_start: int, silent: int | None = None, *, readings: int = 1
    ) -> TextTransducer:
        """The transducer of an explored product. `silent` is the state whose step over a space emits nothing."""
        words, word_state = self._words.transducer, explored.component[:, 0]
        # int32 [readings, 1 + optional, S]: the state of the mandatory and of each optional constraint.
        whole_states = explored.component[:, 1:].T.reshape(readings, 1 + len(self._optional), -1)
        outcomes = [self._outcomes(states) for states in whole_states]
        alive = self._alive(whole_states[:, 0])
        # With two readings the product itself goes on until both are dead: such states become the sink here.
        next_state = np.where(alive[explored.next_state], explored.next_state, SINK)
        output = self._outputs_of(words.output[:, self._members[0]][word_state])
        if silent is not None:
            output[silent, self._minterms.word(SPACE)[0]] = EMPTY
        output[next_state == SINK] = EMPTY
        final_output = self._final_outputs(words.final_output[word_state], list(zip(*outcomes, strict=True)))
        transducer = CharTransducer(
            next_state=next_state, output=output, final_output=final_output, outputs=tuple(self._outputs),
            minterms=self._minterms,
        )
        minimal_transducer, number = minimize_transducer(transducer, self._guard)
        # The first product state of each minimized state stands for it.
        first = np.unique(number, return_index=True)[1]
        display = self._mandatory.display_state
        display_state = display[np.minimum(whole_states[0, 0], len(display) - 1)][first].astype(np.int32)
        alphabet = LetterAlphabet(
            units=self._words.letters,
            character_letters=int(self._counts_characters),
            outcomes=tuple(self._outcome_letters),
            readings=readings,
        )
        return TextTransducer(
            transducer=minimal_transducer, start=int(number[start]), text_start=int(number[text_start]),
            display_state=display_state, alphabet=alphabet,
        )

    def _alive(self, mandatory: np.ndarray) -> np.ndarray:
        """The states in which some reading can still satisfy the mandatory constraint.

        mandatory  int32 [readings, S]: its state
        The sink is none of them: bool [S].
        """
        # In the last two states a delayed reading waits for the space, or has missed it.
        alive = np.concatenate([self._mandatory.live, [True, False]])[mandatory].any(axis=0)
        alive[SINK] = False
        return np.asarray(alive)

    def _outcomes(self, states: np.ndarray) -> list[tuple[bool, ...] | None]:
        """The outcome of the whole-text constraints at the end of the text.

        It is that of one reading, for each state.

        states  int32 [1 + optional, S]: the state of each constraint
        """
        accepting = [self._mandatory.accepting, *(part.dfa.accepting for part in self._optional)]
        # No constraint accepts in the two states of a delayed reading.
        holds = [np.append(accepts, [False, False])[row] for accepts, row in zip(accepting, states, strict=True)]
        return [tuple(optional) if met else None for met, *optional in np.array(holds).T.tolist()]

    def _string(self, letters: tuple[int, ...]) -> int:
        return self._outputs.setdefault(letters, len(self._outputs))

    def _outputs_of(self, emitted: np.ndarray) -> np.ndarray:
        """The output of each step.

        It consists of the word trace's letters and, where characters are counted, the character's letter.
        """
        # The units that a step ends come before the character that ends them.
        character = (len(self._words.letters),) if self._counts_characters else ()
        of = {old: self._string(self._words.transducer.outputs[old] + character) for old in np.unique(emitted).tolist()}
        table = np.zeros(max(of) + 1, dtype=np.int32)
        table[list(of)] = list(of.values())
        return np.asarray(table[emitted])

    def _final_outputs(self, final_output: np.ndarray, outcomes: list[Outcome]) -> np.ndarray:
        """The output of each end.

        It consists of the letters that end the word trace and the outcome of the whole-text constraints.
        """
        # With one reading and no optional constraint the end of the text says nothing new: it exists only where the
        # text is accepted.
        emits_outcome = bool(self._optional) or len(outcomes[SINK]) > 1
        first = len(self._words.letters) + self._counts_characters
        # A text may not end where the word trace may not, or where no reading meets the mandatory constraint.
        numbers = np.full(len(final_output), NO_END, dtype=np.int32)
        for state, outcome in enumerate(outcomes):
            if state == SINK or final_output[state] == NO_END or all(met is None for met in outcome):
                continue
            string = self._words.transducer.outputs[final_output[state]]
            if emits_outcome:
                number = self._outcome_letters.setdefault(outcome, len(self._outcome_letters))
                string = (*string, first + number)
            numbers[state] = self._string(string)
        return numbers


def _after_space(table: np.ndarray, start: int, space: int) -> np.ndarray:
    """The table of a reading that begins behind a space.

    `table` is [S, K], the result [S + 2, K]. State S waits for the space, and S + 1 is the dead state after another
    character.

    It has two states more than its automaton: S waits for the space, S + 1 has missed it, which is a dead state.
    """
    # Any other first character has missed the space for good.
    missed = np.full(table.shape[1], len(table) + 1)
    waiting = missed.copy()
    waiting[space] = start
    return np.vstack([table, waiting, missed]).astype(table.dtype)


def silent_words() -> WordTransducer:
    """The word trace of a constraint without words. It has one state and no letters."""
    parts: Minterms = everything().minterms
    # State 1 reads every character and writes nothing.
    table = np.array([[DEAD], [1]], dtype=np.int32)
    final_output = np.array([NO_END, EMPTY], dtype=np.int32)
    return WordTransducer(
        CharTransducer(
            next_state=table, output=np.zeros_like(table), final_output=final_output, outputs=((),), minterms=parts
        ),
        1,
        (),
    )
