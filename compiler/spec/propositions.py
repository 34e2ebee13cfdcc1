"""What propositions mean, and the names that follow from their meaning: the same under whatever name a caller uses.

Letters are sets of such names, so one compiled constraint serves every caller who means the same.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping

from compiler.automata import literal
from compiler.errors import SpecSyntaxError
from compiler.spec.types import RESERVED_NAMES, KeywordsSpec, Proposition

NOMATCH = "nomatch"
EOS = "eos"
PUNCTUATION = {
    "dot": Proposition(words=(".",)),
    "comma": Proposition(words=(",",)),
    "question": Proposition(words=("?",)),
    "exclamation": Proposition(words=("!",)),
    "colon": Proposition(words=(":",)),
    "semicolon": Proposition(words=(";",)),
}
STEP = Proposition(regex=r"\w+(?# a step)")  # a word; over labels, any label: so it is no pattern that a caller writes
SENTENCE_END = Proposition(words=(".", "!", "?"))
CLOSER = Proposition(words=('"', "'", "”", "’", "»", ")", "]", "}"))
_NAME_CHARS_MAX = 60
_PLAIN = re.compile(r"[\w\s-]+|[.,!?:;]")  # words whose names are taken for nothing else


def meanings(names: Iterable[str], declared: Mapping[str, Proposition], field: str = "ltlf") -> dict[str, Proposition]:
    """What each name stands for: as declared, else a punctuation mark, else the word of that name.

    What is declared and not named is among them: `nomatch` says that it does not hold either.
    Raises SpecSyntaxError, which names the field, for a name that stands for no word.
    """
    named = [name for name in names if name not in (EOS, NOMATCH) and name not in declared]
    if not all(name.strip() for name in named):
        raise SpecSyntaxError("a name of white space alone stands for no word: declare what it means", field=field)
    return {**declared, **{name: PUNCTUATION.get(name) or Proposition(words=(name,)) for name in named}}


def normalised(proposition: Proposition) -> Proposition:
    """The same meaning in its one form: white space collapsed, letters small where case is ignored, words sorted."""
    if proposition.regex is not None:
        return Proposition(regex=proposition.regex)
    fold = not proposition.case_sensitive
    words = {" ".join(_small(word) if fold else word for word in phrase.split()) for phrase in proposition.words}
    cased = proposition.case_sensitive and any(_folds(char) for word in words for char in word)
    return Proposition(tuple(sorted(words)), case_sensitive=cased)


def _folds(char: str) -> bool:
    """Whether IGNORECASE lets the character stand for another."""
    if char.lower() == char == char.upper():
        return False
    return literal(ord(char), True) != literal(ord(char))


def _small(word: str) -> str:
    """The word in small letters, as far as `re` takes them for the same under IGNORECASE."""
    pairs = ((char, char.lower()) for char in word)
    return "".join(
        low if len(low) == 1 and low != char and literal(ord(low), True) == literal(ord(char), True) else char
        for char, low in pairs
    )


def meaning_name(proposition: Proposition) -> str:
    """The name of a meaning, for people and programs: `cat|dog`, `/[0-9]+/`. Equal exactly for equal meanings.

    One that is a reserved name carries a mark; long ones are cut, and these and odd ones carry a hash.
    """
    plain = normalised(proposition)
    if plain.regex is not None:
        name, odd = f"/{plain.regex}/", False
    else:
        name, odd = "|".join(plain.words), not all(map(_PLAIN.fullmatch, plain.words))
        name += " (case)" if plain.case_sensitive else ""
    if odd or len(name) > _NAME_CHARS_MAX:
        cut = name if len(name) <= _NAME_CHARS_MAX else f"{name[: _NAME_CHARS_MAX // 2]}…"
        return f"{cut} {_mark([plain.words, plain.regex, plain.case_sensitive])}"
    return name + "'" if name.lower() in RESERVED_NAMES else name


def _mark(meaning: object) -> str:
    return f"#{hashlib.sha256(json.dumps(meaning).encode()).hexdigest()[:12]}"


def concepts_of(spec: KeywordsSpec) -> dict[int, tuple[str, Proposition]]:
    """The name and the meaning of each concept of a keywords constraint, by its number, before inflection."""
    found = {}
    for number, forms in enumerate(spec.concepts):
        meaning = Proposition(forms, case_sensitive=spec.case_sensitive)
        inflected = f" ~{_mark([sorted(forms), spec.case_sensitive])}" if spec.inflect else ""
        found[number] = (meaning_name(meaning) + inflected, meaning)
    return found
