"""Keyword constraints of CommonGen's validation split, and regexes for the engines that have nothing else.

A keyword is a maximal run of word characters that equals one of a concept's forms, in either case. A regex has no
"maximal" and no "not this word", so both are written out: a word that is none of some forms is a walk down the trie of
those forms that leaves it somewhere. Over UNICODE, `ordered` and `unordered` are exactly the languages of the keyword
constraints, up to what an engine takes for a word character (Rust's adds combining marks to Python's).
"""

from __future__ import annotations

import functools
import json
import re
import string
import sys
from dataclasses import dataclass
from pathlib import Path

ANYTHING = r"[\s\S]*"  # all engines read this; not all know (?s:.*)
SMALL, LARGE = 3, 5  # sets of more concepts than CommonGen has are a set of LARGE and one of SMALL together


@dataclass(frozen=True, slots=True)
class KeywordAlphabet:
    """What a pattern takes for a word character: inside a class, and what it takes for one letter in either case."""

    word: str
    not_word: str
    ignore_case: re.RegexFlag


UNICODE = KeywordAlphabet(r"\w", r"\W", re.IGNORECASE)
ASCII = KeywordAlphabet("[0-9A-Za-z_]", "[^0-9A-Za-z_]", re.IGNORECASE | re.ASCII)
Concepts = tuple[tuple[str, ...], ...]  # each concept's forms: lower-case ASCII words, none of them in two concepts


def read_concept_sets(dev: Path) -> list[Concepts]:
    """The inflected concept sets of dev.jsonl whose forms are plain words that belong to one concept each."""
    rows = [json.loads(line) for line in dev.read_text(encoding="utf-8").splitlines()]
    sets = [tuple(tuple(forms) for forms in row["inflections"]) for row in rows]
    return [concepts for concepts in sets if is_plain(concepts)]


def is_plain(concepts: Concepts) -> bool:
    """Whether all forms are lower-case ASCII words, none of them in two concepts."""
    forms = [form for concept in concepts for form in concept]
    return all(re.fullmatch("[a-z]+", form) for form in forms) and len(set(forms)) == len(forms)


def keyword_sets(dev: Path, size: int, count: int) -> list[Concepts]:
    """The first `count` sets of `size` concepts. ValueError where the file has too few."""
    known = read_concept_sets(dev)
    found = [concepts for concepts in known if len(concepts) == size]
    if size == SMALL + LARGE:
        small = [concepts for concepts in known if len(concepts) == SMALL]
        large = [concepts for concepts in known if len(concepts) == LARGE]
        found = [a + b for a, b in zip(large, small, strict=False) if is_plain(a + b)]
    if len(found) < count:
        raise ValueError(f"{dev} has {len(found)} sets of {size} concepts, {count} were asked for")
    return found[:count]


def first_concepts(dev: Path, count: int) -> Concepts:
    """The first `count` concepts of the file, in its order, that share no form. ValueError where there are fewer."""
    chosen: Concepts = ()
    for concept in (concept for concepts in read_concept_sets(dev) for concept in concepts):
        if len(chosen) < count and is_plain((*chosen, concept)):
            chosen = (*chosen, concept)
    if len(chosen) < count:
        raise ValueError(f"{dev} has {len(chosen)} concepts, {count} were asked for")
    return chosen


@functools.cache
def _either_case(letter: str, alphabet: KeywordAlphabet) -> str:
    """Every character that stands for `letter`, as a class: without ASCII, k is k, K and the Kelvin sign."""
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    return "".join(re.findall(letter, everything, alphabet.ignore_case))


class Pattern:
    """Writes the regexes of keyword constraints over one alphabet."""

    def __init__(self, alphabet: KeywordAlphabet) -> None:
        self.alphabet = alphabet
        self.tail = rf"(?:{alphabet.not_word}{ANYTHING})?"

    def letters(self, letters: str) -> str:
        return "".join(_either_case(letter, self.alphabet) for letter in letters)

    def word(self, forms: tuple[str, ...]) -> str:
        """One of `forms`."""
        return "(?:" + "|".join("".join(f"[{self.letters(letter)}]" for letter in form) for form in forms) + ")"

    def other_word(self, forms: list[str]) -> str:
        """A maximal word that is none of `forms`; what follows must not be a word character."""
        heads = "".join(sorted({form[0] for form in forms if form}))
        ways = [self._word_without(heads) + f"{self.alphabet.word}*"]
        for head in heads:
            endings = [form[1:] for form in forms if form[:1] == head]
            ways.append(f"[{self.letters(head)}]" + self.other_word(endings) + ("" if "" in endings else "?"))
        return "(?:" + "|".join(ways) + ")"

    def _word_without(self, heads: str) -> str:
        """One word character that is none of `heads`."""
        taken = self.letters(heads)
        if self.alphabet is UNICODE:
            return rf"[^\W{taken}]"
        return "[" + "".join(sorted(set(string.ascii_letters + string.digits + "_") - set(taken))) + "]"

    def without(self, concepts: Concepts) -> str:
        """Text in which no form of `concepts` occurs; it ends where a word may begin."""
        forms = [form for concept in concepts for form in concept]
        return rf"(?:{self.alphabet.not_word}|{self.other_word(forms)}{self.alphabet.not_word})*"

    def ordered(self, concepts: Concepts) -> str:
        """Concept j + 1 and those after it do not occur before concept j has."""
        stages = [self.without(concepts[at:]) + self.word(forms) for at, forms in enumerate(concepts)]
        return self.alphabet.not_word.join(stages) + self.tail

    def subsequence(self, concepts: Concepts) -> str:
        """The concepts occur in this order somewhere: more texts than `ordered`, and a far simpler pattern."""
        head = rf"(?:{ANYTHING}{self.alphabet.not_word})?"
        return self.alphabet.not_word.join(head + self.word(forms) for forms in concepts) + self.tail

    def unordered(self, concepts: Concepts) -> str:
        """Every concept occurs: all orders, written out as a tree, for a regex has no intersection."""
        ways = [self.word(forms) + self._then(concepts[:at] + concepts[at + 1 :]) for at, forms in enumerate(concepts)]
        return rf"(?:{ANYTHING}{self.alphabet.not_word})?(?:{'|'.join(ways)})"

    def _then(self, concepts: Concepts) -> str:
        return self.alphabet.not_word + self.unordered(concepts) if concepts else self.tail
