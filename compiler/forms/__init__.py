"""One builder for each constraint form.

A builder turns the `Spec` of its form into a leaf of the tree that `compiler.text` combines: an automaton over letters,
over characters or over lengths. Templates, inflected keywords and automata of the caller have modules of their own.
Grammars become pushdown machines, and so do schemas that recur, leave values open or are large. The parts of a sequence
are rules of one machine, or one automaton over characters where that is small.
"""

from __future__ import annotations

from compiler.forms.build import (
    approximated_keywords,
    capture_readers,
    constraint_tree,
    unenforced_keywords,
    value_violation,
)
from compiler.forms.token_names import check_token_names

__all__ = [
    "approximated_keywords", "capture_readers", "check_token_names", "constraint_tree", "unenforced_keywords",
    "value_violation",
]  # fmt: skip
