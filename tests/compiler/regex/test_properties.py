r"""Compares properties, such as `\p{Lu}`, with what `unicodedata` says of characters."""

from __future__ import annotations

import random
import re
import sys
import unicodedata
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from compiler.automata import CharDfa
from compiler.errors import LimitExceeded, SpecSyntaxError, SpecUnsupported
from compiler.json_schema.strings import search_dfa
from compiler.limits import Limits, ResourceGuard
from compiler.pipeline import compile_text
from compiler.regex import Chars, Concat, parse_pattern, pattern_dfa
from compiler.spec import RegexSpec
from compiler.text import check_text
from tests.tables import rows

GROUPS = {"L": "Lu Ll Lt Lm Lo", "LC": "Lu Ll Lt", "M": "Mn Mc Me", "N": "Nd Nl No", "P": "Pc Pd Ps Pe Pi Pf Po",
          "S": "Sm Sc Sk So", "Z": "Zs Zl Zp", "C": "Cc Cf Co Cn Cs"}  # fmt: skip
MEMBERS = {name: frozenset(names.split()) for name, names in GROUPS.items()}
MEMBERS |= {name: frozenset({name}) for names in GROUPS.values() for name in names.split() if name != "Cs"}
LONG = {"Letter": "L", "Cased_Letter": "LC", "gc=Uppercase_Letter": "Lu", "General_Category=Nd": "Nd", "digit": "Nd",
        "gc=Sc": "Sc", "Private_Use": "Co", "Unassigned": "Cn", "Punctuation": "P"}  # fmt: skip
CASED = frozenset({"Lu", "Ll", "Lt"})
TEXT = "aAzkKéÉßſǅǆʰªжЖ犬あ\u0301\u093e\u20dd012٣²½Ⅷ_-‿([«»)]!.,;$€+<^`¨© \u00a0\u2028\u2029\n\t\0\u200b\ue000\u0378😀𐐀"
Verdict = Callable[[str], bool]


def parse(pattern: str) -> object:
    return parse_pattern(pattern, ResourceGuard(Limits()))


def accepted(pattern: str) -> np.ndarray:
    """For each code point, whether a pattern of one character matches it."""
    node = parse(pattern)
    assert isinstance(node, Chars)
    verdicts = np.zeros(sys.maxunicode + 1, dtype=bool)
    for low, high in node.charset:
        verdicts[low:high] = True
    return verdicts


@cache
def categories() -> np.ndarray:
    return np.array([unicodedata.category(chr(code)) for code in range(sys.maxunicode + 1)])


@pytest.mark.parametrize(("name", "short"), [*LONG.items(), *((name, name) for name in MEMBERS)])
def test_a_property_has_the_characters_of_its_category(name: str, short: str) -> None:
    expected = np.isin(categories(), list(MEMBERS[short]))
    text = categories() != "Cs"  # no text holds half a surrogate pair
    assert np.array_equal(accepted(rf"\p{{{name}}}"), expected & text)
    assert np.array_equal(accepted(rf"\P{{{name}}}"), ~expected & text)


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("Uppercase", str.isupper), ("XIDS", lambda char: char != "_" and char.isidentifier()), ("ASCII", str.isascii),
        ("White_Space", lambda char: char.isspace() and char not in "\x1c\x1d\x1e\x1f"), ("Any", lambda char: True),
        ("AHex", lambda char: char in "0123456789ABCDEFabcdef"),
    ],
)  # fmt: skip
def test_a_binary_property_has_the_characters_python_says(name: str, verdict: Verdict) -> None:
    expected = np.array([verdict(chr(code)) for code in range(sys.maxunicode + 1)])
    assigned = ~np.isin(categories(), ["Cn", "Cs"])  # by the version of Unicode that Python has
    assert np.array_equal(accepted(rf"\p{{{name}}}") & assigned, expected & assigned)
    assert np.array_equal(accepted(rf"\P{{{name}}}") & assigned, ~expected & assigned)


@pytest.mark.parametrize("name", ["Script=Greek", "Script=Grek", "sc=Greek", "Script_Extensions=Greek", "scx=Grek"])
def test_a_script_has_the_letters_named_after_it(name: str) -> None:
    verdicts, shared = accepted(rf"\p{{{name}}}"), 0x342  # a mark that Greek shares with other scripts
    codes = np.flatnonzero(np.isin(categories(), ["Lu", "Ll"])).tolist()
    names = [unicodedata.name(chr(code)).split()[0] for code in codes]
    scripts = {code: first for code, first in zip(codes, names, strict=True) if first in ("GREEK", "LATIN", "CYRILLIC")}
    assert [code for code in scripts if verdicts[code]] == [code for code in scripts if scripts[code] == "GREEK"]
    assert bool(verdicts[shared]) is (name.startswith(("Script_Extensions", "scx")))


