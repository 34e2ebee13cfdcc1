"""Compares the language of our pattern compiler with FAdo's, by product.

FAdo (GPL) is an oracle of the tests only. `make test` installs it; without it these tests are skipped.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from compiler.automata import Dfa, Minterms, minterms
from compiler.engines import NATIVE, open_engines
from compiler.errors import LimitExceeded, SpecSyntaxError, SpecUnsupported
from compiler.limits import Limits, ResourceGuard
from compiler.pipeline import compile_spec
from compiler.regex import Anchor, Node, alternation, concat, literal_node, node_to_dfa_fado, parse_pattern
from compiler.spec import RegexSpec
from compiler.vocab import byte_vocabulary
from tests.compiler.regex.test_glushkov import CASES as TABLE
from tests.compiler.regex.test_glushkov import GROUPS, deep_tree, random_pattern
from tests.references.dfa import equivalent
from tests.servers.cluster import FULL
from tests.tables import rows

pytest.importorskip("FAdo", reason="FAdo is not installed: make test installs it")
REFUSED = (
    "look-ahead and look-behind", "word boundaries", "anchors of lines", "atomic groups and possessive repeats",
)  # fmt: skip
SLOW_S_MAX = 120.0  # FAdo is slower than our limits are meant for, and the machine may be busy with other tests
TEXTBOOK = [
    "(a|b)*a(a|b){6}", "(a|b)*abb", "(ab|a)(bc|c)?", "a*b*c*", "(a*b*)*", "((a|b)(a|b))*", "(aa|aaa)*", "a{2,5}b{0,2}",
    "(a?){5}a{5}", "(a|ab|abc|abcd)*", "(0|1(01*0)*1)*", "(a|b)*(aa|bb)(a|b)*", "x*(yx*yx*)*", "(?:a|b|c){0,4}?d",
    "", "a{0}", "(?:)*", r"[^\s\S]", r"[^\s\S]|a", r"([^\s\S])*", "cat|category", "colou?r", r"\d{2}:\d{2}",
    "[a-f0-9]{1,4}", "(?i)straße", "(?s:.)*a.", "[αβγ]+", "😀?[😀-🙏]*", r"\w+@\w+\.\w{2,3}", "(a(b(c(d(e)?)?)?)?)?",
]  # fmt: skip
ANCHORED = [
    "^a$", "a(^|b)c", r"(a|b$)\n?", r"$\n", r"(?:a$)*\n", r"(?:\Z|a\n$)\n", "(?:^|a)*^b", r"a$\n$", r"\Aa\Z", "(^$)*",
    r"(?:$\n)?", r"(?:$|b)\n*", "^^a", "a^", r"\n^", "$a", r"\Z\n", r"(?:a|$)(?:\n|b)", r"(?:a$\n?|b)*", r"x(?:$\n)?$",
]  # fmt: skip


def tree(pattern: str) -> Node:
    return parse_pattern(pattern, ResourceGuard(Limits()))


def with_common_classes(parts: Minterms, dfa: Dfa, common: Minterms) -> Dfa:
    """The same automaton over a finer partition of the characters."""
    first = np.array([ord(common.representative(symbol)) for symbol in range(common.count)])
    return Dfa(dfa.symbol_class[parts.of(first)], dfa.next_state, dfa.accepting, dfa.start)


def assert_same_language(node: Node, what: object) -> None:
    """Checks that both compilers accept the same texts.

    The partitions may differ, since ours omits sets of dropped positions.
    """
    (ours, our_parts), (theirs, their_parts) = (
        NATIVE.node(node, ResourceGuard(Limits())),
        node_to_dfa_fado(node, ResourceGuard(Limits(compile_s_max=SLOW_S_MAX))),
    )
    sets = [parts.charset([symbol]) for parts in (our_parts, their_parts) for symbol in range(parts.count)]
    common = minterms(sets)
    left, right = with_common_classes(our_parts, ours, common), with_common_classes(their_parts, theirs, common)
    assert left.states == right.states and equivalent(left, right), what


QUICK = [case["pattern"] for case in TABLE if FULL or case["name"] != "a JSON object"]  # FAdo takes seconds for it
PAIRED = [
    pattern for group in GROUPS if group["name"] not in REFUSED for pattern in group["patterns"][:: 1 if FULL else 3]
]


@pytest.mark.parametrize("pattern", [*TEXTBOOK, *ANCHORED, *QUICK, *PAIRED])
def test_fado_gives_the_same_language(pattern: str) -> None:
    assert_same_language(tree(pattern), pattern)


@pytest.mark.parametrize(("pattern", "construct"), rows("regex", "fado_refuses_a_construct_by_name"))
def test_fado_refuses_a_construct_by_name(pattern: str, construct: str) -> None:
    with pytest.raises(SpecUnsupported, check=lambda error: (error.construct, error.field) == (construct, "regex")):
        compile_spec(RegexSpec(pattern), byte_vocabulary(), engines=open_engines(regex="fado"))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.sample(2)
def test_fado_gives_the_same_languages_on_random_patterns(seed: int) -> None:
    rng, comparisons = random.Random(40 + seed), 0
    while comparisons < 60:
        pattern = random_pattern(rng, 3)
        try:
            node = tree(pattern)
        except SpecSyntaxError:
            continue
        comparisons += 1
        assert_same_language(node, pattern)


def test_trees_built_without_a_pattern_compile_with_fado() -> None:
    words = [literal_node(word, ignore_case=False) for word in ("ice", "iced", "cream", "")]
    assert_same_language(concat([alternation(words), Anchor("final"), alternation(words[2:])]), "words")
    assert_same_language(alternation([]), "nothing")


def test_an_oversized_pattern_is_refused_before_fado_runs() -> None:
    node = tree("(?:a{100}){1000}")
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "nfa_positions_max"):
        open_engines(regex="fado").node(node, ResourceGuard(Limits()))


def test_an_automaton_from_fado_over_the_limit_is_refused() -> None:
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "dfa_states_max"):
        node_to_dfa_fado(tree("(a|b)*a(a|b){6}"), ResourceGuard(Limits(dfa_states_max=100)))


def test_a_tree_too_deep_for_fado_meets_a_limit() -> None:
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "nesting_depth_max"):
        node_to_dfa_fado(deep_tree(3000), ResourceGuard(Limits()))
