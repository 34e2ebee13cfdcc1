"""The official JSON Schema suite, with a guard of the supported part."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

from compiler.json_schema.dialects import KNOWN_KEYWORDS
from tests.references.json_suite import Tally, markdown_table, run
from tests.tables import table

PAGE = Path(__file__).parents[3] / "docs" / "constraints" / "json_schema.md"
PINNED = {entry["file"]: entry for entry in table("json_schema")["suite"]}


@cache
def tallies(shared: Path, whitespace: Literal["compact", "pretty"]) -> dict[str, Tally]:
    return run(shared, whitespace)


def test_each_file_of_the_suite_has_its_pinned_tally(shared: Path) -> None:
    results = {}
    for name, tally in tallies(shared, "compact").items():
        counts = {"narrower": len(tally.narrower), "wider": len(tally.wider), "refused": tally.refused}
        positive_counts = {key: value for key, value in counts.items() if value}
        results[name] = {"compiled": tally.compiled, "right": tally.correct, **positive_counts}
    assert results == {
        name: {key: entry[key] for key in entry if key not in ("file", "why")} for name, entry in PINNED.items()
    }


def test_every_wrong_verdict_has_a_reason() -> None:
    for name, entry in PINNED.items():
        assert bool(entry.get("narrower") or entry.get("wider")) == bool(entry.get("why")), name


def test_only_ecmascript_patterns_accept_more_than_the_schema(shared: Path) -> None:
    assert [name for name, tally in tallies(shared, "compact").items() if tally.wider] == ["optional/ecmascript-regex"]


def test_white_space_changes_only_which_limits_are_met(shared: Path) -> None:
    for name, tally in tallies(shared, "pretty").items():
        compact = tallies(shared, "compact")[name]
        difference = tally.refused.pop("dfa_states_max", 0) - compact.refused.get("dfa_states_max", 0)
        assert tally.compiled == compact.compiled - difference, name
        assert set(tally.narrower) <= set(compact.narrower) and set(tally.wider) <= set(compact.wider), name


def test_refusals_name_a_keyword_or_a_limit(shared: Path) -> None:
    for tally in tallies(shared, "compact").values():
        names = {*KNOWN_KEYWORDS, "$dynamicRef", "pattern syntax", "dfa_states_max"}
        assert set(tally.refused) <= names


def test_the_page_shows_the_table_of_this_run(shared: Path) -> None:
    assert markdown_table(tallies(shared, "compact")) in PAGE.read_text(encoding="utf-8")
