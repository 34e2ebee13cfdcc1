"""Each constraint form as a leaf of the tree that `compiler.text` combines. Only this module knows all forms."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from compiler.automata import CharDfa, Dfa, everything, texts_dfa
from compiler.engines import Engines
from compiler.errors import LimitExceeded, SpecSyntaxError, SpecUnsupported, require
from compiler.forms.infill import infill_node
from compiler.forms.json_shapes import json_shape
from compiler.forms.machines import all_of, grammar_leaf, grammar_part
from compiler.forms.sequences import PartRules, PartTexts, part_machine, sequence_leaf
from compiler.forms.user_dfa import user_char_dfa, user_letter_dfa
from compiler.forms.words import keywords_leaf, length_tree
from compiler.json_schema import (
    LetteredTexts,
    SchemaReader,
    SchemaRules,
    SchemaViolation,
    public_pointer,
    read_decimal,
    report,
    schema_dfa,
    schema_texts,
    schema_violation,
)
from compiler.limits import SIZE_LIMITS, ResourceGuard
from compiler.ltlf import LtlfFormula, Op, parse_formula, propositions_of, subformula
from compiler.pushdown import network_machine
from compiler.regex import Node, blame_field, parse_pattern
from compiler.spec import (
    EOS,
    NOMATCH,
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
    SequenceSpec,
    Spec,
    WholeTextSpec,
    captures_of,
    check_input_size,
    drop_unused_propositions,
    field_prefix,
    guard_propositions,
    leaves,
    meaning_name,
    part_specs,
    resolve_propositions,
    spec_from_json,
)
from compiler.text import (
    BooleanNode,
    CaptureReader,
    CharLeaf,
    ConstraintTree,
    DistinctLeaf,
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
    regular: bool = False, letters: bool = False,
) -> ConstraintTree:
    """The tree of a constraint. That of labels is its part's.

    path      where the constraint stands in the outermost one: leaves that are built later name their faults from there
              on
    shortens  as in `schema_dfa`
    regular   whether no part may be a pushdown machine: the nesting of schemas then has a bound
    letters   whether letters may name the items of arrays; what is negated has none
    Raises SpecSyntaxError or SpecUnsupported, whose `field` is the path from this constraint on, where a part cannot be
    read, SpecUnsatisfiable where a schema's part has no text, LimitExceeded where one outgrows a limit.
    """
    subtree = partial(
        constraint_tree, engines=engines, guard=guard, shortens=shortens, regular=regular, letters=letters
    )
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
                return Negation(subtree(spec.part, path=(*path, "not"), letters=False))
        case LtlfSpec():
            formula = parse_formula(spec.formula, guard, declared=dict(spec.propositions))
            # A leaf over letters is built late: which letters there are depends on the other leaves too.
            names = propositions_of(formula)
            return _formula_leaf(formula, resolve_propositions(names, dict(spec.propositions)), EOS in names, engines)
        case KeywordsSpec():
            return keywords_leaf(spec, engines)
        case LengthSpec():
            return length_tree(spec)
        case DfaSpec():
            return _user_dfa(spec, guard, path)
        case GrammarSpec():
            if regular:
                message = "labels, schemas and combinations in a sequence have no grammar as a part"
                raise SpecUnsupported(message, construct="grammar in labels or a schema", field="grammar")
            return grammar_leaf(spec, guard, path)
        case SequenceSpec():
            return _sequence(spec, engines, guard, path, shortens=shortens, regular=regular)
        case JsonSchemaSpec() if not regular:
            return _schema_leaf(spec, engines, guard, path, shortens=shortens, letters=letters)
        case LabelsSpec():
            if path or regular:
                raise SpecSyntaxError("labels stands at the outermost constraint alone", field="labels")
            return subtree(spec.part, regular=True)
        case _:
            left_out, approximated = list[LimitExceeded](), list[tuple[str, ...]]()
            texts = _texts(spec, engines, guard, shortens=shortens, left_out=left_out, approximated=approximated)
            superset = partial(_superset, spec, engines, guard)
            strips_space = spec.leading_space == "strip"
            return CharLeaf(texts, strips_space, tuple(left_out), tuple(approximated), superset=superset)


def _superset(spec: WholeTextSpec, engines: Engines, guard: ResourceGuard) -> CharDfa:
    """All texts that have the outermost shape of a schema's values. All texts for other forms."""
    shape = json_shape(_documents(spec)[0]) if isinstance(spec, JsonSchemaSpec) else None
    return everything() if shape is None else CharDfa(*engines.node(parse_pattern(shape, guard), guard))