def random_item(rng: random.Random, fold: bool, ascii_only: bool) -> tuple[str, Verdict]:
    """An item of a class, and what it matches."""
    kind = rng.random()
    if kind < 0.6:
        name, negated = rng.choice([*LONG, *MEMBERS]), rng.random() < 0.3
        members = MEMBERS[LONG.get(name, name)]
        if fold and members <= CASED:
            members = CASED
        spelling = f"\\{'P' if negated else 'p'}{{{name}}}"
        return spelling, lambda char: (
            (unicodedata.category(char) in members and (char < "\x80" or not ascii_only)) != negated
        )
    item = rng.choice((r"\d", r"\W", "k", "é", "a-f", "Ж", r"\U0010ffff", r"\-", "😀"))
    reference = re.compile(f"[{item}]", fold * re.IGNORECASE | ascii_only * re.ASCII)
    return item, lambda char: reference.fullmatch(char) is not None


def random_class(rng: random.Random, fold: bool, ascii_only: bool) -> tuple[str, Verdict]:
    items = [random_item(rng, fold, ascii_only) for _ in range(rng.choice((1, 1, 2, 3)))]
    negated = rng.random() < 0.3
    if len(items) == 1 and not negated and items[0][0].startswith("\\"):
        return items[0]
    source = f"[{'^' if negated else ''}{''.join(item for item, _ in items)}]"
    return source, lambda char: any(verdict(char) for _, verdict in items) != negated


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sample(1)
def test_random_classes_agree_with_unicodedata(seed: int) -> None:
    rng, verdicts = random.Random(900 + seed), {True: 0, False: 0}
    for _ in range(60):
        fold, ascii_only = rng.random() < 0.4, rng.random() < 0.2
        classes = [random_class(rng, fold, ascii_only) for _ in range(3)]
        flags = "i" * fold + "a" * ascii_only
        pattern = f"(?{flags})" * bool(flags) + "".join(source for source, _ in classes)
        dfa = CharDfa(*pattern_dfa(pattern, ResourceGuard(Limits())))
        # Characters that each class matches, where there are some, so that many texts match as a whole.
        likely = [[char for char in TEXT if verdict(char)] or list(TEXT) for _, verdict in classes]
        for _ in range(120):
            text = "".join(rng.choice(chars if rng.random() < 0.85 else TEXT) for chars in likely)
            expected = all(verdict(char) for char, (_, verdict) in zip(text, classes, strict=True))
            assert dfa.accepts(text) is expected, (pattern, text)
            verdicts[expected] += 1
    assert min(verdicts.values()) > 1_000


@pytest.mark.parametrize(("pattern", "texts", "others"), rows("regex", "a_property_stands_where_a_character_may"))
def test_a_property_stands_where_a_character_may(pattern: str, texts: tuple[str, ...], others: tuple[str, ...]) -> None:
    compiled = compile_text(RegexSpec(pattern))
    assert [text for text in (*texts, *others) if check_text(compiled, text).satisfied] == list(texts)


@pytest.mark.parametrize(
    ("pattern", "position", "hint"),
    [
        (r"\p{Greek}", 0, "Script=Greek"),
        (r"\p{sc=greek}", 0, "sc=Greek"),
        (r"\p{scx=Klingon}", 0, None),
        (r"\p{gc=Emoji}", 0, None),
        (r"\P{emoji}", 0, "Emoji"),
        (r"\p{Block=Basic_Latin}", 0, None),
        (r"a\p{L}[\p{uppercase_letter}]", 7, "Uppercase_Letter"),
        (r"\p{N}\P{lu}", 5, "Lu"),
        (r"\p{}", 0, None),
    ],
)
def test_an_unknown_property_is_refused_by_name(pattern: str, position: int, hint: str | None) -> None:
    with pytest.raises(SpecUnsupported, match=r"a general category, a script or a binary property") as excinfo:
        parse(pattern)
    assert (excinfo.value.construct, excinfo.value.position) == ("property", position)
    assert str(excinfo.value).endswith(f"; did you mean {hint}?") if hint else "mean" not in str(excinfo.value)


@pytest.mark.parametrize(("pattern", "position", "message"), [
    *rows("regex", "a_fault_beside_a_property_has_its_position"), (r"[a-\p{Lu}]", None, r"range a-\\p\{Lu\}"),
    (r"(?<=\p{L}+)a", None, "look-behind"),
])
def test_a_fault_beside_a_property_has_its_position(pattern: str, position: int | None, message: str) -> None:
    with pytest.raises(SpecSyntaxError, match=message, check=lambda error: error.position == position):
        parse(pattern)


def test_equal_classes_are_built_once() -> None:
    node = parse(r"[\p{L}\d]\p{Lu}x" * 2_000)
    assert isinstance(node, Concat) and len(set(map(id, node.items))) == 3


@pytest.mark.parametrize("compiled", [pattern_dfa, search_dfa])
def test_very_many_properties_meet_a_limit(compiled: Callable[[str, ResourceGuard], object]) -> None:
    with pytest.raises(LimitExceeded, check=lambda error: error.limit in ("nfa_positions_max", "dfa_states_max")):
        compiled("^" + r"\p{L}?" * 3_000 + "$", ResourceGuard(Limits(dfa_states_max=1_000, nfa_positions_max=1_000)))
