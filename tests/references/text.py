"""Decides by the definitions whether a text satisfies a constraint.

The tests check every answer with it. It shares nothing with the compiler except the spec's types and the parsed
formulas and grammars: no automaton, no transducer.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import jsonschema

from compiler.errors import SpecUnsatisfiable
from compiler.grammars import read_grammar
from compiler.limits import Limits, ResourceGuard
from compiler.ltlf import LtlfFormula, parse_formula, propositions_of
from compiler.spec import (
    AllSpec,
    AnySpec,
    ChoiceSpec,
    DfaSpec,
    GrammarSpec,
    InfillSpec,
    JsonSchemaSpec,
    KeywordsSpec,
    LengthSpec,
    LtlfSpec,
    NotSpec,
    Proposition,
    RegexSpec,
    SequenceSpec,
    Spec,
    UserDfa,
    leaves,
    normalize,
)
from tests.references import ltlf as reference_ltlf
from tests.references.context_free import derives
from tests.references.sequences import Matcher, atoms_of_text

UNIT = r"\w+|[^\w\s]"
WORD = r"\w+(?:['’-]\w+)*"
GAPS = {  # as docs/constraints/infill.md writes them
    "infill_word": WORD,
    "infill_ngram": f"{WORD}(?:[,;:]? {WORD}){{0,7}}",
    "infill_sentence": r"""["'“‘(]?\w(?:[^.!?\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]*[^\s.!?])?[.!?]["'”’)]?""",
}
CLOSERS = frozenset("\"'”’»)]}")
PUNCTUATION = {"dot": ".", "comma": ",", "question": "?", "exclamation": "!", "colon": ":", "semicolon": ";"}


def satisfies(spec: Spec, text: str) -> bool:
    """True when the finished text satisfies the constraint."""
    match spec:
        case RegexSpec():
            return re.fullmatch(spec.pattern, text) is not None
        case InfillSpec():
            return re.fullmatch(_template(spec.template), text) is not None
        case ChoiceSpec():
            return text in spec.choices
        case JsonSchemaSpec():
            return _valid(spec, text)
        case KeywordsSpec():
            return _keywords_hold(spec, text)
        case GrammarSpec():
            try:
                return derives(read_grammar(spec.text, spec.syntax, ResourceGuard(Limits())).grammar, text)
            except SpecUnsatisfiable:  # of a grammar that has no text
                return False
        case LengthSpec():
            return _length_holds(spec, text)
        case DfaSpec():
            return _runs(spec.user_dfa, text.encode()) if spec.user_dfa.over_bytes else _steps(spec, text)
        case LtlfSpec():
            return reference_ltlf.satisfies(_formula(spec.formula), word_trace(spec, text))
        case AllSpec():
            return all(satisfies(part, text) for part in spec.parts)
        case AnySpec():
            return any(satisfies(part, text) for part in spec.parts)
        case NotSpec():
            return not satisfies(spec.part, text)
        case SequenceSpec():
            return Matcher(atoms_of_text(text), False, satisfies).matches(spec.root)
        case _:
            raise TypeError(f"no text is judged by {type(spec).__name__}")


def strips_a_space(spec: Spec) -> bool:
    """Whether one leading space is not part of an answer.

    That holds if a whole-text constraint allows it and none forbids it.
    """
    whole = RegexSpec | InfillSpec | ChoiceSpec | JsonSchemaSpec | GrammarSpec | SequenceSpec
    specs = [leaf for leaf in leaves(spec) if isinstance(leaf, whole)]
    settings = {leaf.leading_space for leaf in specs}
    settings |= {leaf.leading_space for leaf in leaves(spec) if isinstance(leaf, DfaSpec) and leaf.user_dfa.over_bytes}
    return settings == {"strip"}


def _template(template: str) -> str:
    """A template as a pattern; own gaps hold no gap-shaped text here."""
    pieces = re.split(r"(<\|[a-z_]+\|>|<\|infill:.*?\|>)", template)
    return "".join(
        GAPS[piece[2:-2]]
        if piece[2:-2] in GAPS
        else f"(?:{piece[9:-2]})"
        if piece.startswith("<|infill:")
        else re.escape(piece)
        for piece in pieces
    )


class _Number(str):
    """A number as it is written."""


def _valid(spec: JsonSchemaSpec, text: str) -> bool:
    """Whether the text is a valid instance in our notation.

    White space, outputs, numbers and the order of properties are checked.
    """
    try:
        instance = json.loads(text)
        document = json.loads(text, parse_int=_Number, parse_float=_Number, object_pairs_hook=list)
    except ValueError:
        return False
    schema = json.loads(spec.schema)
    newline = "\n" if spec.whitespace == "pretty" else ""
    return _validator(spec.schema).is_valid(instance) and _write(document, instance, schema, newline, spec) == text


