"""What the pattern reader refuses, and how it says so."""

from __future__ import annotations

import time
import warnings

import pytest

from compiler.automata import category, literal, single
from compiler.errors import LimitExceeded, SpecSyntaxError, SpecUnsupported
from compiler.limits import Limits, ResourceGuard
from compiler.regex import (
    Alternation,
    Anchor,
    AtomicGroup,
    Chars,
    Concat,
    Look,
    Node,
    Repeat,
    alternation,
    concat,
    has_anchor,
    literal_node,
    parse_pattern,
    space_run_node,
    words_node,
)
from compiler.regex.nodes import EMPTY, NO_LETTER, Words
from tests.tables import rows

A, B, C = (Chars(single(ord(char))) for char in "abc")


def parse(pattern: str, limits: Limits | None = None) -> Node:
    return parse_pattern(pattern, ResourceGuard(limits or Limits()))


@pytest.mark.parametrize(
    ("pattern", "tree"),
    [
        ("", EMPTY),
        ("a", A),
        ("abc", Concat((A, B, C))),
        ("(a)(?:b)(?P<x>c)", Concat((A, B, C))),
        ("ab|c", Words((A.charset, B.charset, C.charset), (NO_LETTER, 0, NO_LETTER), (1, 2), False)),
        ("ab|c+", Alternation((Concat((A, B)), Repeat(C, 1, None)))),
        ("a*", Repeat(A, 0, None)),
        ("a+?", Repeat(A, 1, None, lazy=True)),
        ("(?>ab)c", Concat((A, B, C))),
        ("(?>ab|a)", AtomicGroup(Concat((A, Alternation((B, EMPTY)))))),
        ("(?>b|a|ba)", AtomicGroup(Alternation((B, A, Concat((B, A)))))),
        ("a*+", AtomicGroup(Repeat(A, 0, None))),
        ("(?:b|a+){3}+", AtomicGroup(Repeat(AtomicGroup(Alternation((B, Repeat(A, 1, None)))), 3, 3))),
        ("(?:ab){2,3}", Repeat(Concat((A, B)), 2, 3)),
        ("^a$", Concat((Anchor("start"), A, Anchor("final")))),
        (r"\Aa\Z", Concat((Anchor("start"), A, Anchor("end")))),
        (r"\w", Chars(category(r"\w"))),
        ("(?i:a)", Chars(literal(ord("a"), fold_case=True))),
        (r"\ud800", Chars(())),
        ("a(?=b)", Concat((A, Look(B, behind=False, negative=False)))),
        ("(?<!b)a", Concat((Look(B, behind=True, negative=True), A))),
    ],
)
def test_patterns_become_trees(pattern: str, tree: Node) -> None:
    assert parse(pattern) == tree


@pytest.mark.parametrize(
    ("pattern", "construct"), rows("regex", "constructs_that_no_automaton_reads_are_refused_by_name")
)
def test_constructs_that_no_automaton_reads_are_refused_by_name(pattern: str, construct: str) -> None:
    with pytest.raises(SpecUnsupported, match=construct, check=lambda error: error.construct == construct):
        parse(pattern)


@pytest.mark.parametrize(
    ("pattern", "position"),
    [
        (r"(.)\\[\b\1]\1", 11),
        (r"(a)(?#\1)b\1", 10),
        (r"ab(c)\1", 5),
        ("(?P<n>a)[(](?P=n)", 11),
        ("(a)?(?(1)b|c)", 4),
        ("(?x) (a) # \\1\n \\1", None),
    ],
)
def test_a_refused_construct_is_reported_with_its_position(pattern: str, position: int | None) -> None:
    with pytest.raises(SpecUnsupported, check=lambda error: error.position == position):
        parse(pattern)


def test_the_multi_line_flag_leaves_absolute_anchors_alone() -> None:
    assert parse(r"(?m)\Aa\Z") == parse(r"\Aa\Z")


@pytest.mark.parametrize(("pattern", "position"), [
    *rows("regex", "a_syntax_error_has_a_position"), ("(?<=a+)b", None), ("(?<!a|bc)b", None),
])
def test_a_syntax_error_has_a_position(pattern: str, position: int | None) -> None:
    with pytest.raises(SpecSyntaxError, match="not a pattern", check=lambda error: error.position == position):
        parse(pattern)


