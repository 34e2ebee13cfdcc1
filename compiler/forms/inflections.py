"""The inflected forms of English words. They come from the dictionary of the package lemminflect, which is loaded on
first use.

Only the dictionary is used, never the package's guesses about unknown words: those come from pickled models.
"""

from __future__ import annotations

import bisect
import gzip
import threading
from collections.abc import Callable
from functools import lru_cache
from types import ModuleType
from typing import Any

from compiler.errors import EngineFailure

_KINDS = ("NOUN", "VERB", "ADJ")
# A phrase that ends in one of these is a verb with its particle: its first word inflects.
_PARTICLES = frozenset((
    *("about", "across", "after", "ahead", "along", "apart", "around", "aside", "at", "away", "back", "by"),
    *("down", "for", "forward", "in", "into", "off", "on", "onto", "out", "over", "through", "to", "together"),
    *("up", "upon", "with"),
))  # fmt: skip
_loading = threading.Lock()  # the package loads its other tables on first use, without a lock


class _Entries:
    """A dictionary table that parses the lines of a word on demand. Parsing all of them would take half a second.

    path       a file of lines in the order of their words, which stand before the first comma
    parse      from a line to its part of the word's entry
    overrides  entries that replace those of the file
    """

    def __init__(self, path: str, parse: Callable[[str], dict[str, Any]], overrides: dict[str, dict[str, Any]]) -> None:
        with gzip.open(path) as file:
            self._lines = file.read().decode().splitlines()
        self._parse, self._overrides = parse, overrides

    def get(self, word: str, default: dict[str, Any]) -> dict[str, Any]:
        """The entry of a word, as of a dict."""
        if word in self._overrides:
            return self._overrides[word]
        entry: dict[str, Any] = {}
        # A word may have several lines, one for each part of speech; they are neighbours.
        first = bisect.bisect_left(self._lines, word, key=_word_of)
        for index in range(first, len(self._lines)):
            if _word_of(self._lines[index]) != word:
                break
            entry.update(self._parse(self._lines[index]))
        return entry or default


def _word_of(line: str) -> str:
    return line.partition(",")[0]


@lru_cache(maxsize=1)
def _dictionary() -> ModuleType:
    try:
        import lemminflect  # type: ignore[import-untyped,import-not-found,unused-ignore]
        from lemminflect.codecs.InflectionLUCodec import InflectionLUCodec
        from lemminflect.codecs.LemmaLUCodec import LemmaLUCodec
        from lemminflect.core.LexicalUtils import categoryToUPos
    except ImportError:
        raise EngineFailure(
            "`inflect` needs the package lemminflect, which is not installed here: install it, or list the forms"
        ) from None

    def lemmas(line: str) -> dict[str, Any]:
        _, category, forms = LemmaLUCodec.fromString(line)
        return {categoryToUPos(category): forms}

    def forms(line: str) -> dict[str, Any]:
        entry: dict[str, Any] = InflectionLUCodec.fromString(line)[2]
        return entry

    lemmatizer, inflector = lemminflect.Lemmatizer(), lemminflect.Inflections()
    # The package looks words up in these attributes with `get`, which is all that `_Entries` offers.
    lemmatizer.lemma_dict = _Entries(lemmatizer.lemma_lu_fn, lemmas, {})
    inflector.infl_dict = _Entries(inflector.infl_lu_fn, forms, InflectionLUCodec.updateForAuxMod({}))
    return lemminflect  # type: ignore[no-any-return,unused-ignore]


def inflections(form: str) -> tuple[str, ...]:
    """The word or phrase, then all inflected forms of its lemmas. The forms are sorted.

    As a noun, a verb and an adjective: `better` gives the forms of good, of well and of the verb. A phrase inflects its
    last word (ice creams), and where that is a particle its first (picked up). A word that the dictionary does not
    know (frisbee) has a regular plural, unless it ends in s. Forms follow the case of the word: Dog, Dogs; DOG, DOGS.

    Raises EngineFailure where lemminflect is missing.
    """
    # A phrase inflects one word; the others stay as they are.
    words = form.split()
    if not words:
        return (form,)
    index = 0 if len(words) > 1 and words[-1].lower() in _PARTICLES else len(words) - 1
    kinds = ("VERB",) if index < len(words) - 1 else _KINDS
    before, after = words[:index], words[index + 1 :]
    # A word that the dictionary lacks gets a regular plural, and only that.
    known_forms = _forms(words[index].lower(), kinds)
    forms = {_match_case(other, words[index]) for other in known_forms} if known_forms else _plural(words[index])
    entry = {" ".join([*before, other, *after]) for other in forms}
    return (form, *sorted(entry - {form, " ".join(words)}))


@lru_cache(maxsize=4096)
def _forms(word: str, kinds: tuple[str, ...]) -> frozenset[str]:
    """The forms of a lower-case word's lemmas of these parts of speech. Empty for a word that the dictionary lacks."""
    with _loading:
        package = _dictionary()
        lemmas = [(lemma, kind) for kind in kinds for lemma in package.getAllLemmas(word, kind).get(kind, ())]
        tables = [package.getAllInflections(lemma, kind) for lemma, kind in lemmas]
    forms_of_word = {spelling for table in tables for spellings in table.values() for spelling in spellings}
    for (lemma, kind), table in zip(lemmas, tables, strict=True):
        # A noun without a table, such as a can, whose entry is the verb's.
        forms_of_word |= {lemma} if table or kind != "NOUN" else {lemma, *_plural(lemma)}
    return frozenset(forms_of_word)


def _match_case(form: str, word: str) -> str:
    """A lower-case form in the case of its base word."""
    # A word in mixed case keeps its own letters before the ending.
    if word == word.lower():
        return form
    if len(word) > 1 and word == word.upper():
        return form.upper()
    if word == word.capitalize():
        return form.capitalize()
    return word + form[len(word) :] if form.startswith(word.lower()) else form


def _plural(word: str) -> set[str]:
    """The regular plural of a noun, if there is one. Empty for a word that may be a plural itself, or has other
    characters than letters.
    """
    if not word.isalpha() or word[-1] in "sS":
        return set()
    # Sibilants take -es, and a y behind a consonant becomes -ies.
    if word[-1] in "xz" or word[-2:] in ("ch", "sh"):
        return {word + "es"}
    if word[-1] == "y" and word[-2:-1] not in ("", *"aeiou"):
        return {word[:-1] + "ies"}
    return {word + "s"}
