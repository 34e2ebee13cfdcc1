"""Constraints as English clauses about the answer, "it". Knows no automaton."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

from compiler.diagnostics.formula_prose import formula_clause
from compiler.errors import CompileError
from compiler.exact_json import dump_json, load_json
from compiler.limits import DEFAULT_LIMITS, ResourceGuard
from compiler.ltlf import parse_formula
from compiler.spec import (
    ONCE,
    AllSpec,
    AnyPart,
    AnySpec,
    CapturePart,
    ChoiceSpec,
    Count,
    DfaSpec,
    FreePart,
    GrammarSpec,
    InfillSpec,
    JsonSchemaSpec,
    KeywordsSpec,
    LabelsSpec,
    LengthSpec,
    LtlfSpec,
    NotSpec,
    OptionalPart,
    Part,
    Proposition,
    RegexSpec,
    RepeatPart,
    SequencePart,
    SequenceSpec,
    Spec,
    TextPart,
    TokenPart,
    is_negated_list,
)

TEXT_CHARS_MAX = 200  # of a caller's own text, a formula or a pattern, as a clause repeats it
NAME_CHARS_MAX = 60
LISTED_MAX = 8  # items of a list that are shown before the number of the others
_TITLE_CHARS_MAX = 48
_SYNTAXES = {"lark": "Lark", "gbnf": "GBNF", "ebnf": "EBNF"}
_NESTED_MAX = 12  # parts of a combination that a clause lists


def sentence(spec: Spec) -> str:
    """The answers that the constraint accepts, as one sentence.

    >>> from compiler.spec import spec_from_json
    >>> sentence(spec_from_json({"keywords": ["dog", "cat"], "ordered": True}))
    'An answer is accepted when it mentions dog, then cat, in this order.'
    """
    # Over labels, the alphabet belongs to the sentence.
    if isinstance(spec, LabelsSpec):
        alphabet = f"the {len(spec.labels)} labels {listed(map(_name, spec.labels), 'and')}"
        return f"An answer is a sequence of {alphabet}; it is accepted when {clause(spec.part)}."
    return f"An answer is accepted when {clause(spec)}."


def clause(spec: Spec) -> str:
    """The constraint as a clause whose subject is "it", the answer."""
    match spec:
        case AllSpec():
            return _join_parts(spec.parts, "and")
        case AnySpec():
            return _join_parts(spec.parts, "or")
        case NotSpec(KeywordsSpec() as part) if is_negated_list(spec):
            missing = f"at least one of {listed(map(_forms, part.concepts), 'and')} is missing from it"
            return f"{missing} (the form with none: true excludes them all)"
        case NotSpec():
            return f"it is not so that {_bracketed(spec.part)}"
        case LabelsSpec():
            return clause(spec.part)
        case LtlfSpec():
            formula = f"{_quote(spec.formula)}{_reading(spec)}"
            return f"its word trace satisfies the formula {formula}{_propositions(spec.propositions)}"
        case RegexSpec():
            return f"the whole of it matches the pattern {_quote(spec.pattern)}"
        case KeywordsSpec():
            return _keywords(spec)
        case InfillSpec():
            return f"it fills the gaps of the template {_quote(spec.template)}"
        case ChoiceSpec():
            return f"it is {listed(map(_quote, spec.choices), 'or')}"
        case JsonSchemaSpec():
            return _json_schema(spec)
        case GrammarSpec():
            return f"it is a text of the {_SYNTAXES[spec.syntax]} grammar {_quote(spec.text)}"
        case SequenceSpec():
            return f"it is {_parts(spec.root.parts)}"
        case LengthSpec():
            return f"it has {listed(_bounds(spec), 'and')}"
        case DfaSpec():
            return _user_dfa(spec)


def title(spec: Spec) -> str:
    """A short title that distinguishes the constraint from others: `keywords dog`, `not regex [0-9]+`."""
    match spec:
        case AllSpec() | AnySpec():
            return _clipped(f"{spec.form} of {', '.join(map(title, spec.parts[:LISTED_MAX]))}", _TITLE_CHARS_MAX)
        case NotSpec():
            return _clipped(f"not {title(spec.part)}", _TITLE_CHARS_MAX)
        case LabelsSpec():
            return title(spec.part)
        case LtlfSpec(text) | RegexSpec(text) | InfillSpec(text) | JsonSchemaSpec(text) | GrammarSpec(text):
            return _clipped(f"{spec.form} {text}", _TITLE_CHARS_MAX)
        case KeywordsSpec():
            # A title is short: it has the first form of each concept, and counts only where they are not the default.
            order = "in order " if spec.ordered and len(spec.concepts) > 1 else ""
            if spec.excludes:
                return _clipped(f"keywords none of {', '.join(forms[0] for forms in spec.concepts)}", _TITLE_CHARS_MAX)
            counts = spec.counts or (ONCE,) * len(spec.concepts)
            phrases = [
                forms[0] if count == ONCE else f"{forms[0]} {_count(count, 'time')}"
                for forms, count in zip(spec.concepts, counts, strict=True)
            ]
            return _clipped(f"keywords {order}{', '.join(phrases)}", _TITLE_CHARS_MAX)
        case SequenceSpec():
            return _clipped(f"sequence of {counted(len(spec.root.parts), 'part')}", _TITLE_CHARS_MAX)
        case ChoiceSpec():
            return _clipped(f"choice of {', '.join(map(json.dumps, spec.choices[:LISTED_MAX]))}", _TITLE_CHARS_MAX)
        case LengthSpec():
            return _clipped(" and ".join(_bounds(spec)), _TITLE_CHARS_MAX)
        case DfaSpec():
            return f"dfa of {len(spec.user_dfa.states)} states"


def keywords_title(keywords: Sequence[tuple[str, object]]) -> str:
    """Keywords of a schema with their values, as `minimum 10`. Without any it is the schema `false`."""
    texts = [f"{name} {dump_json(value, ensure_ascii=False)}" for name, value in keywords]
    return _clipped(", ".join(texts) or "false", _TITLE_CHARS_MAX)


def _parts(parts: Sequence[Part]) -> str:
    """Parts of a sequence, one after the other."""
    return listed(map(_part, parts), ", then")


def _part(part: Part) -> str:
    match part:
        case str():
            return _quote(part)
        case TokenPart():
            return f"the token {_name(part.name)}"
        case FreePart():
            ends = [f"up to and including {listed(map(_quote, part.until), 'or')}"] if part.until else []
            ends += [f"without {listed(map(_quote, part.without), 'or')}"] if part.without else []
            bounds = ((part.max_tokens, "token"), (part.max_chars, "character"))
            ends += [f"of at most {counted(most, noun)}" for most, noun in bounds if most is not None]
            return f"free text {' and '.join(ends)}".rstrip()
        case OptionalPart():
            return f"perhaps {_part(part.part)}"
        case RepeatPart():
            between = "" if part.separator is None else f" with {_part(part.separator)} between"
            return f"({_part(part.part)}) {_count((part.minimum, part.maximum), 'time')}{between}"
        case AnyPart():
            return f"({listed(map(_part, part.parts), 'or')})"
        case CapturePart():
            return f"{_part(part.part)} (captured as {_name(part.name)})"
        case SequencePart():
            return f"({_parts(part.parts)})"
        case TextPart():
            return f"a text of which holds: {_bracketed(part.spec)}"


def counted(number: int, noun: str) -> str:
    """`1 word`, `2 words`: a number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shortened(text: str) -> str:
    """A caller's text, shortened for a clause.

    Long texts are clipped, and unprintable characters are written as escapes.
    """
    return _clipped(text, TEXT_CHARS_MAX)


