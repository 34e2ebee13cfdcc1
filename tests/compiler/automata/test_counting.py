"""Automata that count, against plain loops over the words."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.automata import count_dfa, is_empty, keyword_counts_dfa, minimize, sentences_dfa
from compiler.errors import LimitExceeded
from compiler.limits import Limits, ResourceGuard
from compiler.ltlf import formula_to_dfa, parse_formula
from tests.references.dfa import assert_same, equivalent
from tests.references.random_formulas import LETTERS, NAMES, traces
from tests.tables import rows

Bounds = tuple[int, int | None]
BOUNDS = st.tuples(st.integers(0, 3), st.none() | st.integers(0, 4))


def guard(**caps: int) -> ResourceGuard:
    return ResourceGuard(Limits(**caps))


def is_within(count: int, bounds: Bounds) -> bool:
    return bounds[0] <= count and (bounds[1] is None or count <= bounds[1])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=4), BOUNDS)
def test_a_counting_automaton_agrees_with_a_plain_count(counted: list[bool], bounds: Bounds) -> None:
    dfa = count_dfa(counted, *bounds, guard())
    assert_same(minimize(dfa), dfa)
    for word in traces(len(counted), 4):
        assert dfa.accepts(word) == is_within(sum(counted[symbol] for symbol in word), bounds), word


def test_a_counting_automaton_has_one_state_per_distinguishable_count() -> None:
    assert count_dfa([True, False], 7, None, guard()).states == 8
    assert count_dfa([True, False], 0, 7, guard()).states == 9
    assert count_dfa([True, False], 0, None, guard()).states == 1
    assert is_empty(count_dfa([True, False], 3, 2, guard()))


def reference_keywords(
    names: Sequence[str], bounds: Sequence[Bounds], ordered: bool, word: Sequence[frozenset[str]]
) -> bool:
    """Whether a word meets the keyword bounds, by the definition.

    Totals lie within the bounds. In order, no name of a duty occurs before the earlier duties are met.
    """
    if not all(is_within(sum(name in step for step in word), pair) for name, pair in zip(names, bounds, strict=True)):
        return False
    if not ordered:
        return True
    begin = 0  # the step from which the next name counts
    duties = [(name, minimum) for name, (minimum, _) in zip(names, bounds, strict=True) if minimum]
    for number, (name, minimum) in enumerate(duties):
        steps = [step for step in range(begin, len(word)) if name in word[step]]
        if len(steps) < minimum:
            return False
        met = steps[minimum - 1]
        later_names = {other for other, _ in duties[number + 1 :]} - {name}
        if any(later_names & word[step] for step in range(begin, met)):
            return False
        begin = met + 1
    return True


@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(NAMES), BOUNDS), max_size=3),
    st.booleans(),
    st.lists(st.sampled_from(LETTERS), min_size=1, max_size=4, unique=True),
    st.lists(st.lists(st.integers(0, 3), max_size=9), max_size=25),
)
def test_keyword_automata_agree_with_counts_and_order_of_occurrence(
    concepts: list[tuple[str, Bounds]], ordered: bool, letters: list[frozenset[str]], longer: list[list[int]]
) -> None:
    names, bounds = [name for name, _ in concepts], [pair for _, pair in concepts]
    dfa = keyword_counts_dfa(letters, guard(), names=names, bounds=bounds, ordered=ordered)
    assert_same(minimize(dfa), dfa)
    for word in itertools.chain(traces(len(letters), 4), longer):
        trace = [letters[symbol % len(letters)] for symbol in word]
        symbols = [symbol % len(letters) for symbol in word]
        assert dfa.accepts(symbols) == reference_keywords(names, bounds, ordered, trace), trace


@pytest.mark.parametrize(("names", "least", "ordered", "formula"), rows("automata", "keywords_equal_their_formula"))
def test_keywords_equal_their_formula(names: str, least: list[int], ordered: bool, formula: str) -> None:
    letters = (*LETTERS[1:], frozenset({"nomatch"}), frozenset({"eos"}))
    bounds = [(count, None) for count in least]
    counts = keyword_counts_dfa(letters, guard(), names=tuple(names), bounds=bounds, ordered=ordered)
    assert equivalent(counts, formula_to_dfa(parse_formula(formula, guard()), letters, guard()))


def test_counts_too_large_for_a_machine_word_are_exact() -> None:
    names = [f"k{number}" for number in range(32)]
    letters = [frozenset(names), frozenset(names[:1]), frozenset({"nomatch"})]
    bounds: list[Bounds] = [(0, 2), *[(0, 9)] * 31]  # 3 * 10**31 combinations, of which few can be reached
    dfa = keyword_counts_dfa(letters, guard(), names=names, bounds=bounds, ordered=False)
    assert equivalent(dfa, count_dfa([True, True, False], 0, 2, guard()))


def test_twelve_unordered_keywords_are_a_state_for_each_subset() -> None:
    names = [f"k{number}" for number in range(12)]
    letters = [*(frozenset({name}) for name in names), frozenset({"nomatch"})]
    assert keyword_counts_dfa(letters, guard(), names=names, bounds=[(1, None)] * 12, ordered=False).states == 2**12


@pytest.mark.parametrize(
    ("bounds", "ordered"),
    [
        ([(4, None)] * 8, False),
        ([(0, 10**9)] * 8, False),
        ([(10**9, None)] * 8, True),
        ([(1, 50)] * 8, True),
    ],
)
def test_counts_that_need_too_many_states_meet_the_limit(bounds: list[Bounds], ordered: bool) -> None:
    names = [f"k{number}" for number in range(8)]
    letters = [*(frozenset({name}) for name in names), frozenset({"nomatch"})]
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "dfa_states_max"):
        keyword_counts_dfa(letters, guard(), names=names, bounds=bounds, ordered=ordered)


def test_one_count_over_the_limit_is_refused() -> None:
    for build in (
        lambda: count_dfa([True], 0, 10**9, guard()),
        lambda: sentences_dfa([True], [False], [False], minimum=10**9, maximum=None, guard=guard()),
    ):
        with pytest.raises(LimitExceeded, check=lambda error: error.limit == "dfa_states_max"):
            build()


def test_negative_bounds_and_missing_letters_raise_value_errors() -> None:
    for build in (
        lambda: count_dfa([True], -1, None, guard()),
        lambda: count_dfa([], 0, None, guard()),
        lambda: keyword_counts_dfa(LETTERS, guard(), names=("a", "b"), bounds=[(1, None)], ordered=False),
        lambda: keyword_counts_dfa([], guard(), names=("a",), bounds=[(1, None)], ordered=False),
        lambda: sentences_dfa([True], [True], [False], minimum=0, maximum=None, guard=guard()),
    ):
        with pytest.raises(ValueError):
            build()


UNITS = ("word", ".", "”", ",")


def reference_sentences(word: Sequence[str]) -> int | None:
    """The number of sentences; None if the last one's tail is invalid."""
    count, open_word, after_end = 0, False, True
    for unit in word:
        if unit == ".":
            if open_word:
                count, after_end = count + 1, True
            open_word = False
        elif unit == "word":
            open_word = True
        elif unit == ",":
            after_end = False
    tail_is_bare = after_end or count == 0
    return count if tail_is_bare and not open_word else None


