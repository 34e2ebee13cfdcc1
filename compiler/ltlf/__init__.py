"""Formulas of linear temporal logic on finite traces to automata.

A formula is parsed, simplified and translated by progression: a state is the formula that the rest of the trace must
satisfy, kept canonical as a BDD over its temporal parts. MONA, through ltlf2dfa's translation, is an optional second
engine. Operators of the past are followed beside either. The automata are over letters, which are sets of propositions.
"""

from __future__ import annotations

from compiler.ltlf.dialects import glued_operators
from compiler.ltlf.mona import formula_to_dfa_mona
from compiler.ltlf.mona_program import require_ltlf2dfa
from compiler.ltlf.parsing import parse_formula
from compiler.ltlf.past import formula_to_dfa
from compiler.ltlf.printing import print_formula
from compiler.ltlf.syntax import TEMPORAL, Builder, LtlfFormula, Op, propositions_of, subformula
from compiler.ltlf.tokens import formula_tokens

__all__ = [
    "TEMPORAL",
    "Builder",
    "LtlfFormula",
    "Op",
    "formula_to_dfa",
    "formula_to_dfa_mona",
    "formula_tokens",
    "glued_operators",
    "parse_formula",
    "print_formula",
    "propositions_of",
    "require_ltlf2dfa",
    "subformula",
]  # fmt: skip
