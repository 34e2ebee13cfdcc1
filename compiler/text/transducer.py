"""One transducer for everything that reads a text: the word trace, the whole-text constraints, the count of characters.

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
    Dfa,
    Explored,
    Minterms,
    common_minterms,
    everything,
    explore,
    minimize,
    minimize_transducer,
)
from compiler.limits import ResourceGuard
from compiler.text.whole_text import SPACE, WholeText, space_apart, whole_text
from compiler.text.word_trace import WordTransducer

_EMPTY = 0  # the empty string of letters
_WAITING = 2  # the states that wait for the first space and that have missed it are the last two of a later run
Outcome = tuple[tuple[bool, ...] | None, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LetterAlphabet:
    """The letters of a joint transducer, numbered in this order.

    units     what can hold at a unit of the word trace, `eos` among them
    counted   how many letters of characters follow, of which each character emits one: none, one for all characters, or
              one for each class of them
    stripped  whether one more follows, for a space before the raw text's first character
    verdicts  then one letter for each outcome of the whole-text constraints, the last of every text where any is asked:
              for each reading of the text None where the required one is not met, else which asked ones are
    readings  2 where a raw text that begins with a space may be read with that space (0) or without it (1), else 1
    """

    units: tuple[frozenset[str], ...]
    counted: int
    verdicts: tuple[Outcome, ...]
    readings: int = 1
    stripped: bool = False

    def __len__(self) -> int:
        return len(self.units) + self.counted + self.stripped + len(self.verdicts)

    @property
    def characters(self) -> slice:
        """The letters of which each character emits one."""
        return slice(len(self.units), len(self.units) + self.counted + self.stripped)


@dataclass(frozen=True, slots=True, eq=False)
class TextTransducer:
    """A transducer over characters, the states it starts in, and its letters.

    start, text_start  before a raw text, and before an answer, which may lack one leading space of the raw text
    shown              int32 [S]: the state of the required whole-text DFA in each state
    """

    transducer: CharTransducer
    start: int
    text_start: int
    shown: np.ndarray
    letters: LetterAlphabet


def joint_transducer(
    words: WordTransducer | None,
    required: CharDfa | None,
    asked: Sequence[CharDfa],
    counted: bool,
    leading_space: bool,
    guard: ResourceGuard,
) -> TextTransducer:
    """The transducer of a text.

    words          the word trace, None where the constraint does not use it
    required       a whole-text constraint that must hold, None where there is none
    asked          whole-text constraints whose outcome the last letter reports
    counted        whether each character emits a letter
    leading_space  whether a raw text may have one space more than its answer; where an answer may begin with a space
                   itself, both readings are followed
    Raises LimitExceeded over `dfa_states_max`, `table_bytes_max` or `compile_s_max`.
    """
    if not asked and not counted:
        whole = whole_text(required or everything(), leading_space, guard)
        if words is None:
            return _alone(whole)
        return _ProductBuilder(words, whole, (), False, leading_space, guard).joint()
    whole = whole_text(required or everything(), False, guard)
    reader = _ProductBuilder(words, whole, asked, counted, leading_space, guard)
    if not leading_space:
        return reader.joint()
    space = whole.minterms.word(SPACE)[0]
    both = bool(whole.live[whole.next_state[whole.start, space]])
    return reader.two_readings() if both else reader.without_space()


def _alone(whole: WholeText) -> TextTransducer:
    """A whole-text constraint by itself: no letters at all. State s of its table is state s + 1."""
    dead = ~whole.live[whole.next_state]
    table = np.where(dead, DEAD, whole.next_state + 1)
    table[~whole.live] = DEAD
    next_state = np.concatenate([np.zeros((1, table.shape[1]), dtype=table.dtype), table]).astype(np.int32)
    flush = np.concatenate([[NO_END], np.where(whole.accepting, _EMPTY, NO_END)]).astype(np.int32)
    transducer = CharTransducer(next_state, np.zeros_like(next_state), flush, ((),), whole.minterms)
    dead_state = int(np.argmin(whole.live))  # where there is one, else any: nothing leads to DEAD but bad bytes
    shown = np.concatenate([[dead_state], whole.shown]).astype(np.int32)
    return TextTransducer(transducer, whole.start + 1, whole.text_start + 1, shown, LetterAlphabet((), False, ()))


def letter_by_letter(texts: CharDfa, leading_space: bool, guard: ResourceGuard) -> tuple[TextTransducer, Dfa]:
    """A whole-text constraint as a transducer that emits each character's minterm, and the DFA that reads them.

    For constraints with many states that tell characters outside ASCII apart: in a labeller each would have its own
    states inside UTF-8 characters; here one set of them serves all. The last letter is a leading space, if allowed.
    """
    whole = whole_text(texts, leading_space, guard)
    states, columns = whole.next_state.shape
    strings = ((), *((letter,) for letter in range(columns + leading_space)))
    next_state = np.ones((2 + leading_space, columns), dtype=np.int32)
    next_state[DEAD] = DEAD
    emission = np.tile(np.arange(1, columns + 1, dtype=np.int32), (len(next_state), 1))
    emission[DEAD] = _EMPTY
    table = whole.next_state.astype(np.int32)
    if leading_space:
        space = whole.minterms.word(SPACE)[0]
        emission[-1, space] = columns + 1
        stripped = np.arange(states, dtype=np.int32)  # read nowhere but at the start
        stripped[whole.text_start] = whole.next_state[whole.start, space]
        table = np.column_stack([table, stripped])
    flush = np.array([NO_END, *[_EMPTY] * (len(next_state) - 1)], dtype=np.int32)
    transducer = CharTransducer(next_state, emission, flush, strings, whole.minterms)
    symbols = np.arange(table.shape[1], dtype=np.int32)
    letters = minimize(Dfa(symbols, table, whole.accepting, whole.text_start), guard)
    nowhere = np.zeros(0, dtype=np.int32)
    return TextTransducer(transducer, len(next_state) - 1, 1, nowhere, LetterAlphabet((), False, ())), letters


@dataclass(frozen=True, slots=True, eq=False)
class CharacterClasses:
    """The classes of characters that letters tell apart, for some whole-text constraints.

    own    for each constraint its minterm of each class: int64 [C]
    space  the class of the space
    """

    own: tuple[np.ndarray, ...]
    space: int


def spelled_words(
    words: WordTransducer | None, texts: Sequence[CharDfa], leading_space: bool, guard: ResourceGuard
) -> tuple[TextTransducer, CharacterClasses]:
    """The word trace alone, each character emitting its class as well: whole-text constraints are then read as letters.

    For combinations whose joint transducer would have very many states. Raises what `joint_transducer` does.
    """
    base = words or _silent()
    classes, own = common_minterms([part.minterms for part in texts])
    classes, old = space_apart(classes)
    parts, (mine, of_class) = common_minterms([base.transducer.minterms, classes])
    first, strings = len(base.letters), list[tuple[int, ...]]([()])
    pairs = base.transducer.emission[:, mine].astype(np.int64) * classes.count + of_class
    distinct, which = np.unique(pairs, return_inverse=True)
    for string, letter in (divmod(pair, classes.count) for pair in distinct.tolist()):
        strings.append((*base.transducer.strings[string], first + letter))
    next_state, emission = base.transducer.next_state[:, mine], 1 + which.reshape(pairs.shape).astype(np.int32)
    flush = np.array([NO_END if end == NO_END else len(strings) + end for end in base.transducer.flush.tolist()])
    strings += base.transducer.strings
    start = base.start
    if leading_space:
        space = parts.word(SPACE)[0]
        strings.append((first + classes.count,))
        next_state, emission = np.vstack([next_state, next_state[start]]), np.vstack([emission, emission[start]])
        flush = np.append(flush, flush[start])
        emission[-1, space] = len(strings) - 1
        start = len(flush) - 1
    emission[next_state == DEAD] = _EMPTY
    whole = CharTransducer(next_state, emission, flush.astype(np.int32), tuple(strings), parts)
    smaller, number = minimize_transducer(whole, guard)
    letters = LetterAlphabet(base.letters, classes.count, (), 1 + leading_space, leading_space)
    joint = TextTransducer(smaller, int(number[start]), int(number[base.start]), np.zeros(0, dtype=np.int32), letters)
    return joint, CharacterClasses(tuple(mine[old] for mine in own), classes.word(SPACE)[0])


class _ProductBuilder:
    """Builds the product of the parts that read the text, and writes its letters."""

    def __init__(
        self,
        words: WordTransducer | None,
        whole: WholeText,
        asked: Sequence[CharDfa],
        counted: bool,
        leading_space: bool,
        guard: ResourceGuard,
    ) -> None:
        self._guard = guard
        self._whole, self._asked, self._counted = whole, asked, counted
        self._words = words or _silent()
        families = [self._words.transducer.minterms, whole.minterms, *(part.minterms for part in asked)]
        parts, own = common_minterms(families)
        if leading_space:
            parts, old = space_apart(parts)
            own = [mine[old] for mine in own]
        self._parts, self._own = parts, own
        self._strings: dict[tuple[int, ...], int] = {(): _EMPTY}
        self._verdicts: dict[Outcome, int] = {}

    def joint(self) -> TextTransducer:
        """One reading, which `whole` starts as it wants."""
        starts = [[self._words.start, first, *self._behind()] for first in (self._whole.start, self._whole.text_start)]
        found = explore(self._tables(), self._live(), starts, self._guard)
        start, text_start = found.starts
        return self._finished(found, start, text_start)

    def without_space(self) -> TextTransducer:
        """No answer begins with a space: a raw text that does is read without it."""
        found = explore(
            self._tables(), self._live(), [[self._words.start, self._whole.start, *self._behind()]], self._guard
        )
        text_start = found.starts[0]
        row = found.next_state[text_start].copy()
        row[self._parts.word(SPACE)[0]] = text_start
        again = Explored(
            np.vstack([found.next_state, row]), np.vstack([found.component, found.component[text_start]]), found.starts
        )
        return self._finished(again, len(again.next_state) - 1, text_start, silent=len(again.next_state) - 1)

    def two_readings(self) -> TextTransducer:
        """Each whole-text constraint is run twice, from the raw text's start and from behind its first space."""
        tables, live = self._tables(), self._live()
        space = self._parts.word(SPACE)[0]
        behind = [self._whole.start, *self._behind()]
        later = [_later(table, start, space) for table, start in zip(tables[1:], behind, strict=True)]
        always = [np.ones(len(table), dtype=bool) for table in (*tables[1:], *later)]
        waiting = [len(table) - _WAITING for table in later]
        starts = [[self._words.start, *behind, *(at + step for at in waiting)] for step in (0, 1)]
        found = explore([*tables, *later], [live[0], *always], starts, self._guard)
        start, text_start = found.starts
        return self._finished(found, start, text_start, readings=2)

    def _behind(self) -> list[int]:
        return [part.dfa.start for part in self._asked]

    def _tables(self) -> list[np.ndarray]:
        """The tables of the word trace, of the required and of the asked constraints, over the shared minterms."""
        own = [part.dfa.next_state[:, part.dfa.symbol_class] for part in self._asked]
        tables = [self._words.transducer.next_state, self._whole.next_state, *own]
        return [table[:, mine] for table, mine in zip(tables, self._own, strict=True)]

    def _live(self) -> list[np.ndarray]:
        """Where each part may be: a required constraint alive, an asked one anywhere."""
        alive = np.arange(len(self._words.transducer.flush)) != DEAD
        return [alive, self._whole.live, *(np.ones(part.dfa.states, dtype=bool) for part in self._asked)]

    def _finished(
        self, found: Explored, start: int, text_start: int, silent: int | None = None, readings: int = 1
    ) -> TextTransducer:
        """The transducer of an explored product. silent: the state whose step over a space emits nothing."""
        words, component = self._words.transducer, found.component
        whole_state = component[:, 1]
        outcomes = self._outcomes(component, readings)
        alive = self._alive(component, readings)
        next_state = np.where(alive[found.next_state], found.next_state, SINK)
        emission = self._emissions(words.emission[:, self._own[0]][component[:, 0]])
        if silent is not None:
            emission[silent, self._parts.word(SPACE)[0]] = _EMPTY
        emission[next_state == SINK] = _EMPTY
        flush = self._flush(words.flush[component[:, 0]], outcomes)
        transducer = CharTransducer(next_state, emission, flush, tuple(self._strings), self._parts)
        smaller, number = minimize_transducer(transducer, self._guard)
        first = np.unique(number, return_index=True)[1]
        shown = self._whole.shown[np.minimum(whole_state, len(self._whole.shown) - 1)][first].astype(np.int32)
        letters = LetterAlphabet(self._words.letters, self._counted, tuple(self._verdicts), readings)
        return TextTransducer(smaller, int(number[start]), int(number[text_start]), shown, letters)

    def _alive(self, component: np.ndarray, readings: int) -> np.ndarray:
        """bool [S]: the states in which the required constraint can still be met by some reading; not the sink."""
        alive = self._whole.live[component[:, 1]]
        if readings == 2:
            second = component[:, 2 + len(self._asked)]
            behind = np.concatenate([self._whole.live, [True, False]])  # waiting, or gone
            alive = alive | behind[second]
        alive[SINK] = False
        return np.asarray(alive)

    def _outcomes(self, component: np.ndarray, readings: int) -> list[Outcome]:
        """What each state says of the whole-text constraints, if the text ends there."""
        columns: list[np.ndarray] = []
        width = 1 + len(self._asked)
        for reading in range(readings):
            parts = [self._whole.accepting, *(part.dfa.accepting for part in self._asked)]
            for number, accepting in enumerate(parts):
                known = np.concatenate([accepting, [False, False]])  # no text ends where it has not begun
                columns.append(known[component[:, 1 + reading * width + number]])
        met = np.column_stack(columns).tolist()
        return [
            tuple(
                tuple(row[reading * width + 1 : (reading + 1) * width]) if row[reading * width] else None
                for reading in range(readings)
            )
            for row in met
        ]

    def _string(self, letters: tuple[int, ...]) -> int:
        return self._strings.setdefault(letters, len(self._strings))

    def _emissions(self, emitted: np.ndarray) -> np.ndarray:
        """What each step emits: the letters of the word trace, and that of the character where it is counted."""
        character = (len(self._words.letters),) if self._counted else ()
        of = {old: self._string(self._words.transducer.strings[old] + character) for old in np.unique(emitted).tolist()}
        table = np.zeros(max(of) + 1, dtype=np.int32)
        table[list(of)] = list(of.values())
        return np.asarray(table[emitted])

    def _flush(self, flush: np.ndarray, outcomes: list[Outcome]) -> np.ndarray:
        """What each end emits: the letters that end the word trace, and what is asked of whole texts."""
        tells = bool(self._asked) or len(outcomes[SINK]) > 1
        numbers = np.full(len(flush), NO_END, dtype=np.int32)
        for state, outcome in enumerate(outcomes):
            if state == SINK or flush[state] == NO_END or not any(met is not None for met in outcome):
                continue
            string = self._words.transducer.strings[flush[state]]
            if tells:
                verdict = self._verdicts.setdefault(outcome, len(self._verdicts))
                string = (*string, len(self._words.letters) + self._counted + verdict)
            numbers[state] = self._string(string)
        return numbers


def _later(table: np.ndarray, start: int, space: int) -> np.ndarray:
    """The same automaton started behind a space: two states more, which wait for it and which have missed it."""
    states, columns = table.shape
    waiting, gone = np.full(columns, states + 1), np.full(columns, states + 1)
    waiting[space] = start
    return np.vstack([table, waiting, gone]).astype(table.dtype)


def _silent() -> WordTransducer:
    """The word trace of a constraint that uses none: one state, no letters."""
    parts: Minterms = everything().minterms
    table = np.array([[DEAD], [1]], dtype=np.int32)
    flush = np.array([NO_END, _EMPTY], dtype=np.int32)
    return WordTransducer(CharTransducer(table, np.zeros_like(table), flush, ((),), parts), 1, ())
