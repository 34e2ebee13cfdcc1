"""What the service says of a compiled constraint."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ExplainedLetter:
    """A letter of an automaton, in words. `holds`: its propositions; None for a letter that is no set of them."""

    name: str
    means: str
    holds: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ExplainedState:
    """A state of an automaton. `distance`: fewest tokens to the end; None for a dead state."""

    state: int
    distance: int | None
    accepting: bool
    start: bool


@dataclass(frozen=True)
class Explanation:
    """A compiled constraint in sentences and examples.

    letters, states            the first ones; `letters_more` and `states_more` count the others
    shortest                   a shortest accepted text; None if it is too long to show
    samples                    random accepted texts
    """

    sentences: tuple[str, ...]
    letters: tuple[ExplainedLetter, ...] = ()
    letters_more: int = 0
    states: tuple[ExplainedState, ...] = ()
    states_more: int = 0
    shortest: str | None = None
    samples: tuple[str, ...] = ()


@dataclass(frozen=True)
class CompileWarning:
    """What is probably a mistake in a grammar. `line` and `column` count from 1."""

    message: str
    line: int
    column: int
