"""Printable names of an automaton's symbols and letters. Decides nothing: only people read them."""

from __future__ import annotations

from compiler.automata import Minterms, describe
from compiler.spec import CLOSER, NOMATCH, SENTENCE_END, STEP, meaning_name
from compiler.text.combination import Combined
from compiler.text.transducer import Outcome

LetterNames = tuple[tuple[str, ...] | None, ...]
_INTERNAL_NAMES = {  # of our own propositions
    meaning_name(STEP): "(a word)",
    meaning_name(SENTENCE_END): "(the end of a sentence)",
    meaning_name(CLOSER): "(a closing mark)",
}
_SPACE_NAME = "(a leading space)"


def minterm_names(minterms: Minterms) -> tuple[str, ...]:
    """The characters of each minterm."""
    return tuple(describe(minterms.charset([minterm])) for minterm in range(minterms.count))


def character_letter_names(combined: Combined) -> tuple[str, ...]:
    """The names of letters that are characters, and of the one more that is the leading space."""
    names = minterm_names(combined.transducer.transducer.minterms)
    return (*names, _SPACE_NAME)[: combined.letters.symbols]


def letter_names(combined: Combined) -> LetterNames:
    """The propositions of each letter that callers know; None for a letter that is no step of the word trace."""
    alphabet = combined.transducer.alphabet
    hidden = combined.internal_names if combined.with_nomatch else {*combined.internal_names, NOMATCH}
    units = (tuple(sorted(letter - hidden)) for letter in alphabet.units)
    return (*units, *[None] * (len(alphabet) - len(alphabet.units)))


def symbol_names(combined: Combined, names: LetterNames) -> tuple[str, ...]:
    """The names of all letters. `names` are those of `letter_names`."""
    alphabet = combined.transducer.alphabet
    # Names in the order of LetterAlphabet: units, characters, the leading space, outcomes.
    steps = zip(alphabet.units, names, strict=False)  # the units come first among the letters
    units = (", ".join((*(propositions or ()), *_internal_names(letter))) or "other" for letter, propositions in steps)
    characters = ["(a character)"] * alphabet.character_letters + [_SPACE_NAME] * alphabet.has_space_letter
    return (*units, *characters, *(f"(end: {_outcome_name(outcome)})" for outcome in alphabet.outcomes))


def _internal_names(letter: frozenset[str]) -> list[str]:
    return sorted(_INTERNAL_NAMES[name] for name in letter & _INTERNAL_NAMES.keys())


def _outcome_name(outcome: Outcome) -> str:
    """The outcome of the whole-text constraints, in their order; of both readings where there are two."""
    readings = [
        "no text" if met is None else ", ".join("met" if holds else "not met" for holds in met) or "a text"
        for met in outcome
    ]
    return readings[0] if len(readings) == 1 else f"{readings[0]}; without its first space {readings[1]}"
