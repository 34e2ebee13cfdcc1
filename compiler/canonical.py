"""One hash for one constraint, however it is written: order of conjuncts, white space, names of propositions.

Equal hashes mean equal constraints; different hashes may still mean the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from compiler.given_automata import propositions_named
from compiler.given_dfa import given_to_json
from compiler.limits import Limits, Meter
from compiler.ltlf_syntax import Formula, Op, parse_formula, propositions_of
from compiler.meanings import EOS, NOMATCH, concepts_of, meaning_name, meanings, normalised
from compiler.spec import (
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
from compiler.spec_json import spec_to_json

_COMMUTATIVE = (Op.AND, Op.OR, Op.IFF)
_ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly"}
)
_VERBATIM = frozenset({"const", "enum", "constraint"})  # values that are data, not schemas
_KEYED = frozenset({"properties"})  # maps whose order is that of the answer
_MAPS = frozenset({"patternProperties", "$defs", "definitions", "dependentSchemas"})  # maps of schemas by name
_LIMITS = Limits()


def spec_hash(spec: Spec, limits: Limits = _LIMITS) -> str:
    """SHA-256, in hex, of the canonical form. Raises what `parse_formula` raises where a formula cannot be read."""
    text = json.dumps(_canonical(spec, Meter(limits)), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def caller_names(spec: Spec, limits: Limits = _LIMITS) -> dict[str, tuple[str, ...]]:
    """The names that the caller uses for what the compiled constraint's letters hold, by the name of the meaning."""
    names: dict[str, dict[str, None]] = {}
    for leaf in leaves(spec):
        for name, meaning in _named(leaf, Meter(limits)):
            names.setdefault(meaning, {})[name] = None
    return {meaning: tuple(used) for meaning, used in names.items()}


def in_caller_names(letters: Iterable[str], names: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The propositions of a letter under the names of `caller_names`, in order; others keep theirs."""
    return tuple(sorted(name for held in letters for name in names.get(held, (held,))))


def _named(leaf: Spec, meter: Meter) -> Iterator[tuple[str, str]]:
    """The caller's name and the meaning's name of each proposition; a concept goes by its first form."""
    found: dict[str, Proposition] = {}
    if isinstance(leaf, LtlfSpec):
        found = meanings(propositions_of(parse_formula(leaf.formula, meter)), dict(leaf.propositions))
    elif isinstance(leaf, DfaSpec):
        found = meanings(propositions_named(leaf.given, meter), dict(leaf.propositions))
    elif isinstance(leaf, KeywordsSpec):
        yield from ((leaf.concepts[number][0], name) for number, (name, _) in concepts_of(leaf).items())
    yield from ((name, meaning_name(proposition)) for name, proposition in found.items())


def _canonical(spec: Spec, meter: Meter) -> object:
    match spec:
        case LtlfSpec():
            return _ltlf(spec, meter)
        case KeywordsSpec():
            return _keywords(spec)
        case ChoiceSpec():
            return {"choice": sorted(set(spec.choices)), "leading_space": spec.leading_space}
        case JsonSchemaSpec():
            schema = json.dumps(_schema(json.loads(spec.schema)), separators=(",", ":"))
            return {**spec_to_json(spec), "json_schema": schema}
        case DfaSpec():
            return _dfa(spec, meter)
        case AllSpec() | AnySpec():
            kind = "all" if isinstance(spec, AllSpec) else "any"
            parts = _distinct(_canonical(part, meter) for part in _flattened(spec))
            return parts[0] if len(parts) == 1 else {kind: parts}
        case NotSpec():
            inner = spec.part
            return _canonical(inner.part, meter) if isinstance(inner, NotSpec) else {"not": _canonical(inner, meter)}
        case LabelsSpec():
            return {"labels": list(spec.labels), "part": _canonical(spec.part, meter)}
        case _:
            return spec_to_json(spec)


def _keywords(spec: KeywordsSpec) -> object:
    counts = spec.counts or ((1, None),) * len(spec.concepts)
    meant = [_meaning(normalised(proposition)) for _, proposition in concepts_of(spec).values()]
    concepts = [[meaning, list(count)] for meaning, count in zip(meant, counts, strict=True)]
    if not spec.ordered:
        concepts = sorted(concepts, key=_text)
    return {"keywords": concepts, "ordered": spec.ordered and len(concepts) > 1, "inflect": spec.inflect}


def _dfa(spec: DfaSpec, meter: Meter) -> object:
    """A caller's automaton; its guards are formulas, whose names say what they mean."""
    meant = meanings(propositions_named(spec.given, meter), dict(spec.propositions))
    names = {name: meaning_name(proposition) for name, proposition in meant.items()} | {EOS: EOS, NOMATCH: NOMATCH}
    given = [
        one if "when" not in one else {**one, "when": _formula(parse_formula(str(one["when"]), meter), names)}
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


def _ltlf(spec: LtlfSpec, meter: Meter) -> object:
    formula = parse_formula(spec.formula, meter)
    used = propositions_of(formula)
    meant = meanings(used, dict(spec.propositions))
    if NOMATCH not in used:  # what is not named then says nothing
        meant = {name: proposition for name, proposition in meant.items() if name in used}
    names = {name: meaning_name(proposition) for name, proposition in meant.items()}
    shown = {names[name]: _meaning(normalised(proposition)) for name, proposition in meant.items()}
    return {"ltlf": _formula(formula, {**names, EOS: EOS, NOMATCH: NOMATCH}), "propositions": shown}


def _formula(formula: Formula, names: dict[str, str]) -> str:
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


def _schema(schema: object) -> object:
    """A schema with its keywords in order and without its annotations; the order of properties means something."""
    if not isinstance(schema, dict):
        return [_schema(item) for item in schema] if isinstance(schema, list) else schema
    found: dict[str, object] = {}
    for keyword in sorted(schema):
        value = schema[keyword]
        if keyword in _ANNOTATIONS:
            continue
        if keyword in _VERBATIM:
            found[keyword] = value
        elif keyword in _KEYED and isinstance(value, dict):
            found[keyword] = {name: _schema(inner) for name, inner in value.items()}
        elif keyword in _MAPS and isinstance(value, dict):
            found[keyword] = {name: _schema(value[name]) for name in sorted(value)}
        else:
            found[keyword] = _schema(value)
    return found
