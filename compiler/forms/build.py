"""Each constraint form as a leaf of the tree that `compiler.text` combines: the one place that knows them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial

from compiler.automata import CharDfa, Dfa, count_dfa, keyword_counts_dfa, sentences_dfa
from compiler.engines import Engines
from compiler.errors import SpecSyntaxError, within
from compiler.forms.infill import choice_node, infill_node
from compiler.forms.inflections import inflections
from compiler.forms.user_dfa import user_char_dfa, user_letter_dfa
from compiler.json_schema import schema_dfa
from compiler.limits import ResourceGuard
from compiler.ltlf import Builder, LtlfFormula, Op, parse_formula, propositions_of
from compiler.regex import Node, blame_field, parse_pattern
from compiler.spec import (
    CLOSER,
    EOS,
    NOMATCH,
    SENTENCE_END,
    STEP,
    AllSpec,
    AnySpec,
    ChoiceSpec,
    DfaSpec,
    InfillSpec,
    JsonSchemaSpec,
    KeywordsSpec,
    LabelsSpec,
    LengthSpec,
    LtlfSpec,
    NotSpec,
    Proposition,
    RegexSpec,
    Spec,
    WholeTextSpec,
    check_limits,
    concepts_of,
    meaning_name,
    meanings,
    propositions_named,
    spec_from_json,
    trimmed,
)
from compiler.text import BooleanNode, CharLeaf, ConstraintTree, LengthLeaf, LetterDfa, Negation, WordLeaf, to_char_dfa


def part_of(spec: Spec, engines: Engines, guard: ResourceGuard, path: tuple[str, ...] = ()) -> ConstraintTree:
    """The tree of a constraint.

    path  where it stands in the whole: leaves that are built later name their faults from there on
    Raises SpecSyntaxError or SpecUnsupported, whose `field` is the path from this constraint on, where a part cannot be
    read, SpecUnsatisfiable where a schema's part has no text, LimitExceeded where one outgrows a limit.
    """
    match spec:
        case AllSpec() | AnySpec():
            name = "all" if isinstance(spec, AllSpec) else "any"
            parts = []
            for number, part in enumerate(spec.parts):
                with within(f"{name}.{number}"):
                    parts.append(part_of(part, engines, guard, (*path, f"{name}.{number}")))
            return BooleanNode(isinstance(spec, AllSpec), tuple(parts))
        case NotSpec():
            with within("not"):
                return Negation(part_of(spec.part, engines, guard, (*path, "not")))
        case LtlfSpec():
            formula = parse_formula(spec.formula, guard)
            build = partial(_formula_dfa, formula, engines)
            return _word_leaf(
                meanings(propositions_of(formula), dict(spec.propositions)), propositions_of(formula), build
            )
        case KeywordsSpec():
            return _keywords(spec, engines)
        case LengthSpec():
            return _length(spec)
        case DfaSpec():
            return _given(spec, guard, path)
        case LabelsSpec():
            raise SpecSyntaxError("labels stands at the outermost constraint alone", field="labels")
        case _:
            return CharLeaf(_texts(spec, engines, guard), spec.leading_space == "strip")


def _texts(spec: WholeTextSpec, engines: Engines, guard: ResourceGuard) -> CharDfa:
    """The texts of a form that speaks of the whole text."""
    node: Node
    match spec:
        case RegexSpec():
            with blame_field("regex"):
                node = parse_pattern(spec.pattern, guard)
                return CharDfa(*engines.node(node, guard))
        case InfillSpec():
            with blame_field("infill"):
                node = infill_node(spec.template, guard)
                return CharDfa(*engines.node(node, guard))
        case ChoiceSpec():
            return CharDfa(*engines.node(choice_node(spec.choices, guard), guard))
        case JsonSchemaSpec():
            embed = partial(_embedded, engines, guard)
            with within("json_schema"):
                return schema_dfa(json.loads(spec.schema), spec.whitespace, spec.max_depth, embed, guard)


def _embedded(engines: Engines, guard: ResourceGuard, constraint: object, field: str) -> CharDfa:
    """The texts that a string of a schema may hold under its own `constraint`."""
    with within(field):
        spec = spec_from_json(constraint)
        check_limits(spec, guard.limits)
        return to_char_dfa(part_of(trimmed(spec, guard), engines, guard), guard)


def _word_leaf(
    meant: Mapping[str, Proposition],
    mentioned: Sequence[str],
    build: Callable[[Sequence[frozenset[str]], ResourceGuard], Dfa],
) -> WordLeaf:
    """A leaf over propositions by the caller's names; `build` is given letters in those names."""
    names: dict[str, list[str]] = {}
    for name, proposition in meant.items():
        names.setdefault(meaning_name(proposition), []).append(name)

    def by_meaning(letters: Sequence[frozenset[str]], guard: ResourceGuard) -> Dfa:
        own = [frozenset(name for held in letter for name in names.get(held, [held])) for letter in letters]
        return build(own, guard)

    propositions = {meaning_name(proposition): proposition for proposition in meant.values()}
    return WordLeaf(propositions, EOS in mentioned, NOMATCH in mentioned, by_meaning)


