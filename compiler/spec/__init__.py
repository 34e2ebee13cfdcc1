"""The types, JSON, names and hash of a constraint.

A `Spec` is a tree of frozen dataclasses, one per form. It is parsed from JSON with the place of each fault, measured
against the limits of its input, and put into a canonical form whose hash names the compiled constraint. Propositions
are named after their meaning, so equal constraints are equal whatever a caller calls them. Nothing here builds an
automaton.
"""

from __future__ import annotations

from compiler.spec.canonical import caller_names, drop_unused_propositions, in_caller_names, spec_hash
from compiler.spec.misreadings import SpecWarning, is_negated_list, spec_warnings
from compiler.spec.near_misses import normalized, not_an_object, rename
from compiler.spec.parse import FORM_FIELDS, OPTION_FIELDS, spec_from_json, spec_to_json
from compiler.spec.parts import (
    AnyPart,
    CapturePart,
    FreePart,
    OptionalPart,
    Part,
    RepeatPart,
    SequencePart,
    TextPart,
    TokenPart,
    all_parts,
    inner_parts,
    map_specs,
    part_specs,
)
from compiler.spec.propositions import (
    CLOSER,
    EOS,
    NOMATCH,
    SENTENCE_END,
    STEP,
    concepts_of,
    meaning_name,
    normalize,
    resolve_propositions,
)
from compiler.spec.reading import field_prefix, moved, pointer
from compiler.spec.sizes import check_input_size
from compiler.spec.types import (
    JSON_WHITE_SPACE,
    ONCE,
    RESERVED_NAMES,
    AllSpec,
    AnySpec,
    ChoiceSpec,
    Count,
    DfaSpec,
    GrammarSpec,
    GrammarSyntax,
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
    leaves,
)
from compiler.spec.user_dfa import UserDfa, UserTransition, guard_formulas, guard_propositions

__all__ = [
    "CLOSER", "EOS", "FORM_FIELDS", "JSON_WHITE_SPACE", "NOMATCH", "ONCE", "OPTION_FIELDS", "RESERVED_NAMES",
    "SENTENCE_END", "STEP", "AllSpec", "AnyPart", "AnySpec", "CapturePart", "ChoiceSpec", "Count", "DfaSpec",
    "FreePart", "GrammarSpec", "GrammarSyntax", "InfillSpec", "JsonSchemaSpec", "KeywordsSpec", "LabelsSpec",
    "LengthSpec", "LtlfSpec", "NotSpec", "OptionalPart", "Part", "Proposition", "RegexSpec", "RepeatPart",
    "SequencePart", "SequenceSpec", "Spec", "SpecWarning", "TextPart", "TokenPart", "UserDfa", "UserTransition",
    "WholeTextSpec", "all_parts", "caller_names", "captures_of", "check_input_size", "concepts_of",
    "drop_unused_propositions", "field_prefix", "guard_formulas", "guard_propositions", "in_caller_names",
    "inner_parts", "is_negated_list", "leaves", "map_specs", "meaning_name", "moved", "normalize", "normalized",
    "not_an_object", "part_specs", "pointer", "rename", "resolve_propositions", "spec_from_json", "spec_hash",
    "spec_to_json", "spec_warnings",
]  # fmt: skip
