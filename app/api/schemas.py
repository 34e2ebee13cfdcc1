"""The JSON of requests and answers, as the OpenAPI document shows it. Strict: nothing unknown, nothing coerced."""

from __future__ import annotations

import functools
import itertools
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, WithJsonSchema, model_validator

from app.api.errors import FAULTS_MAX
from app.messages import Strict
from compiler.diagnostics import ConstraintExplanation
from compiler.spec import JSON_DEPTH, Spec, spec_from_json

_WORDS = {"type": "array", "items": {"type": "string"}, "minItems": 1}
_PROPOSITION = {
    "anyOf": [
        _WORDS,
        {
            "type": "object", "additionalProperties": False,
            "properties": {"words": _WORDS, "regex": {"type": "string"}, "case_sensitive": {"type": "boolean"}},
        },
    ]
}
_LEADING = {"leading_space": {"enum": ["strip", "forbid"], "default": "strip"}}
_DECLARED = {"propositions": {"type": "object", "additionalProperties": _PROPOSITION}}
_INNER = {"type": "object", "description": "A constraint of any form"}
_INNERS = {"type": "array", "minItems": 1, "items": _INNER}
_COUNT = {"type": "integer", "minimum": 0}
_BOUNDS = {"min": _COUNT, "max": {**_COUNT, "type": ["integer", "null"]}}
_COUNTED = {
    "type": "object", "additionalProperties": False, "required": ["forms"],
    "properties": {"forms": {"anyOf": [{"type": "string"}, _WORDS]}, **_BOUNDS},
}
_FORMS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("ltlf", "An LTLf formula over the words of the text", {
        "ltlf": {"type": "string", "examples": ["F(coffee & X(F(cat)))"]}, **_DECLARED,
    }),
    ("regex", "The whole text matches, as re.fullmatch says", {
        "regex": {"type": "string", "examples": ["[A-Z][a-z ]+\\."]}, **_LEADING,
    }),
    ("keywords", "Each concept occurs, in any of its forms, as often as asked, in this order if asked", {
        "keywords": {"type": "array", "minItems": 1, "items": {"anyOf": [{"type": "string"}, _WORDS, _COUNTED]}},
        "ordered": {"type": "boolean", "default": False},
        "case_sensitive": {"type": "boolean", "default": False},
        "inflect": {"type": "boolean", "default": False},
    }),
    ("infill", "Literal text with gaps: <|infill_word|>, <|infill_ngram|>, <|infill_sentence|>, <|infill:REGEX|>", {
        "infill": {"type": "string", "examples": ["My day on <|infill_word|> went well."]}, **_LEADING,
    }),
    ("json_schema", "A JSON text of the schema, its properties in the schema's order", {
        "json_schema": {"type": ["object", "boolean"]},
        "whitespace": {"enum": ["compact", "pretty"], "default": "compact"},
        "max_depth": {"type": "integer", "minimum": 0, "default": JSON_DEPTH}, **_LEADING,
    }),
    ("choice", "One of the strings", {"choice": _WORDS, **_LEADING}),
    ("dfa", "An automaton over propositions of the words, or over the bytes of the text", {
        "dfa": {
            "type": "object", "additionalProperties": False, "required": ["start", "accepting", "transitions"],
            "properties": {
                "start": {"type": "string"},
                "accepting": {"type": "array", "items": {"type": "string"}},
                "transitions": {"type": "array", "items": {"type": "object"}},
            },
        },
        **_DECLARED, **_LEADING,
    }),
    ("length", "How long the text is; several bounds at once if wanted", {
        "min_words": _COUNT, "max_words": _COUNT, "max_chars": _COUNT,
        "sentences": {"anyOf": [_COUNT, {"type": "object", "additionalProperties": False, "properties": _BOUNDS}]},
    }),
    ("all", "Every one of the constraints holds", {"all": _INNERS}),
    ("any", "At least one of the constraints holds", {"any": _INNERS}),
    ("not", "The constraint does not hold", {"not": _INNER}),
)
_LABELS = {"labels": {**_WORDS, "description": "Over these ids instead of text: each output is one of them"}}
_CONSTRAINT_SCHEMA = {
    "oneOf": [
        {"type": "object", "title": form, "description": text, "additionalProperties": False,
         **({"required": [form]} if form in properties else {"minProperties": 1}),
         "properties": {**properties, **_LABELS}}
        for form, text, properties in _FORMS
    ]
}
Constraint = Annotated[dict[str, Any], WithJsonSchema(_CONSTRAINT_SCHEMA)]
Strings = Annotated[list[str], Field(fail_fast=True)]  # reporting a million faults would take seconds
AutomatonHash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def to_json(kind: Any, value: object) -> bytes:
    """A value as the JSON of a kind of body; of a message, which adds fields to a body, only those of the body."""
    return _adapter(kind).dump_json(value, by_alias=True)


