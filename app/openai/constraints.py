"""Reads the constraint of a request in any spelling. It also combines the constraint with stop strings.

A finished text satisfies the constraint and contains no stop string. The model may end a text with a stop string,
which is then removed, if no continuation of a satisfying text breaks the constraint: there is none, or it is about
words only and the stop strings are white space. Otherwise the model cannot write a stop string at all, because the
shortened text might not satisfy the constraint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from app.api.middleware.body import read_json
from app.errors import InvalidJson, InvalidRequest, UnknownField
from app.formats import schema_options
from app.messages import RequestPlace, WarningBody, constraint_warnings, place_of
from app.openai.requests import OpenAIRequest
from app.openai.structural_tags import structural_tag
from app.openai.unknown_fields import DISTANCE_MAX, edit_distance
from compiler.grammars import likely_syntax
from compiler.spec import (
    FORM_FIELDS,
    AllSpec,
    AnySpec,
    GrammarSyntax,
    KeywordsSpec,
    LengthSpec,
    LtlfSpec,
    NotSpec,
    Spec,
    spec_from_json,
)

_FLAT_FIELDS = {  # field of the request: our form
    "guided_regex": "regex", "guided_json": "json_schema", "guided_choice": "choice",
    "guided_grammar": "grammar", "regex": "regex", "json_schema": "json_schema", "ebnf": "grammar",
    "grammar": "grammar",
}  # fmt: skip
_SYNTAXES: dict[str, GrammarSyntax] = {"ebnf": "ebnf", "grammar": "gbnf"}  # of fields that have one
_TGI_FORMS = {"json": "json_schema", "json_object": "json_schema", "json_schema": "json_schema", "regex": "regex"}
_ANY_OBJECT = {"type": "object"}
_HARMLESS = {  # fields of structured_outputs that are accepted with these values only
    "disable_fallback": (None, True, False), "disable_any_whitespace": (None, True, False),
    "disable_additional_properties": (None, True, False), "whitespace_pattern": (None,),
}
_MEANT = {  # what to send in place of other values
    "whitespace_pattern": '`constraint` with `whitespace`, for example "compact"',
}
_TYPES = ("text", "json_object", "json_schema", "structural_tag")  # of response_format
_FORMATS = {  # types of other servers' response_format that are not read: what to send
    "regex": "regex", "grammar": "grammar", "gbnf": "grammar", "ebnf": "ebnf", "lark": "structured_outputs",
    "choice": "structured_outputs",
} | dict.fromkeys(FORM_FIELDS - {"regex", "grammar", "choice", "json_schema"}, "constraint")


@dataclass(frozen=True)
class ParsedConstraint:
    """A constraint as POST /generate accepts it.

    path         the field of the request that holds the value of the form's own field; errors name it. Empty if they
                 name fields of the constraint itself
    form         the form's own field
    deprecated   whether clients should no longer use this spelling
    reply        the request's own constraint, of a reply; this one then has it as a part
    places       where the parts of a constraint of answers stand in the request
    prefix       path of this constraint within the constraint that includes the suffix
    """

    constraint: dict[str, Any]
    path: str
    form: str
    deprecated: bool = False
    reply: ParsedConstraint | None = None
    prefix: str = ""
    places: tuple[RequestPlace, ...] = ()

    @cached_property
    def spec(self) -> Spec:
        """The constraint as the compiler takes it. Raises SpecSyntaxError."""
        return spec_from_json(self.constraint)

    def path_of(self, field: str) -> tuple[str, str]:
        """The request's path of a field, and the tool at fault.

        The tool begins a message; it is empty where no tool is at fault.
        """
        place = place_of(field, self.places)
        if place is not None and place.tool:
            return place.path_of(field), place.blame(field)
        if place is not None and self.reply is not None:
            return self.reply.path_of(place.path_of(field))
        if not self.path:
            return field, ""
        if self.path == "constraint":
            return (field if field == self.path else f"{self.path}.{field}"), ""
        head, dot, subpath = field.partition(".")
        return (f"{self.path}{dot}{subpath}" if head == self.form else self.path), ""

    def warnings(self) -> tuple[WarningBody, ...]:
        """What is probably a mistake in it, with paths of the request. Raises SpecSyntaxError."""
        if self.path != "constraint" and self.form != "regex":
            return ()  # no other form can be misread
        found = constraint_warnings(self.spec)
        paths = [self.path_of(each.field or "")[0] for each in found]
        # Suggestions are of a constraint in the field `constraint`.
        return tuple(
            replace(each, field=path, suggestion=each.suggestion if not self.form else None)
            for each, path in zip(found, paths, strict=True)
        )


def parse_constraint(request: OpenAIRequest, names: Mapping[str, int] | None = None) -> ParsedConstraint | None:
    """The constraint of a request, None if it has none. Raises InvalidRequest with the field.

    names  the ids of the model's special and added tokens, which structural tags may have
    """
    parsed = list(_constraints(request, names))
    paths = [constraint.path for constraint in parsed] + ["automaton"] * (request.automaton is not None)
    if len(paths) > 1:
        message = f'{" and ".join(paths[:2])} are two constraints: give one, for instance constraint {{"all": [...]}}'
        raise InvalidRequest(((paths[1].partition(".")[0], message),))
    return parsed[0] if parsed else None


def _constraints(request: OpenAIRequest, names: Mapping[str, int] | None) -> Iterator[ParsedConstraint]:
    if request.constraint is not None:
        yield ParsedConstraint(request.constraint, "constraint", "")
    if request.response_format is not None:
        options = schema_options(request.closed_objects is not False)
        for parsed in _response_format(request.response_format, names):
            yield replace(parsed, constraint=_with_schema_options(parsed.constraint, options))
    if request.structured_outputs is not None:
        closed = request.structured_outputs.get("disable_additional_properties") is True
        for parsed in _structured_outputs(request.structured_outputs, names):
            options = {"closed_objects": True} if closed else {}
            yield replace(parsed, constraint=_with_schema_options(parsed.constraint, options))
    for path, form in _FLAT_FIELDS.items():
        value = getattr(request, path)
        if path == "grammar" and isinstance(value, dict):
            yield _type_and_value(value, path)
        elif value is not None:
            yield _single_form(form, value, path, deprecated=path.startswith("guided_"))


def _with_schema_options(part: Any, options: Mapping[str, Any]) -> Any:
    """A constraint with options at each of its schemas."""
    if isinstance(part, list):
        return [_with_schema_options(each, options) for each in part]
    if not isinstance(part, dict):
        return part
    if "json_schema" in part:
        return {**part, **options}
    return {name: _with_schema_options(each, options) for name, each in part.items()}


def _response_format(value: dict[str, Any], token_names: Mapping[str, int] | None) -> Iterator[ParsedConstraint]:
    """OpenAI's `response_format`; with `value` in it TGI's, with `schema` llama.cpp's."""
    path, kind = "response_format", value.get("type")
    if value.get("value") is not None:
        yield _type_and_value(value, path)
    elif kind == "json_schema":
        inner, inner_path = _required(value, "json_schema", path, dict), f"{path}.json_schema"
        _reject_unknown(value, path, "type", "json_schema")
        _reject_unknown(inner, inner_path, "name", "description", "schema", "strict")
        yield _single_form("json_schema", _required(inner, "schema", inner_path), f"{inner_path}.schema")
    elif kind == "json_object":
        _reject_unknown(value, path, "type", "schema")
        if value.get("schema") is not None:
            yield _single_form("json_schema", value["schema"], f"{path}.schema")
        else:
            yield _single_form("json_schema", _ANY_OBJECT, f"{path}.type")
    elif kind == "structural_tag":
        yield ParsedConstraint(structural_tag(value, path, token_names), path, "")
    elif kind == "text":
        _reject_unknown(value, path, "type")
    elif isinstance(kind, str) and kind.lower() in _FORMATS:
        message = f"not supported: did you mean `{_FORMATS[kind.lower()]}` of the request?"
        raise UnknownField(((f"{path}.type", message),))
    elif isinstance(kind, str) and (near := _near(kind, _TYPES)):
        raise UnknownField(((f"{path}.type", f'did you mean "{near}"?'),))
    else:
        message = 'must be "text", "json_object", "json_schema" or "structural_tag"'
        raise InvalidRequest(((f"{path}.type", message),))


