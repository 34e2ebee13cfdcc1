"""Each constraint form as a leaf of the tree that `compiler.text` combines. Only this module knows all forms."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from compiler.automata import CharDfa, Dfa, count_dfa, keyword_counts_dfa, sentences_dfa, texts_dfa
from compiler.engines import Engines
from compiler.errors import LimitExceeded, SpecSyntaxError, SpecUnsupported, require
from compiler.forms.infill import infill_node
from compiler.forms.inflections import inflections
from compiler.forms.machines import all_of, grammar_leaf
from compiler.forms.user_dfa import user_char_dfa, user_letter_dfa
from compiler.json_schema import (
    SchemaReader,
    SchemaViolation,
    public_pointer,
    read_decimal,
    report,
    schema_dfa,
    schema_texts,
    schema_violation,
)
from compiler.limits import SIZE_LIMITS, ResourceGuard
from compiler.ltlf import Builder, LtlfFormula, Op, parse_formula, propositions_of, subformula
from compiler.pushdown import network_machine
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
    GrammarSpec,
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
    check_input_size,
    concepts_of,
    drop_unused_propositions,
    field_prefix,
    guard_propositions,
    leaves,
    meaning_name,
    resolve_propositions,
    spec_from_json,
)
from compiler.text import (
    BooleanNode,
    CharLeaf,
    ConstraintTree,
    LengthLeaf,
    LetterDfa,
    Negation,
    PushdownLeaf,
    WordLeaf,
    approximated_paths,
    to_char_dfa,
    without_bounded_leaves,
)


def constraint_tree(
    spec: Spec, engines: Engines, guard: ResourceGuard, path: tuple[str, ...] = (), *, shortens: bool = True,
    regular: bool = False,
) -> ConstraintTree:
    """The tree of a constraint. That of labels is its part's.

    path      where the constraint stands in the outermost one: leaves that are built later name their faults from there
              on
    shortens  as in `schema_dfa`
    regular   whether no part may be a pushdown machine: the nesting of schemas then has a bound
    Raises SpecSyntaxError or SpecUnsupported, whose `field` is the path from this constraint on, where a part cannot be
    read, SpecUnsatisfiable where a schema's part has no text, LimitExceeded where one outgrows a limit.
    """
    subtree = partial(constraint_tree, engines=engines, guard=guard, shortens=shortens, regular=regular)
    match spec:
        case AllSpec() | AnySpec():
            # While the recursion unwinds, `field_prefix` puts the path of the part before the field of a fault.
            parts = []
            for number, part in enumerate(spec.parts):
                with field_prefix(f"{spec.form}.{number}"):
                    parts.append(subtree(part, path=(*path, f"{spec.form}.{number}")))
            return BooleanNode(isinstance(spec, AllSpec), tuple(parts))
        case NotSpec():
            with field_prefix("not"):
                return Negation(subtree(spec.part, path=(*path, "not")))
        case LtlfSpec():
            formula = parse_formula(spec.formula, guard)
            # A leaf over letters is built late: which letters there are depends on the other leaves too.
            names = propositions_of(formula)
            return _formula_leaf(formula, resolve_propositions(names, dict(spec.propositions)), EOS in names, engines)
        case KeywordsSpec():
            return _keywords(spec, engines)
        case LengthSpec():
            return _length(spec)
        case DfaSpec():
            return _user_dfa(spec, guard, path)
        case GrammarSpec():
            if regular:
                message = "a grammar cannot be a part of labels or of a schema"
                raise SpecUnsupported(message, construct="grammar in labels or a schema", field="grammar")
            return grammar_leaf(spec, guard, path)
        case JsonSchemaSpec() if not regular:
            return _schema_leaf(spec, engines, guard, path, shortens=shortens)
        case LabelsSpec():
            if path or regular:
                raise SpecSyntaxError("labels stands at the outermost constraint alone", field="labels")
            return subtree(spec.part, regular=True)
        case _:
            left_out, approximated = list[LimitExceeded](), list[tuple[str, ...]]()
            texts = _texts(spec, engines, guard, shortens=shortens, left_out=left_out, approximated=approximated)
            return CharLeaf(texts, spec.leading_space == "strip", tuple(left_out), tuple(approximated))


def _schema_leaf(
    spec: JsonSchemaSpec, engines: Engines, guard: ResourceGuard, path: tuple[str, ...], *, shortens: bool
) -> PushdownLeaf | CharLeaf:
    """The texts of a schema, as a machine or as an automaton."""
    left_out, approximated = list[LimitExceeded](), list[tuple[str, ...]]()
    embed = partial(_embed_constraint, engines=engines, guard=guard, left_out=left_out, approximated=approximated)
    document, schemas = _documents(spec)
    texts = schema_texts(
        document, spec.whitespace, spec.max_depth, embed, guard=guard, schemas=schemas, strict=spec.strict,
        shortens=shortens, any_order=spec.property_order == "any", left_out=left_out, approximate=spec.approximate,
        approximated=approximated,
    )
    strips_space = spec.leading_space == "strip"
    if isinstance(texts, CharDfa):
        return CharLeaf(texts, strips_space, tuple(left_out), tuple(approximated))

    bounded = partial(constraint_tree, spec, engines, guard, path, shortens=shortens, regular=True)

    def both(other: JsonSchemaSpec) -> PushdownLeaf | CharLeaf | None:
        joined = all_of(spec, other)
        return None if joined is None else _schema_leaf(joined, engines, guard, path, shortens=shortens)

    try:
        machine = network_machine(texts.names, texts.rules, guard)
    except LimitExceeded as error:
        leaf = bounded() if error.limit in SIZE_LIMITS else None
        if not isinstance(leaf, CharLeaf):
            raise
        return leaf
    return PushdownLeaf(
        machine=machine, source=spec, leading_space=strips_space, field=".".join((*path, "json_schema")),
        left_out=tuple(left_out), approximated=tuple(approximated), bounded=bounded, both=both,
    )  # fmt: skip


def _texts(
    spec: WholeTextSpec,
    engines: Engines,
    guard: ResourceGuard,
    *,
    shortens: bool,
    left_out: list[LimitExceeded],
    approximated: list[tuple[str, ...]],
) -> CharDfa:
    """The texts of a form that speaks of the whole text. The lists receive what its leaf knows of them."""
    node: Node
    match spec:
        case RegexSpec():
            with blame_field("regex"):
                node = parse_pattern(spec.pattern, guard)
        case InfillSpec():
            node = infill_node(spec.template, guard)
        case ChoiceSpec():
            return texts_dfa(spec.choices, guard)
        case JsonSchemaSpec():
            # The schema compiler knows no other forms; it calls back for a string's own constraint.
            embed = partial(
                _embed_constraint, engines=engines, guard=guard, left_out=left_out, approximated=approximated
            )
            document, schemas = _documents(spec)
            return schema_dfa(
                document, spec.whitespace, spec.max_depth, embed, guard=guard, schemas=schemas, strict=spec.strict,
                shortens=shortens, any_order=spec.property_order == "any", left_out=left_out,
                approximate=spec.approximate, approximated=approximated,
            )
    # Patterns and templates share the translation of pattern trees, which `engines` chooses.
    with blame_field(spec.form):
        return CharDfa(*engines.node(node, guard))


def _documents(spec: JsonSchemaSpec) -> tuple[Any, dict[str, object]]:
    """The schema and the documents beside it. Numbers keep the digits that they are written with."""
    document, schemas = (json.loads(text, parse_float=read_decimal) for text in (spec.schema, spec.schemas))
    return document, schemas


def value_violation(spec: JsonSchemaSpec, text: str, engines: Engines, guard: ResourceGuard) -> SchemaViolation | None:
    """Why the value of a JSON text does not fit the schema. None where it fits, however it is written."""
    check_input_size(spec, guard.limits)
    embed = partial(_embed_constraint, engines=engines, guard=guard, left_out=[], approximated=[])
    document, schemas = _documents(spec)
    return schema_violation(document, text, embed, guard, schemas=schemas, strict=spec.strict)


def _embed_constraint(
    constraint: object,
    field: str,
    *,
    engines: Engines,
    guard: ResourceGuard,
    left_out: list[LimitExceeded],
    approximated: list[tuple[str, ...]],
) -> CharDfa:
    """The texts that a schema's `constraint` allows for a string."""
    with field_prefix(field):
        # The embedded constraint has been text so far: it is parsed, measured and simplified like an outermost one.
        # Its numbers were read as decimals, which are no part of other constraints.
        spec = spec_from_json(json.loads(json.dumps(constraint, default=float)))
        check_input_size(spec, guard.limits)
        tree = constraint_tree(drop_unused_propositions(spec, guard), engines, guard, regular=True)
        left_out += without_bounded_leaves(tree)[1]
        approximated += [(*field.split("."), *path) for path in approximated_paths(tree)]
        return to_char_dfa(tree, guard)