def _clipped(text: str, chars_max: int) -> str:
    # Escapes are longer than the characters they stand for, so the length is checked again.
    visible = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[:chars_max])
    return visible if len(text) <= chars_max and len(visible) <= chars_max else f"{visible[: chars_max - 1]}…"


def _name(name: str) -> str:
    return _clipped(name, NAME_CHARS_MAX)


def _quote(text: str) -> str:
    return f"“{shortened(text)}”"


def listed(items: Iterable[str], last: str) -> str:
    """Join items as `a, b and c`, or as `a, then b`. A long list shows the first items and the number of the others."""
    texts = list(items)
    parts = texts[:LISTED_MAX]
    # The number of the others keeps a long list readable.
    if len(texts) > len(parts):
        parts.append(f"{len(texts) - len(parts):,} more")
    # A separator such as `, then` stands between all items; a word such as `and` only before the last.
    if len(parts) == 1 or last.startswith(","):
        return f"{last} ".join(parts)
    return f"{', '.join(parts[:-1])} {last} {parts[-1]}"


def contradiction(conflict: Sequence[str]) -> str:
    """The end of a message, which lists the conjuncts of `minimal_conflict`."""
    if len(conflict) < 2:
        return f": {conflict[0]} alone rules out every one" if conflict else ""
    return f": {listed(conflict, 'and')} contradict each other"