def _schema_leaf(
    spec: JsonSchemaSpec, engines: Engines, guard: ResourceGuard, path: tuple[str, ...], *, shortens: bool,
    letters: bool = False,
) -> PushdownLeaf | CharLeaf | DistinctLeaf:
    """The texts of a schema, as a machine or as an automaton."""
    left_out, approximated = list[LimitExceeded](), list[tuple[str, ...]]()
    texts = _schema(
        spec, engines, guard, shortens=shortens, left_out=left_out, approximated=approximated, letters=letters
    )
    strips_space, superset = spec.leading_space == "strip", partial(_superset, spec, engines, guard)
    if isinstance(texts, CharDfa):
        return CharLeaf(texts, strips_space, tuple(left_out), tuple(approximated), superset=superset)

    if isinstance(texts, LetteredTexts):
        return DistinctLeaf(
            transducer=texts.transducer, start=texts.start, letters=texts.letters, leading_space=strips_space,
            left_out=tuple(left_out), approximated=tuple(approximated),
            listed=partial(_schema_leaf, spec, engines, guard, path, shortens=shortens),
        )
    bounded = partial(constraint_tree, spec, engines, guard, path, shortens=shortens, regular=True)

    def both(other: JsonSchemaSpec) -> PushdownLeaf | CharLeaf | None:
        joined = all_of(spec, other)
        leaf = None if joined is None else _schema_leaf(joined, engines, guard, path, shortens=shortens)
        assert not isinstance(leaf, DistinctLeaf)
        return leaf

    try:
        machine = network_machine(texts.names, texts.rules, guard)
    except LimitExceeded as error:
        leaf = bounded() if error.limit in SIZE_LIMITS else None
        if not isinstance(leaf, CharLeaf):
            raise
        return leaf
    return PushdownLeaf(
        machine=machine, source=spec, leading_space=strips_space, field=".".join((*path, "json_schema")),
        left_out=tuple(left_out), approximated=tuple(approximated), superset=superset, bounded=bounded,
        both=both,
    )  # fmt: skip


def _sequence(
    spec: SequenceSpec, engines: Engines, guard: ResourceGuard, path: tuple[str, ...], *, shortens: bool, regular: bool
) -> PushdownLeaf | CharLeaf:
    """The texts of a sequence, as a machine or as an automaton."""
    left_out, approximated = list[LimitExceeded](), list[tuple[str, ...]]()
    compiled = partial(
        _part_texts, engines=engines, guard=guard, path=(*path, "sequence"), shortens=shortens, regular=regular,
        left_out=left_out, approximated=approximated,
    )  # fmt: skip
    return sequence_leaf(spec, compiled, guard, path, regular=regular, left_out=left_out, approximated=approximated)


def _part_texts(
    part: Spec, *, engines: Engines, guard: ResourceGuard, path: tuple[str, ...] = (), shortens: bool = True,
    regular: bool = False, left_out: list[LimitExceeded], approximated: list[tuple[str, ...]],
) -> PartTexts:
    """The texts of a constraint inside a sequence. The lists receive what a leaf knows of them."""
    if isinstance(part, GrammarSpec) and not regular:
        return grammar_part(part, guard)
    if isinstance(part, JsonSchemaSpec) and not regular:
        texts = _schema(part, engines, guard, shortens=shortens, left_out=left_out, approximated=approximated)
        if isinstance(texts, CharDfa):
            return texts
        assert isinstance(texts, SchemaRules)
        return PartRules(names=texts.names, rules=(texts.rules[0].without_end(), *texts.rules[1:]))
    tree = constraint_tree(part, engines, guard, path, shortens=shortens, regular=True)
    left_out.extend(without_bounded_leaves(tree)[1])
    approximated.extend(approximated_paths(tree))
    return to_char_dfa(tree, guard)


def capture_readers(spec: Spec, engines: Engines, guard: ResourceGuard) -> tuple[CaptureReader, ...]:
    """What finds the captures of each sequence that has some."""
    compiled = partial(_part_texts, engines=engines, guard=guard, left_out=[], approximated=[])
    return tuple(
        CaptureReader(each, tuple(part_machine(compiled(part), guard) for part in part_specs(each.root)))
        for each in captures_of(spec)
    )


def _schema(
    spec: JsonSchemaSpec, engines: Engines, guard: ResourceGuard, *, shortens: bool, left_out: list[LimitExceeded],
    approximated: list[tuple[str, ...]], letters: bool = False,
) -> CharDfa | SchemaRules | LetteredTexts:
    """The texts of a schema. The lists receive what a leaf knows of them."""
    embed = partial(_embed_constraint, engines=engines, guard=guard, left_out=left_out, approximated=approximated)
    document, schemas = _documents(spec)
    return schema_texts(
        document, spec.whitespace, spec.max_depth, embed, guard=guard, schemas=schemas, strict=spec.strict,
        shortens=shortens, any_order=spec.property_order == "any", closed_objects=spec.closed_objects,
        left_out=left_out, approximate=spec.approximate, approximated=approximated, with_letters=letters,
    )


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
                shortens=shortens, any_order=spec.property_order == "any", closed_objects=spec.closed_objects,
                left_out=left_out, approximate=spec.approximate, approximated=approximated,
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
        spec = spec_from_json(constraint)
        check_input_size(spec, guard.limits)
        require(not captures_of(spec), "inside a schema nothing is captured: take the capture away", "constraint")
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
        if isinstance(leaf, SequenceSpec):
            for part in part_specs(leaf.root):
                yield from _unenforced(part, guard)
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