def _write(value: object, instance: Any, schema: Any, newline: str, spec: JsonSchemaSpec) -> str | None:
    """The value in our notation; None if properties are in another order.

    newline  "" for no line breaks
    """
    if isinstance(value, _Number):
        return _number(Decimal(value))
    if not isinstance(value, list) or not value:
        return json.dumps(instance, ensure_ascii=False)
    inner = newline + "  " if newline else ""
    comma = ", " if spec.whitespace == "spaced" else "," + inner
    if isinstance(instance, dict):
        names = [*schema.get("properties", {}), *schema.get("propertyNames", {}).get("enum", ())]
        keys = [key for key, _ in value]
        rank = {name: 0 if spec.property_order == "any" else number for number, name in enumerate(names)}
        ordered = sorted(keys, key=lambda key: rank.get(key, len(names)))
        parts, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        texts = [_write(item, instance[key], parts.get(key, others), inner, spec) for key, item in value]
        if None in texts or keys != ordered or len(set(keys) & set(names)) < sum(key in names for key in keys):
            return None
        colon = ":" if spec.whitespace == "compact" else ": "
        items = [json.dumps(key, ensure_ascii=False) + colon + str(item) for key, item in zip(keys, texts, strict=True)]
        return "{" + inner + comma.join(items) + newline + "}"
    pairs = zip(value, instance, strict=True)
    parts = [_write(item, element, schema.get("items", {}), inner, spec) for item, element in pairs]
    return None if None in parts else "[" + inner + comma.join(map(str, parts)) + newline + "]"


def _number(value: Decimal) -> str:
    """The number as ECMAScript writes it."""
    if value == value.to_integral_value() and abs(value) < 10**21:
        return str(int(value))
    exponent = value.adjusted()
    if -7 < exponent < 21:
        return f"{value.normalize():f}"
    mantissa = f"{value.scaleb(-exponent).normalize():f}"
    return f"{mantissa}e{exponent:+d}"


@functools.lru_cache
def _validator(schema: str) -> Any:
    from compiler.spec import spec_from_json

    def constraint(_: object, expected: object, instance: object, __: object) -> Iterator[jsonschema.ValidationError]:
        if isinstance(instance, str) and not satisfies(spec_from_json(expected), instance):
            yield jsonschema.ValidationError("the string does not satisfy its constraint")

    validator_class = jsonschema.validators.extend(jsonschema.Draft202012Validator, {"constraint": constraint})
    return validator_class(json.loads(schema), format_checker=jsonschema.FormatChecker())


def _length_holds(spec: LengthSpec, text: str) -> bool:
    units = re.findall(UNIT, text)
    words = sum(re.fullmatch(r"\w+", unit) is not None for unit in units)
    if words < (spec.min_words or 0) or (spec.max_words is not None and words > spec.max_words):
        return False
    if spec.max_chars is not None and len(text) > spec.max_chars:
        return False
    return spec.sentences is None or _sentences_hold(units, *spec.sentences)


def _sentences_hold(units: Sequence[str], minimum: int, maximum: int | None) -> bool:
    """Whether the number of sentences is within the bounds.

    A sentence is a word and all up to the next end mark. Behind the last one, only end marks and closers may stand.
    """
    remainder, count = list(units), 0
    while any(re.match(r"\w", unit) for unit in remainder):
        word = next(number for number, unit in enumerate(remainder) if re.match(r"\w", unit))
        end = next((number for number, unit in enumerate(remainder) if number > word and unit in (".", "!", "?")), None)
        if end is None:
            return False
        remainder, count = remainder[end + 1 :], count + 1
    if count and not all(unit in CLOSERS or unit in (".", "!", "?") for unit in remainder):
        return False
    return minimum <= count and (maximum is None or count <= maximum)


