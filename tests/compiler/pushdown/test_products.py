"""Combined machines have the combined texts, and the distances of explicit search."""

from __future__ import annotations

import random

import pytest

from compiler.automata import CharDfa
from compiler.pushdown import PushdownMachine, build_machine, complement, intersect, regular_machine, unite
from compiler.regex import pattern_dfa
from tests.compiler.pushdown.grammars import GRAMMARS, GrammarCase
from tests.compiler.pushdown.test_distances import compared, guard
from tests.references.context_free import derives, mutated, random_text
from tests.references.pushdown import toy_vocabulary

PATTERNS = {"brackets": r"[^\]]*\(\)[^\]]*", "arithmetic": r"[^-]*1[^-]*|-1", "right recursion": "(?s:.{0,5})"}
CHARS_MAX = 12


def machine_of(case: GrammarCase) -> PushdownMachine:
    return build_machine(case.grammar, guard())


def regular(pattern: str) -> tuple[CharDfa, PushdownMachine]:
    dfa = CharDfa(*pattern_dfa(pattern, guard()))
    return dfa, regular_machine(dfa, guard())


def texts(case: GrammarCase, draw: random.Random) -> list[str]:
    drawn = [random_text(case.grammar, draw)[:CHARS_MAX] for _ in range(60)]
    return [*drawn, *(mutated(text, draw, case.alphabet) for text in drawn), "", "é"]


@pytest.mark.parametrize("name", PATTERNS)
def test_a_product_has_the_common_texts_and_exact_distances(name: str) -> None:
    case, draw = GRAMMARS[name], random.Random(name)
    dfa, beside = regular(PATTERNS[name])
    both = intersect(machine_of(case), beside, guard())
    verdicts = {text: derives(case.grammar, text) and dfa.accepts(text) for text in texts(case, draw)}
    assert {text: both.accepts(text.encode()) for text in verdicts} == verdicts
    assert 1 < sum(verdicts.values()) < len(verdicts)
    for _ in range(2):
        count, wrong = compared(both, toy_vocabulary(case, draw), case.heights)
        assert wrong == [] and count > 5


@pytest.mark.parametrize("name", ["brackets", "arithmetic"])
def test_a_complement_has_the_other_texts(name: str) -> None:
    case, draw = GRAMMARS[name], random.Random(name)
    other = complement(machine_of(case))
    everything = regular("(?s:.*)")[1]
    texts_only = intersect(other, everything, guard())
    for text in texts(case, draw):
        assert other.accepts(text.encode()) == texts_only.accepts(text.encode()) == (not derives(case.grammar, text))
    assert other.accepts(b"\xff") and not texts_only.accepts(b"\xff")
    short = regular("(?s:.{0,4})")[1]
    assert compared(intersect(other, short, guard()), toy_vocabulary(case, draw), case.heights)[1] == []


def test_only_deterministic_machines_have_a_complement() -> None:
    with pytest.raises(ValueError, match="several readings"):
        complement(machine_of(GRAMMARS["dangling else"]))


def test_a_union_has_the_texts_of_all_machines() -> None:
    cases, draw = [GRAMMARS[name] for name in ("brackets", "arithmetic", "dangling else")], random.Random(2)
    any_of = unite([*map(machine_of, cases), regular("a[bc]*")[1]], guard())
    for text in [each for case in cases for each in texts(case, draw)]:
        expected = any(derives(case.grammar, text) for case in cases)
        assert any_of.accepts(text.encode()) == expected, text
    assert any_of.accepts(b"abcb") and not any_of.accepts(b"abcd")
    both = unite([machine_of(cases[0]), regular(r"\(\)\(\[")[1]], guard())
    assert compared(both, toy_vocabulary(cases[0], draw), cases[0].heights)[1] == []
