"""Automata over whole texts.

The word trace of a text is a sequence of letters, one for each word or punctuation mark. A whole-text part reads the
characters themselves. Both kinds are combined into one transducer by a product of the parts that a Boolean formula
needs, and a `TextAutomaton` decides a text without a vocabulary. Label sequences are texts of another alphabet. A
`PushdownText` decides texts of grammars and nested JSON, also in combinations, a `DistinctText` those with items that
occur once, and a `ProductText` combinations that are too large for one automaton.
"""

from __future__ import annotations

from compiler.text.captures import CapturedSpan, CaptureReader, WrittenText, written_text
from compiler.text.checks import (
    AnyText,
    AnyTokens,
    Prefix,
    TextCheck,
    answer_text,
    check_text,
    parts_of_text,
    read_prefix,
    replay,
    stripped_answer,
)
from compiler.text.combination import combine, to_char_dfa, to_text_automaton
from compiler.text.distinct_text import DistinctText
from compiler.text.labels import SEPARATOR, check_labels, label_automata
from compiler.text.machines import to_part_text, to_text
from compiler.text.product_text import PartText, ProductText
from compiler.text.pushdown_text import PushdownText, pushdown_text
from compiler.text.splitting import SPLIT_LIMITS, Parts, may_split
from compiler.text.text_automaton import (
    LabelAutomaton,
    PerCharacterAutomaton,
    TextAutomaton,
    WholeTextAutomaton,
    WordTraceAutomaton,
    states_along,
)
from compiler.text.tree import (
    BooleanNode,
    CharLeaf,
    ConstraintTree,
    DistinctLeaf,
    LengthLeaf,
    LetterDfa,
    Negation,
    PushdownLeaf,
    WordLeaf,
    approximated_paths,
    leaves_of_type,
    warnings_of,
    with_bounded_nesting,
    with_lists,
    without_bounded_leaves,
)

__all__ = [
    "SEPARATOR", "SPLIT_LIMITS", "AnyText", "AnyTokens", "BooleanNode", "CaptureReader", "CapturedSpan", "CharLeaf",
    "ConstraintTree", "DistinctLeaf", "DistinctText", "LabelAutomaton", "LengthLeaf", "LetterDfa", "Negation",
    "PartText", "Parts", "PerCharacterAutomaton", "Prefix", "ProductText", "PushdownLeaf", "PushdownText",
    "TextAutomaton", "TextCheck", "WholeTextAutomaton", "WordLeaf", "WordTraceAutomaton", "WrittenText", "answer_text",
    "approximated_paths", "check_labels", "check_text", "combine", "label_automata", "leaves_of_type", "may_split",
    "parts_of_text", "pushdown_text", "read_prefix", "replay", "states_along", "stripped_answer", "to_char_dfa",
    "to_part_text", "to_text", "to_text_automaton", "warnings_of", "with_bounded_nesting", "with_lists",
    "without_bounded_leaves", "written_text",
]  # fmt: skip