def _keywords_hold(spec: KeywordsSpec, text: str) -> bool:
    """Whether each concept occurs as often as required.

    In order, the needed occurrences of each are over before the next one's begin.

    Reads on from each concept to the next, and rejects if a later one comes first (paper, Figure 1). Several may hold
    at one step; only the awaited one counts there, and the next must come later.
    """
    steps = list(_propositions(_concepts(spec), text))
    names = [str(number) for number in range(len(spec.concepts))]
    counts = spec.counts or ((1, None),) * len(names)
    for name, (minimum, maximum) in zip(names, counts, strict=True):
        count = sum(name in step for step in steps)
        if count < minimum or (maximum is not None and count > maximum):
            return False
    if not spec.ordered:
        return True
    requirements = [(name, minimum) for name, (minimum, _) in zip(names, counts, strict=True) if minimum]
    same = {name: normalize(Proposition(spec.concepts[int(name)], None, spec.case_sensitive)) for name in names}
    stage, missing = 0, requirements[0][1] if requirements else 0
    for step in steps:
        if stage == len(requirements):
            break
        awaited = same[requirements[stage][0]]  # a repeated concept is not its own successor
        is_early = any(name in step for name, _ in requirements[stage + 1 :] if same[name] != awaited)
        completes = requirements[stage][0] in step and missing == 1
        if is_early and not completes:
            return False
        missing -= requirements[stage][0] in step
        if missing == 0:
            stage += 1
            missing = requirements[stage][1] if stage < len(requirements) else 0
    return stage == len(requirements)


def _concepts(spec: KeywordsSpec) -> dict[str, re.Pattern[str]]:
    concepts = (Proposition(forms, None, spec.case_sensitive) for forms in spec.concepts)
    return {str(i): _pattern(concept) for i, concept in enumerate(concepts)}


def _runs(user_dfa: UserDfa, data: bytes) -> bool:
    """Runs an automaton over bytes step by step. A listed character stands for the bytes of its encoding."""
    states: set[tuple[str, bytes]] = {(user_dfa.start, b"")}  # with the bytes still owed to a listed character
    for byte in data:
        following: set[tuple[str, bytes]] = set()
        for state, pending_bytes in states:
            if pending_bytes:
                following |= {(state, pending_bytes[1:])} if pending_bytes[0] == byte else set()
                continue
            for transition in user_dfa.transitions:
                if transition.source != state:
                    continue
                if any(low <= byte <= high for low, high in transition.byte_ranges or ()):
                    following.add((transition.target, b""))
                encoded = (char.encode() for char in transition.text or "")
                following |= {(transition.target, code[1:]) for code in encoded if code[0] == byte}
        states = following
    return any(state in user_dfa.accepting and not pending_bytes for state, pending_bytes in states)


def _steps(spec: DfaSpec, text: str) -> bool:
    """An automaton over propositions, step by step."""
    guards = [_formula(transition.when or "true") for transition in spec.user_dfa.transitions]
    names = dict.fromkeys(name for guard in guards for name in propositions_of(guard))
    state = spec.user_dfa.start
    for letter in _trace(tuple(names), spec.propositions, text):
        targets = [
            transition.target
            for transition, guard in zip(spec.user_dfa.transitions, guards, strict=True)
            if transition.source == state and reference_ltlf.satisfies(guard, [letter])
        ]
        if not targets:
            return False
        state = targets[0]
    return state in spec.user_dfa.accepting


def word_trace(spec: LtlfSpec, text: str) -> list[frozenset[str]]:
    """The word trace of a text: the propositions of each unit."""
    return _trace(propositions_of(_formula(spec.formula)), spec.propositions, text)


def _trace(names: Sequence[str], propositions: Sequence[tuple[str, Proposition]], text: str) -> list[frozenset[str]]:
    declarations = dict(propositions)
    patterns = {name: _pattern(proposition) for name, proposition in declarations.items()}
    for name in names:
        if name not in declarations and name not in ("eos", "nomatch"):
            patterns[name] = _pattern(Proposition(words=(PUNCTUATION.get(name, name),)))
    trace = [frozenset(step) or frozenset({"nomatch"}) for step in _propositions(patterns, text)]
    return [*trace, frozenset({"eos"})] if "eos" in names else trace


@functools.lru_cache
def _formula(source: str) -> LtlfFormula:
    return parse_formula(source, ResourceGuard(Limits(formula_chars_max=10**6)))


def _propositions(patterns: dict[str, re.Pattern[str]], text: str) -> Iterator[set[str]]:
    """The propositions that hold at each unit. A match must start at a unit's start and end at its end."""
    units = [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]
    for number, (_, end) in enumerate(units):
        yield {
            name
            for name, pattern in patterns.items()
            if any(pattern.fullmatch(text[start:end]) for start, _ in units[: number + 1])
        }


@functools.lru_cache
def _pattern(proposition: Proposition) -> re.Pattern[str]:
    if proposition.regex is not None:
        return re.compile(proposition.regex)
    phrases = (r"\s+".join(re.escape(word) for word in phrase.split()) for phrase in proposition.words)
    return re.compile(
        "|".join(f"(?:{phrase})" for phrase in phrases), 0 if proposition.case_sensitive else re.IGNORECASE
    )
