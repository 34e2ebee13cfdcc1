"""Keywords and lengths as leaves over the word trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from compiler.automata import Dfa, count_dfa, keyword_counts_dfa, sentences_dfa
from compiler.engines import Engines
from compiler.forms.inflections import inflections
from compiler.limits import ResourceGuard
from compiler.ltlf import Builder, LtlfFormula, Op
from compiler.spec import (
    CLOSER,
    SENTENCE_END,
    STEP,
    KeywordsSpec,
    LengthSpec,
    Proposition,
    concepts_of,
    field_prefix,
    meaning_name,
)
from compiler.text import BooleanNode, ConstraintTree, LengthLeaf, LetterDfa, WordLeaf


def keywords_leaf(spec: KeywordsSpec, engines: Engines) -> WordLeaf:
    """Keywords as a leaf over letters.

    Keywords that only have to occur become a formula. Where they are ordered or counted, the automaton is built
    directly: as a formula an order would be nested as often as there are keywords.
    """
    names = [name for name, _ in concepts_of(spec).values()]
    propositions = {}
    for number, (name, proposition) in concepts_of(spec).items():
        with field_prefix(f"keywords.{number}"):
            # Inflection may fail for want of its dictionary, which is a fault of that concept's field.
            propositions[name] = _inflect_proposition(proposition) if spec.inflect else proposition
    build: LetterDfa
    if spec.counts or spec.ordered:
        bounds = spec.counts or ((1, None),) * len(names)
        build = partial(keyword_counts_dfa, names=names, bounds=bounds, ordered=spec.ordered)
    else:
        build = partial(engines.formula, _occurrences(names))

    def conjuncts() -> tuple[WordLeaf, ...]:
        parts = [
            replace(spec, concepts=(concept,), counts=spec.counts[number : number + 1])
            for number, concept in enumerate(spec.concepts)
        ]
        return tuple(keywords_leaf(part, engines) for part in parts)

    several = len(spec.concepts) > 1 and not spec.ordered
    return WordLeaf(propositions=propositions, build=build, conjuncts=conjuncts if several else None)


def _inflect_proposition(proposition: Proposition) -> Proposition:
    forms = dict.fromkeys(form for word in proposition.words for form in inflections(word))
    return Proposition(tuple(forms), case_sensitive=proposition.case_sensitive)


def _occurrences(names: Sequence[str]) -> LtlfFormula:
    """The formula of keywords: F(a) & F(b) & ..."""
    build = Builder()
    occurs = list(dict.fromkeys(build.add(Op.FINALLY, (build.add(Op.NAME, (), name),)) for name in names))
    return build.formula(build.add(Op.AND, occurs) if len(occurs) > 1 else occurs[0])


def length_tree(spec: LengthSpec) -> ConstraintTree:
    """The bounds on a text's length, each a leaf of its own."""
    parts: list[ConstraintTree] = []
    if spec.min_words is not None or spec.max_words is not None:
        # Words and sentences are counted on the word trace.
        parts.append(
            WordLeaf(propositions={meaning_name(STEP): STEP}, build=partial(_word_counts, spec), internal=True)
        )
    if spec.sentences is not None:
        marks = {meaning_name(mark): mark for mark in (STEP, SENTENCE_END, CLOSER)}
        parts.append(WordLeaf(propositions=marks, build=partial(_sentences, spec), internal=True))
    if spec.max_chars is not None:
        # Characters are counted on the text itself.
        parts.append(LengthLeaf(spec.max_chars))
    # All bounds have to hold.
    return parts[0] if len(parts) == 1 else BooleanNode(True, tuple(parts))


def _holds_at(proposition: Proposition, letters: Sequence[frozenset[str]]) -> list[bool]:
    """For each letter, whether it holds the proposition."""
    name = meaning_name(proposition)
    return [name in letter for letter in letters]


def _word_counts(spec: LengthSpec, letters: Sequence[frozenset[str]], guard: ResourceGuard) -> Dfa:
    return count_dfa(_holds_at(STEP, letters), spec.min_words or 0, spec.max_words, guard)


def _sentences(spec: LengthSpec, letters: Sequence[frozenset[str]], guard: ResourceGuard) -> Dfa:
    assert spec.sentences is not None
    minimum, maximum = spec.sentences
    ends, words, closers = (_holds_at(mark, letters) for mark in (SENTENCE_END, STEP, CLOSER))
    return sentences_dfa(ends, words, closers, minimum=minimum, maximum=maximum, guard=guard)
