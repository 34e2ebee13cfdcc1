"""The canonical form of a constraint, and its hash.

The form does not depend on the order of conjuncts, on white space or on the names of propositions. Equal hashes mean
equal constraints; constraints with different hashes may still mean the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import cast

from compiler.exact_json import dump_json, load_json
from compiler.limits import DEFAULT_LIMITS, Limits, ResourceGuard
from compiler.ltlf import LtlfFormula, Op, parse_formula, propositions_of
from compiler.regex import blame_field, parse_pattern
from compiler.spec.parse import spec_to_json
from compiler.spec.parts import SequencePart, map_specs
from compiler.spec.parts_json import part_to_json
from compiler.spec.propositions import EOS, NOMATCH, concepts_of, meaning_name, normalize, resolve_propositions
from compiler.spec.reading import field_prefix
from compiler.spec.types import (
    AllSpec,
    AnySpec,
    ChoiceSpec,
    DfaSpec,
    JsonSchemaSpec,
    KeywordsSpec,
    LabelsSpec,
    LtlfSpec,
    NotSpec,
    Proposition,
    SequenceSpec,
    Spec,
    leaves,
)
from compiler.spec.user_dfa import guard_propositions, user_dfa_to_json

# Operators whose arguments may change places without a change of meaning.
_COMMUTATIVE = (Op.AND, Op.OR, Op.IFF)
# Keywords that are ignored wherever they stand.
_ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly"}
)
# Keywords whose place among the others has no effect. The other keywords may name properties, whose order is that of
# the answer.
_UNORDERED = (
    "type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength",
    "pattern", "format", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "minContains",
    "maxContains",
)  # fmt: skip
_SCHEMAS = frozenset(  # keywords that hold a schema, or a list of some
    {"additionalProperties", "propertyNames", "items", "prefixItems", "contains", "not", "if", "then", "else", "allOf",
     "anyOf", "oneOf", "unevaluatedItems", "unevaluatedProperties"}
)  # fmt: skip
_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})  # schemas by name


def spec_hash(spec: Spec, limits: Limits = DEFAULT_LIMITS) -> str:
    """The SHA-256 of the canonical form, in hex. Raises as `drop_unused_propositions` does.

    >>> from compiler.spec import spec_from_json
    >>> spec_hash(spec_from_json({"ltlf": "F(a) & F(b)"})) == spec_hash(spec_from_json({"ltlf": "F(b)&F(a)"}))
    True
    """
    guard = ResourceGuard(limits)
    text = json.dumps(
        _canonical(drop_unused_propositions(spec, guard), guard),
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=True,
    )
    return hashlib.sha256(text.encode()).hexdigest()


def caller_names(spec: Spec, limits: Limits = DEFAULT_LIMITS) -> dict[str, tuple[str, ...]]:
    """The caller's names for each proposition of the letters.

    Letters hold propositions under the names of their meanings, which are the keys.
    """
    # A caller may use several names for one meaning; all of them are kept, in order of first use.
    names: dict[str, dict[str, None]] = {}
    guard = ResourceGuard(limits)
    for leaf in leaves(spec):
        for name, meaning in _names_with_meanings(leaf, guard):
            names.setdefault(meaning, {})[name] = None
    return {meaning: tuple(used) for meaning, used in names.items()}


def in_caller_names(letters: Iterable[str], names: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The propositions of a letter under the caller's names, in order.

    `names` is the result of `caller_names`; a proposition that it lacks keeps its name.
    """
    return tuple(sorted(name for meaning in letters for name in names.get(meaning, (meaning,))))


def _names_with_meanings(leaf: Spec, guard: ResourceGuard) -> Iterator[tuple[str, str]]:
    """The caller's name and the canonical name of each proposition. A concept goes by its first form."""
    if isinstance(leaf, LtlfSpec | DfaSpec):
        declared = resolve_propositions(_used_names(leaf, guard), dict(leaf.propositions), leaf.form)
        yield from ((name, meaning_name(proposition)) for name, proposition in declared.items())
    elif isinstance(leaf, KeywordsSpec):
        # A caller sees a concept under its first form.
        yield from ((leaf.concepts[number][0], name) for number, (name, _) in concepts_of(leaf).items())


