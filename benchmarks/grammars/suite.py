"""The grammars of the benchmark, each with texts of its language."""

from __future__ import annotations

import json
import tomllib
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from benchmarks.compiler.cases import Expression
from benchmarks.report.grammars import TITLES

_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class GrammarCase:
    """A grammar in Lark's syntax with texts.

    accepted  texts that it derives; `rejected` those that it does not
    beside    constraints of ours that hold, too; no other engine takes them
    """

    name: str
    grammar: str
    accepted: tuple[str, ...]
    rejected: tuple[str, ...]
    _: KW_ONLY
    beside: tuple[dict[str, Any], ...] = ()

    @property
    def rules(self) -> int:
        """How many rules the grammar has, terminals not counted."""
        return sum(line[:1].islower() for line in self.grammar.splitlines())

    def expression(self, engine: str) -> Expression | None:
        """The grammar as an engine takes it; None where it cannot.

        outlines-core knows schemas alone.
        """
        if self.beside:
            parts = [{"grammar": self.grammar, "syntax": "lark"}, *self.beside]
            return Expression("constraint", json.dumps({"all": parts})) if engine == "ours" else None
        if engine == "outlines_core":
            return Expression("json_schema", "{}", "bounded nesting") if self.name == "json" else None
        return Expression("lark", self.grammar)


def cases() -> list[GrammarCase]:
    """All grammars."""
    texts = tomllib.loads((_HERE / "texts.toml").read_text(encoding="utf-8"))
    return [
        GrammarCase(name, (_HERE / f"{name}.lark").read_text(encoding="utf-8"), *(
            tuple(texts[name][kind]) for kind in ("accepted", "rejected")
        ))
        for name in TITLES
    ]  # fmt: skip
