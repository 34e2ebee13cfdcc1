"""Transducers that emit each character's class as a letter. So whole-text constraints become DFAs over letters.

They serve where the product of all parts would have very many states, or where a transducer would need many states
inside UTF-8 characters: here one set of these states serves all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.automata import DEAD, NO_END, CharDfa, CharTransducer, Dfa, common_minterms, minimize, minimize_transducer
from compiler.limits import ResourceGuard
from compiler.text.transducer import EMPTY, LetterAlphabet, TextTransducer, silent_words
from compiler.text.whole_text import SPACE, space_apart, whole_text
from compiler.text.word_trace import WordTransducer

_NO_STATES = np.zeros(0, dtype=np.int32)  # no state of a whole-text DFA is displayed


def per_character_transducer(texts: CharDfa, leading_space: bool, guard: ResourceGuard) -> tuple[TextTransducer, Dfa]:
    """A transducer that emits each character's minterm, and a DFA over these.

    For constraints with many states that tell characters outside ASCII apart: in a transducer each would have its own
    states inside UTF-8 characters; here one set of them serves all. The last letter is a leading space, if allowed.
    """
    texts_with_space = whole_text(texts, leading_space, guard)
    states, columns = texts_with_space.next_state.shape
    # Output 1 + m is the letter of minterm m; the last one is that of the leading space.
    outputs = ((), *((letter,) for letter in range(columns + leading_space)))
    # Two states: dead, and one that every character leads back to. All that the constraint remembers is in the letter
    # DFA. The start of raw texts is a third one, where a space writes its own letter.
    next_state = np.ones((2 + leading_space, columns), dtype=np.int32)
    next_state[DEAD] = DEAD
    output = np.tile(np.arange(1, columns + 1, dtype=np.int32), (len(next_state), 1))
    output[DEAD] = EMPTY
    table = texts_with_space.next_state.astype(np.int32)
    if leading_space:
        space = texts_with_space.minterms.word(SPACE)[0]
        output[-1, space] = columns + 1
        stripped = np.arange(states, dtype=np.int32)  # read nowhere but at the start
        stripped[texts_with_space.text_start] = texts_with_space.next_state[texts_with_space.start, space]
        table = np.column_stack([table, stripped])
    final_output = np.array([NO_END, *[EMPTY] * (len(next_state) - 1)], dtype=np.int32)
    transducer = CharTransducer(
        next_state=next_state, output=output, final_output=final_output, outputs=outputs,
        minterms=texts_with_space.minterms,
    )
    # One symbol for each letter; the minimization merges those that act alike.
    symbols = np.arange(table.shape[1], dtype=np.int32)
    letters = minimize(Dfa(symbols, table, texts_with_space.accepting, texts_with_space.text_start), guard)
    return TextTransducer(
        transducer=transducer, start=len(next_state) - 1, text_start=1, display_state=_NO_STATES,
        alphabet=LetterAlphabet(),
    ), letters


@dataclass(frozen=True, slots=True, eq=False)
class CharacterClasses:
    """The classes of characters that letters tell apart, for some whole-text constraints.

    minterms  for each constraint its minterm of each class: int64 [C]
    space     the class of the space
    """

    minterms: tuple[np.ndarray, ...]
    space: int


def word_trace_per_character(
    words: WordTransducer | None, texts: Sequence[CharDfa], leading_space: bool, guard: ResourceGuard
) -> tuple[TextTransducer, CharacterClasses]:
    """The word trace, with each character's class emitted as a letter. Whole-text constraints then read these letters.

    For combinations whose joint transducer would have very many states. Raises what `joint_transducer` does.
    """
    base = words or silent_words()
    # The letters name the coarsest classes that all constraints can be read over; the space is one of them by itself.
    classes, class_members = common_minterms([part.minterms for part in texts])
    classes, old = space_apart(classes)
    parts, (word_minterm, of_class) = common_minterms([base.transducer.minterms, classes])
    outputs, output = _with_characters(base, word_minterm, of_class, classes.count)
    next_state = base.transducer.next_state[:, word_minterm]
    final_output = np.array(
        [NO_END if end == NO_END else len(outputs) + end for end in base.transducer.final_output.tolist()]
    )
    outputs += base.transducer.outputs
    start = base.start
    if leading_space:
        space = parts.word(SPACE)[0]
        outputs.append((len(base.letters) + classes.count,))
        next_state, output = np.vstack([next_state, next_state[start]]), np.vstack([output, output[start]])
        final_output = np.append(final_output, final_output[start])
        # The one step that differs: a space before the raw text's first character.
        output[-1, space] = len(outputs) - 1
        start = len(final_output) - 1
    output[next_state == DEAD] = EMPTY
    # Classes that no constraint tells apart at some state are merged by the minimization.
    product = CharTransducer(
        next_state=next_state, output=output, final_output=final_output.astype(np.int32), outputs=tuple(outputs),
        minterms=parts,
    )
    minimal_transducer, number = minimize_transducer(product, guard)
    alphabet = LetterAlphabet(
        units=base.letters,
        character_letters=classes.count,
        has_space_letter=leading_space,
        readings=1 + leading_space,
    )
    trace = TextTransducer(
        transducer=minimal_transducer, start=int(number[start]), text_start=int(number[base.start]),
        display_state=_NO_STATES, alphabet=alphabet,
    )
    return trace, CharacterClasses(tuple(word_minterm[old] for word_minterm in class_members), classes.word(SPACE)[0])


def _with_characters(
    base: WordTransducer, minterm: np.ndarray, of_class: np.ndarray, classes: int
) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """The strings that steps write, and each step's string: int32 [S, M].

    A step writes the units that it ends, and then its character's letter.
    minterm, of_class  int64 [M]: the word trace's minterm and the class of each symbol
    """
    # [S, M]: (output of the word trace, class) as one integer.
    pairs = base.transducer.output[:, minterm].astype(np.int64) * classes + of_class
    distinct, which = np.unique(pairs, return_inverse=True)
    pairs_written = (divmod(pair, classes) for pair in distinct.tolist())
    outputs = [(*base.transducer.outputs[string], len(base.letters) + letter) for string, letter in pairs_written]
    return [(), *outputs], 1 + which.reshape(pairs.shape).astype(np.int32)
