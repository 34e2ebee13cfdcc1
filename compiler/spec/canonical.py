"""One hash for one constraint, however it is written: order of conjuncts, white space, names of propositions.

Equal hashes mean equal constraints; different hashes may still mean the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import cast

from compiler.errors import within
from compiler.limits import Limits, ResourceGuard
from compiler.ltlf import LtlfFormula, Op, parse_formula, propositions_of
from compiler.regex import blame_field, parse_pattern
from compiler.spec.parse import spec_to_json
from compiler.spec.propositions import EOS, NOMATCH, concepts_of, meaning_name, meanings, normalised
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
    Spec,
    leaves,
)
from compiler.spec.user_dfa import given_to_json, propositions_named

_COMMUTATIVE = (Op.AND, Op.OR, Op.IFF)
_ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly"}
)
_UNORDERED = (  # of a schema's keywords those whose place among the others says nothing; the rest may name properties
    "type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength",
    "pattern", "format", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "minContains",
    "maxContains",
)  # fmt: skip
_SCHEMAS = frozenset(  # keywords that hold a schema, or a list of some
    {"additionalProperties", "propertyNames", "items", "prefixItems", "contains", "not", "if", "then", "else", "allOf",
     "anyOf", "oneOf", "unevaluatedItems", "unevaluatedProperties"}
)  # fmt: skip
_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})  # schemas by name
_LIMITS = Limits()


def spec_hash(spec: Spec, limits: Limits = _LIMITS) -> str:
    """SHA-256, in hex, of the canonical form. Raises what `trimmed` raises where a part cannot be read."""
    guard = ResourceGuard(limits)
    text = json.dumps(_canonical(trimmed(spec, guard), guard), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def caller_names(spec: Spec, limits: Limits = _LIMITS) -> dict[str, tuple[str, ...]]:
    """The names that the caller uses for what the compiled constraint's letters hold, by the name of the meaning."""
    names: dict[str, dict[str, None]] = {}
    guard = ResourceGuard(limits)
    for leaf in leaves(spec):
        for name, meaning in _named(leaf, guard):
            names.setdefault(meaning, {})[name] = None
    return {meaning: tuple(used) for meaning, used in names.items()}


