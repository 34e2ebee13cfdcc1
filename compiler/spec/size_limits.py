"""How much of a constraint there is to look at, before anyone looks at it."""

from __future__ import annotations

from compiler.limits import DEFAULT_LIMITS, Limits, Meter
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
    """Raise LimitExceeded where a constraint is too long to be looked at; cheap, nothing is parsed."""
    meter = Meter(limits)
    parts = leaves(spec)
    meter.charge("parts_max", len(parts))
    for part in parts:
        _check_leaf(part, meter)
    meter.charge("read_chars_max", sum(map(_chars_read, parts)))


def _chars_read(spec: Spec) -> int:
    """Of a constraint's formulas and propositions: what is parsed to find its hash, by whoever names it."""
    if not isinstance(spec, LtlfSpec | DfaSpec):
        return 0
    patterns = sum(len(meaning.regex or "") for _, meaning in spec.propositions)
    return patterns + (len(spec.formula) if isinstance(spec, LtlfSpec) else 0)


def _check_leaf(spec: Spec, meter: Meter) -> None:
    match spec:
        case LtlfSpec():
            meter.charge("formula_chars_max", len(spec.formula))
            _check_propositions(dict(spec.propositions), meter)
        case DfaSpec():
            _check_propositions(dict(spec.propositions), meter)
        case KeywordsSpec():
            meter.charge("propositions_max", len(spec.concepts))
            meter.charge("keyword_chars_max", sum(len(form) for forms in spec.concepts for form in forms))
        case ChoiceSpec():
            meter.charge("choice_chars_max", sum(map(len, spec.choices)))
        case JsonSchemaSpec():
            meter.charge("schema_chars_max", len(spec.schema))
        case RegexSpec():
            meter.charge("pattern_chars_max", len(spec.pattern))
        case InfillSpec():
            meter.charge("template_chars_max", len(spec.template))


def _check_propositions(declared: dict[str, Proposition], meter: Meter) -> None:
    meter.charge("propositions_max", len(declared))
    meter.charge("keyword_chars_max", sum(len(word) for meaning in declared.values() for word in meaning.words))
    meter.charge("pattern_chars_max", sum(len(meaning.regex or "") for meaning in declared.values()))
