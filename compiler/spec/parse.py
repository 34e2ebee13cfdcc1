"""Reads and writes the JSON of constraints. Requests are read strictly, and constraints are written out in full."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

from compiler.errors import SpecSyntaxError, require
from compiler.exact_json import dump_json, load_json
from compiler.spec.near_misses import in_list, not_an_object, parse_edit, several_forms, unknown_form
from compiler.spec.parts_json import part_to_json, sequence_from_json
from compiler.spec.reading import bound, field_prefix, fields_of, printable_name, refuse_unknown_fields, strings, typed
from compiler.spec.types import (
    JSON_WHITE_SPACE,
    LENGTHS,
    NEVER,
    ONCE,
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
    LeadingSpace,
    LengthSpec,
    LtlfSpec,
    NotSpec,
    PropertyOrder,
    Proposition,
    RegexSpec,
    SequenceSpec,
    Spec,
    WhiteSpace,
)
from compiler.spec.user_dfa import BYTE_MAX, ByteRanges, UserDfa, UserTransition, check_encodes, user_dfa_to_json

_BYTES = "a list of bytes and of ranges of bytes, [[97, 122], 32]"
# The compiler recurses over the tree of constraints, so its depth is bounded when it is read.
_DEPTH_MAX = 32  # of constraints within constraints


def spec_from_json(constraint: object) -> Spec:
    """The constraint object of a request, checked.

    Raises SpecSyntaxError, whose `field` says which part is at fault ("all.1.keywords.0"), for an unknown form or field
    or a wrong type.

    >>> spec_from_json({"choice": ["yes", "no"]}).choices
    ('yes', 'no')
    """
    return _spec(constraint, 0)


def _spec(constraint: object, depth: int) -> Spec:
    expected = f"an object with exactly one of {', '.join(map(' / '.join, _FIELDS_OF_FORM.values()))}"
    if not isinstance(constraint, dict):
        raise not_an_object(constraint)
    fields: Mapping[str, object] = constraint
    # Checked on the way down: a deeper constraint would exhaust Python's stack here and in the compiler.
    require(depth <= _DEPTH_MAX, f"constraints nest at most {_DEPTH_MAX} deep", "constraint")
    # `labels` stands beside the form that it applies to, and only at the outermost constraint.
    if depth == 0 and "labels" in fields:
        inner = {name: value for name, value in fields.items() if name != "labels"}
        return LabelsSpec(strings(fields["labels"], "labels"), _spec(inner, depth))
    # A form is recognised by its field. The bounds of a length are one form, with a field for each bound.
    forms = [form for form, names in _FIELDS_OF_FORM.items() if not fields.keys().isdisjoint(names)]
    if len(forms) != 1:
        names = [name for names in _FIELDS_OF_FORM.values() for name in names]
        given = [name for name in names if name in fields]
        raise several_forms(fields, given, expected) if forms else unknown_form(fields, names, expected)
    return FORMS[forms[0]](fields, depth)


def _leading_space(fields: Mapping[str, object]) -> LeadingSpace:
    # The types check which strings are allowed.
    return cast(LeadingSpace, typed(fields.get("leading_space", "strip"), str, "leading_space", "'strip' or 'forbid'"))


def _proposition(name: str, value: object) -> Proposition:
    field = f"propositions.{printable_name(name)}"
    if isinstance(value, list):
        return Proposition(strings(value, field))
    # A list of words is short for an object with `words`.
    fields = typed(value, dict, field, "a list of words and phrases, or an object with `words` or `regex`")
    refuse_unknown_fields(fields, ("words", "regex", "case_sensitive"), "a proposition", field)
    words = strings(fields.get("words", []), f"{field}.words")
    regex = None if "regex" not in fields else typed(fields["regex"], str, f"{field}.regex", "a string")
    # Refused rather than ignored: a caller would expect the flag to change how the regex matches.
    if regex is not None and "case_sensitive" in fields:
        raise SpecSyntaxError("a regex says itself whether case matters: (?i)", field=f"{field}.case_sensitive")
    return Proposition(
        words, regex, typed(fields.get("case_sensitive", False), bool, f"{field}.case_sensitive", "a boolean")
    )


def _propositions(fields: Mapping[str, object]) -> tuple[tuple[str, Proposition], ...]:
    # Names are checked by the types, in every form alike.
    declared = typed(fields.get("propositions", {}), dict, "propositions", "an object")
    return tuple((str(name), _proposition(str(name), value)) for name, value in declared.items())


def _ltlf(fields: Mapping[str, object], _: int) -> Spec:
    refuse_unknown_fields(fields, ("ltlf", "propositions"), "an ltlf constraint")
    propositions = _propositions(fields)
    return LtlfSpec(_string(fields, "ltlf", "join formulas by &, as in F(dog) & F(cat)"), propositions)


def _regex(fields: Mapping[str, object], _: int) -> Spec:
    refuse_unknown_fields(fields, ("regex", "leading_space"), "a regex constraint")
    leading = _leading_space(fields)
    return RegexSpec(_string(fields, "regex", "join alternatives by |, as in (yes|no)"), leading)


def _list(fields: Mapping[str, object], name: str, expected: str, item: type = str) -> list[object]:
    """A list. The error for a single item suggests a list of it."""
    value = fields[name]
    if isinstance(value, item):
        message = f"{name} must be {expected}; did you mean a list of one?"
        raise SpecSyntaxError(message, field=name, expected=expected, suggestion=in_list(name))
    return typed(value, list, name, expected)


def _string(fields: Mapping[str, object], name: str, joined: str) -> str:
    """A string. The error for a list says how several are written."""
    value = fields[name]
    if isinstance(value, list):
        raise SpecSyntaxError(f"{name} must be a string: {joined}", field=name, expected="a string")
    return typed(value, str, name, "a string")


def _concept(item: object, field: str) -> tuple[tuple[str, ...], Count]:
    # A concept is a word, a list of forms, or an object with forms and a count.
    if isinstance(item, str):
        return (item,), ONCE
    if not isinstance(item, dict):
        return strings(item, field), ONCE
    refuse_unknown_fields(item, ("forms", "min", "max"), "a counted keyword", field)
    forms = item.get("forms")
    count = (1 if "min" not in item else bound(item, "min", f"{field}.min") or 0, bound(item, "max", f"{field}.max"))
    return (forms,) if isinstance(forms, str) else strings(forms, f"{field}.forms"), count


def _keywords(fields: Mapping[str, object], _: int) -> Spec:
    flag_names = ("ordered", "case_sensitive", "inflect", "none")
    refuse_unknown_fields(fields, ("keywords", *flag_names), "a keywords constraint")
    items = _list(fields, "keywords", "a list of words, or of lists of forms")
    # A keyword without a count occurs at least once.
    concepts = [_concept(item, f"keywords.{number}") for number, item in enumerate(items)]
    forms, counts = tuple(forms for forms, _ in concepts), tuple(count for _, count in concepts)
    ordered, case_sensitive, inflect, none = (
        typed(fields.get(name, False), bool, name, "a boolean") for name in flag_names
    )
    if none:
        require(not ordered, "words that must not occur have no order: leave ordered or none out", "ordered")
        for number, item in enumerate(items):
            uncounted = not isinstance(item, dict) or item.keys().isdisjoint(("min", "max"))
            require(uncounted, "with none every count is 0: leave min and max out", f"keywords.{number}")
        # A constraint with `none` and one that counts each concept 0 times are one value.
        counts = (NEVER,) * len(counts)
    return KeywordsSpec(forms, ordered=ordered, case_sensitive=case_sensitive, inflect=inflect, counts=counts)


def _infill(fields: Mapping[str, object], _: int) -> Spec:
    refuse_unknown_fields(fields, ("infill", "leading_space"), "an infill constraint")
    return InfillSpec(typed(fields["infill"], str, "infill", "a string"), _leading_space(fields))


def _choice(fields: Mapping[str, object], _: int) -> Spec:
    refuse_unknown_fields(fields, ("choice", "leading_space"), "a choice constraint")
    return ChoiceSpec(strings(_list(fields, "choice", "a list of strings"), "choice"), _leading_space(fields))


def _json_schema(fields: Mapping[str, object], _: int) -> Spec:
    names = ("whitespace", "property_order", "closed_objects", "max_depth", "leading_space", "schemas", "strict")
    refuse_unknown_fields(fields, ("json_schema", *names, "approximate"), "a json_schema constraint")
    schema = fields["json_schema"]
    if not isinstance(schema, bool | dict):
        expected = "an object or a boolean"
        hint = ": send the schema itself, not its text in quotes" if isinstance(schema, str) else ""
        edits = parse_edit("/json_schema", schema) if isinstance(schema, str) else ()
        message = f"json_schema must be {expected}{hint}"
        raise SpecSyntaxError(message, field="json_schema", expected=expected, suggestion=edits)
    # The types check which strings are allowed; here a value only has to be a string.
    whitespace = typed(fields.get("whitespace", JSON_WHITE_SPACE), str, "whitespace", "a kind of white space")
    order = typed(fields.get("property_order", "schema"), str, "property_order", "an order")
    depth = typed(fields["max_depth"], int, "max_depth", "an integer") if "max_depth" in fields else None
    schemas = typed(fields.get("schemas", {}), dict, "schemas", "an object that maps URIs to schemas")
    for uri, inside in schemas.items():
        require(isinstance(inside, bool | dict), "a schema is an object or a boolean", f"schemas.{uri}")
    text, table = _schema_text(schema, "json_schema"), _schema_text(schemas, "schemas")
    strict = typed(fields.get("strict", False), bool, "strict", "a boolean")
    approximate = tuple(dict.fromkeys(strings(fields.get("approximate", []), "approximate")))
    closed = typed(fields.get("closed_objects", False), bool, "closed_objects", "a boolean")
    return JsonSchemaSpec(
        text, cast(WhiteSpace, whitespace), depth, _leading_space(fields), schemas=table, strict=strict,
        approximate=approximate, property_order=cast(PropertyOrder, order), closed_objects=closed,
    )


def _schema_text(schema: object, field: str) -> str:
    try:
        # A schema is kept as text: it is hashable then, and its property names keep their order.
        return dump_json(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise SpecSyntaxError(f"the schema holds what JSON cannot write: {error}", field=field) from None


def _grammar(fields: Mapping[str, object], _: int) -> Spec:
    refuse_unknown_fields(fields, ("grammar", "syntax", "leading_space"), "a grammar constraint")
    text, syntax = typed(fields["grammar"], str, "grammar", "a string"), fields.get("syntax")
    # The types check which strings are allowed.
    return GrammarSpec(text, cast(GrammarSyntax, syntax), _leading_space(fields))


def _sequence(fields: Mapping[str, object], depth: int) -> Spec:
    refuse_unknown_fields(fields, ("sequence", "leading_space"), "a sequence")
    return SequenceSpec(sequence_from_json(fields["sequence"], depth, _spec_of_part), _leading_space(fields))


def _spec_of_part(fields: Mapping[str, object], depth: int) -> Spec | None:
    known = {name for names in _FIELDS_OF_FORM.values() for name in names}
    return None if fields.keys().isdisjoint(known) else _spec(fields, depth)


def _length(fields: Mapping[str, object], _: int) -> Spec:
    refuse_unknown_fields(fields, LENGTHS, "a length constraint")
    sentences = fields.get("sentences")
    # `sentences` is an exact number, or an object with bounds.
    if isinstance(sentences, dict):
        refuse_unknown_fields(sentences, ("min", "max"), "sentences", "sentences")
        least: int | None = bound(sentences, "min", "sentences.min") or 0
        most = bound(sentences, "max", "sentences.max")
    else:
        # A number is both bounds.
        least = most = bound(fields, "sentences", "sentences")
    count = None if least is None else (least, most)
    min_words, max_words, max_chars = (bound(fields, name, name) for name in LENGTHS[:3])
    return LengthSpec(min_words, max_words, max_chars, count)


def _dfa(fields: Mapping[str, object], _: int) -> Spec:
    refuse_unknown_fields(fields, ("dfa", "propositions", "leading_space"), "a dfa constraint")
    return DfaSpec(user_dfa_from_json(fields["dfa"], "dfa"), _propositions(fields), _leading_space(fields))


def _combination(kind: type[AllSpec | AnySpec], fields: Mapping[str, object], depth: int) -> Spec:
    refuse_unknown_fields(fields, (kind.form,), f"a constraint with {kind.form!r}")
    parts = []
    for number, item in enumerate(_list(fields, kind.form, "a list of constraints", dict)):
        # A fault inside a part names its field from the outermost constraint on.
        with field_prefix(f"{kind.form}.{number}"):
            parts.append(_spec(item, depth + 1))
    return kind(tuple(parts))


def _not(fields: Mapping[str, object], depth: int) -> Spec:
    refuse_unknown_fields(fields, ("not",), "a constraint with 'not'")
    with field_prefix("not"):
        return NotSpec(_spec(fields["not"], depth + 1))


# Every form has a field of its own name, except the bounds of a length.
FORMS: dict[str, Callable[[Mapping[str, object], int], Spec]] = {
    "ltlf": _ltlf, "regex": _regex, "keywords": _keywords, "infill": _infill, "json_schema": _json_schema,
    "choice": _choice, "grammar": _grammar, "sequence": _sequence, "dfa": _dfa, "length": _length,
    "all": partial(_combination, AllSpec), "any": partial(_combination, AnySpec), "not": _not,
}  # fmt: skip
# The fields by which each form is recognised.
_FIELDS_OF_FORM = {form: LENGTHS if form == "length" else (form,) for form in FORMS}
FORM_FIELDS = frozenset(name for names in _FIELDS_OF_FORM.values() for name in names)
# Fields that stand beside those of forms.
OPTION_FIELDS = frozenset(
    {"propositions", "ordered", "case_sensitive", "inflect", "none", "leading_space", "whitespace", "property_order",
     "closed_objects", "max_depth", "schemas", "strict", "approximate", "syntax"}
)  # fmt: skip


def spec_to_json(spec: Spec) -> dict[str, object]:
    """The constraint object with every default value written out; `spec_from_json` undoes it.

    >>> spec_to_json(spec_from_json({"regex": "a+"}))
    {'regex': 'a+', 'leading_space': 'strip'}
    """
    # A form without a case is an error of the type checker.
    match spec:
        case LtlfSpec():
            return {"ltlf": spec.formula, "propositions": _declared_json(spec.propositions)}
        case RegexSpec(text) | InfillSpec(text):
            return {spec.form: text, "leading_space": spec.leading_space}
        case KeywordsSpec():
            return _keywords_json(spec)
        case ChoiceSpec():
            return {"choice": list(spec.choices), "leading_space": spec.leading_space}
        case JsonSchemaSpec():
            depth = {} if spec.max_depth is None else {"max_depth": spec.max_depth}
            closed = {"closed_objects": True} if spec.closed_objects else {}
            written = {"whitespace": spec.whitespace, "property_order": spec.property_order, **closed, **depth}
            reading = {"leading_space": spec.leading_space, "schemas": load_json(spec.schemas), "strict": spec.strict}
            return {"json_schema": load_json(spec.schema), **written, **reading, "approximate": list(spec.approximate)}
        case GrammarSpec():
            return {"grammar": spec.text, "syntax": spec.syntax, "leading_space": spec.leading_space}
        case SequenceSpec():
            parts = [part_to_json(part, spec_to_json) for part in spec.root.parts]
            return {"sequence": parts, "leading_space": spec.leading_space}
        case LengthSpec():
            bounds: dict[str, object] = {**spec.bounds}
            if spec.sentences is not None:
                bounds["sentences"] = {"min": spec.sentences[0], "max": spec.sentences[1]}
            return bounds
        case DfaSpec():
            user_dfa, declared = user_dfa_to_json(spec.user_dfa), _declared_json(spec.propositions)
            return {"dfa": user_dfa, "propositions": declared, "leading_space": spec.leading_space}
        case AllSpec() | AnySpec():
            return {spec.form: [spec_to_json(part) for part in spec.parts]}
        case NotSpec():
            return {"not": spec_to_json(spec.part)}
        case LabelsSpec():
            # As in the request, the labels stand beside the form of the part.
            return {**spec_to_json(spec.part), "labels": list(spec.labels)}


def _keywords_json(spec: KeywordsSpec) -> dict[str, object]:
    concepts: list[object] = [list(forms) for forms in spec.concepts]
    # Without counts, the short form of a concept is enough.
    if spec.counts:
        concepts = [
            {"forms": forms, "min": minimum, "max": maximum}
            for forms, (minimum, maximum) in zip(concepts, spec.counts, strict=True)
        ]
    flags = {"ordered": spec.ordered, "case_sensitive": spec.case_sensitive, "inflect": spec.inflect}
    return {"keywords": concepts, **flags}


def _declared_json(propositions: tuple[tuple[str, Proposition], ...]) -> dict[str, object]:
    declared: dict[str, object] = {}
    # The form in which the fields were given is not kept: a list of words becomes an object.
    for name, proposition in propositions:
        if proposition.regex is not None:
            declared[name] = {"regex": proposition.regex}
        else:
            declared[name] = {"words": list(proposition.words), "case_sensitive": proposition.case_sensitive}
    return declared


# --- the automaton of a caller ---------------------------------------------------------------------------------------


def user_dfa_from_json(value: object, field: str) -> UserDfa:
    """The automaton in the field `field` of a request. Raises SpecSyntaxError, whose `field` leads to the fault."""
    fields = fields_of(value, ("start", "accepting", "transitions"), field)
    # Both lists may be empty, but must be there.
    for name in ("accepting", "transitions"):
        require(name in fields, f"{field} lacks `{name}`", field, f"the field {name}")
    items = typed(fields["transitions"], list, f"{field}.transitions", "a list of transitions")
    return UserDfa(
        _state_name(fields, "start", field),
        strings(fields["accepting"], f"{field}.accepting", "a list of names of states", "the name of a state"),
        tuple(_transition(item, f"{field}.transitions.{number}") for number, item in enumerate(items)),
    )


def _transition(value: object, field: str) -> UserTransition:
    fields = fields_of(value, ("from", "to", "when", "bytes", "text"), field)
    source, target = (_state_name(fields, name, field) for name in ("from", "to"))
    # Without any of them, the guard is `true`.
    labels = [name for name in ("when", "bytes", "text") if name in fields]
    require(len(labels) < 2, "a transition has only one of `when`, `bytes` and `text`", field)
    # At most one of the three is there by now.
    if labels == ["bytes"]:
        return UserTransition(source, target, byte_ranges=_byte_ranges(fields["bytes"], f"{field}.bytes"))
    if labels == ["text"]:
        text = typed(fields["text"], str, f"{field}.text", "a string, one character of which is read")
        check_encodes(text, f"{field}.text")
        return UserTransition(source, target, text=text)
    return UserTransition(source, target, when=typed(fields.get("when", "true"), str, f"{field}.when", "a formula"))


def _state_name(fields: Mapping[str, object], name: str, field: str) -> str:
    require(name in fields, f"{field} lacks `{name}`", field, f"the field {name}")
    return typed(fields[name], str, f"{field}.{name}", "the name of a state")


def _byte_ranges(value: object, field: str) -> ByteRanges:
    ranges = []
    for number, item in enumerate(typed(value, list, field, _BYTES)):
        # A single byte is a range of one.
        pair = item if isinstance(item, list) else [item, item]
        # A bool is an int in Python, but no byte.
        is_range = len(pair) == 2 and all(isinstance(byte, int) and not isinstance(byte, bool) for byte in pair)
        expected = f"a byte 0 to {BYTE_MAX}, or [first, last] of such"
        in_range = is_range and 0 <= pair[0] <= pair[1] <= BYTE_MAX
        require(in_range, f"{field} lists bytes and ranges: {expected}", f"{field}.{number}", expected)
        ranges.append((pair[0], pair[1]))
    return tuple(ranges)