def _formula_dfa(
    formula: LtlfFormula, engines: Engines, letters: Sequence[frozenset[str]], guard: ResourceGuard
) -> Dfa:
    return engines.formula(formula, letters, guard)


def _keywords(spec: KeywordsSpec, engines: Engines) -> WordLeaf:
    """Keywords that only have to occur are a formula; where they are counted, the automaton is built directly."""
    names = [name for name, _ in concepts_of(spec).values()]
    propositions = {}
    for number, (name, proposition) in concepts_of(spec).items():
        with within(f"keywords.{number}"):
            propositions[name] = _inflected(proposition) if spec.inflect else proposition
    build: LetterDfa
    if spec.counts:
        build = partial(_counts_dfa, names, spec)
    else:
        build = partial(_formula_dfa, _occurrences(names, spec.ordered), engines)
    return WordLeaf(propositions, False, False, build)


def _counts_dfa(
    names: Sequence[str], spec: KeywordsSpec, letters: Sequence[frozenset[str]], guard: ResourceGuard
) -> Dfa:
    return keyword_counts_dfa(names, spec.counts, spec.ordered, letters, guard)


def _inflected(proposition: Proposition) -> Proposition:
    forms = dict.fromkeys(form for word in proposition.words for form in inflections(word))
    return Proposition(tuple(forms), case_sensitive=proposition.case_sensitive)


def _occurrences(names: Sequence[str], ordered: bool) -> LtlfFormula:
    """The formula of keywords. In order: (none yet) U (the first & X((none of the rest) U (the second & ...))).

    The first itself is among the none: what counts is where it first occurs, also where concepts share a form.
    """
    build = Builder()
    concepts = [build.add(Op.NAME, (), name) for name in names]
    if not ordered:
        found = list(dict.fromkeys(build.add(Op.FINALLY, (concept,)) for concept in concepts))
        return build.formula(build.add(Op.AND, found) if len(found) > 1 else found[0])
    root = build.add(Op.FINALLY, concepts[-1:])
    for number in range(len(concepts) - 2, -1, -1):
        here = build.add(Op.AND, (concepts[number], build.add(Op.NEXT, (root,))))
        none = list(dict.fromkeys(build.add(Op.NOT, (concept,)) for concept in concepts[number:]))
        root = build.add(Op.UNTIL, (build.add(Op.AND, none) if len(none) > 1 else none[0], here))
    return build.formula(root)


def _length(spec: LengthSpec) -> ConstraintTree:
    """The bounds on a text's length, each a leaf of its own."""
    parts: list[ConstraintTree] = []
    if spec.min_words is not None or spec.max_words is not None:
        parts.append(_lexical({meaning_name(STEP): STEP}, partial(_word_counts, spec)))
    if spec.sentences is not None:
        marks = (STEP, SENTENCE_END, CLOSER)
        parts.append(_lexical({meaning_name(mark): mark for mark in marks}, partial(_sentences, spec)))
    if spec.max_chars is not None:
        parts.append(LengthLeaf(spec.max_chars))
    return parts[0] if len(parts) == 1 else BooleanNode(True, tuple(parts))


def _lexical(propositions: dict[str, Proposition], build: LetterDfa) -> WordLeaf:
    return WordLeaf(propositions, False, False, build, internal=True)


def _holding(proposition: Proposition, letters: Sequence[frozenset[str]]) -> list[bool]:
    name = meaning_name(proposition)
    return [name in letter for letter in letters]


def _word_counts(spec: LengthSpec, letters: Sequence[frozenset[str]], guard: ResourceGuard) -> Dfa:
    return count_dfa(_holding(STEP, letters), spec.min_words or 0, spec.max_words, guard)


def _sentences(spec: LengthSpec, letters: Sequence[frozenset[str]], guard: ResourceGuard) -> Dfa:
    assert spec.sentences is not None
    ends, words, closers = (_holding(mark, letters) for mark in (SENTENCE_END, STEP, CLOSER))
    return sentences_dfa(ends, words, closers, *spec.sentences, guard)


def _given(spec: DfaSpec, guard: ResourceGuard, path: tuple[str, ...]) -> ConstraintTree:
    """A caller's own automaton."""
    if spec.given.over_bytes:
        if spec.propositions:
            raise SpecSyntaxError("an automaton over bytes has no propositions", field="propositions")
        return CharLeaf(user_char_dfa(spec.given, guard), spec.leading_space == "strip")
    named = propositions_named(spec.given, guard)

    def build(letters: Sequence[frozenset[str]], guard: ResourceGuard) -> Dfa:
        with within(".".join(path)) if path else nullcontext():
            return user_letter_dfa(spec.given, letters, guard)

    return _word_leaf(meanings(named, dict(spec.propositions), "dfa"), named, build)
