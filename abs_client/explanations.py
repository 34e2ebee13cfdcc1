"""What the service says of a compiled constraint."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any


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
    """What is probably a mistake in a constraint.

    line, column  where it is in a grammar, from 1
    field         the path of the part of the constraint
    suggestion    edits of the request that were probably meant; `apply_suggestion` applies them
    """

    message: str
    _: KW_ONLY
    line: int | None = None
    column: int | None = None
    field: str | None = None
    suggestion: tuple[dict[str, Any], ...] | None = None


@dataclass(frozen=True)
class State:
    """A state of an automaton. `distance`: fewest tokens to the end; None for a dead state."""

    id: int
    accepting: bool
    distance: int | None = None


@dataclass(frozen=True)
class Transition:
    """All letters that lead from one state to another. They are indices into the automaton's `letters`."""

    source: int = field(metadata={"json_name": "from"})
    to: int
    letters: tuple[int, ...]
