"""Explanations, examples and conflicts.

Nothing here is on the path of a compilation that succeeds. An explanation says in sentences what a constraint accepts,
with sampled texts. A conflict is a minimal unsatisfiable subset of the parts of a constraint that no text satisfies.
"""

from __future__ import annotations

from compiler.diagnostics.conflict import conjuncts, explain_unsatisfiable
from compiler.diagnostics.explanation import ConstraintExplanation, explain, with_caller_names
from compiler.diagnostics.prose import contradiction
from compiler.diagnostics.unspellable import missing_characters

__all__ = [
    "ConstraintExplanation", "conjuncts", "contradiction", "explain", "explain_unsatisfiable",
    "missing_characters", "with_caller_names",
]  # fmt: skip
