"""Compares patterns of schemas with Node."""

from __future__ import annotations

import itertools
import random
import shutil

import pytest

from compiler.errors import LimitExceeded, SpecSyntaxError, SpecUnsupported
from compiler.json_schema.strings import search_dfa
from compiler.limits import Limits, ResourceGuard
from compiler.regex import Concat, Node, parse_ecmascript
from tests.compiler.regex.test_lookaround import COMMON_LEAVES, random_pattern
from tests.references.node import modern_node, node_verdicts
from tests.tables import rows

FOUND = rows("regex", "patterns_of_ecmascript_are_found")
REFUSED = rows("regex", "syntax_of_other_dialects_is_refused_by_name")
FAULTS = rows("regex", "what_is_no_pattern_of_ecmascript_has_a_position")
SHORT_TEXTS = ["".join(chars) for length in range(5) for chars in itertools.product("ab\né ", repeat=length)]
LEAVES = (*COMMON_LEAVES, r"\s", r"\d", r"\p{L}", r"[\b]", r"\u{61}", r"\cJ", "[]", "[^]", r"\/")
MODERN_LEAVES = (*LEAVES, *rows("regex", "leaves_of_modern_ecmascript"))
FLAGS = ("i", "m", "s", "im", "ims", "-i", "-m", "-s", "i-s", "s-im", "m-i", "i-")
LOOSE_LEAVES = ("a", "b", ".", "^", "$", *rows("regex", "leaves_that_ecmascript_reads_without_u"))
SPECIAL = 'abiIıİkK\u212asſSßẞσςΣéÉ1_-.:[]{}x\n\r\u2028\u2029\u0085\t\b \xa0\ufeff\0"/Z😀𝒜'
# Beside flags of groups, V8 confuses characters with other cases beyond ASCII: for it `(?i:\u212a)` is no `k`, and
# `(?i:a)\W` no Kelvin sign.
DOUBTFUL = frozenset("\u017f\u212a\u1e9e")
BACK_REFERENCE = "back-reference"  # the one construct of ECMAScript that is refused
Verdicts = list[bool] | None


def parse(pattern: str) -> Node:
    return parse_ecmascript(pattern, ResourceGuard(Limits()))


def texts_of(seed: int) -> list[str]:
    """Each special character, and random texts of them."""
    rng = random.Random(seed)
    return ["", *SPECIAL, *("".join(rng.choices(SPECIAL, k=rng.randint(2, 5))) for _ in range(140))]


def differences(pattern: str, texts: list[str], strict: Verdicts, loose: Verdicts = None) -> list[str]:
    """The texts, or the refusal, in which Node differs. Its verdicts with the flag u come before those without it."""
    try:
        dfa = search_dfa(pattern, ResourceGuard(Limits()))
    except SpecUnsupported as refusal:
        return [] if strict is None or refusal.construct == BACK_REFERENCE else [str(refusal)]
    except SpecSyntaxError as refusal:
        # V8 takes a name twice in an alternative if one of the groups is optional there.
        return [] if strict is None or "same name" in str(refusal) else [str(refusal)]
    verdicts = strict or loose
    assert verdicts, pattern
    return [text for text, verdict in zip(texts, verdicts, strict=True) if dfa.accepts(text) != verdict]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.sample(1)
def test_random_patterns_are_found_where_node_finds_them(seed: int) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    rng = random.Random(50 + seed)
    patterns = [random_pattern(rng, LEAVES, ()) for _ in range(60)]
    for pattern, verdicts in zip(patterns, node_verdicts(node, patterns, SHORT_TEXTS), strict=True):
        dfa = search_dfa(pattern, ResourceGuard(Limits()))
        assert [dfa.accepts(text) for text in SHORT_TEXTS] == verdicts, pattern


@pytest.mark.long  # the rows below are the short form
@pytest.mark.parametrize("seed", range(6))
def test_patterns_have_the_verdicts_of_a_modern_node(seed: int) -> None:
    node, rng, texts = modern_node(), random.Random(70 + seed), texts_of(seed)
    for flags in ("", "i", "m", "s", "ims"):
        patterns = [random_pattern(rng, MODERN_LEAVES, ()) for _ in range(40)]
        for pattern, verdicts in zip(patterns, node_verdicts(node, patterns, texts, f"u{flags}"), strict=True):
            assert differences(f"(?{flags}:{pattern})", texts, verdicts) == [], (pattern, flags)


