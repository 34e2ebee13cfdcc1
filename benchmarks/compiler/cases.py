"""The types of the compile benchmark's cases.

A case is one of our constraints, and the same constraint as each other engine expresses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ENGINES = ("ours", "outlines_core", "xgrammar", "llguidance")
PEERS = ENGINES[1:]
ExpressionKind = Literal["constraint", "regex", "json_schema", "lark", "structural_tag"]


@dataclass(frozen=True, slots=True)
class Expression:
    """A constraint in the form that one engine takes.

    kind  of `text`: our constraint as JSON, a regex, a JSON schema, a grammar in llguidance's Lark, or a structural tag
          of XGrammar
    note  how its language differs from that of our constraint; empty: it is the same
    """

    kind: ExpressionKind
    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class CompileCase:
    """A case. `peers` maps an engine to its form; an engine that is missing cannot express the constraint."""

    name: str
    family: str
    constraint: Mapping[str, object]
    peers: Mapping[str, Expression] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = set(self.peers) - set(PEERS)
        if unknown:
            raise ValueError(f"{self.name}: no engine is called {', '.join(sorted(unknown))}")


def for_all(expression: Expression, *, but: Mapping[str, Expression | None] | None = None) -> dict[str, Expression]:
    """The same form for every peer. `but` replaces the form of some; None: the engine cannot express it."""
    forms = dict.fromkeys(PEERS, expression) | dict(but or {})
    return {engine: form for engine, form in forms.items() if form is not None}