def _used_names(spec: LtlfSpec | DfaSpec, guard: ResourceGuard) -> tuple[str, ...]:
    """The names in a formula or in the guards of an automaton."""
    if isinstance(spec, LtlfSpec):
        return propositions_of(parse_formula(spec.formula, guard, declared=dict(spec.propositions)))
    return guard_propositions(spec.user_dfa, guard)


def _canonical(spec: Spec, guard: ResourceGuard) -> object:
    match spec:
        case LtlfSpec():
            return _ltlf(spec, guard)
        case KeywordsSpec():
            return _keywords(spec)
        case ChoiceSpec():
            return {"choice": sorted(set(spec.choices)), "leading_space": spec.leading_space}
        case JsonSchemaSpec():
            # As text, which keeps the order of properties. What is written depends on a limit, too.
            texts = {"json_schema": _schema_text(spec.schema), "schemas": spec.schemas}
            return {**spec_to_json(spec), **texts, "integer_digits": guard.limits.integer_digits_max}
        case DfaSpec():
            return _dfa(spec, guard)
        case SequenceSpec():
            parts = [part_to_json(part, lambda inside: _canonical(inside, guard)) for part in spec.root.parts]
            return {"sequence": parts, "leading_space": spec.leading_space}
        case AllSpec() | AnySpec():
            # `all` and `any` are associative, commutative and idempotent.
            # Each part once, in the order of their JSON.
            by_text = {_text(part): part for part in (_canonical(part, guard) for part in _flatten(spec))}
            parts = [part for _, part in sorted(by_text.items())]
            return parts[0] if len(parts) == 1 else {spec.form: parts}
        case NotSpec():
            # A double negation cancels out.
            inner = spec.part
            return _canonical(inner.part, guard) if isinstance(inner, NotSpec) else {"not": _canonical(inner, guard)}
        case LabelsSpec():
            return {"labels": list(spec.labels), "part": _canonical(spec.part, guard)}
        case _:
            return spec_to_json(spec)


def _keywords(spec: KeywordsSpec) -> object:
    # Without counts, each concept occurs at least once.
    counts = spec.counts or ((1, None),) * len(spec.concepts)
    propositions = [proposition for _, proposition in concepts_of(spec).values()]
    if spec.inflect:  # inflections follow the case of a word, so its letters stay as they are
        propositions_json = [_meaning(replace(word, words=tuple(sorted(set(word.words))))) for word in propositions]
    else:
        propositions_json = [_meaning(normalize(proposition)) for proposition in propositions]
    concepts = [[meaning, list(count)] for meaning, count in zip(propositions_json, counts, strict=True)]
    if not spec.ordered:
        concepts = sorted(concepts, key=_text)
    return {"keywords": concepts, "ordered": spec.ordered and len(concepts) > 1, "inflect": spec.inflect}


def _dfa(spec: DfaSpec, guard: ResourceGuard) -> object:
    """The canonical form of a caller's automaton.

    Its guards are canonical, and its transitions are in the order of their JSON.
    """
    names, propositions_by_name = _propositions_by_name(_used_names(spec, guard), spec)
    transitions = cast("list[dict[str, object]]", user_dfa_to_json(spec.user_dfa)["transitions"])
    for transition in transitions:
        if "when" in transition:
            transition["when"] = _formula(parse_formula(str(transition["when"]), guard), names)
    user_dfa = {**user_dfa_to_json(spec.user_dfa), "transitions": sorted(transitions, key=_text)}
    return {"dfa": user_dfa, "propositions": propositions_by_name, "leading_space": spec.leading_space}


def _propositions_by_name(used: Iterable[str], spec: LtlfSpec | DfaSpec) -> tuple[dict[str, str], dict[str, object]]:
    """The canonical names by caller's name, and the propositions by canonical name."""
    propositions = resolve_propositions(used, dict(spec.propositions), spec.form)
    names = {name: meaning_name(proposition) for name, proposition in propositions.items()}
    propositions_by_name = {names[name]: _meaning(normalize(proposition)) for name, proposition in propositions.items()}
    # These two mean the same for every caller.
    return names | {EOS: EOS, NOMATCH: NOMATCH}, propositions_by_name


def _text(item: object) -> str:
    return json.dumps(item, sort_keys=True)


def _flatten(spec: AllSpec | AnySpec) -> Iterator[Spec]:
    # Parts of the same kind are lifted into this one, at every depth.
    for part in spec.parts:
        if type(part) is type(spec):
            yield from _flatten(part)
        else:
            yield part