def unenforced_keywords(spec: Spec, guard: ResourceGuard) -> tuple[str, ...]:
    """The JSON pointers of schema keywords and formats that have no effect.

    A pointer starts at its schema. Where the constraint has several schemas, theirs stand in one list: the hash of a
    combination does not keep the order of its parts.
    """
    return report(public_pointer(path) for path in _unenforced(spec, guard))


def approximated_keywords(tree: ConstraintTree) -> tuple[str, ...]:
    """The JSON pointers of schema keywords that are approximated."""
    return report(map(public_pointer, approximated_paths(tree)))


def _unenforced(spec: Spec, guard: ResourceGuard) -> Iterator[tuple[str, ...]]:
    for leaf in leaves(spec):
        if not isinstance(leaf, JsonSchemaSpec):
            continue
        document, schemas = _documents(leaf)
        reader = SchemaReader(document, guard, schemas=schemas)
        yield from reader.unenforced
        for constraint in (c for node in reader.document_nodes if node.strings for c in node.strings.constraints):
            inside = _unenforced(spec_from_json(constraint.value), guard)
            yield from ((*constraint.path, *path) for path in inside)


def _word_leaf(declared: Mapping[str, Proposition], used: Sequence[str], build: LetterDfa) -> WordLeaf:
    """A leaf over propositions by the caller's names.

    `used` are the names that occur; `build` takes letters in those names.
    """
    # Two names may mean the same; a letter that holds the meaning then holds both names.
    names: dict[str, list[str]] = {}
    for name, proposition in declared.items():
        names.setdefault(meaning_name(proposition), []).append(name)

    def by_meaning(letters: Sequence[frozenset[str]], guard: ResourceGuard) -> Dfa:
        renamed = [
            frozenset(name for meaning in letter for name in names.get(meaning, [meaning])) for letter in letters
        ]
        return build(renamed, guard)

    # A compiled constraint serves callers with other names, so the leaf knows meanings only.
    propositions = {meaning_name(proposition): proposition for proposition in declared.values()}
    return WordLeaf(propositions=propositions, build=by_meaning, with_eos=EOS in used, with_nomatch=NOMATCH in used)