def _bracketed(spec: Spec) -> str:
    words = clause(spec)
    # Clauses that contain `and` or `or` need brackets inside another clause.
    return f"({words})" if isinstance(spec, AllSpec | AnySpec | NotSpec) else words


def _join_parts(parts: Sequence[Spec], word: str) -> str:
    phrases = [_bracketed(part) for part in parts[:_NESTED_MAX]]
    # A combination has up to 256 parts.
    if len(parts) > len(phrases):
        phrases.append(
            f"{len(parts) - len(phrases):,} more constraints {'hold' if word == 'and' else 'are an alternative'}"
        )
    return f", {word} ".join(phrases)


def _reading(spec: LtlfSpec) -> str:
    """The formula in words, where that is short."""
    try:
        formula = parse_formula(spec.formula, ResourceGuard(DEFAULT_LIMITS), declared=dict(spec.propositions))
    except CompileError:
        return ""  # it was compiled under other limits
    words = formula_clause(formula)
    return f" ({shortened(words)})" if words else ""


def _propositions(propositions: Sequence[tuple[str, Proposition]]) -> str:
    if not propositions:
        return ""
    return f", where {listed((f'{_name(name)} stands for {_proposition(spec)}' for name, spec in propositions), 'and')}"


def _proposition(proposition: Proposition) -> str:
    if proposition.regex is not None:
        return f"the pattern {_quote(proposition.regex)}"
    cased = " in exactly these letters" if proposition.case_sensitive else ""
    return listed(map(_quote, proposition.words), "or") + cased


def _forms(forms: Sequence[str]) -> str:
    return _name(forms[0]) + (f" (or {listed(map(_name, forms[1:]), 'or')})" if len(forms) > 1 else "")


def _keywords(spec: KeywordsSpec) -> str:
    cased = ["in exactly these letters"] if spec.case_sensitive else []
    if spec.excludes:
        manner = [*(["nor an inflection of one"] if spec.inflect else []), *cased]
        return ", ".join((f"it mentions none of {listed(map(_forms, spec.concepts), 'and')}", *manner))
    # Without counts, each concept occurs at least once.
    counts: tuple[Count, ...] = spec.counts or (ONCE,) * len(spec.concepts)
    phrases = []
    for forms, count in zip(spec.concepts, counts, strict=True):
        words = _forms(forms)
        phrases.append(words if count == ONCE else f"{words} {_count(count, 'time')}")
    # The order of a single keyword says nothing.
    in_order = spec.ordered and len(phrases) > 1
    manner = [
        *(["in this order" if in_order else "in any order"] if len(phrases) > 1 else []),
        *(["in any inflection"] if spec.inflect else []),
        *cased,
    ]
    return f"it mentions {listed(phrases, ', then' if in_order else 'and')}{', ' if manner else ''}{', '.join(manner)}"


