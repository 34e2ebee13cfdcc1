"""The forms of constraints other than formulas. docs/constraints.md defines their meaning."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from abs_client.constraints import Constraint, json_value
from abs_client.ltlf import propositions_json

LeadingSpace: TypeAlias = Literal["strip", "forbid"]
Part: TypeAlias = "str | Constraint | Mapping[str, Any]"
"""A part of a sequence: literal text, a constraint, or what one of the functions below returns."""
Bounds: TypeAlias = int | tuple[int | None, int | None]
WORD_GAP, NGRAM_GAP, SENTENCE_GAP = "<|infill_word|>", "<|infill_ngram|>", "<|infill_sentence|>"


def gap(pattern: str) -> str:
    """A gap of an infill. Its text matches the pattern, which has no anchors.

    >>> Infill(f"I paid {gap('[0-9]+')} euros.").as_dict()
    {'infill': 'I paid <|infill:[0-9]+|> euros.'}
    """
    return f"<|infill:{pattern}|>"


class Regex(Constraint):
    r"""The whole text matches the pattern, as with re.fullmatch. General categories are an addition, as `\p{Lu}`.

    leading_space  "strip": the text without one leading space; "forbid": no leading space

    >>> Regex("[A-Z][a-z ]+[.]").to_json()
    '{"regex": "[A-Z][a-z ]+[.]"}'
    """

    FORM = "regex"

    def __init__(self, pattern: str, *, leading_space: LeadingSpace | None = None) -> None:
        super().__init__(pattern, leading_space=leading_space)


@dataclass(frozen=True)
class Concept:
    """A keyword with several forms. It occurs at least `min` and at most `max` times.

    >>> Keywords(Concept("dog", "dogs", min=2)).as_dict()["keywords"][0]["min"]
    2
    """

    forms: tuple[str, ...]
    min: int = 1
    max: int | None = None

    def __init__(self, *forms: str, min: int = 1, max: int | None = None) -> None:
        self.__dict__.update(forms=forms, min=min, max=max)  # frozen: plain assignment raises

    def __repr__(self) -> str:
        minimum = [f"min={self.min}"] if self.min != 1 else []
        maximum = [f"max={self.max}"] if self.max is not None else []
        return f"Concept({', '.join([*map(repr, self.forms), *minimum, *maximum])})"


class Keywords(Constraint):
    """Each concept occurs as a word or phrase.

    concepts        a string, a list of forms any of which counts, or a Concept
    ordered         they occur in this order
    inflect         inflections of a form count too
    case_sensitive  False: upper and lower case are equal
    none            True: none of them occurs

    >>> Keywords("dog", ["catch", "caught"], ordered=True).as_dict()
    {'keywords': ['dog', ['catch', 'caught']], 'ordered': True}
    """

    FORM = "keywords"

    def __init__(
        self, *concepts: str | Sequence[str] | Concept,
        ordered: bool = False, inflect: bool = False, case_sensitive: bool = False, none: bool = False,
    ) -> None:
        super().__init__(*concepts, ordered=ordered, inflect=inflect, case_sensitive=case_sensitive, none=none)

    def _body(self) -> Any:
        return [dataclasses.asdict(item) if isinstance(item, Concept) else item for item in self._arguments]


class Infill(Constraint):
    """Literal text with gaps: f"My day on {WORD_GAP} went well. I paid {gap('[0-9]+')} euros."

    >>> Infill(f"We met {WORD_GAP}.").as_dict()
    {'infill': 'We met <|infill_word|>.'}
    """

    FORM = "infill"

    def __init__(self, template: str, *, leading_space: LeadingSpace | None = None) -> None:
        super().__init__(template, leading_space=leading_space)


class Choice(Constraint):
    """The text is one of the strings.

    >>> Choice("yes", "no") | Regex("maybe .*")
    AnyOf(Choice('yes', 'no'), Regex('maybe .*'))
    """

    FORM = "choice"

    def __init__(self, *choices: str, leading_space: LeadingSpace | None = None) -> None:
        super().__init__(*choices, leading_space=leading_space)

    def _body(self) -> Any:
        return list(self._arguments)


class JsonSchema(Constraint):
    """The text is JSON that satisfies a schema.

    schema       a dict, a boolean, a pydantic model or a pydantic TypeAdapter
    whitespace   "spaced" (the service's default), "compact", "pretty", "flexible" or "any"
    property_order  "schema" (the service's default): the properties in the schema's order, or "any"
    closed_objects  objects that declare properties are written without others, where the schema leaves that open
    max_depth    the deepest nesting where a schema is open or recurs; without it, the budget alone bounds it
    schemas      documents that references may lead to, by URI; nothing is fetched
    strict       refuse unknown keywords and formats, which otherwise have no effect
    approximate  keywords that may be without effect where they would be refused: ["uniqueItems"]

    The objects of a pydantic model or a TypeAdapter are closed unless `closed_objects` is false: pydantic ignores
    undeclared properties, so generating them is useless.

    >>> JsonSchema({"type": "integer"}, whitespace="compact").as_dict()
    {'json_schema': {'type': 'integer'}, 'whitespace': 'compact'}
    """

    FORM = "json_schema"

    def __init__(
        self, schema: Any, *, whitespace: Literal["compact", "spaced", "pretty", "flexible", "any"] | None = None,
        property_order: Literal["schema", "any"] | None = None, closed_objects: bool | None = None,
        max_depth: int | None = None, leading_space: LeadingSpace | None = None,
        schemas: Mapping[str, Any] | None = None, strict: bool | None = None,
        approximate: Sequence[Literal["uniqueItems"]] | None = None,
    ) -> None:
        if closed_objects is None and not isinstance(schema, bool | Mapping):
            closed_objects = True
        super().__init__(
            _schema(schema), whitespace=whitespace, property_order=property_order, closed_objects=closed_objects,
            max_depth=max_depth, leading_space=leading_space,
            schemas=copy.deepcopy(dict(schemas)) if schemas is not None else None, strict=strict,
            approximate=list(approximate) if approximate is not None else None,
        )


class GrammarConstraint(Constraint):
    """The text is one that a context-free grammar derives.

    syntax  "lark", "gbnf" (llama.cpp's) or "ebnf" (W3C's or ISO 14977's)

    >>> GrammarConstraint('root ::= "a" root | "b"', "gbnf").as_dict()["syntax"]
    'gbnf'
    """

    FORM = "grammar"

    def __init__(
        self, grammar: str, syntax: Literal["lark", "gbnf", "ebnf"], *, leading_space: LeadingSpace | None = None
    ) -> None:
        super().__init__(grammar, syntax=syntax, leading_space=leading_space)


class Length(Constraint):
    """Bounds on the text's words, characters and sentences.

    The bounds can be combined. `sentences` is an exact number, or a pair of a minimum and a maximum.

    >>> Length(min_words=3, sentences=(1, 2)).as_dict()
    {'min_words': 3, 'sentences': {'min': 1, 'max': 2}}
    """

    def __init__(
        self, *, min_words: int | None = None, max_words: int | None = None, max_chars: int | None = None,
        sentences: Bounds | None = None,
    ) -> None:
        super().__init__(min_words=min_words, max_words=max_words, max_chars=max_chars, sentences=sentences)
        if not self._options:
            raise ValueError("set at least one of min_words, max_words, max_chars and sentences")

    def as_dict(self) -> dict[str, Any]:
        fields, sentences = dict(self._options), self._options.get("sentences")
        if isinstance(sentences, tuple | list):
            bounds = dict(zip(("min", "max"), sentences, strict=True))
            fields["sentences"] = {name: value for name, value in bounds.items() if value is not None}
        return fields


class DfaConstraint(Constraint):
    """A user-defined DFA, over propositions or over bytes of the text.

    transitions   such as {"from": "s", "to": "t", "when": "dog & !cat"}, or with "bytes" or "text" in place of "when"
    propositions  what their names mean: words, a Word, a Match, or the API's JSON

    >>> step = {"from": "s", "to": "t", "when": "dog"}
    >>> DfaConstraint(start="s", accepting=["t"], transitions=[step]).as_dict()["dfa"]["accepting"]
    ['t']
    """

    FORM = "dfa"

    def __init__(
        self, *, start: str, accepting: Iterable[str], transitions: Iterable[Mapping[str, Any]],
        propositions: Mapping[str, Any] | None = None, leading_space: LeadingSpace | None = None,
    ) -> None:
        super().__init__(
            start=start, accepting=list(accepting), transitions=[dict(transition) for transition in transitions],
            propositions=propositions_json(propositions), leading_space=leading_space,
        )

    def as_dict(self) -> dict[str, Any]:
        # A copy: `pop` and later changes by the caller must not change the constraint.
        options = copy.deepcopy(self._options)
        return {"dfa": {name: options.pop(name) for name in ("start", "accepting", "transitions")}, **options}


def _schema(source: Any) -> Any:
    """The JSON schema of a schema, a pydantic model or a TypeAdapter. Raises TypeError for any other value."""
    # true accepts every JSON text, false none.
    if isinstance(source, bool):
        return source
    if isinstance(source, Mapping):
        return copy.deepcopy(dict(source))
    for name in ("model_json_schema", "json_schema"):  # of a pydantic model, of a TypeAdapter
        if callable(make := getattr(source, name, None)):
            return make()
    raise TypeError(f"a schema is a dict, a boolean, a pydantic model or a TypeAdapter, not {type(source).__name__}")


class SequenceOf(Constraint):
    """The text is a text of each part, one after the other.

    >>> SequenceOf("I am ", capture("age", Regex("[0-9]+")), ".").as_dict()["sequence"][0]
    'I am '
    """

    FORM = "sequence"

    def __init__(self, *parts: Part, leading_space: LeadingSpace | None = None) -> None:
        super().__init__(*parts, leading_space=leading_space)

    def _body(self) -> Any:
        return list(self._arguments)


def token(name: str) -> dict[str, Any]:
    """One special or added token of the model, such as <tool_call>.

    >>> token("<tool_call>")
    {'token': '<tool_call>'}
    """
    return {"token": name}


def free(
    *, until: str | Sequence[str] = (), without: str | Sequence[str] = (), max_tokens: int | None = None,
    max_chars: int | None = None,
) -> dict[str, Any]:
    """Free text.

    until       strings of which the first occurrence ends it, and is the end of it
    without     strings that do not occur in it
    max_tokens  how many tokens may write it
    max_chars   how many characters it may have

    >>> free(until="</think>", max_tokens=64)
    {'free': {'until': ['</think>'], 'max_tokens': 64}}
    """
    strings = {"until": until, "without": without}
    fields = {name: [value] if isinstance(value, str) else list(value) for name, value in strings.items() if value}
    bounds = {"max_tokens": max_tokens, "max_chars": max_chars}
    return {"free": {**fields, **{name: most for name, most in bounds.items() if most is not None}}}


def optional(part: Part) -> dict[str, Any]:
    """The part, or nothing.

    >>> optional("please ")
    {'optional': 'please '}
    """
    return {"optional": json_value(part)}


def repeat(part: Part, *, min: int = 0, max: int | None = None, separator: Part | None = None) -> dict[str, Any]:
    """The part `min` to `max` times, with the separator between two.

    >>> repeat(Regex("[a-z]+"), min=1, separator=", ")
    {'repeat': {'regex': '[a-z]+'}, 'min': 1, 'separator': ', '}
    """
    fields = {"min": min or None, "max": max, "separator": separator}
    given = {name: json_value(value) for name, value in fields.items() if value is not None}
    return {"repeat": json_value(part), **given}


def one_of(*parts: Part) -> dict[str, Any]:
    """Any one of the parts.

    >>> one_of("yes", Regex("no+"))
    {'any': ['yes', {'regex': 'no+'}]}
    """
    return {"any": [json_value(part) for part in parts]}


def capture(name: str, part: Part) -> dict[str, Any]:
    """The part, whose place in the text is answered under the name.

    >>> capture("age", Regex("[0-9]+"))
    {'capture': 'age', 'part': {'regex': '[0-9]+'}}
    """
    return {"capture": name, "part": json_value(part)}
