"""The limits of the sizes of constraints. They are checked before anything is parsed."""

from __future__ import annotations

import json

from compiler.limits import DEFAULT_LIMITS, Limits, ResourceGuard
from compiler.spec.parts import FreePart, Part, all_parts, part_specs
from compiler.spec.types import (
    ChoiceSpec,
    DfaSpec,
    GrammarSpec,
    InfillSpec,
    JsonSchemaSpec,
    KeywordsSpec,
    LtlfSpec,
    Proposition,
    RegexSpec,
    SequenceSpec,
    Spec,
    leaves,
)


def check_input_size(spec: Spec, limits: Limits = DEFAULT_LIMITS) -> None:
    """Raise LimitExceeded where a constraint is too long. Nothing is parsed, so the check is cheap."""
    guard = ResourceGuard(limits)
    # The number of parts bounds the loops below.
    guard.check("parts_max", len(leaves(spec)))
    parts, in_sequences = list(leaves(spec)), 0
    for part in parts:  # grows while it is walked
        if isinstance(part, SequenceSpec):
            in_sequences += len(list(all_parts(part.root)))
            guard.check("sequence_parts_max", in_sequences)
            for inside in map(leaves, part_specs(part.root)):
                guard.check("parts_max", len(inside))
                parts += inside
    for part in parts:
        _check_leaf(part, guard)
    # One limit for all parts together: hashing a constraint parses every formula and pattern of it.
    guard.check("formulas_chars_max", sum(map(_chars_read, parts)))


def _chars_read(spec: Spec) -> int:
    """Characters of a formula and of patterns that hashing a constraint parses."""
    if not isinstance(spec, LtlfSpec | DfaSpec):
        return 0
    # Guards of a caller's automaton have a limit of their own, in `guard_formulas`.
    patterns = sum(len(meaning.regex or "") for _, meaning in spec.propositions)
    return patterns + (len(spec.formula) if isinstance(spec, LtlfSpec) else 0)


def _chars_of_free(part: Part) -> int:
    return sum(map(len, (*part.until, *part.without))) if isinstance(part, FreePart) else 0


def _check_leaf(spec: Spec, guard: ResourceGuard) -> None:
    match spec:
        case LtlfSpec():
            guard.check("formula_chars_max", len(spec.formula))
            _check_propositions(dict(spec.propositions), guard)
        # The guards are measured when they are parsed.
        case DfaSpec():
            _check_propositions(dict(spec.propositions), guard)
        case KeywordsSpec():
            # In order, n keywords take n + 1 states, and 2 where none may occur; without an order 2 ** n.
            chain = spec.ordered or spec.excludes
            guard.check("letters_max" if chain else "propositions_max", len(spec.concepts))
            guard.check("keyword_chars_max", sum(len(form) for forms in spec.concepts for form in forms))
        case ChoiceSpec():
            guard.check("choice_chars_max", sum(map(len, spec.choices)))
        case JsonSchemaSpec():
            _check_schema(spec, guard)
        case GrammarSpec():
            guard.check("grammar_chars_max", len(spec.text))
        case SequenceSpec():
            guard.check("template_chars_max", sum(len(part) for part in all_parts(spec.root) if isinstance(part, str)))
            guard.check("template_chars_max", sum(map(_chars_of_free, all_parts(spec.root))))
        case RegexSpec():
            guard.check("pattern_chars_max", len(spec.pattern))
        case InfillSpec():
            guard.check("template_chars_max", len(spec.template))


def _check_schema(spec: JsonSchemaSpec, guard: ResourceGuard) -> None:
    limits, chars = guard.limits, len(spec.schema) + len(spec.schemas)
    # Few schemas are so long that they have to be read.
    if chars > min(limits.schema_chars_max, limits.choice_chars_max):
        try:
            listed = [_listed_values(json.loads(text)) for text in (spec.schema, spec.schemas)]
        except (ValueError, RecursionError):  # the text is no schema of ours, however long it may be
            listed = []
        values = [value for part in listed for value in part]
        guard.check("choice_chars_max", sum(len(str(value)) for value in values))
        guard.check("schema_chars_max", chars - len(json.dumps(values, separators=(",", ":"))))


def _listed_values(document: object) -> list[object]:
    """The strings, numbers and literals in all lists under `enum`."""
    listed, waiting = list[object](), [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            enum = value.get("enum")
            listed += [item for item in enum if not isinstance(item, list | dict)] if isinstance(enum, list) else []
            waiting += [item for item in value.values() if isinstance(item, list | dict)]
        elif isinstance(value, list):
            waiting += [item for item in value if isinstance(item, list | dict)]
    return listed


def _check_propositions(declared: dict[str, Proposition], guard: ResourceGuard) -> None:
    # Three limits: the number of propositions, the length of all their words, and of all their patterns.
    guard.check("propositions_max", len(declared))
    guard.check("keyword_chars_max", sum(len(word) for meaning in declared.values() for word in meaning.words))
    guard.check("pattern_chars_max", sum(len(meaning.regex or "") for meaning in declared.values()))