def _meaning(normal: Proposition) -> object:
    return {"words": list(normal.words), "regex": normal.regex, "case_sensitive": normal.case_sensitive}


def _ltlf(spec: LtlfSpec, guard: ResourceGuard) -> object:
    formula = parse_formula(spec.formula, guard, declared=dict(spec.propositions))
    names, propositions_by_name = _propositions_by_name(propositions_of(formula), spec)
    return {"ltlf": _formula(formula, names), "propositions": propositions_by_name}


def _read_patterns(declared: Iterable[tuple[str, Proposition]], guard: ResourceGuard) -> None:
    """Parse each pattern, so that a malformed one is refused.

    The check also runs where an equal constraint has been compiled before.
    """
    for name, proposition in declared:
        if proposition.regex is not None:
            with blame_field(f"propositions.{name}.regex"):
                parse_pattern(proposition.regex, guard)


def drop_unused_propositions(spec: Spec, guard: ResourceGuard) -> Spec:
    """The same constraint without the propositions that have no effect. All patterns are parsed before.

    A proposition that a formula does not name has an effect where the formula names `nomatch`. Raises as reading
    formulas and patterns does, with the field's path.
    """
    match spec:
        case LtlfSpec() | DfaSpec():
            _read_patterns(spec.propositions, guard)
            used = _used_names(spec, guard)
        case AllSpec() | AnySpec():
            parts = []
            for number, part in enumerate(spec.parts):
                with field_prefix(f"{spec.form}.{number}"):
                    parts.append(drop_unused_propositions(part, guard))
            return replace(spec, parts=tuple(parts))
        case NotSpec():
            with field_prefix("not"):
                return NotSpec(drop_unused_propositions(spec.part, guard))
        case LabelsSpec():
            return replace(spec, part=drop_unused_propositions(spec.part, guard))
        case SequenceSpec():
            with field_prefix("sequence"):
                root = map_specs(spec.root, lambda inside: drop_unused_propositions(inside, guard))
            assert isinstance(root, SequencePart)
            return replace(spec, root=root)
        case _:
            return spec
    remaining = ((name, meaning) for name, meaning in spec.propositions if name in used or NOMATCH in used)
    return replace(spec, propositions=tuple(remaining))


def _formula(formula: LtlfFormula, names: dict[str, str]) -> str:
    """The formula in prefix form. Arguments of commutative operators are sorted, and each is written once."""
    texts: list[str] = []
    # Nodes come after their arguments, so each is written from the texts of its arguments.
    for node in formula.nodes:
        if node.op is Op.NAME:
            texts.append(json.dumps(names[node.name]))
            continue
        parts = [texts[argument] for argument in node.args]
        # A repeated argument of `&` or `|` adds nothing; `<->` of two equal arguments is true, so there both stay.
        if node.op in _COMMUTATIVE:
            parts = sorted(parts if node.op is Op.IFF else set(parts))
        # Of `a & a` only `a` is left.
        if node.op in (Op.AND, Op.OR) and len(parts) == 1:
            texts.append(parts[0])
        else:
            texts.append(f"({' '.join([node.op.value, *parts])})")
    return texts[-1]


def _schema_text(schema: str) -> str:
    """The canonical text of a schema. A schema with references keeps its own text, since they may lead to any place in
    it.
    """
    # A text search may find a `$ref` that is data. Then two equal schemas only get two hashes.
    if any(f'"${keyword}"' in schema for keyword in ("ref", "dynamicRef", "recursiveRef")):
        return schema
    return dump_json(_schema(load_json(schema)))


def _schema(schema: object) -> object:
    """A schema without its annotations. Keywords whose order has no effect come first, in a fixed order."""
    if not isinstance(schema, dict):
        return schema
    canonical: dict[str, object] = {keyword: schema[keyword] for keyword in _UNORDERED if keyword in schema}
    for keyword, value in schema.items():
        # The order of all other keywords is that of the document.
        if keyword in _SCHEMAS:
            canonical[keyword] = [_schema(item) for item in value] if isinstance(value, list) else _schema(value)
        elif keyword in _MAPS and isinstance(value, dict):
            canonical[keyword] = {name: _schema(inner) for name, inner in value.items()}
        elif keyword not in _ANNOTATIONS and keyword not in canonical:
            canonical[keyword] = value
    return canonical
