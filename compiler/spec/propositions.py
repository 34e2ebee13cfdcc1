"""The meanings of propositions, and names that follow from the meaning alone.

Letters are sets of such names. So one compiled constraint serves all callers who mean the same, under any names.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping

from compiler.automata import literal
from compiler.errors import SpecSyntaxError
from compiler.spec.types import RESERVED_NAMES, KeywordsSpec, Proposition

# Reserved propositions: no declared proposition holds; the step is the one behind the last word.
NOMATCH = "nomatch"
EOS = "eos"
_MARKS = {"dot": ".", "comma": ",", "question": "?", "exclamation": "!", "colon": ":", "semicolon": ";"}
PUNCTUATION = {name: Proposition((mark,)) for name, mark in _MARKS.items()}
# Propositions of our own, for bounds on lengths. STEP is a word, and over labels any label, which no pattern says. The
# comment in it makes it a pattern that no caller writes.
STEP = Proposition(regex=r"\w+(?# a step)")
SENTENCE_END = Proposition(words=(".", "!", "?"))
CLOSER = Proposition(words=('"', "'", "”", "’", "»", ")", "]", "}"))
_NAME_CHARS_MAX = 60
_UNAMBIGUOUS = re.compile(r"[\w\s-]+|[.,!?:;]")  # words whose names cannot be read as anything else


def resolve_propositions(
    names: Iterable[str], declared: Mapping[str, Proposition], field: str = "ltlf"
) -> dict[str, Proposition]:
    """The proposition of each name. A name means what is declared, else a punctuation mark, else the word of that name.

    Declared names that are not used are included: `nomatch` says that these do not hold either.
    Raises SpecSyntaxError, which names the field, for a name that stands for no word.

    >>> resolve_propositions(["dog", "comma"], {})["comma"].words
    (',',)
    """
    undeclared = [name for name in names if name not in (EOS, NOMATCH) and name not in declared]
    if not all(name.strip() for name in undeclared):
        raise SpecSyntaxError("a name of white space alone stands for no word: declare what it means", field=field)
    return {**declared, **{name: PUNCTUATION.get(name) or Proposition(words=(name,)) for name in undeclared}}


def normalize(proposition: Proposition) -> Proposition:
    """The same meaning in normal form.

    White space is collapsed, letters are lower-case where case is ignored, and words are sorted, each once.
    """
    if proposition.regex is not None:
        return Proposition(regex=proposition.regex)
    # The two steps below ask the regex parser which characters IGNORECASE makes equal. `str.lower` alone differs from
    # it, for instance on characters with longer lower-case forms.
    fold = not proposition.case_sensitive
    words = {" ".join(_lower(word) if fold else word for word in phrase.split()) for phrase in proposition.words}
    # Case matters only where some character has another case: otherwise both settings mean the same.
    cased = proposition.case_sensitive and any(_folds(char) for word in words for char in word)
    return Proposition(tuple(sorted(words)), case_sensitive=cased)


def _folds(char: str) -> bool:
    """True when IGNORECASE lets the character stand for another."""
    # Most characters without case are recognised here, without compiling a character set.
    if char.lower() == char == char.upper():
        return False
    return literal(ord(char), True) != literal(ord(char))


def _lower(word: str) -> str:
    """The word in lower case, as IGNORECASE sees it. Only letters that `re` treats as equal are lowered."""
    pairs = ((char, char.lower()) for char in word)
    return "".join(
        low if len(low) == 1 and low != char and literal(ord(low), True) == literal(ord(char), True) else char
        for char, low in pairs
    )


def meaning_name(proposition: Proposition) -> str:
    """The name of a meaning, such as `cat|dog` or `/[0-9]+/`. Two names are equal exactly when the meanings are.

    A name that is reserved gets an apostrophe. Long names are cut; these and ambiguous ones get a hash.

    >>> meaning_name(Proposition(words=("Dog", "cat"))), meaning_name(Proposition(regex="[0-9]+"))
    ('cat|dog', '/[0-9]+/')
    """
    normal = normalize(proposition)
    if normal.regex is not None:
        name, ambiguous = f"/{normal.regex}/", False
    else:
        name, ambiguous = "|".join(normal.words), not all(map(_UNAMBIGUOUS.fullmatch, normal.words))
        name += " (case)" if normal.case_sensitive else ""
    # The hash is of the meaning, so names that are cut at the same place still differ.
    if ambiguous or len(name) > _NAME_CHARS_MAX:
        cut = name if len(name) <= _NAME_CHARS_MAX else f"{name[: _NAME_CHARS_MAX // 2]}…"
        return f"{cut} {_mark([normal.words, normal.regex, normal.case_sensitive])}"
    return name + "'" if name.lower() in RESERVED_NAMES else name


def _mark(meaning: object) -> str:
    return f"#{hashlib.sha256(json.dumps(meaning).encode()).hexdigest()[:12]}"


def concepts_of(spec: KeywordsSpec) -> dict[int, tuple[str, Proposition]]:
    """Each concept's name and meaning before inflection, by its number."""
    concepts = {}
    for number, forms in enumerate(spec.concepts):
        meaning = Proposition(forms, case_sensitive=spec.case_sensitive)
        # The dictionary decides what an inflected concept means, so its name depends on the forms as they are
        # written.
        inflected = f" ~{_mark([sorted(forms), spec.case_sensitive])}" if spec.inflect else ""
        concepts[number] = (meaning_name(meaning) + inflected, meaning)
    return concepts
