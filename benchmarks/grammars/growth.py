"""Grammars, texts and combinations of growing size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.grammars.suite import GrammarCase, cases

SIZES = (10, 30, 100, 300, 1_000, 3_000, 10_000)
DEPTHS = (10, 30, 100, 300, 1_000)
PARTS = (1, 2, 3, 5, 7, 10, 15, 20)
WORDS = (
    "apple", "bird", "cloud", "dog", "eagle", "fish", "grass", "house", "island", "jungle", "king", "lemon", "moon",
    "night", "ocean", "pearl", "queen", "river", "stone", "tree",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GrowthPoint:
    """A grammar of some size. `series` says what grows."""

    series: str
    size: int
    case: GrammarCase


def points() -> Iterator[GrowthPoint]:
    """All grammars, one series after another."""
    for size in SIZES:
        yield GrowthPoint("rules", size, _many_rules(size))
    for size in SIZES:
        yield GrowthPoint("nested rules", size, _nested_rules(size))
    (json,) = (case for case in cases() if case.name == "json")
    for size in DEPTHS:
        text = "[" * size + "1" + "]" * size
        yield GrowthPoint("depth of the text", size, GrammarCase(json.name, json.grammar, (text,), (text[:-1],)))
    for size in PARTS:
        yield GrowthPoint("forbidden words", size, _without_words(json, size))
    for size in PARTS:
        yield GrowthPoint("required words", size, _with_words(json, size))


def _many_rules(size: int) -> GrammarCase:
    """Statements with names of their own, each of which may hold others."""
    rules = [f'r{number}: "k{number}(" r{(number + 1) % size}? ")"' for number in range(size)]
    start = "start: (" + " | ".join(f"r{number}" for number in range(size)) + ")+"
    return GrammarCase("rules", "\n".join([start, *rules]), ("k7(k8())k3()",), ("k7(k1())", "k3("))


def _nested_rules(size: int) -> GrammarCase:
    """Rules that call each other in a chain, without recursion."""
    rules = [f'r{number}: "(" r{number + 1} ")" | "x{number}"' for number in range(size)]
    grammar = "\n".join(["start: r0", *rules, f'r{size}: "y"'])
    return GrammarCase("nested rules", grammar, ("((x2))", "(" * size + "y" + ")" * size), ("(x2)", "((y))"))


def _without_words(json: GrammarCase, size: int) -> GrammarCase:
    """JSON beside patterns, each of which keeps out a word."""
    beside = tuple({"not": {"regex": f"(?s).*{word}.*"}} for word in WORDS[:size])
    return replace(json, accepted=('["zebra", 1]',), rejected=(f'["{WORDS[size - 1]}"]',), beside=beside)


def _with_words(json: GrammarCase, size: int) -> GrammarCase:
    """JSON with words anywhere. A part for each doubles the states."""
    beside = tuple({"keywords": [word]} for word in WORDS[:size])
    texts = (f'["{" ".join(WORDS[:size])}"]', f'["{" ".join(WORDS[1:size])}"]')
    return replace(json, accepted=texts[:1], rejected=texts[1:], beside=beside)