def _formula_leaf(
    formula: LtlfFormula, declared: Mapping[str, Proposition], with_eos: bool, engines: Engines
) -> WordLeaf:
    """A formula as a leaf over letters. `declared` are propositions by the caller's names; more may be declared."""
    names, root = propositions_of(formula), formula.nodes[formula.root]

    def conjuncts() -> tuple[WordLeaf, ...]:
        parts = [subformula(formula.nodes, argument) for argument in root.args]
        # What NOMATCH means depends on all propositions.
        used = [set(declared if NOMATCH in names else propositions_of(part)) for part in parts]
        return tuple(
            _formula_leaf(part, {name: declared[name] for name in declared if name in own}, with_eos, engines)
            for part, own in zip(parts, used, strict=True)
        )

    leaf = _word_leaf(declared, names, partial(engines.formula, formula))
    return replace(leaf, with_eos=with_eos, conjuncts=conjuncts if root.op is Op.AND else None)


def _keywords(spec: KeywordsSpec, engines: Engines) -> WordLeaf:
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
        return tuple(_keywords(part, engines) for part in parts)

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


def _length(spec: LengthSpec) -> ConstraintTree:
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


def _user_dfa(spec: DfaSpec, guard: ResourceGuard, path: tuple[str, ...]) -> ConstraintTree:
    """A caller's own automaton: a leaf over characters or over letters."""
    if spec.user_dfa.over_bytes:
        require(not spec.propositions, "an automaton over bytes has no propositions", "propositions")
        return CharLeaf(user_char_dfa(spec.user_dfa, guard), spec.leading_space == "strip")
    names = guard_propositions(spec.user_dfa, guard)

    def build(letters: Sequence[frozenset[str]], guard: ResourceGuard) -> Dfa:
        # By now the recursion of `constraint_tree` that would have named the field has returned.
        with field_prefix(".".join(path)) if path else nullcontext():
            return user_letter_dfa(spec.user_dfa, letters, guard)

    return _word_leaf(resolve_propositions(names, dict(spec.propositions), "dfa"), names, build)