def _structured_outputs(
    value: dict[str, Any], token_names: Mapping[str, int] | None
) -> Iterator[ParsedConstraint]:
    path, names = "structured_outputs", ("regex", "json", "choice", "grammar")
    _reject_unknown(value, path, *names, "json_object", "structural_tag", *_HARMLESS)
    for name, values in _HARMLESS.items():
        if value.get(name) not in values:
            message = "must be true or false" if name not in _MEANT else f"not supported: did you mean {_MEANT[name]}?"
            raise (UnknownField if name in _MEANT else InvalidRequest)(((f"{path}.{name}", message),))
    for name in names:
        if value.get(name) is not None:
            yield _single_form("json_schema" if name == "json" else name, value[name], f"{path}.{name}")
    match value.get("json_object"):
        case True:
            yield _single_form("json_schema", _ANY_OBJECT, f"{path}.json_object")
        case None | False:
            pass
        case _:
            raise InvalidRequest(((f"{path}.json_object", "must be true or false"),))
    if value.get("structural_tag") is not None:
        tag, inner_path = value["structural_tag"], f"{path}.structural_tag"
        tag = _read_json(tag, inner_path) if isinstance(tag, str) else tag
        if not isinstance(tag, dict):
            raise InvalidRequest(((inner_path, "must be a structural tag: an object, or its JSON"),))
        yield ParsedConstraint(structural_tag(tag, inner_path, token_names), inner_path, "")


