"""Decides by the definitions whether a text satisfies a constraint.

The tests check every answer with it. It shares nothing with the compiler except the spec's types and, for LTLf, the
parsed formula: no automaton, no transducer.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import jsonschema

from compiler.limits import Limits, ResourceGuard
from compiler.ltlf import LtlfFormula, parse_formula, propositions_of
from compiler.spec import (
    AllSpec,
    AnySpec,
    ChoiceSpec,
    DfaSpec,
    InfillSpec,
    JsonSchemaSpec,
    KeywordsSpec,
    LengthSpec,
    LtlfSpec,
    NotSpec,
    Proposition,
    RegexSpec,
    Spec,
    UserDfa,
    leaves,
    normalize,
)
from tests.references import ltlf as reference_ltlf

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
        case _:
            raise TypeError(f"no text is judged by {type(spec).__name__}")


def strips_a_space(spec: Spec) -> bool:
    """Whether one leading space is not part of an answer.

    That holds if a whole-text constraint allows it and none forbids it.
    """
    whole = [leaf for leaf in leaves(spec) if isinstance(leaf, RegexSpec | InfillSpec | ChoiceSpec | JsonSchemaSpec)]
    settings = {leaf.leading_space for leaf in whole}
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
        written = json.loads(text, parse_int=_Number, parse_float=_Number, object_pairs_hook=list)
    except ValueError:
        return False
    schema = json.loads(spec.schema)
    newline = "\n" if spec.whitespace == "pretty" else ""
    return _validator(spec.schema).is_valid(instance) and _written(written, instance, schema, newline) == text


def _written(value: object, instance: Any, schema: Any, newline: str) -> str | None:
    """The value in our notation; None if properties are in another order.

    newline  "" for no white space
    """
    if isinstance(value, _Number):
        return value if re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?", value) else None
    if not isinstance(value, list) or not value:
        return json.dumps(instance, ensure_ascii=False)
    inner = newline + "  " if newline else ""
    if isinstance(instance, dict):
        declared = list(schema.get("properties", {}))
        keys = [key for key, _ in value]
        ordered = sorted(keys, key=lambda key: declared.index(key) if key in declared else len(declared))
        found = [_written(one, instance[key], schema.get("properties", {}).get(key, {}), inner) for key, one in value]
        if None in found or keys != ordered or len(set(keys) & set(declared)) < sum(key in declared for key in keys):
            return None
        colon = ": " if newline else ":"
        items = [json.dumps(key, ensure_ascii=False) + colon + str(one) for key, one in zip(keys, found, strict=True)]
        return "{" + inner + ("," + inner).join(items) + newline + "}"
    parts = [_written(one, each, schema.get("items", {}), inner) for one, each in zip(value, instance, strict=True)]
    return None if None in parts else "[" + inner + ("," + inner).join(map(str, parts)) + newline + "]"


@functools.lru_cache
def _validator(schema: str) -> Any:
    from compiler.spec import spec_from_json

    def constraint(_: object, wanted: object, instance: object, __: object) -> Iterator[jsonschema.ValidationError]:
        if isinstance(instance, str) and not satisfies(spec_from_json(wanted), instance):
            yield jsonschema.ValidationError("the string does not satisfy its constraint")

    known = jsonschema.validators.extend(jsonschema.Draft202012Validator, {"constraint": constraint})
    return known(json.loads(schema), format_checker=jsonschema.FormatChecker())


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
    rest, ended = list(units), 0
    while any(re.match(r"\w", unit) for unit in rest):
        word = next(number for number, unit in enumerate(rest) if re.match(r"\w", unit))
        end = next((number for number, unit in enumerate(rest) if number > word and unit in (".", "!", "?")), None)
        if end is None:
            return False
        rest, ended = rest[end + 1 :], ended + 1
    if ended and not all(unit in CLOSERS or unit in (".", "!", "?") for unit in rest):
        return False
    return minimum <= ended and (maximum is None or ended <= maximum)


def _keywords_hold(spec: KeywordsSpec, text: str) -> bool:
    """Whether each concept occurs as often as required.

    In order, the needed occurrences of each are over before the next one's begin.

    Reads on from each concept to the next, and rejects if a later one comes first (paper, Figure 1). Several may hold
    at one step; only the awaited one counts there, and the next must come later.
    """
    steps = list(_held(_concepts(spec), text))
    names = [str(number) for number in range(len(spec.concepts))]
    counts = spec.counts or ((1, None),) * len(names)
    for name, (minimum, maximum) in zip(names, counts, strict=True):
        found = sum(name in step for step in steps)
        if found < minimum or (maximum is not None and found > maximum):
            return False
    if not spec.ordered:
        return True
    needed = [(name, minimum) for name, (minimum, _) in zip(names, counts, strict=True) if minimum]
    same = {name: normalize(Proposition(spec.concepts[int(name)], None, spec.case_sensitive)) for name in names}
    stage, missing = 0, needed[0][1] if needed else 0
    for step in steps:
        if stage == len(needed):
            break
        awaited = same[needed[stage][0]]  # a repeated concept is not its own successor
        later = any(name in step for name, _ in needed[stage + 1 :] if same[name] != awaited)
        completes = needed[stage][0] in step and missing == 1
        if later and not completes:
            return False
        missing -= needed[stage][0] in step
        if missing == 0:
            stage += 1
            missing = needed[stage][1] if stage < len(needed) else 0
    return stage == len(needed)


def _concepts(spec: KeywordsSpec) -> dict[str, re.Pattern[str]]:
    concepts = (Proposition(forms, None, spec.case_sensitive) for forms in spec.concepts)
    return {str(i): _pattern(concept) for i, concept in enumerate(concepts)}


def _runs(given: UserDfa, data: bytes) -> bool:
    """Runs an automaton over bytes step by step. A listed character stands for the bytes of its encoding."""
    states: set[tuple[str, bytes]] = {(given.start, b"")}  # with the bytes still owed to a listed character
    for byte in data:
        following: set[tuple[str, bytes]] = set()
        for state, owed in states:
            if owed:
                following |= {(state, owed[1:])} if owed[0] == byte else set()
                continue
            for one in given.transitions:
                if one.source != state:
                    continue
                if any(low <= byte <= high for low, high in one.byte_ranges or ()):
                    following.add((one.target, b""))
                encoded = (char.encode() for char in one.text or "")
                following |= {(one.target, code[1:]) for code in encoded if code[0] == byte}
        states = following
    return any(state in given.accepting and not owed for state, owed in states)


def _steps(spec: DfaSpec, text: str) -> bool:
    """An automaton over propositions, step by step."""
    guards = [_formula(one.when or "true") for one in spec.user_dfa.transitions]
    names = dict.fromkeys(name for guard in guards for name in propositions_of(guard))
    state = spec.user_dfa.start
    for letter in _trace(tuple(names), spec.propositions, text):
        targets = [
            one.target
            for one, guard in zip(spec.user_dfa.transitions, guards, strict=True)
            if one.source == state and reference_ltlf.satisfies(guard, [letter])
        ]
        if not targets:
            return False
        state = targets[0]
    return state in spec.user_dfa.accepting


def word_trace(spec: LtlfSpec, text: str) -> list[frozenset[str]]:
    """The word trace of a text: the propositions of each unit."""
    return _trace(propositions_of(_formula(spec.formula)), spec.propositions, text)


def _trace(
    names: Sequence[str], propositions: Sequence[tuple[str, Proposition]], text: str
) -> list[frozenset[str]]:
    declared = dict(propositions)
    patterns = {name: _pattern(proposition) for name, proposition in declared.items()}
    for name in names:
        if name not in declared and name not in ("eos", "nomatch"):
            patterns[name] = _pattern(Proposition(words=(PUNCTUATION.get(name, name),)))
    trace = [frozenset(step) or frozenset({"nomatch"}) for step in _held(patterns, text)]
    return [*trace, frozenset({"eos"})] if "eos" in names else trace


@functools.lru_cache
def _formula(source: str) -> LtlfFormula:
    return parse_formula(source, ResourceGuard(Limits(formula_chars_max=10**6)))


def _held(patterns: dict[str, re.Pattern[str]], text: str) -> Iterator[set[str]]:
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
