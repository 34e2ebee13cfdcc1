"""Runs the official JSON Schema suite and writes the documentation's table.

`python -m tests.references.json_suite` writes the table. A group is one schema with its instances; each instance is
written in our order and spacing and must be accepted or rejected as in the suite. Data:
<shared>/data/json_schema_suite.
"""

from __future__ import annotations

import collections
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from compiler.automata import CharDfa
from compiler.errors import LimitExceeded, SpecSyntaxError, SpecUnsupported
from compiler.json_schema import schema_dfa
from compiler.limits import Limits, ResourceGuard
from tests.references.json_instances import write_instance

ROOT = Path(__file__).resolve().parents[2]
DRAFT = "draft2020-12.jsonl"


@dataclass
class Tally:
    """What became of the groups of one file.

    refused   how many groups, by the name that the refusal gave
    narrower  the tests whose instance is valid and was rejected; `wider` those the other way round
    """

    compiled: int = 0
    tests: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    narrower: list[str] = field(default_factory=list)
    wider: list[str] = field(default_factory=list)

    @property
    def correct(self) -> int:
        return self.tests - len(self.narrower) - len(self.wider)


def groups(shared: Path) -> Iterator[dict[str, Any]]:
    """The groups of the suite, in its order."""
    with (shared / "data" / "json_schema_suite" / DRAFT).open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def no_constraint(value: object, where: str) -> CharDfa:
    """The suite knows nothing of our own keyword."""
    raise SpecUnsupported("no constraints here", construct="constraint", field=where)


def nesting(value: object) -> int:
    """How many arrays and objects are around the innermost value."""
    inside = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inside is None else 1 + max(map(nesting, inside), default=0)


def refusal(error: Exception) -> str:
    """The name that a refusal gives."""
    if isinstance(error, SpecUnsupported):
        return error.construct
    return error.limit if isinstance(error, LimitExceeded) else "pattern syntax"


def judge_group(group: dict[str, Any], whitespace: Literal["compact", "pretty"]) -> list[bool] | str:
    """The verdict on each instance of a group, or the refusal's name."""
    try:
        depth = max(nesting(test["data"]) for test in group["tests"])
        automaton = schema_dfa(group["schema"], whitespace, depth, no_constraint, guard=ResourceGuard(Limits()))
    except (SpecUnsupported, LimitExceeded, SpecSyntaxError) as error:
        return refusal(error)
    texts = (write_instance(group["schema"], test["data"], whitespace) for test in group["tests"])
    return [automaton.accepts(text) for text in texts]


def run(shared: Path, whitespace: Literal["compact", "pretty"] = "compact") -> dict[str, Tally]:
    """The whole suite, by file."""
    tallies: dict[str, Tally] = {}
    for group in groups(shared):
        tally = tallies.setdefault(group["file"].removesuffix(".json"), Tally())
        verdicts = judge_group(group, whitespace)
        if isinstance(verdicts, str):
            tally.refused[verdicts] = tally.refused.get(verdicts, 0) + 1
            continue
        tally.compiled += 1
        for verdict, test in zip(verdicts, group["tests"], strict=True):
            tally.tests += 1
            name = f"{group['description']}: {test['description']}"
            if verdict != test["valid"]:
                (tally.narrower if test["valid"] else tally.wider).append(name)
    return tallies


def markdown_table(tallies: dict[str, Tally]) -> str:
    """The table of docs/constraints/json_schema.md. Files without a wrong verdict share a row."""
    lines = ["| suite file | groups compiled | tests right | refused by name |", "|---|---|---|---|"]
    perfect = {name: tally for name, tally in tallies.items() if not tally.refused and tally.correct == tally.tests}
    lines.append(_row(", ".join(perfect), list(perfect.values())))
    lines += [_row(name, [tally]) for name, tally in tallies.items() if name not in perfect]
    return "\n".join([*lines, _row("**all**", list(tallies.values()))])


def _row(name: str, tallies: list[Tally]) -> str:
    refused: collections.Counter[str] = collections.Counter()
    for tally in tallies:
        refused.update(tally.refused)
    compiled, correct, tests = (
        sum(getattr(tally, key) for tally in tallies) for key in ("compiled", "correct", "tests")
    )
    reasons = ", ".join(f"`{reason}` {count}" for reason, count in sorted(refused.items()))
    refusals = reasons if len(tallies) == 1 else str(refused.total() or "")
    return f"| {name} | {compiled} of {compiled + refused.total()} | {correct} of {tests} | {refusals} |"


def main() -> None:
    """Write the table to standard output."""
    print(markdown_table(run(Path(os.environ.get("ABS_SHARED", ROOT.parent / "shared")))))


if __name__ == "__main__":
    main()
