"""The official JSON Schema suite of five drafts."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler.json_schema.dialects import ANNOTATIONS, ASSERTIONS
from tests.references.json_suite import DRAFTS, markdown_table, run
from tests.servers.cluster import FULL
from tests.tables import table

PAGE = Path(__file__).parents[3] / "docs" / "json.md"
REFUSED_SHARE_MAX = 0.1  # of a draft's groups
WRONG = {entry["file"]: entry for entry in table("json_schema")["suite"]}


@pytest.mark.parametrize("draft", DRAFTS)
def test_wrong_verdicts_are_only_those_that_are_listed(draft: str) -> None:
    for name, tally in run(draft).items():
        entry = WRONG.get(name, {})
        assert len(tally.narrower) <= entry.get("narrower", 0), (name, tally.narrower)
        assert len(tally.wider) <= entry.get("wider", 0), (name, tally.wider)


@pytest.mark.skipif(not FULL, reason="only with ABS_TESTS_FULL=1, because it needs every draft")
def test_every_listed_difference_occurs_and_has_a_reason() -> None:
    for name, entry in WRONG.items():
        tallies = [run(draft)[name] for draft in DRAFTS if name in run(draft)]
        assert entry.get("narrower", 0) == max(len(tally.narrower) for tally in tallies), name
        assert entry.get("wider", 0) == max(len(tally.wider) for tally in tallies), name
        assert entry["why"], name


@pytest.mark.parametrize("draft", DRAFTS)
def test_at_most_a_tenth_of_the_groups_is_refused(draft: str) -> None:
    refused = sum(sum(tally.refused.values()) for tally in run(draft).values())
    assert refused <= REFUSED_SHARE_MAX * sum(tally.compiled for tally in run(draft).values())


def test_refusals_name_a_keyword_or_a_limit() -> None:
    known = {*ASSERTIONS, *ANNOTATIONS, "pattern syntax", "dfa_states_max"}
    for draft in DRAFTS:
        for tally in run(draft).values():
            assert set(tally.refused) <= known


def test_white_space_changes_only_which_limits_are_met() -> None:
    for name, tally in run("draft2020-12", "pretty").items():
        compact = run("draft2020-12")[name]
        difference = tally.refused.get("dfa_states_max", 0) - compact.refused.get("dfa_states_max", 0)
        assert tally.compiled == compact.compiled - difference, name
        assert set(tally.narrower) <= set(compact.narrower) and set(tally.wider) <= set(compact.wider), name


@pytest.mark.parametrize("draft", DRAFTS if FULL else DRAFTS[-1:])
def test_rules_decide_as_automata_do(draft: str) -> None:
    for name, tally in run(draft, by_rules=True).items():
        expected = run(draft)[name]
        assert sum(tally.refused.values()) <= sum(expected.refused.values()), name
        assert set(tally.wider) <= set(expected.wider) and set(tally.narrower) <= set(expected.narrower), name


@pytest.mark.skipif(not FULL, reason="only with ABS_TESTS_FULL=1, because it needs every draft")
def test_the_page_shows_the_table_of_this_run() -> None:
    assert markdown_table() in PAGE.read_text(encoding="utf-8")
