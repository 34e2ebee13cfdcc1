"""Automata over whole texts.

The word trace of a text is a sequence of letters, one for each word or punctuation mark. A whole-text part reads the
characters themselves. Both kinds are combined into one transducer by a product of the parts that a Boolean formula
needs, and a `TextAutomaton` decides a text without a vocabulary. Label sequences are texts of another alphabet.
"""

from __future__ import annotations

from compiler.text.combination import (
    BooleanNode,
    CharLeaf,
    Combined,
    ConstraintTree,
    LengthLeaf,
    LetterDfa,
    Negation,
    WordLeaf,
    combine,
    flattened,
)
from compiler.text.labels import SEPARATOR, check_labels, label_automata
from compiler.text.text_automaton import (
    TextAutomaton,
    TextCheck,
    answer_text,
    check_text,
    replay,
    shown_state,
    states_along,
)
from compiler.text.transducer import LetterAlphabet, Outcome

__all__ = [
    "SEPARATOR",
    "BooleanNode",
    "CharLeaf",
    "Combined",
    "ConstraintTree",
    "LengthLeaf",
    "LetterAlphabet",
    "LetterDfa",
    "Negation",
    "Outcome",
    "TextAutomaton",
    "TextCheck",
    "WordLeaf",
    "answer_text",
    "check_labels",
    "check_text",
    "combine",
    "flattened",
    "label_automata",
    "replay",
    "shown_state",
    "states_along",
]
