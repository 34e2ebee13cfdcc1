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
    meter = ResourceGuard(limits)
    parts = leaves(spec)
    meter.check("parts_max", len(parts))
    for part in parts:
        _check_leaf(part, meter)
    meter.check("formulas_chars_max", sum(map(_chars_read, parts)))


def _chars_read(spec: Spec) -> int:
    """Characters of a formula and of patterns that hashing a constraint parses."""
    if not isinstance(spec, LtlfSpec | DfaSpec):
        return 0
    patterns = sum(len(meaning.regex or "") for _, meaning in spec.propositions)
    return patterns + (len(spec.formula) if isinstance(spec, LtlfSpec) else 0)


def _check_leaf(spec: Spec, meter: ResourceGuard) -> None:
    match spec:
        case LtlfSpec():
            meter.check("formula_chars_max", len(spec.formula))
            _check_propositions(dict(spec.propositions), meter)
        case DfaSpec():
            _check_propositions(dict(spec.propositions), meter)
        case KeywordsSpec():
            meter.check("propositions_max", len(spec.concepts))
            meter.check("keyword_chars_max", sum(len(form) for forms in spec.concepts for form in forms))
        case ChoiceSpec():
            meter.check("choice_chars_max", sum(map(len, spec.choices)))
        case JsonSchemaSpec():
            meter.check("schema_chars_max", len(spec.schema))
        case RegexSpec():
            meter.check("pattern_chars_max", len(spec.pattern))
        case InfillSpec():
            meter.check("template_chars_max", len(spec.template))


def _check_propositions(declared: dict[str, Proposition], meter: ResourceGuard) -> None:
    meter.check("propositions_max", len(declared))
    meter.check("keyword_chars_max", sum(len(word) for meaning in declared.values() for word in meaning.words))
    meter.check("pattern_chars_max", sum(len(meaning.regex or "") for meaning in declared.values()))
