"""One builder for each constraint form.

A builder turns the `Spec` of its form into a leaf of the tree that `compiler.text` combines: an automaton over letters,
over characters or over lengths. Templates, inflected keywords and automata of the caller have modules of their own.
Grammars become pushdown machines, which are no leaves, and so do schemas that stand alone if they recur or are large.
"""

from __future__ import annotations

from compiler.forms.build import (
    approximated_keywords,
    constraint_tree,
    lone_form,
    unenforced_keywords,
    value_violation,
)
from compiler.forms.grammar import PushdownForm, pushdown_text

__all__ = [
    "PushdownForm", "approximated_keywords", "constraint_tree", "lone_form", "pushdown_text", "unenforced_keywords",
    "value_violation",
]  # fmt: skip