def in_caller_names(letters: Iterable[str], names: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The propositions of a letter under the names of `caller_names`, in order; others keep theirs."""
    return tuple(sorted(name for held in letters for name in names.get(held, (held,))))


def _named(leaf: Spec, guard: ResourceGuard) -> Iterator[tuple[str, str]]:
    """The caller's name and the meaning's name of each proposition; a concept goes by its first form."""
    found: dict[str, Proposition] = {}
    if isinstance(leaf, LtlfSpec):
        found = meanings(propositions_of(parse_formula(leaf.formula, guard)), dict(leaf.propositions))
    elif isinstance(leaf, DfaSpec):
        found = meanings(propositions_named(leaf.given, guard), dict(leaf.propositions), "dfa")
    elif isinstance(leaf, KeywordsSpec):
        yield from ((leaf.concepts[number][0], name) for number, (name, _) in concepts_of(leaf).items())
    yield from ((name, meaning_name(proposition)) for name, proposition in found.items())


def _canonical(spec: Spec, guard: ResourceGuard) -> object:
    match spec:
        case LtlfSpec():
            return _ltlf(spec, guard)
        case KeywordsSpec():
            return _keywords(spec)
        case ChoiceSpec():
            return {"choice": sorted(set(spec.choices)), "leading_space": spec.leading_space}
        case JsonSchemaSpec():
            return {**spec_to_json(spec), "json_schema": _schema_text(spec.schema)}
        case DfaSpec():
            return _dfa(spec, guard)
        case AllSpec() | AnySpec():
            kind = "all" if isinstance(spec, AllSpec) else "any"
            parts = _distinct(_canonical(part, guard) for part in _flattened(spec))
            return parts[0] if len(parts) == 1 else {kind: parts}
        case NotSpec():
            inner = spec.part
            return _canonical(inner.part, guard) if isinstance(inner, NotSpec) else {"not": _canonical(inner, guard)}
        case LabelsSpec():
            return {"labels": list(spec.labels), "part": _canonical(spec.part, guard)}
        case _:
            return spec_to_json(spec)


def _keywords(spec: KeywordsSpec) -> object:
    counts = spec.counts or ((1, None),) * len(spec.concepts)
    plain = [proposition for _, proposition in concepts_of(spec).values()]
    if spec.inflect:  # what the dictionary makes of a word may depend on its letters as they are
        meant = [_meaning(replace(one, words=tuple(sorted(set(one.words))))) for one in plain]
    else:
        meant = [_meaning(normalised(one)) for one in plain]
    concepts = [[meaning, list(count)] for meaning, count in zip(meant, counts, strict=True)]
    if not spec.ordered:
        concepts = sorted(concepts, key=_text)
    return {"keywords": concepts, "ordered": spec.ordered and len(concepts) > 1, "inflect": spec.inflect}


def _dfa(spec: DfaSpec, guard: ResourceGuard) -> object:
    """A caller's automaton; its guards are formulas, whose names say what they mean."""
    meant = meanings(propositions_named(spec.given, guard), dict(spec.propositions), "dfa")
    names = {name: meaning_name(proposition) for name, proposition in meant.items()} | {EOS: EOS, NOMATCH: NOMATCH}
    given = [
        one if "when" not in one else {**one, "when": _formula(parse_formula(str(one["when"]), guard), names)}
        for one in cast("list[dict[str, object]]", given_to_json(spec.given)["transitions"])
    ]
    shown = {names[name]: _meaning(normalised(proposition)) for name, proposition in meant.items()}
    whole = {**given_to_json(spec.given), "transitions": sorted(given, key=_text)}
    return {"dfa": whole, "propositions": shown, "leading_space": spec.leading_space}


def _text(item: object) -> str:
    return json.dumps(item, sort_keys=True)


def _flattened(spec: AllSpec | AnySpec) -> Iterator[Spec]:
    for part in spec.parts:
        if type(part) is type(spec):
            yield from _flattened(part)
        else:
            yield part


def _distinct(items: Iterator[object]) -> list[object]:
    """Each item once, in the order of their JSON."""
    return [item for _, item in sorted({_text(item): item for item in items}.items())]


def _meaning(plain: Proposition) -> object:
    return {"words": list(plain.words), "regex": plain.regex, "case_sensitive": plain.case_sensitive}


def _ltlf(spec: LtlfSpec, guard: ResourceGuard) -> object:
    formula = parse_formula(spec.formula, guard)
    meant = meanings(propositions_of(formula), dict(spec.propositions))
    names = {name: meaning_name(proposition) for name, proposition in meant.items()}
    shown = {names[name]: _meaning(normalised(proposition)) for name, proposition in meant.items()}
    return {"ltlf": _formula(formula, {**names, EOS: EOS, NOMATCH: NOMATCH}), "propositions": shown}


def _read_patterns(declared: Iterable[tuple[str, Proposition]], guard: ResourceGuard) -> None:
    """Parse each pattern, so that a malformed one is refused.

    The check also runs where an equal constraint has been compiled before.
    """
    for name, proposition in declared:
        if proposition.regex is not None:
            with blame_field(f"propositions.{name}.regex"):
                parse_pattern(proposition.regex, guard)


def trimmed(spec: Spec, guard: ResourceGuard) -> Spec:
    """The same constraint without the propositions that say nothing in it, once all of them have been read.

    One that a formula does not name says something where the formula asks for `nomatch`. Raises what reading formulas
    and patterns raises, with the field's path.
    """
    match spec:
        case LtlfSpec():
            _read_patterns(spec.propositions, guard)
            used = propositions_of(parse_formula(spec.formula, guard))
        case DfaSpec():
            _read_patterns(spec.propositions, guard)
            used = propositions_named(spec.given, guard)
        case AllSpec() | AnySpec():
            parts = []
            for number, part in enumerate(spec.parts):
                with within(f"{'all' if isinstance(spec, AllSpec) else 'any'}.{number}"):
                    parts.append(trimmed(part, guard))
            return replace(spec, parts=tuple(parts))
        case NotSpec():
            with within("not"):
                return NotSpec(trimmed(spec.part, guard))
        case LabelsSpec():
            return replace(spec, part=trimmed(spec.part, guard))
        case _:
            return spec
    kept = ((name, meaning) for name, meaning in spec.propositions if name in used or NOMATCH in used)
    return replace(spec, propositions=tuple(kept))


def _formula(formula: LtlfFormula, names: dict[str, str]) -> str:
    """The formula in prefix form, arguments that may change places in order, each once."""
    texts: list[str] = []
    for node in formula.nodes:
        if node.op is Op.NAME:
            texts.append(json.dumps(names[node.name]))
            continue
        parts = [texts[argument] for argument in node.args]
        if node.op in _COMMUTATIVE:
            parts = sorted(parts if node.op is Op.IFF else set(parts))
        if node.op in (Op.AND, Op.OR) and len(parts) == 1:
            texts.append(parts[0])
        else:
            texts.append(f"({' '.join([node.op.value, *parts])})")
    return texts[-1]


def _schema_text(schema: str) -> str:
    """The canonical text of a schema: as it stands where a reference may lead to anything in it."""
    if '"$ref"' in schema or '"$dynamicRef"' in schema:
        return schema
    return json.dumps(_schema(json.loads(schema)), separators=(",", ":"))


def _schema(schema: object) -> object:
    """A schema without its annotations, and its keywords in order as far as their order says nothing."""
    if not isinstance(schema, dict):
        return schema
    found: dict[str, object] = {keyword: schema[keyword] for keyword in _UNORDERED if keyword in schema}
    for keyword, value in schema.items():
        if keyword in _SCHEMAS:
            found[keyword] = [_schema(item) for item in value] if isinstance(value, list) else _schema(value)
        elif keyword in _MAPS and isinstance(value, dict):
            found[keyword] = {name: _schema(inner) for name, inner in value.items()}
        elif keyword not in _ANNOTATIONS and keyword not in found:
            found[keyword] = value
    return found
