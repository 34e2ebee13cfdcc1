"""Size limits of a constraint, checked before it is parsed."""

from __future__ import annotations

from compiler.limits import DEFAULT_LIMITS, Limits, ResourceGuard
from compiler.spec.types import (
    ChoiceSpec,
    DfaSpec,
    InfillSpec,
    JsonSchemaSpec,
    KeywordsSpec,
    LtlfSpec,
    Proposition,
    RegexSpec,
    Spec,
    leaves,
)


def check_limits(spec: Spec, limits: Limits = DEFAULT_LIMITS) -> None:
    """Raise LimitExceeded where a constraint is too long. Nothing is parsed, so the check is cheap."""
    guard = ResourceGuard(limits)
    parts = leaves(spec)
    guard.check("parts_max", len(parts))
    for part in parts:
        _check_leaf(part, guard)
    guard.check("formulas_chars_max", sum(map(_chars_read, parts)))


def _chars_read(spec: Spec) -> int:
    """Characters of a formula and of patterns that hashing a constraint parses."""
    if not isinstance(spec, LtlfSpec | DfaSpec):
        return 0
    patterns = sum(len(meaning.regex or "") for _, meaning in spec.propositions)
    return patterns + (len(spec.formula) if isinstance(spec, LtlfSpec) else 0)


def _check_leaf(spec: Spec, guard: ResourceGuard) -> None:
    match spec:
        case LtlfSpec():
            guard.check("formula_chars_max", len(spec.formula))
            _check_propositions(dict(spec.propositions), guard)
        case DfaSpec():
            _check_propositions(dict(spec.propositions), guard)
        case KeywordsSpec():
            guard.check("propositions_max", len(spec.concepts))
            guard.check("keyword_chars_max", sum(len(form) for forms in spec.concepts for form in forms))
        case ChoiceSpec():
            guard.check("choice_chars_max", sum(map(len, spec.choices)))
        case JsonSchemaSpec():
            guard.check("schema_chars_max", len(spec.schema))
        case RegexSpec():
            guard.check("pattern_chars_max", len(spec.pattern))
        case InfillSpec():
            guard.check("template_chars_max", len(spec.template))


def _check_propositions(declared: dict[str, Proposition], guard: ResourceGuard) -> None:
    guard.check("propositions_max", len(declared))
    guard.check("keyword_chars_max", sum(len(word) for meaning in declared.values() for word in meaning.words))
    guard.check("pattern_chars_max", sum(len(meaning.regex or "") for meaning in declared.values()))
