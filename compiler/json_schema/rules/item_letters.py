"""Letters behind the items of arrays that hold no equal items.

A letter names the value of the item before it. So the set of values so far need not be states: it is counted beside the
automaton that reads the letters. Behind an array stands the letter FORGET.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.automata import NO_END, CharDfa, CharTransducer, Dfa, coarsened, minimize_transducer, unique_rows
from compiler.json_schema.arrays import FORGET, Word
from compiler.json_schema.compiler import SchemaCompiler
from compiler.json_schema.fragments import DEAD, START, Fragment, Operation, combine, fragment_of
from compiler.json_schema.rules.letters import Edge, OutsideRules, read_letters
from compiler.limits import ResourceGuard

_NO_OUTPUT = 0


@dataclass(frozen=True, slots=True, eq=False)
class LetteredTexts:
    """The texts of a schema, read by a transducer that writes letters.

    A text belongs to the schema where it writes no letter twice without FORGET between.

    start    the state before a text
    letters  how many there are, FORGET aside
    """

    transducer: CharTransducer
    start: int
    letters: int


class LetterCompiler(SchemaCompiler):
    """Compiles a document with letters behind many unique items.

    Raises OutsideRules where a combination of texts would need them to be the same letters, and what SchemaCompiler
    raises.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._first: dict[tuple[Word, ...], int] = {}
        self._letters = FORGET

    def first_letter(self, words: tuple[Word, ...]) -> int:
        """The first letter of those behind an array's items. Equal lists share theirs."""
        if words not in self._first:
            self._first[words] = self._letters + 1
            self._letters += len(words)
        return self._first[words]

    def labelled(self, text: Fragment | None, tests: Sequence[Fragment | None]) -> Fragment | None:
        """The text, labelled by the tests that it fits, as in `label_by`."""
        _require_no_letters([text, *tests] if any(tests) else [])
        return super().labelled(text, tests)

    def combine(
        self, left: Fragment | None, right: Fragment | None, operation: Operation, guard: ResourceGuard
    ) -> Fragment | None:
        """As `combine`, where only a union may have letters."""
        _require_no_letters([] if operation == "or" else [left, right])
        return combine(left, right, operation, guard)

    def lettered(self, dfa: Dfa) -> LetteredTexts | None:
        """The texts of a minimal automaton of this compiler. None where they have no letter."""
        text = fragment_of(dfa)
        assert text is not None
        read = read_letters(text)
        if not read.letters:
            return None
        # Characters that act alike are one minterm. No symbol reads the column of a letter's first character any more.
        columns, symbols = np.unique(read.characters.columns, return_inverse=True)
        first, column = unique_rows(read.characters.table[:, columns].T)
        table, ends = read.characters.table[:, columns[first]], read.characters.label != 0
        words = _Words(read.letters)
        has_text = table.any(axis=1) | ends  # states with a character, or the end, behind them
        # A letter is written with the character before it; behind a number, which may go on, with the one behind it.
        pairs = [(state, *words.behind(state, has_text)) for state in range(len(table))]
        behind, output = np.array([(target, words.number(word)) for _, target, word in pairs], dtype=np.int32).T
        next_state, written = behind[table], output[table]
        final_output = np.where(ends, _NO_OUTPUT, NO_END).astype(np.int32)
        for state in filter(has_text.__getitem__, read.letters):
            letter, after = words.only(state)
            live = table[after] != DEAD
            if after in read.letters or (table[state, live] != DEAD).any() or ends[after]:
                raise OutsideRules("one text writes a letter where another writes none")
            next_state[state, live] = behind[table[after, live]]
            written[state, live] = [words.number((letter, *pairs[target][2])) for target in table[after, live].tolist()]
        texts = CharDfa(Dfa(column[symbols].astype(np.int32), table, ends, START), self.alphabet.minterms)
        transducer = CharTransducer(
            next_state=next_state, output=written, final_output=final_output, outputs=tuple(words.numbers),
            minterms=coarsened(texts).minterms,
        )
        smaller, number = minimize_transducer(transducer, self.guard)
        return LetteredTexts(smaller, int(number[START]), self._letters)


class _Words:
    """The letters of a fragment's states, and strings of them.

    numbers  of the strings, which a transducer writes
    """

    def __init__(self, letters: Mapping[int, list[Edge]]) -> None:
        self._letters = letters
        self.numbers: dict[Word, int] = {(): _NO_OUTPUT}

    def number(self, word: Word) -> int:
        return self.numbers.setdefault(word, len(self.numbers))

    def only(self, state: int) -> Edge:
        """The letter of a state, and the state behind it. Raises OutsideRules where it has several."""
        if len(self._letters[state]) > 1:
            raise OutsideRules("two texts write different letters at one place")
        return self._letters[state][0]

    def behind(self, state: int, has_text: np.ndarray) -> tuple[int, Word]:
        """The state behind letters, and these. A state that reads more stays where it is."""
        word = Word()
        while state in self._letters and not has_text[state]:
            letter, state = self.only(state)
            word = (*word, letter)
        return state, word


def _require_no_letters(texts: Sequence[Fragment | None]) -> None:
    if any(text is not None and read_letters(text).letters for text in texts):
        raise OutsideRules("texts with the letters of items are combined")
