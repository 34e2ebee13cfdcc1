"""Compares our verdicts with `re.fullmatch` on thousands of patterns and texts.

The refused patterns are checked too.
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Iterable
from typing import Any

import pytest

from compiler.errors import SpecUnsupported
from compiler.limits import Limits, ResourceGuard
from compiler.regex import parse_pattern, pattern_dfa
from tests.compiler.regex.test_glushkov import ALPHABET, random_pattern
from tests.tables import table

TABLE = table("regex_pairs")
GROUPS, REFUSED = TABLE["group"], TABLE["refused"]
PAIRS_MIN = 2_000
WORDS = ("dog", "Dogs", "ice cream", "café", "x=1", "3.14", "a\n", "\n", "", "ǅ", "²", "_")


def reference(pattern: str) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `re` warns of [[ and [a||b], which may mean something else one day
        return re.compile(pattern)


def compare(pattern: str, texts: Iterable[str]) -> None:
    """The DFA's verdict on each text against `re`'s."""
    dfa, parts = pattern_dfa(pattern, ResourceGuard(Limits()))
    regex = reference(pattern)
    for text in texts:
        assert dfa.accepts(parts.word(text)) is bool(regex.fullmatch(text)), (pattern, text)


def random_pairs() -> list[tuple[str, list[str]]]:
    """Random patterns, each with random texts and with near matches."""
    rng = random.Random(77)
    drawn: list[tuple[str, list[str]]] = []
    while len(drawn) < 150:
        pattern = rng.choice(("", "", "(?i)", "(?s)", "(?a)")) + random_pattern(rng, 3)
        try:
            regex = reference(pattern)
        except re.error:
            continue
        source = "".join(rng.choice(ALPHABET) for _ in range(40))
        near = [match[0] for match in regex.finditer(source)][:5]
        texts = ["".join(rng.choice(ALPHABET) for _ in range(rng.randint(0, 4))) for _ in range(6)]
        drawn.append((pattern, [*near, *(text + "\n" for text in near), *texts, rng.choice(WORDS)]))
    return drawn


RANDOM = random_pairs()


def test_there_are_enough_pairs_of_either_verdict() -> None:
    by_hand = {(pattern, text) for group in GROUPS for pattern in group["patterns"] for text in group["texts"]}
    drawn = {(pattern, text) for pattern, texts in RANDOM for text in texts}
    assert len(by_hand) >= PAIRS_MIN and len(drawn) >= 1_000
    match_count = sum(reference(pattern).fullmatch(text) is not None for pattern, text in by_hand)
    assert len(by_hand) / 10 <= match_count <= len(by_hand) / 2


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group["name"])
def test_the_verdicts_on_the_table_are_those_of_fullmatch(group: dict[str, Any]) -> None:
    for pattern in group["patterns"]:
        compare(pattern, group["texts"])


def test_the_verdicts_on_random_pairs_are_those_of_fullmatch() -> None:
    for pattern, texts in RANDOM:
        compare(pattern, texts)


def test_the_verdicts_on_cpythons_table_are_those_of_fullmatch() -> None:
    cases = pytest.importorskip("test.re_tests", reason="this Python came without its own tests").tests
    comparisons = refused = 0
    for pattern, text, *_ in cases:
        try:
            regex = reference(pattern)
        except re.error:
            continue
        try:
            matches = [match[0] for match in regex.finditer(text)]
            compare(pattern, [text, *matches, *(matched_text + "\n" for matched_text in matches)])
            comparisons += 1
        except SpecUnsupported:
            refused += 1
    assert comparisons >= 250 and refused <= comparisons / 3


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row["pattern"])
def test_an_unsupported_construct_is_refused_by_name(row: dict[str, str]) -> None:
    reference(row["pattern"])  # that `re` takes it is why it has to be refused, and not guessed at
    with pytest.raises(SpecUnsupported, check=lambda error: error.construct == row["construct"]):
        parse_pattern(row["pattern"], ResourceGuard(Limits()))
