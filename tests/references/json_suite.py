"""Runs the official JSON Schema suite and writes the documentation's table.

`ABS_TESTS_FULL=1 python -m tests.references.json_suite` writes the table. A group is one schema with its instances;
each instance is written in our order and spacing and must be accepted or rejected as in the suite.
"""

from __future__ import annotations

import collections
import json
import lzma
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from compiler.automata import CharDfa
from compiler.errors import LimitExceeded, SpecSyntaxError, SpecUnsupported
from compiler.json_schema import SchemaRules, schema_dfa, schema_texts, schema_violation
from compiler.limits import Limits, ResourceGuard
from compiler.pushdown import network_machine
from tests.references.json_instances import write_instance
from tests.servers.cluster import FULL

# A line for each draft: the groups of its tests, and the documents that their references lead to.
SUITE = Path(__file__).resolve().parents[1] / "cases" / "json_schema_suite.jsonl.xz"
METASCHEMAS = {
    "draft4": "http://json-schema.org/draft-04/schema#", "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}  # fmt: skip
# The short form: the drafts between the oldest and the newest share their groups with one of them.
DRAFTS = tuple(METASCHEMAS) if FULL else ("draft4", "draft2020-12")
EVERY = 1 if FULL else 4  # of the groups of each file, the first among them


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

    def add(self, group: dict[str, Any], verdicts: list[bool]) -> None:
        """Count a group by its verdicts."""
        self.compiled += 1
        for verdict, test in zip(verdicts, group["tests"], strict=True):
            self.tests += 1
            if verdict != test["valid"]:
                name = f"{group['description']}: {test['description']}"
                (self.narrower if test["valid"] else self.wider).append(name)


@cache
def suites() -> dict[str, dict[str, Any]]:
    """The suite of each draft."""
    lines = lzma.decompress(SUITE.read_bytes()).decode().split("\n")
    return {suite["draft"]: suite for suite in map(json.loads, filter(None, lines))}


def groups(draft: str, every: int = EVERY) -> Iterator[dict[str, Any]]:
    """The judged groups of a draft, some of each file."""
    seen = collections.Counter[str]()
    for group in suites()[draft]["groups"]:
        if seen[group["file"]] % every == 0:
            yield group
        seen[group["file"]] += 1


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


def of_draft(schema: object, draft: str) -> object:
    """The schema with its draft, which older suites do not write."""
    return {"$schema": METASCHEMAS[draft], **schema} if isinstance(schema, dict) else schema


def judge_group(
    group: dict[str, Any], draft: str, schemas: Mapping[str, object], whitespace: Literal["compact", "pretty"], *,
    by_rules: bool = False,
) -> list[bool] | str:
    """The verdict on each instance of a group, or the refusal's name.

    by_rules  whether rules decide, without a bound of depth, wherever they express the schema
    """
    schema, guard = of_draft(group["schema"], draft), ResourceGuard(Limits())
    try:
        depth = max(nesting(test["data"]) for test in group["tests"])
        automaton: CharDfa | SchemaRules
        if by_rules:
            automaton = schema_texts(
                schema, whitespace, None, no_constraint, guard=guard, schemas=schemas, explicit_states_max=0
            )
        else:
            automaton = schema_dfa(schema, whitespace, depth, no_constraint, guard=guard, schemas=schemas)
    except (SpecUnsupported, LimitExceeded, SpecSyntaxError) as error:
        return refusal(error)
    texts = [write_instance(schema, test["data"], whitespace, schemas) for test in group["tests"]]
    if isinstance(automaton, SchemaRules):
        machine = network_machine(automaton.names, automaton.rules, guard)
        return [machine.accepts(text.encode()) for text in texts]
    return [automaton.accepts(text) for text in texts]


@cache
def run(
    draft: str, whitespace: Literal["compact", "pretty"] = "compact", *, by_rules: bool = False
) -> dict[str, Tally]:
    """The suite of a draft, by file."""
    tallies: dict[str, Tally] = {}
    for group in groups(draft, 2 * EVERY if by_rules and EVERY > 1 else EVERY):
        tally = tallies.setdefault(group["file"], Tally())
        verdicts = judge_group(group, draft, suites()[draft]["remotes"], whitespace, by_rules=by_rules)
        if isinstance(verdicts, str):
            tally.refused[verdicts] = tally.refused.get(verdicts, 0) + 1
            continue
        tally.add(group, verdicts)
    return tallies


@cache
def check_by_value(draft: str) -> dict[str, Tally]:
    """The suite of a draft by file, decided by value."""
    tallies: dict[str, Tally] = {}
    schemas = suites()[draft]["remotes"]
    for group in groups(draft):
        tally, schema = tallies.setdefault(group["file"], Tally()), of_draft(group["schema"], draft)
        try:
            found = [
                schema_violation(schema, text, no_constraint, ResourceGuard(Limits()), schemas=schemas)
                for text in (json.dumps(test["data"], indent=1) for test in group["tests"])
            ]
        except (SpecUnsupported, LimitExceeded, SpecSyntaxError) as error:
            tally.refused[refusal(error)] = tally.refused.get(refusal(error), 0) + 1
            continue
        tally.add(group, [violation is None for violation in found])
    return tallies


def markdown_table() -> str:
    """The table of docs/json.md: a row for each draft."""
    lines = ["| draft | groups compiled | tests right | refused by name | by value |", "|---|---|---|---|---|"]
    for draft in METASCHEMAS:
        tallies = run(draft).values()
        refused: collections.Counter[str] = collections.Counter()
        for tally in tallies:
            refused.update(tally.refused)
        compiled, correct, tests = (
            sum(getattr(tally, key) for tally in tallies) for key in ("compiled", "correct", "tests")
        )
        reasons = ", ".join(f"`{reason}` {count}" for reason, count in sorted(refused.items()))
        values = check_by_value(draft).values()
        by_value = f"{sum(tally.correct for tally in values)} of {sum(tally.tests for tally in values)}"
        groups = f"{compiled} of {compiled + refused.total()}"
        lines.append(f"| {draft} | {groups} | {correct} of {tests} | {reasons} | {by_value} |")
    return "\n".join(lines)


if __name__ == "__main__":
    assert FULL, "the table is that of ABS_TESTS_FULL=1"
    print(markdown_table())
