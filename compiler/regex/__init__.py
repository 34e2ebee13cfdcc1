"""Patterns to automata.

A pattern in the syntax of Python or of ECMAScript is parsed into a tree, translated by Glushkov's construction and
determinized by the powerset construction. Look-arounds are conditions between positions, and obligations on the rest of
the text; an atomic group becomes positions and look-aheads. FAdo is an optional second engine behind the same
interface. What no regular language can express is refused with the construct and its place.
"""

from __future__ import annotations

from compiler.regex.ecmascript import parse_ecmascript
from compiler.regex.fado import node_to_dfa_fado, require_fado
from compiler.regex.glushkov import CharNfa, positions_of
from compiler.regex.native import node_nfa, node_to_dfa, pattern_dfa
from compiler.regex.nodes import (
    EMPTY,
    Alternation,
    Anchor,
    AtomicGroup,
    Chars,
    Concat,
    Look,
    Node,
    Repeat,
    Words,
    alternation,
    concat,
    has_anchor,
    has_condition,
    leaves_of,
    literal_node,
    space_run_node,
    words_node,
)
from compiler.regex.powerset import determinize
from compiler.regex.syntax import blame_field, parse_pattern
from compiler.regex.unsupported import COMMENT_OR_CLASS, ESCAPE

__all__ = [
    "COMMENT_OR_CLASS", "EMPTY", "ESCAPE", "Alternation", "Anchor", "AtomicGroup", "CharNfa", "Chars", "Concat", "Look",
    "Node", "Repeat", "Words", "alternation", "blame_field", "concat", "determinize", "has_anchor", "has_condition",
    "leaves_of", "literal_node", "node_nfa", "node_to_dfa", "node_to_dfa_fado", "parse_ecmascript",
    "parse_pattern", "pattern_dfa", "positions_of", "require_fado", "space_run_node", "words_node",
]  # fmt: skip
