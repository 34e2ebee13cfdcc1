"""Constraints compiled part by part, though one automaton would do. Products are compared with that automaton."""

from __future__ import annotations

import random
from dataclasses import replace

from compiler.artifact import CompiledConstraint
from compiler.engines import NATIVE
from compiler.errors import LimitExceeded
from compiler.forms import constraint_tree
from compiler.lifting import TokenAutomaton, lift
from compiler.limits import ResourceGuard
from compiler.products import lazy_product
from compiler.pushdown import PushdownAutomaton, lift_to_tokens
from compiler.text import ConstraintTree, Parts, PartText, ProductText, PushdownText, may_split, to_text
from compiler.vocab import Vocabulary


def taken_apart(
    compiled: CompiledConstraint, vocabulary: Vocabulary, draw: random.Random, guard: ResourceGuard
) -> CompiledConstraint | None:
    """The same constraint as a product. None where it has no parts; some parts are left whole."""
    tree = constraint_tree(compiled.spec, NATIVE, guard)
    if not may_split(tree):
        return None

    def make(part: ConstraintTree, limits: ResourceGuard) -> tuple[PartText, TokenAutomaton | PushdownAutomaton]:
        splits = limits.limits != guard.limits
        if splits and draw.random() < 0.7:
            raise LimitExceeded("dfa_states_max", 0, 1)
        text = to_text(part, guard)
        if isinstance(text, PushdownText):
            return text, lift_to_tokens(text.machine, vocabulary, guard)
        return text, lift(text.transducer, text.letters, vocabulary, guard)

    parts = Parts(tree, make, guard)
    text = ProductText(
        parts=tuple(text for text, _ in parts.results[: parts.text_parts]), formula=parts.text_formula,
        strips_space=parts.strips_space, limits=guard.limits,
    )  # fmt: skip
    tokens = lazy_product([tokens for _, tokens in parts.results], parts.formula, guard)
    return replace(compiled, text=text, tokens=tokens, state_distances=())
