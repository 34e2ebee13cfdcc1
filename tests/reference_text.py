"""Whether a text satisfies a constraint, straight from the definitions: the judge of every answer in the tests.

Shares nothing with the compiler but the spec's types and, for LTLf, the parsed formula: no automaton, no labeller.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from compiler.limits import Limits, Meter
from compiler.ltlf_syntax import Formula, parse_formula, propositions_of
from compiler.spec import KeywordsSpec, LtlfSpec, Proposition, RegexSpec, Spec
from tests import reference_ltlf

PUNCTUATION = {"dot": ".", "comma": ",", "question": "?", "exclamation": "!", "colon": ":", "semicolon": ";"}


def satisfies(spec: Spec, text: str) -> bool:
    """True when the finished text satisfies the constraint."""
    match spec:
        case RegexSpec():
            return re.fullmatch(spec.pattern, text) is not None
        case KeywordsSpec():
            return _keywords_hold(spec, text)
        case LtlfSpec():
            return reference_ltlf.satisfies(_formula(spec.formula), word_trace(spec, text))


def word_trace(spec: LtlfSpec, text: str) -> list[frozenset[str]]:
    """nu(text): the propositions of each unit, by design 3's one line of Python."""
    names = propositions_of(_formula(spec.formula))
    declared = dict(spec.propositions)
    patterns = {name: _pattern(proposition) for name, proposition in declared.items()}
    for name in names:
        if name not in declared and name not in ("eos", "nomatch"):
            patterns[name] = _pattern(Proposition(words=(PUNCTUATION.get(name, name),)))
    trace = [frozenset(step) or frozenset({"nomatch"}) for step in _held(patterns, text)]
    return [*trace, frozenset({"eos"})] if "eos" in names else trace


@functools.lru_cache
def _formula(source: str) -> Formula:
    return parse_formula(source, Meter(Limits(formula_chars_max=10**6)))


def _held(patterns: dict[str, re.Pattern[str]], text: str) -> Iterator[set[str]]:
    """For each unit the propositions that hold at it: some match starts at a unit's start and ends at its end."""
    units = [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]
    for number, (_, end) in enumerate(units):
        yield {
            name
            for name, pattern in patterns.items()
            if any(pattern.fullmatch(text[start:end]) for start, _ in units[: number + 1])
        }


@functools.lru_cache
def _pattern(proposition: Proposition) -> re.Pattern[str]:
    if proposition.regex is not None:
        return re.compile(proposition.regex)
    phrases = (r"\s+".join(re.escape(word) for word in phrase.split()) for phrase in proposition.words)
    return re.compile(
        "|".join(f"(?:{phrase})" for phrase in phrases), 0 if proposition.case_sensitive else re.IGNORECASE
    )


def _keywords_hold(spec: KeywordsSpec, text: str) -> bool:
    patterns = {
        str(i): _pattern(Proposition(forms, None, spec.case_sensitive)) for i, forms in enumerate(spec.concepts)
    }
    steps = list(_held(patterns, text))
    if not spec.ordered:
        return all(any(name in step for step in steps) for name in patterns)
    # Reads on from each concept to the next, and gives up where a later one comes first (paper, Figure 1).
    # Where a concept holds several may hold with it; only the awaited one counts, and the next must come later.
    awaited = 0
    for step in steps:
        if awaited == len(patterns):
            break
        if str(awaited) in step:
            awaited += 1
        elif any(str(later) in step for later in range(awaited + 1, len(patterns))):
            return False
    return awaited == len(patterns)
