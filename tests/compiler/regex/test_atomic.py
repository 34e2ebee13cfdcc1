"""Compares atomic groups and possessive repeats with `re.fullmatch`."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from functools import cache, reduce

import pytest

from compiler.automata import CharDfa
from compiler.errors import SpecUnsatisfiable
from compiler.limits import Limits, ResourceGuard
from compiler.pipeline import compile_spec, compile_text
from compiler.regex import pattern_dfa
from compiler.spec import RegexSpec, spec_from_json
from compiler.text import check_text
from compiler.vocab import Vocabulary
from tests.compiler.regex.test_glushkov import compare
from tests.compiler.regex.test_lookaround import TEXTS as LINES
from tests.tables import rows

ATOMIC = re.compile(r"\(\?>|[*+?}]\+")
LEAVES = ("a", "b", "c", "", ".", "[ab]", "[^a]", "ab", "ba", "aa", "abc")
CONDITIONS = ("^", "$", r"\b", r"\B", r"\Z", "(?m:^)", "(?m:$)", r"\n")
REPEATS = ("*", "+", "?", "{2}", "{1,2}", "{0,2}", "{2,}", "{1,3}")
SHORT_REPEATS = ("*", "*?", "??", "{2}", "{0,2}?", "{2,}", "*+", "++", "?+", "{1,2}+", "{2,}+")
TEXTS = ["".join(chars) for length in range(6) for chars in itertools.product("abc", repeat=length)]
TOKENS = Vocabulary((None, b"a", b"b", b"c", b"ab", b"ca", b"aab", b"\n"), (0,))


def random_pattern(rng: random.Random, depth: int, conditions: bool) -> str:
    """A pattern of `re` with an atomic group or a possessive repeat."""
    while True:
        pattern = random_part(rng, depth, conditions)
        try:
            re.compile(pattern)
        except re.error:  # a look-behind of several widths
            continue
        if ATOMIC.search(pattern):
            return pattern


def random_part(rng: random.Random, depth: int, conditions: bool) -> str:
    kind = rng.random()
    if depth == 0 or kind < 0.2:
        return rng.choice(LEAVES + CONDITIONS if conditions else LEAVES)
    parts = [random_part(rng, depth - 1, conditions) for _ in range(rng.randint(2, 3))]
    if kind < 0.4:
        return "".join(parts)
    if kind < 0.55:
        return f"(?:{'|'.join(parts)})"
    if kind < 0.78:
        return f"(?:{parts[0]}){rng.choice(REPEATS)}{rng.choice(('', '?', '+'))}"
    if conditions and kind < 0.84:
        return f"(?{rng.choice(('=', '!', '<=', '<!'))}{parts[0]})"
    return f"(?>{parts[0]})"


@cache
def short_patterns(size: int) -> list[str]:
    """All patterns of a size. Letters, repeats, groups, sequences and alternatives count."""
    if size == 1:
        return ["a", "b", ""]
    items = short_patterns(size - 1)
    patterns = [f"(?:{item}){repeat}" for item in items for repeat in SHORT_REPEATS]
    patterns += [f"(?>{item})" for item in items]
    for left in range(1, size - 1):
        for one, other in itertools.product(short_patterns(left), short_patterns(size - 1 - left)):
            patterns += [f"(?:{one}|{other})", f"(?:{one})(?:{other})"]
    return patterns


@pytest.mark.parametrize("behind", ["", "b", "a?"])
@pytest.mark.sample(2)
def test_all_short_patterns_accept_what_fullmatch_accepts(behind: str) -> None:
    texts = ["".join(chars) for length in range(5) for chars in itertools.product("ab", repeat=length)]
    patterns = [pattern for size in (1, 2, 3) for pattern in short_patterns(size) if ATOMIC.search(pattern)]
    assert len(patterns) > 300
    for pattern in patterns:
        compare(pattern + behind, texts)


@pytest.mark.parametrize("conditions", [False, True])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.sample(2)
def test_random_patterns_accept_what_fullmatch_accepts(seed: int, conditions: bool) -> None:
    rng = random.Random(700 + seed)
    for _ in range(120):
        pattern = random_pattern(rng, rng.choice((3, 4)), conditions)
        compare(pattern, rng.sample(LINES if conditions else TEXTS, 100))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.sample(2)
def test_token_automata_accept_what_fullmatch_accepts(seed: int) -> None:
    rng, accepted = random.Random(30 + seed), 0
    for _ in range(25):
        pattern = random_pattern(rng, 3, conditions=seed > 1)
        texts = {tokens: "".join(decoded(tokens)) for length in range(4) for tokens in words(length)}
        matching = {tokens for tokens, text in texts.items() if re.fullmatch(pattern, text)}
        try:
            automaton = compile_spec(RegexSpec(pattern), TOKENS).tokens
        except SpecUnsatisfiable:
            assert not matching, pattern
            continue
        for tokens in texts:
            state = reduce(automaton.advance, [*tokens, 0], automaton.start)
            assert (automaton.distance[state] == 0) == (tokens in matching), (pattern, tokens)
        accepted += len(matching)
    assert accepted > 50


def words(length: int) -> Iterator[tuple[int, ...]]:
    return itertools.product(range(1, TOKENS.size), repeat=length)


def decoded(tokens: tuple[int, ...]) -> Iterator[str]:
    return ((TOKENS.tokens[token] or b"").decode() for token in tokens)


@pytest.mark.parametrize(
    ("pattern", "accepted", "rejected"),
    [
        # From 3.11.5 on, each turn of a possessive repeat is atomic in CPython.
        ("(?:aa|a){2}+", ("aaa", "aaaa"), ("aa",)),
        ("(?>(?:aa|a){2})", ("aa", "aaa", "aaaa"), ("a",)),
        (r'"(?>[^"\\]++|\\.)*+"', ('""', r'"a\"b"'), ('"', r'"a\"', '"a"b"')),
        (r"(?>\p{Lu}\p{Ll}|\p{Lu})\p{Ll}\.", ("Éab.", "Abc."), ("Éa.", "AB.")),
        ("(?s:.*+)", ("", "a\nb"), ()),
        ("(?i:(?>a|AB))c", ("Ac",), ("abc", "ABc")),
        (r"(?>\w+\b|\w)-?\w*", ("ab", "ab-cd"), ("-ab",)),
        (r"(?>a+$|a)b?", ("aaa", "ab"), ("aab",)),
        ("(?!(?>a|ab)c)[abc]+", ("abc", "ab"), ("ac", "acb")),
        ("(?>(?>a|ab)*c|[abc]*)d", ("aacd", "abcd", "abbd"), ("aacbd",)),
        ("[a-z]{1,5000}+[.]", ("a.", "z" * 5000 + "."), (".", "z" * 5001 + ".")),
    ],
)
def test_the_first_match_is_final(pattern: str, accepted: tuple[str, ...], rejected: tuple[str, ...]) -> None:
    dfa = CharDfa(*pattern_dfa(pattern, ResourceGuard(Limits())))
    assert [text for text in (*accepted, *rejected) if dfa.accepts(text)] == list(accepted)


@pytest.mark.parametrize(("constraint", "verdicts"), rows("regex", "other_forms_read_atomic_groups"))
def test_other_forms_read_atomic_groups(constraint: dict[str, object], verdicts: dict[str, bool]) -> None:
    compiled = compile_text(spec_from_json(constraint))
    assert {text: check_text(compiled, text).satisfied for text in verdicts} == verdicts


def test_copies_of_a_group_share_their_look_aheads() -> None:
    limits = Limits(nfa_positions_max=2_600)
    dfa = CharDfa(*pattern_dfa("(?:(?>ab|a)c){1,800}", ResourceGuard(limits)))
    assert dfa.accepts("abc" * 800) and not dfa.accepts("ab") and not dfa.accepts("ac" * 801)
