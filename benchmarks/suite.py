"""The constraints of the compile benchmark: ours, and the same for each engine that can express it.

Owns the type of a row and the table's order; the rows themselves are in `suite_patterns` (regexes), `suite_schemas`
(JSON) and `suite_words` (word traces, templates, combinations).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

ENGINES = ("ours", "outlines_core", "xgrammar", "llguidance")
PEERS = ENGINES[1:]
PRECOMPUTING = ("outlines_core", "xgrammar")  # llguidance works a mask out when it is asked for it
ExpressionKind = Literal["constraint", "regex", "json_schema", "lark"]


@dataclass(frozen=True, slots=True)
class Expression:
    """A constraint as one engine writes it.

    kind  what `text` is: our constraint as JSON, a regex, a JSON schema, a grammar in llguidance's Lark
    note  how its language differs from ours; empty where it is the same
    """

    kind: ExpressionKind
    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """A row: our constraint object, and how the peers write it; an engine that is missing cannot express it."""

    name: str
    family: str
    constraint: Mapping[str, object]
    peers: Mapping[str, Expression] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = set(self.peers) - set(PEERS)
        if unknown:
            raise ValueError(f"{self.name}: no engine is called {', '.join(sorted(unknown))}")


def for_all(expression: Expression, *, but: Mapping[str, Expression | None] | None = None) -> dict[str, Expression]:
    """One expression for every peer, except as `but` says; None there means that the engine cannot."""
    chosen = dict.fromkeys(PEERS, expression) | dict(but or {})
    return {engine: found for engine, found in chosen.items() if found is not None}


def suite(shared: Path) -> tuple[Case, ...]:
    """Every row. `shared` holds data/commongen. ValueError where two rows have one name."""
    from benchmarks import suite_patterns, suite_schemas, suite_words  # they import the types above

    rows = (*suite_patterns.cases(shared), *suite_schemas.cases(), *suite_words.cases(shared))
    names = [row.name for row in rows]
    if len(set(names)) != len(names):
        raise ValueError(f"two rows share a name: {sorted(name for name in names if names.count(name) > 1)}")
    return rows