@settings(max_examples=40, deadline=None)
@given(BOUNDS, st.lists(st.lists(st.integers(0, 3), max_size=14), max_size=25))
def test_sentences_are_counted_as_a_reader_counts_them(bounds: Bounds, longer: list[list[int]]) -> None:
    kinds = [[unit == kind for unit in UNITS] for kind in (".", "word", "”")]
    dfa = sentences_dfa(*kinds, minimum=bounds[0], maximum=bounds[1], guard=guard())
    assert_same(minimize(dfa), dfa)
    for symbols in itertools.chain(traces(4, 5), longer):
        count = reference_sentences([UNITS[symbol] for symbol in symbols])
        assert dfa.accepts(symbols) == (count is not None and is_within(count, bounds)), symbols


@pytest.mark.parametrize(("text", "count"), [
    *rows("automata", "sentence_counts_of_the_case_table_hold"), ("w . (", None), ("w . w", None), ("w", None),
])
def test_sentence_counts_of_the_case_table_hold(text: str, count: int | None) -> None:
    units = ("w", ".", "!", "?", "”", ")", "“", "(", ",")
    kinds = [[unit in kind for unit in units] for kind in (".!?", "w", "”)")]
    symbols = [units.index(unit) for unit in text.split()]
    for number in range(4):
        assert sentences_dfa(*kinds, minimum=number, maximum=number, guard=guard()).accepts(symbols) == (
            number == count
        )