def test_a_syntax_error_does_not_repeat_a_long_pattern() -> None:
    with pytest.raises(SpecSyntaxError, check=lambda error: len(error.message) < 150):
        parse(f"(?P={'x' * 1000})")


def test_a_syntax_error_has_line_and_column() -> None:
    with pytest.raises(SpecSyntaxError, check=lambda error: (error.line, error.column) == (2, 4)):
        parse("(?x)a\n  b)")


@pytest.mark.parametrize("pattern", ["a{4294967295}", "a{1,99999999999}", "(?a)(?u)a", "a{" + "9" * 5000 + "}"])
def test_every_error_of_re_becomes_a_syntax_error(pattern: str) -> None:
    with pytest.raises(SpecSyntaxError, match="not a pattern"):
        parse(pattern, Limits(pattern_chars_max=10_000))


def test_a_pattern_over_the_character_limit_is_refused() -> None:
    assert parse("a" * 20, Limits(pattern_chars_max=20))
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "pattern_chars_max"):
        parse("a" * 21, Limits(pattern_chars_max=20))


@pytest.mark.parametrize(
    "pattern",
    ["(" * 70 + "a" + ")" * 70, "(" * 10_000 + "a" + ")" * 10_000, "(" * 10_000, "(?:" * 900 + "a" + ")*" * 900],
)
def test_deep_nesting_meets_the_limit_and_not_the_stack(pattern: str) -> None:
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "nesting_depth_max"):
        parse(pattern, Limits(pattern_chars_max=100_000))


def test_moderate_nesting_is_read() -> None:
    assert parse("(" * 60 + "a" + ")" * 60) == A


def test_a_late_compilation_stops_while_it_reads() -> None:
    guard = ResourceGuard(Limits(compile_s_max=0.0))
    time.sleep(0.001)
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "compile_s_max"):
        parse_pattern("a", guard)


def test_the_parser_emits_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(parse("[[a]|[a||b]|[a&&b]"), Chars)


def test_words_share_their_common_prefix() -> None:
    words = alternation([literal_node(word, ignore_case=False) for word in ("ab", "ac", "b")])
    letters = (A.charset, B.charset, C.charset, B.charset)
    assert words == Words(letters, (NO_LETTER, 0, 0, NO_LETTER), (1, 2, 3), False)
    assert words.spelled() == Alternation((Concat((A, B)), Concat((A, C)), B))


def test_a_list_of_words_is_flat_however_it_is_written() -> None:
    assert alternation([]) == words_node([]) == Alternation(())
    assert alternation([EMPTY]) == EMPTY and alternation([A, A]) == A
    assert alternation([EMPTY, A]) == Words((A.charset,), (NO_LETTER,), (0,), True)
    assert alternation([B, concat([A, Repeat(B, 0, 1)]), C]) == Alternation(
        (Words((B.charset, C.charset), (NO_LETTER, NO_LETTER), (0, 1), False), Concat((A, Repeat(B, 0, 1))))
    )


def test_alternatives_share_their_common_prefix() -> None:
    optional = Repeat(B, 0, 1)
    shared = alternation([concat([A, C, optional]), concat([A, B, optional])])
    assert shared == Concat((A, Alternation((Concat((C, optional)), Concat((B, optional))))))


def test_an_alternation_of_nested_prefixes_needs_no_deep_recursion() -> None:
    words = alternation([literal_node("a" * length, ignore_case=False) for length in range(1, 1_100)])
    assert isinstance(words, Words) and len(words.letters) == 1_099
    tails = [concat([literal_node("a" * length, ignore_case=False), Repeat(B, 0, 1)]) for length in range(1, 300)]
    assert alternation(tails) != EMPTY


def test_concatenation_is_flat() -> None:
    assert concat([concat([A, B]), EMPTY, C]) == Concat((A, B, C))
    assert concat([A]) == A


def test_a_space_run_is_one_or_more_white_characters() -> None:
    assert space_run_node() == Repeat(Chars(category(r"\s")), 1, None)


@pytest.mark.parametrize(("pattern", "anchored"), rows("regex", "anchors_are_found_anywhere_in_a_tree"))
def test_anchors_are_found_anywhere_in_a_tree(pattern: str, anchored: bool) -> None:
    assert has_anchor(parse(pattern)) == anchored