def _type_and_value(grammar: dict[str, Any], path: str) -> ParsedConstraint:
    """TGI's grammar: a type and a value."""
    _reject_unknown(grammar, path, "type", "value")
    kind = grammar.get("type")
    if not isinstance(kind, str) or kind not in _TGI_FORMS:
        raise InvalidRequest(((f"{path}.type", 'must be "json", "json_schema" or "regex"'),))
    value, inner_path = _required(grammar, "value", path), f"{path}.value"
    # The type json_schema may wrap the schema together with a name, as OpenAI does.
    if kind == "json_schema" and isinstance(value, dict) and isinstance(value.get("schema"), dict):
        value, inner_path = value["schema"], f"{inner_path}.schema"
    return _single_form(_TGI_FORMS[kind], value, inner_path)


_CHECKS: dict[str, tuple[Callable[[object], bool], str]] = {
    "regex": (lambda value: isinstance(value, str), "must be a pattern: a string"),
    "json_schema": (lambda value: isinstance(value, dict | bool), "must be a JSON schema: an object"),
    "choice": (lambda value: isinstance(value, list) and bool(value), "must be a list of strings"),
    "grammar": (lambda value: isinstance(value, str), "must be a grammar: a string"),
}


def _single_form(form: str, value: object, path: str, deprecated: bool = False) -> ParsedConstraint:
    """A constraint of one field. A schema may be a string of JSON, and a grammar gets its syntax."""
    if form == "json_schema" and isinstance(value, str):
        value = _read_json(value, path)
    is_valid, message = _CHECKS[form]
    if not is_valid(value):
        raise InvalidRequest(((path, message),))
    constraint = {form: value}
    if form == "grammar":
        constraint["syntax"] = _SYNTAXES.get(path) or likely_syntax(str(value))
    return ParsedConstraint(constraint, path, form, deprecated)


def _read_json(text: str, path: str) -> object:
    try:
        return read_json(text.encode())
    except InvalidJson as error:
        raise InvalidRequest(((path, str(error)),)) from None


def _required(value: dict[str, Any], name: str, path: str, kind: type = object) -> Any:
    if value.get(name) is None:
        raise InvalidRequest(((f"{path}.{name}", "field required"),))
    if not isinstance(value[name], kind):
        raise InvalidRequest(((f"{path}.{name}", "must be an object"),))
    return value[name]


def _reject_unknown(value: dict[str, Any], path: str, *names: str) -> None:
    for name, item in value.items():
        if name not in names and item is not None:
            near = _near(name, names)
            meant = f"`{near}`" if near else "`constraint` of the request" if name in FORM_FIELDS else None
            message = f"did you mean {meant}?" if meant else f"use one of {json.dumps(names)[1:-1]}"
            raise UnknownField(((f"{path}.{name}", f"unknown field: {message}"),))


def _near(name: str, names: Sequence[str]) -> str | None:
    """The one of some names that may be meant."""
    return next((each for each in names if edit_distance(name[:64].lower(), each) <= DISTANCE_MAX), None)


def removable_stops(spec: Spec | None, stops: Sequence[str]) -> tuple[str, ...]:
    """The stop strings that may be removed from a text's end."""
    return tuple(stops) if spec is None or (_ignores_space(spec) and not any(map(str.strip, stops))) else ()


def strips_space(spec: Spec) -> bool:
    """Whether a part of the constraint describes whole texts. Such a part may ignore a leading space."""
    return any(hasattr(part, "leading_space") for part in _simple_parts(spec))


def _ignores_space(spec: Spec) -> bool:
    """Whether white space after a text changes nothing."""
    return all(
        part.max_chars is None if isinstance(part, LengthSpec) else isinstance(part, LtlfSpec | KeywordsSpec)
        for part in _simple_parts(spec)
    )


def _simple_parts(spec: Spec) -> Iterator[Spec]:
    """The constraints that a constraint combines."""
    match spec:
        case AllSpec() | AnySpec():
            for part in spec.parts:
                yield from _simple_parts(part)
        case NotSpec():
            yield from _simple_parts(spec.part)
        case _:
            yield spec
