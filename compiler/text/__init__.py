"""Automata over whole texts.

The word trace of a text is a sequence of letters, one for each word or punctuation mark. A whole-text part reads the
characters themselves. Both kinds are combined into one transducer by a product of the parts that a Boolean formula
needs, and a `TextAutomaton` decides a text without a vocabulary. Label sequences are texts of another alphabet.
"""

from __future__ import annotations

from compiler.text.combination import (
    CharLeaf,
    Combined,
    Junction,
    LetterDfa,
    Negation,
    Part,
    SizeLeaf,
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
from compiler.text.transducer import Letters, Outcome

__all__ = [
    "SEPARATOR",
    "CharLeaf",
    "Combined",
    "Junction",
    "LetterDfa",
    "Letters",
    "Negation",
    "Outcome",
    "Part",
    "SizeLeaf",
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
