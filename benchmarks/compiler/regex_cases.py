"""Regex cases of the compile benchmark, the same pattern for every engine.

The patterns name their characters (`[0-9]`, `[A-Za-z]`) so that all engines read them alike, except in the cases about
Unicode's classes. XGrammar's `\\d` and `\\w` are ASCII.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

from benchmarks.compiler.cases import CompileCase, Expression, for_all

WORDS = 1_000
_ASCII_NOTE = "ASCII only"
_EMAIL = r"[a-zA-Z0-9._%+-]{1,64}@[a-zA-Z0-9.-]{1,255}\.[a-zA-Z]{2,24}"
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"
_SENTENCE = r"[A-Z][^.!?\n]{8,78}[.!?]"  # 10 to 80 characters
_MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_SAME_EVERYWHERE = (
    ("date", "formats", r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"),
    ("date in words", "formats", rf"(?:[1-9]|[12][0-9]|3[01]) {_MONTH} [12][0-9]{{3}}"),
    (
        "date and time",
        "formats",
        r"[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?(?:Z|[+-][0-2][0-9]:[0-5][0-9])",
    ),
    ("e-mail, lengths bounded", "formats", _EMAIL),
    ("e-mail", "formats", r"[a-zA-Z0-9._%+-]+@(?:[a-zA-Z0-9-]+\.)+[a-zA-Z]{2,}"),
    (
        "URL",
        "formats",
        r"https?://(?:[a-zA-Z0-9-]+\.)+[a-z]{2,24}(?::[0-9]{1,5})?(?:/[^\s?#]*)?(?:\?[^\s#]*)?(?:#\S*)?",
    ),
    ("UUID", "formats", r"[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"),
    ("IPv4", "formats", rf"{_OCTET}(?:\.{_OCTET}){{3}}"),
    ("phone", "formats", r"\+?[0-9]{1,3}[ .-]?(?:\([0-9]{1,4}\)[ .-]?)?[0-9]{2,4}(?:[ .-]?[0-9]{2,4}){1,3}"),
    ("number", "formats", r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"),
    ("amount of money", "formats", r"\$(?:0|[1-9][0-9]{0,2}(?:,[0-9]{3}){0,3})\.[0-9]{2}"),
    (
        "SQL select",
        "formats",
        r"SELECT [a-z_]+(?:, [a-z_]+){0,9} FROM [a-z_]+(?: WHERE [a-z_]+ (?:=|<|>) (?:[0-9]+|'[^'\n]*'))?;",
    ),
    ("text to 200 characters", "bounded text", r"[^\n]{1,200}"),
    ("three sentences of 10 to 80 characters", "bounded text", rf"(?:{_SENTENCE} ){{2}}{_SENTENCE}"),
    ("200 words", "bounded text", r"(?:[A-Za-z]+ ){1,200}[A-Za-z]+\."),
    ("three lines to 40 characters", "bounded text", r"[^\n]{1,40}\n[^\n]{1,40}\n[^\n]{1,40}"),
    ("list of 3 to 7 items", "bounded text", r"(?:- [^\n]{1,100}\n){3,7}"),
    ("tagged thought and answer", "bounded text", r"<think>[^<]{1,500}</think>\n<answer>(?:yes|no|unknown)</answer>"),
)
_UNICODE = (
    ("date, Unicode digits", "formats", r"\d{4}-\d{2}-\d{2}"),
    ("e-mail, Unicode words", "formats", r"[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+"),
    ("to 21 Unicode words", "bounded text", r"\w+(?: \w+){0,20}"),
    ("50 Unicode word characters", "bounded text", r"\w{1,50}"),
)


def common_words(shared: Path, count: int) -> list[str]:
    """The first `count` distinct lower-case words of CommonGen's training sentences."""
    words: dict[str, None] = {}
    with gzip.open(shared / "data" / "commongen" / "train.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            for sentence in json.loads(line)["references"]:
                words.update(dict.fromkeys(re.findall(r"\b[a-z]{3,}\b", sentence)))
            if len(words) >= count:
                return list(words)[:count]
    raise ValueError(f"the training split has only {len(words)} words")


def pattern_case(name: str, family: str, pattern: str, xgrammar_note: str = "") -> CompileCase:
    """A case that every engine takes as the same regex.

    It lacks our optional leading space, which the others do not have.
    """
    constraint = {"regex": pattern, "leading_space": "forbid"}
    ascii_form = {"xgrammar": Expression("regex", pattern, xgrammar_note)}
    return CompileCase(name, family, constraint, for_all(Expression("regex", pattern), but=ascii_form))


def choice_case(name: str, words: list[str]) -> CompileCase:
    """A choice of words, which the other engines take as an alternation."""
    constraint = {"choice": words, "leading_space": "forbid"}
    return CompileCase(name, "word lists", constraint, for_all(Expression("regex", "|".join(words))))


def cases(shared: Path) -> tuple[CompileCase, ...]:
    """All cases of this module."""
    words = common_words(shared, WORDS)
    any_word = "(?:" + "|".join(words) + ")"
    return (
        *(pattern_case(*row) for row in _SAME_EVERYWHERE),
        *(pattern_case(*row, xgrammar_note=_ASCII_NOTE) for row in _UNICODE),
        pattern_case("one of 1,000 words", "word lists", any_word),
        pattern_case("sentence with one of 1,000 words", "word lists", rf"(?:[^\n]* )?{any_word}(?: [^\n]*)?\."),
        pattern_case("three of 1,000 words", "word lists", rf"{any_word} {any_word} {any_word}"),
        choice_case("choice of 100 words", words[:100]),
        choice_case("choice of three labels", ["positive", "negative", "neutral"]),
    )