@pytest.mark.long  # the rows below are the short form
@pytest.mark.parametrize("seed", range(6))
def test_flags_of_groups_have_the_verdicts_of_a_modern_node(seed: int) -> None:
    texts = [text for text in texts_of(seed) if DOUBTFUL.isdisjoint(text)]
    node, rng = modern_node(), random.Random(80 + seed)
    leaves = tuple(leaf for leaf in MODERN_LEAVES if leaf != r"\u212a")
    patterns = [random_pattern(rng, leaves, FLAGS) for _ in range(150)]
    for pattern, verdicts in zip(patterns, node_verdicts(node, patterns, texts), strict=True):
        assert differences(pattern, texts, verdicts) == [], pattern


@pytest.mark.long  # the rows below are the short form
def test_rows_have_the_verdicts_of_a_modern_node() -> None:
    node, rng = modern_node(), random.Random(90)
    texts = sorted({text for _, *found in FOUND for text in itertools.chain(*found)})
    patterns = [row[0] for row in FOUND]
    strict, loose = (node_verdicts(node, patterns, texts, flags) for flags in ("u", ""))
    for (pattern, found, not_found), *verdicts in zip(FOUND, strict, loose, strict=True):
        verdict = dict(zip(texts, verdicts[0] or verdicts[1] or (), strict=True))
        assert [text for text in (*found, *not_found) if verdict[text]] == list(found), pattern
    # Without `u` a character has 16 bits.
    texts = [text for text in texts_of(0) if max(text, default="") < "\U00010000"]
    patterns = [row[0] for row in (*REFUSED, *FAULTS)] + [random_pattern(rng, LOOSE_LEAVES, ()) for _ in range(400)]
    strict, loose = (node_verdicts(node, patterns, texts, flags) for flags in ("u", ""))
    for pattern, *both in zip(patterns, strict, loose, strict=True):
        assert differences(pattern, texts, *both) == [], pattern


@pytest.mark.parametrize(("pattern", "found", "not_found"), FOUND)
def test_patterns_of_ecmascript_are_found(pattern: str, found: list[str], not_found: list[str]) -> None:
    dfa = search_dfa(pattern, ResourceGuard(Limits()))
    assert [text for text in (*found, *not_found) if dfa.accepts(text)] == list(found)


@pytest.mark.parametrize(("pattern", "construct", "position", "advice"), REFUSED)
def test_syntax_of_other_dialects_is_refused_by_name(pattern: str, construct: str, position: int, advice: str) -> None:
    with pytest.raises(SpecUnsupported) as refusal:
        parse(pattern)
    assert (refusal.value.construct, refusal.value.position) == (construct, position)
    assert advice in str(refusal.value).partition(":")[2]


@pytest.mark.parametrize(("pattern", "position"), FAULTS)
def test_what_is_no_pattern_of_ecmascript_has_a_position(pattern: str, position: int) -> None:
    with pytest.raises(SpecSyntaxError, match="not a pattern", check=lambda error: error.position == position):
        parse(pattern)


@pytest.mark.parametrize("pattern", ["(" * 70 + "a" + ")" * 70, "(?:" * 10_000, "(?=" * 200 + ")" * 200])
def test_deep_nesting_of_groups_meets_the_limit(pattern: str) -> None:
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "nesting_depth_max"):
        parse(pattern)


def test_an_endless_count_meets_a_limit() -> None:
    for pattern in ("a{99999999999}", f"a{{0,{'9' * 5_000}}}", "(?:a|b){5000000000,}"):
        with pytest.raises(LimitExceeded):
            search_dfa(pattern, ResourceGuard(Limits()))


def test_equal_classes_are_built_once() -> None:
    node = parse(r"[\p{L}\d]\p{Lu}x" * 2_000)
    assert isinstance(node, Concat) and len(set(map(id, node.items))) == 3
