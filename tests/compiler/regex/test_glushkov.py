"""Compares the pattern compiler with `re.fullmatch` on tables and random patterns."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Iterable
from typing import Any

import pytest

from compiler.automata import minimize
from compiler.errors import LimitExceeded, SpecUnsupported
from compiler.limits import Limits, ResourceGuard
from compiler.regex import (
    CharNfa,
    Node,
    alternation,
    concat,
    literal_node,
    node_nfa,
    node_to_dfa,
    parse_pattern,
    pattern_dfa,
    space_run_node,
)
from tests.references.dfa import byte_dfa
from tests.tables import table

CASES = table("regex")["case"]
LEAVES = (
    *("a", "b", "A", "k", "K", "1", " ", "_", "é", "ß", "ſ", "😀", "\u212a", ".", "^", "$", r"\n", r"\A", r"\Z"),
    *(r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", "[ab]", "[^a]", "[a-cK]", r"[^\n]", r"[\w-]", r"[^\W\d]", "[à-ü]"),
    *(r"\x00", "[\U0001f600-\U0001f64f]", r"[\x00-\x7f]", "[\U00010400b]"),
)
REPEATS = ("*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "{,2}", "*?", "+?", "??")
ALPHABET = "abAkK1 _.\n\0éÉß\u1e9eſs\u212a😀\U00010400\U00010428\x80\u07ff\u0800\uffff"


def position_automaton(pattern: str) -> CharNfa:
    guard = ResourceGuard(Limits())
    return node_nfa(parse_pattern(pattern, guard), guard)


def compile_pattern(pattern: str, limits: Limits | None = None) -> Any:
    """A function that decides texts. It checks that the DFAs over characters and over bytes agree."""
    guard = ResourceGuard(limits or Limits())
    dfa, parts = pattern_dfa(pattern, guard)
    over_bytes, _ = byte_dfa(dfa, parts, guard)

    def accepts(text: str) -> bool:
        verdict = dfa.accepts(parts.word(text))
        assert over_bytes.accepts(text.encode()) == verdict
        return verdict

    return accepts


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_table_of_patterns(case: dict[str, Any]) -> None:
    accepts, reference = compile_pattern(case["pattern"]), re.compile(case["pattern"])
    for text in case["accepts"]:
        assert reference.fullmatch(text) and accepts(text), text
    for text in case["rejects"]:
        assert not reference.fullmatch(text) and not accepts(text), text


def random_pattern(rng: random.Random, depth: int) -> str:
    kind = rng.random()
    if depth == 0 or kind < 0.3:
        return rng.choice(LEAVES)
    if kind < 0.6:
        return "".join(random_pattern(rng, depth - 1) for _ in range(rng.randint(0, 3)))
    if kind < 0.75:
        return f"(?:{'|'.join(random_pattern(rng, depth - 1) for _ in range(rng.randint(1, 3)))})"
    if kind < 0.9:
        return f"({random_pattern(rng, depth - 1)}){rng.choice(REPEATS)}"
    return f"(?{rng.choice(('i', 's', 'a', 'is', '-i', 'x', '-s', 'ai', 'u'))}:{random_pattern(rng, depth - 1)})"


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.sample(2)
def test_random_patterns_accept_what_fullmatch_accepts(seed: int) -> None:
    rng, comparisons = random.Random(seed), 0
    while comparisons < 100:
        pattern = rng.choice(("", "", "(?i)", "(?s)", "(?a)", "(?ia)")) + random_pattern(rng, 3)
        try:
            reference = re.compile(pattern)
        except re.error:
            continue
        accepts, comparisons = compile_pattern(pattern), comparisons + 1
        texts = ["".join(rng.choice(ALPHABET) for _ in range(rng.randint(0, 5))) for _ in range(25)]
        near = [match[0] for match in reference.finditer("".join(rng.choice(ALPHABET) for _ in range(40)))][:5]
        for text in (*texts, *near, *(text + "\n" for text in near), rng.choice(WORDS)):
            assert accepts(text) == bool(reference.fullmatch(text)), (pattern, text)


@pytest.mark.parametrize(
    "pattern", ["(a|b)*a(a|b){3}", "cat|category|dog", r"\d{2}:\d{2}", ".{0,9}", "a*b*c*", "a|a(c*b*)*(b|c)"]
)
def test_the_result_is_minimal(pattern: str) -> None:
    dfa, _ = pattern_dfa(pattern, ResourceGuard(Limits()))
    minimal = minimize(dfa)
    assert minimal.states == dfa.states and (minimal.next_state == dfa.next_state).all()


@pytest.mark.parametrize(
    "pattern", ["(?:a{1000}){1000}", "(?:" * 9 + "a" + "{4000000000})" * 9 + "?", "(?:(?:a|b){500}c?){41}"]
)
def test_too_many_positions_are_refused_before_any_is_built(pattern: str) -> None:
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "nfa_positions_max"):
        position_automaton(pattern)


@pytest.mark.parametrize(
    ("pattern", "limit", "cap"),
    [
        ("(a|b)*a(a|b){14}", "dfa_states_max", 500),
        ("[abcdefgh]{1,400}", "table_bytes_max", 500),
        ("(?>(?:a{1000}|b){1000})b", "nfa_positions_max", 10_000),
        ("(?>[ab]*a[ab]{20})c", "dfa_states_max", 1_000),
        ("(?>(?:a?){500})b", "table_bytes_max", 20_000),
        (f"(?>{'|'.join(f'(?=.*{chr(0x4E00 + number)})a' for number in range(12))}|b+)", "dfa_states_max", 1_000),
        ("(?=(?:a{1000}){1000})a", "nfa_positions_max", 10_000),
        ("(?:(?=.*a.{12}b)(?!.*b.{9}a).)*", "dfa_states_max", 500),
    ],
)
def test_a_pattern_that_outgrows_a_limit_names_it(pattern: str, limit: str, cap: int) -> None:
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == limit):
        pattern_dfa(pattern, ResourceGuard(Limits(**{limit: cap})))


@pytest.mark.parametrize("pattern", ["(?:){1000}", "(?:^|$){7}", "(?:^){9,}a?", "(?:a{0}){3}", "a{0,0}"])
def test_repeating_an_empty_pattern_costs_nothing(pattern: str) -> None:
    accepts = compile_pattern(pattern)
    for text in ("", "a", "\n"):
        assert accepts(text) == bool(re.fullmatch(pattern, text))


def test_a_billion_repeats_of_nothing_are_nothing() -> None:
    accepts = compile_pattern("(?:(?:)|a{0}){1000000000}")  # `re` itself would count them
    assert accepts("") and not accepts("a")


def test_a_thousand_words_are_accepted_and_nothing_else() -> None:
    rng = random.Random(4)
    words = sorted({"".join(rng.choice("etaoinshr") for _ in range(rng.randint(2, 6))) for _ in range(1000)})
    accepts = compile_pattern("|".join(words), Limits(pattern_chars_max=100_000))
    texts = words + [word[:-1] for word in words] + [word + "e" for word in words]
    assert [text for text in texts if accepts(text)] == [text for text in texts if text in set(words)]


def test_trees_built_by_hand_compile_like_patterns() -> None:
    guard = ResourceGuard(Limits())
    ice_cream = concat([literal_node("ice", True), space_run_node(), literal_node("cream", True)])
    dfa, parts = node_to_dfa(alternation([ice_cream, literal_node("Straße", True)]), guard)
    for text in ("ice cream", "ICE \t CREAM", "icecream", "STRAẞE", "strasse", "ice cream "):
        assert dfa.accepts(parts.word(text)) == bool(re.fullmatch(r"(?i)ice\s+cream|straße", text))


def test_a_position_automaton_has_first_last_and_follow_sets() -> None:
    nfa = position_automaton("ab*")
    assert (nfa.positions, nfa.first, nfa.last, nfa.follow, nfa.nullable) == (2, 0b01, 0b11, (0b10, 0b10), False)
    assert [nfa.sets[set_number] for set_number in nfa.position_set] == [((97, 98),), ((98, 99),)]


def test_words_with_a_common_prefix_share_positions() -> None:
    assert position_automaton("category|catalogue|dog").positions == len("cat" + "egory" + "alogue" + "dog")


def deep_tree(depth: int) -> Node:
    """b(b(b(a|c)|c)|c), as deep as asked."""
    node, b, c = (literal_node(letter, ignore_case=False) for letter in "abc")
    for _ in range(depth):
        node = concat([b, alternation([node, c])])
    return node


def test_a_tree_too_deep_for_the_stack_meets_a_limit() -> None:
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "nesting_depth_max"):
        node_nfa(deep_tree(5000), ResourceGuard(Limits()))


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


def test_there_are_enough_pairs_of_either_verdict() -> None:
    by_hand = {(pattern, text) for group in GROUPS for pattern in group["patterns"] for text in group["texts"]}
    assert len(by_hand) >= PAIRS_MIN
    match_count = sum(reference(pattern).fullmatch(text) is not None for pattern, text in by_hand)
    assert len(by_hand) / 10 <= match_count <= len(by_hand) / 2


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group["name"])
def test_the_verdicts_on_the_table_are_those_of_fullmatch(group: dict[str, Any]) -> None:
    for pattern in group["patterns"]:
        compare(pattern, group["texts"])


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