class Body(Strict):
    """What a caller sends. Of names that it does not know it looks at the first few: errors tell no more of them."""

    @model_validator(mode="before")
    @classmethod
    def _limit_unknown_names(cls, body: object) -> object:
        if not isinstance(body, dict) or len(body) <= len(cls.model_fields) + FAULTS_MAX:
            return body
        # The first unknown names stay, so that validation still refuses the body.
        unknown = (name for name in body if name not in cls.model_fields)
        reported = frozenset(itertools.islice(unknown, FAULTS_MAX))
        return {name: value for name, value in body.items() if name in cls.model_fields or name in reported}


class CompileRequest(Body):
    """A constraint to compile for the served model."""

    constraint: Constraint
    model: str | None = None
    explain: bool = Field(True, description="Tell in words and examples what was compiled")

    def spec(self) -> Spec:
        """The constraint, checked. Raises SpecSyntaxError."""
        return spec_from_json(self.constraint)


class CheckRequest(Body):
    """A text to check, or for a constraint over labels a list of labels."""

    constraint: Constraint
    text: str | None = None
    labels: Strings | None = None
    conjuncts: bool = Field(False, description="Check each conjunct of the constraint by itself, too: the first 32")

    @model_validator(mode="after")
    def _one_subject(self) -> CheckRequest:
        if (self.text is None) == (self.labels is None):
            raise ValueError("give exactly one of text and labels")
        return self

    def subject(self) -> str | tuple[str, ...]:
        """What is checked."""
        return self.text if self.text is not None else tuple(self.labels or ())

    def spec(self) -> Spec:
        """The constraint, checked. Raises SpecSyntaxError."""
        return spec_from_json(self.constraint)


class StateBody(Strict):
    """A state of an automaton. `distance` is the fewest tokens to the end, null where it is dead."""

    id: int
    accepting: bool
    distance: int | None


class TransitionBody(Strict):
    """All letters that lead from one state to another, by their places in `letters` of the automaton."""

    source: int = Field(serialization_alias="from", validation_alias="from")
    to: int
    letters: tuple[int, ...]


class AutomatonResponse(Strict):
    """What a compiled constraint looks like: a DFA over letters, each the list of propositions that hold ([]: none).

    For a regex a letter is one class of characters, over labels it is a label.
    """

    automaton: str
    constraint: dict[str, Any]
    kind: Literal["words", "characters", "labels"]
    start: int
    letters: tuple[tuple[str, ...], ...]
    states: tuple[StateBody, ...]
    transitions: tuple[TransitionBody, ...]
    accepting: tuple[int, ...]
    min_tokens: int
    explanation: ConstraintExplanation | None


class ModelCardBody(Strict):
    """A served model, as OpenAI clients expect it, with the most tokens it reads."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "abs-server"
    context_tokens: int | None
    vocabulary: int


class ModelList(Strict):
    """The served models: one."""

    object: Literal["list"] = "list"
    data: tuple[ModelCardBody, ...]


class Status(Strict):
    """The process is alive, or ready."""

    status: Literal["ok", "ready"]


class ProblemBody(BaseModel):
    """Every error, by RFC 9457. `code` is stable; further fields depend on it."""

    model_config = ConfigDict(extra="allow", title="Problem")

    type: str
    title: str
    status: int
    code: str
    detail: str
    request_id: str
