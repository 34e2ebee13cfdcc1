"""Compares templates with `re.fullmatch`."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from compiler.errors import LimitExceeded, SpecSyntaxError, SpecUnsupported
from compiler.forms.infill import infill_node
from compiler.limits import Limits, ResourceGuard
from compiler.regex import node_to_dfa
from tests.references.dfa import equivalent
from tests.references.text import GAPS as NAMED_GAPS
from tests.tables import rows, table

CASES = table("infill")["case"]
GAPS = {f"<|{name}|>": pattern for name, pattern in NAMED_GAPS.items()} | {"<|infill:a+|b|>": "(?:a+|b)"}
LITERALS = ("", " ", "a", ". ", "and ", "(x)*", "é", "“")
FRAGMENTS = (
    *("a", "b", " ", " ", ". ", ".", "!", ", ", "'", "-", "’s", "x_1", "é", '"', "”", "(", ")", "\n", "\u2028", "and "),
)


def template(source: str) -> Any:
    """A function that says whether a text fills the template."""
    guard = ResourceGuard(Limits())
    dfa, parts = node_to_dfa(infill_node(source, guard), guard)
    return lambda text: dfa.accepts(parts.word(text))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_table_of_templates(case: dict[str, Any]) -> None:
    fills = template(case["template"])
    for text in case["accepts"]:
        assert fills(text), text
    for text in case["rejects"]:
        assert not fills(text), text


@pytest.mark.parametrize("seed", range(4))
def test_random_templates_accept_what_their_pattern_accepts(seed: int) -> None:
    rng = random.Random(seed)
    verdicts = []
    for _ in range(15):
        pieces = [rng.choice((rng.choice(LITERALS), rng.choice(tuple(GAPS)))) for _ in range(rng.randint(1, 3))]
        fills = template("".join(pieces))
        reference = re.compile("".join(GAPS.get(piece, re.escape(piece)) for piece in pieces))
        for _ in range(80):
            text = "".join(
                rng.choice((piece, rng.choice(FRAGMENTS), "a b", "Go.")) if piece in LITERALS else random_filling(rng)
                for piece in pieces
            )
            verdicts.append(bool(reference.fullmatch(text)))
            assert fills(text) == verdicts[-1], (pieces, text)
    assert verdicts.count(True) > 20 and verdicts.count(False) > 20


def random_filling(rng: random.Random) -> str:
    return "".join(rng.choice(FRAGMENTS) for _ in range(rng.randint(1, 6)))


@pytest.mark.parametrize("gap", [gap for gap in GAPS if gap.startswith("<|infill_")])
def test_a_named_gap_is_the_pattern_that_documents_it(gap: str) -> None:
    guard = ResourceGuard(Limits())
    gap_dfa = node_to_dfa(infill_node(gap, guard), guard)
    spelled = node_to_dfa(infill_node(f"<|infill:{GAPS[gap]}|>", guard), guard)
    assert (gap_dfa[1].cuts == spelled[1].cuts).all() and (gap_dfa[1].cell == spelled[1].cell).all()
    assert equivalent(gap_dfa[0], spelled[0])


@pytest.mark.parametrize(("source", "position"), rows("forms", "an_error_names_its_offset_in_the_template"))
def test_an_error_names_its_offset_in_the_template(source: str, position: int) -> None:
    with pytest.raises(SpecSyntaxError) as excinfo:
        infill_node(source, ResourceGuard(Limits()))
    assert (excinfo.value.position, excinfo.value.field) == (position, "infill")
    assert excinfo.value.line == source[:position].count("\n") + 1


def test_an_unknown_gap_error_lists_the_known_gaps() -> None:
    with pytest.raises(SpecSyntaxError) as excinfo:
        infill_node("<|blank|>", ResourceGuard(Limits()))
    for gap in ("<|infill_word|>", "<|infill_ngram|>", "<|infill_sentence|>", "<|infill:REGEX|>"):
        assert gap in excinfo.value.expected


@pytest.mark.parametrize(("source", "construct"), rows("forms", "an_unsupported_construct_in_a_gap_is_refused_by_name"))
def test_an_unsupported_construct_in_a_gap_is_refused_by_name(source: str, construct: str) -> None:
    with pytest.raises(SpecUnsupported, check=lambda error: (error.construct, error.field) == (construct, "infill")):
        infill_node(source, ResourceGuard(Limits()))


def test_a_template_that_is_too_long_meets_the_limit() -> None:
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "template_chars_max"):
        infill_node("a" * 11, ResourceGuard(Limits(template_chars_max=10)))