def _count(count: Count, noun: str) -> str:
    minimum, maximum = count
    # From the most to the least specific wording.
    if maximum == 0:
        return "never" if noun == "time" else f"no {noun}"
    if minimum == maximum:
        return f"exactly {counted(minimum, noun)}"
    if maximum is None:
        return f"at least {counted(minimum, noun)}"
    return f"at most {counted(maximum, noun)}" if minimum == 0 else f"{minimum:,} to {counted(maximum, noun)}"


def _bounds(spec: LengthSpec) -> list[str]:
    phrases = []
    if spec.min_words is not None or spec.max_words is not None:
        phrases.append(_count((spec.min_words or 0, spec.max_words), "word"))
    if spec.max_chars is not None:
        phrases.append(_count((0, spec.max_chars), "character"))
    return phrases if spec.sentences is None else [*phrases, _count(spec.sentences, "sentence")]


def _json_schema(spec: JsonSchemaSpec) -> str:
    layout = {
        "compact": "without white space", "spaced": "with a space after commas and colons",
        "pretty": "indented by two spaces", "flexible": "with spaces or line breaks", "any": "with any white space",
    }[spec.whitespace]  # fmt: skip
    layout += ", with properties in any order" if spec.property_order == "any" else ""
    layout += ", without undeclared properties" if spec.closed_objects else ""
    if spec.max_depth is not None:
        layout += f", nested at most {counted(spec.max_depth, 'level')} deep where the schema sets no bound"
    return f"it is {_value(load_json(spec.schema))}, as JSON {layout}"


# The phrase for a schema, by the keyword that says most about its values; the first that occurs is used.
_PHRASES: tuple[tuple[str, Callable[[object], str]], ...] = (
    ("const", lambda value: f"the value {shortened(dump_json(value, ensure_ascii=False, separators=(', ', ': ')))}"),
    ("enum", lambda value: f"one of {counted(len(value), 'given value')}" if isinstance(value, list) else "a value"),
    ("$ref", lambda value: f"a value of {shortened(str(value))}"),
    ("anyOf", lambda value: f"one of {counted(len(value), 'alternative')}" if isinstance(value, list) else "a value"),
    ("oneOf", lambda value: f"one of {counted(len(value), 'alternative')}" if isinstance(value, list) else "a value"),
)


def _value(schema: object) -> str:
    """The kind of value that a schema describes. Properties are listed by name."""
    # A schema may be a boolean.
    if not isinstance(schema, dict):
        return "any value" if schema is True else "no value"
    for keyword, phrase in _PHRASES:
        if keyword in schema:
            return phrase(schema[keyword])
    # A schema with properties but without a type is meant as an object, as people write it.
    kind = schema.get("type", "object" if "properties" in schema else None)
    if kind == "object":
        return f"an object{_properties(schema)}"
    if kind == "array":
        return f"an array{' of items, each ' + _value(schema['items']) if 'items' in schema else ''}"
    if isinstance(kind, list):
        return f"a value of type {listed(map(str, kind), 'or')}"
    if kind is None:
        return "a value that the schema validates"
    return {"null": "null", "integer": "an integer"}.get(str(kind), f"a {_name(str(kind))}")


def _properties(schema: dict[str, object]) -> str:
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not properties:
        return ""
    # The schema has been compiled, but a malformed keyword must not break its explanation.
    required_names = required if isinstance(required, list) else []
    phrases = (f"{_name(name)}{'' if name in required_names else ' (optional)'}" for name in properties)
    return f" with {'the property' if len(properties) == 1 else 'the properties'} {listed(phrases, 'and')}"


def _user_dfa(spec: DfaSpec) -> str:
    kind = "the bytes of the text" if spec.user_dfa.over_bytes else "the propositions of the word trace"
    states = counted(len(spec.user_dfa.states), "state")
    return f"the given automaton over {kind}, of {states}, accepts it{_propositions(spec.propositions)}"
