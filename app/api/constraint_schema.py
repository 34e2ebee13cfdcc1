"""The JSON Schema of constraints, for the API's document. `compiler.spec` checks them."""

from __future__ import annotations

from typing import Any

from compiler.spec import JSON_WHITE_SPACE

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
_SYNTAX = {"enum": ["lark", "gbnf", "ebnf"]}
_DECLARED = {"propositions": {"type": "object", "additionalProperties": _PROPOSITION}}
_INNER = {"type": "object", "description": "A constraint of any form"}
_INNERS = {"type": "array", "minItems": 1, "items": _INNER}
_COUNT = {"type": "integer", "minimum": 0}
_BOUNDS = {"min": _COUNT, "max": {**_COUNT, "type": ["integer", "null"]}}
_COUNTED = {
    "type": "object", "additionalProperties": False, "required": ["forms"],
    "properties": {"forms": {"anyOf": [{"type": "string"}, _WORDS]}, **_BOUNDS},
}
_STRINGS = {"type": "array", "items": {"type": "string", "minLength": 1}}
_PART = {
    "anyOf": [
        {"type": "string", "description": "Literal text"},
        {"type": "object", "description": "A constraint of any form, or token, free, optional, repeat, any, capture"},
        {
            "type": "object", "additionalProperties": False, "required": ["free"],
            "properties": {
                "free": {
                    "type": "object", "additionalProperties": False,
                    "properties": {
                        "until": _STRINGS, "without": _STRINGS, "max_tokens": {"type": "integer", "minimum": 1},
                        "max_chars": {"type": "integer", "minimum": 1},
                    },
                },
            },
        },
    ]
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
        "none": {"type": "boolean", "default": False, "description": "None of the concepts occurs"},
    }),
    ("infill", "Literal text with gaps: <|infill_word|>, <|infill_ngram|>, <|infill_sentence|>, <|infill:REGEX|>", {
        "infill": {"type": "string", "examples": ["My day on <|infill_word|> went well."]}, **_LEADING,
    }),
    ("json_schema", "A JSON text of the schema", {
        "json_schema": {"type": ["object", "boolean"]},
        "whitespace": {"enum": ["compact", "spaced", "pretty", "flexible", "any"], "default": JSON_WHITE_SPACE},
        "property_order": {"enum": ["schema", "any"], "default": "schema"},
        "closed_objects": {
            "type": "boolean", "default": False,
            "description": "Objects that declare properties are written without others",
        },
        "max_depth": {"type": "integer", "minimum": 0},
        "schemas": {
            "type": "object", "additionalProperties": {"type": ["object", "boolean"]}, "default": {},
            "description": "Documents that references may lead to, by URI",
        },
        "strict": {"type": "boolean", "default": False}, **_LEADING,
        "approximate": {"type": "array", "items": {"enum": ["uniqueItems"]}, "default": []},
    }),
    ("choice", "One of the strings", {"choice": _WORDS, **_LEADING}),
    ("grammar", "A text of a context-free grammar", {"grammar": {"type": "string"}, "syntax": _SYNTAX, **_LEADING}),
    ("sequence", "A text of each part, one after the other", {
        "sequence": {"type": "array", "minItems": 1, "items": _PART}, **_LEADING,
    }),
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
CONSTRAINT_SCHEMA = {
    "oneOf": [
        {"type": "object", "title": form, "description": text, "additionalProperties": False,
         **({"required": [form, *({"syntax"} & set(properties))]} if form in properties else {"minProperties": 1}),
         "properties": {**properties, **_LABELS}}
        for form, text, properties in _FORMS
    ]
}
