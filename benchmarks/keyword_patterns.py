"""CommonGen validation concept sets, and the regexes of their keyword constraints.

A keyword is a maximal run of word characters that equals one of a concept's forms, in either case. Regexes have no
"maximal" and no complement, so both are written out: a word that is none of some forms is a path that leaves the trie
of these forms. Over UNICODE, `ordered` and `unordered` are exactly the languages of the keyword constraints, up to an
engine's definition of a word character (Rust adds combining marks to Python's).
"""

from __future__ import annotations

import functools
import json
import re
import string
import sys
from dataclasses import dataclass
from pathlib import Path

ANYTHING = r"[\s\S]*"  # unlike (?s:.*), all engines support it
SMALL, LARGE = 3, 5  # CommonGen has no set of 8 concepts: a set of LARGE and one of SMALL are joined


@dataclass(frozen=True, slots=True)
class KeywordAlphabet:
    """A pattern's word characters: a class, its complement, and a flag. The flag matches letters in either case."""

    word: str
    not_word: str
    ignore_case: re.RegexFlag


UNICODE = KeywordAlphabet(r"\w", r"\W", re.IGNORECASE)
ASCII = KeywordAlphabet("[0-9A-Za-z_]", "[^0-9A-Za-z_]", re.IGNORECASE | re.ASCII)
Concepts = tuple[tuple[str, ...], ...]  # the forms of each concept, as `are_ascii` demands


def read_concept_sets(dev: Path) -> list[Concepts]:
    """The inflected concept sets of dev.jsonl that satisfy `are_ascii`."""
    rows = [json.loads(line) for line in dev.read_text(encoding="utf-8").splitlines()]
    sets = [tuple(tuple(forms) for forms in row["inflections"]) for row in rows]
    return [concepts for concepts in sets if are_ascii(concepts)]


def are_ascii(concepts: Concepts) -> bool:
    """Whether all forms are lower-case ASCII words of one concept each."""
    forms = [form for concept in concepts for form in concept]
    return all(re.fullmatch("[a-z]+", form) for form in forms) and len(set(forms)) == len(forms)


def keyword_sets(dev: Path, size: int, count: int) -> list[Concepts]:
    """The first `count` sets of `size` concepts. Raises ValueError if there are fewer."""
    sets = read_concept_sets(dev)
    matching = [concepts for concepts in sets if len(concepts) == size]
    if size == SMALL + LARGE:
        small_sets = [concepts for concepts in sets if len(concepts) == SMALL]
        large_sets = [concepts for concepts in sets if len(concepts) == LARGE]
        matching = [a + b for a, b in zip(large_sets, small_sets, strict=False) if are_ascii(a + b)]
    if len(matching) < count:
        raise ValueError(f"{dev} has {len(matching)} sets of {size} concepts, fewer than {count}")
    return matching[:count]


def first_concepts(dev: Path, count: int) -> Concepts:
    """The first `count` concepts of the file that share no form. Raises ValueError if there are fewer."""
    selection: Concepts = ()
    for concept in (concept for concepts in read_concept_sets(dev) for concept in concepts):
        if len(selection) < count and are_ascii((*selection, concept)):
            selection = (*selection, concept)
    if len(selection) < count:
        raise ValueError(f"{dev} has {len(selection)} concepts, fewer than {count}")
    return selection


@functools.cache
def _either_case(alphabet: KeywordAlphabet) -> dict[str, str]:
    """The characters that match each letter in either case.

    In Unicode, those of k are k, K and the Kelvin sign.
    """
    characters = "".join(map(chr, range(sys.maxunicode + 1)))
    candidates = "".join(re.findall("[a-z]", characters, alphabet.ignore_case))
    return {
        letter: "".join(re.findall(letter, candidates, alphabet.ignore_case)) for letter in string.ascii_lowercase
    }


class Pattern:
    """Writes the regexes of keyword constraints over one alphabet.

    tail  the end of a text after a keyword
    """

    def __init__(self, alphabet: KeywordAlphabet) -> None:
        self.alphabet = alphabet
        self.tail = rf"(?:{alphabet.not_word}{ANYTHING})?"

    def letters(self, letters: str) -> str:
        """These letters in both cases, as the inside of a character class."""
        return "".join(_either_case(self.alphabet)[letter] for letter in letters)

    def word(self, forms: tuple[str, ...]) -> str:
        """One of `forms`."""
        return "(?:" + "|".join("".join(f"[{self.letters(letter)}]" for letter in form) for form in forms) + ")"

    def other_word(self, forms: list[str]) -> str:
        """A maximal word outside `forms`; no word character may follow."""
        heads = "".join(sorted({form[0] for form in forms if form}))
        ways = [self._word_without(heads) + f"{self.alphabet.word}*"]
        for head in heads:
            endings = [form[1:] for form in forms if form[:1] == head]
            ways.append(f"[{self.letters(head)}]" + self.other_word(endings) + ("" if "" in endings else "?"))
        return "(?:" + "|".join(ways) + ")"

    def _word_without(self, heads: str) -> str:
        """One word character that is none of `heads`."""
        excluded = self.letters(heads)
        if self.alphabet is UNICODE:
            return rf"[^\W{excluded}]"
        return "[" + "".join(sorted(set(string.ascii_letters + string.digits + "_") - set(excluded))) + "]"

    def without(self, concepts: Concepts) -> str:
        """Text without the forms of `concepts`, up to a possible word start."""
        forms = [form for concept in concepts for form in concept]
        return rf"(?:{self.alphabet.not_word}|{self.other_word(forms)}{self.alphabet.not_word})*"

    def ordered(self, concepts: Concepts) -> str:
        """No concept occurs before all concepts ahead of it have occurred."""
        stages = [self.without(concepts[at:]) + self.word(forms) for at, forms in enumerate(concepts)]
        return self.alphabet.not_word.join(stages) + self.tail

    def subsequence(self, concepts: Concepts) -> str:
        """The concepts occur in this order somewhere.

        This is a larger language than `ordered`, and a far simpler pattern.
        """
        head = rf"(?:{ANYTHING}{self.alphabet.not_word})?"
        return self.alphabet.not_word.join(head + self.word(forms) for forms in concepts) + self.tail

    def unordered(self, concepts: Concepts) -> str:
        """Every concept occurs, as a tree of all orders. Regexes have no intersection."""
        ways = [self.word(forms) + self._then(concepts[:at] + concepts[at + 1 :]) for at, forms in enumerate(concepts)]
        return rf"(?:{ANYTHING}{self.alphabet.not_word})?(?:{'|'.join(ways)})"

    def _then(self, concepts: Concepts) -> str:
        return self.alphabet.not_word + self.unordered(concepts) if concepts else self.tail
