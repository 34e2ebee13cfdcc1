"""The result of a compilation."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.lifting import TokenAutomaton
from compiler.spec import Spec
from compiler.text import TextAutomaton


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CompiledConstraint:
    """A constraint, compiled for one vocabulary.

    text             the automaton over texts
    tokens           the automaton over the vocabulary's ids
    state_distances  per state of text.display_dfa the fewest tokens to acceptance, None where it is dead
    vocabulary       fingerprint of the vocabulary
    not_enforced     JSON pointers of schema keywords that have no effect
    approximate      JSON pointers of schema keywords that have none because the caller allows it
    """

    spec: Spec
    text: TextAutomaton
    tokens: TokenAutomaton
    state_distances: tuple[int | None, ...]
    vocabulary: str
    not_enforced: tuple[str, ...] = ()
    approximate: tuple[str, ...] = ()
