"""The one constraint that a request gives, in whichever of the known spellings. Knows no HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from app.api.middleware.body import read_json
from app.errors import InvalidJson, InvalidRequest
from app.openai.requests import OpenAIRequest

FORMER = ("guided_regex", "guided_json", "guided_choice")
_JSON_OBJECT = (
    'no schema is given: use {"type": "json_schema", "json_schema": {"name": "...", "schema": {...}}}; the schema '
    '{"type": "object"} allows any object'
)
_HARMLESS = {  # of structured_outputs, and what they may say
    "disable_fallback": (None, True, False), "disable_any_whitespace": (None, True, False),
    "disable_additional_properties": (None, False), "whitespace_pattern": (None,), "grammar": (None,),
    "json_object": (None, False), "structural_tag": (None,),
}


@dataclass(frozen=True, slots=True)
class ParsedConstraint:
    """A constraint as POST /generate takes it.

    path    where the request holds what its form's own field holds: errors are to name it
    form    that field
    former  whether it was said in a way that is on its way out
    """

    constraint: dict[str, Any]
    path: str
    form: str
    former: bool = False

    def field(self, field: str) -> str:
        """Where the request holds a field of the constraint."""
        if self.path == "constraint":
            return self.path if field == self.path else f"{self.path}.{field}"
        head, dot, rest = field.partition(".")
        return f"{self.path}{dot}{rest}" if head == self.form else self.path


def spelled_by(asked: OpenAIRequest) -> ParsedConstraint | None:
    """The constraint of a request, None where it has none. Raises InvalidRequest, by field."""
    given = list(_given(asked))
    paths = [one.path for one in given] + ["automaton"] * (asked.automaton is not None)
    if len(paths) > 1:
        message = f'{" and ".join(paths[:2])} are two constraints: give one, {{"all": [...]}} of both as constraint say'
        raise InvalidRequest(((paths[1].partition(".")[0], message),))
    return given[0] if given else None


def _given(asked: OpenAIRequest) -> Iterator[ParsedConstraint]:
    if asked.constraint is not None:
        yield ParsedConstraint(asked.constraint, "constraint", "")
    if asked.response_format is not None:
        yield from _response_format(asked.response_format)
    if asked.structured_outputs is not None:
        yield from _structured_outputs(asked.structured_outputs)
    if asked.grammar is not None:
        yield _typed(asked.grammar, "grammar")
    for path, form, value in (
        ("guided_regex", "regex", asked.guided_regex),
        ("guided_json", "json_schema", asked.guided_json),
        ("guided_choice", "choice", asked.guided_choice),
        ("regex", "regex", asked.regex),
        ("json_schema", "json_schema", asked.json_schema),
    ):
        if value is not None:
            yield _of_form(form, value, path, former=path in FORMER)


def _response_format(given: dict[str, Any]) -> Iterator[ParsedConstraint]:
    """OpenAI's, and where it holds a `value` TGI's, or a `schema` that of llama.cpp."""
    path, kind = "response_format", given.get("type")
    if "value" in given:
        yield _typed(given, path)
    elif kind == "json_schema":
        inner = _required(given, "json_schema", path, dict)
        _only(given, path, "type", "json_schema")
        _only(inner, f"{path}.json_schema", "name", "description", "schema", "strict")
        yield _of_form("json_schema", _required(inner, "schema", f"{path}.json_schema"), f"{path}.json_schema.schema")
    elif kind == "json_object" and given.get("schema") is not None:
        _only(given, path, "type", "schema")
        yield _of_form("json_schema", given["schema"], f"{path}.schema")
    elif kind == "json_object":
        raise InvalidRequest(((f"{path}.type", f"json_object is not supported: {_JSON_OBJECT}"),))
    elif kind == "text":
        _only(given, path, "type")
    else:
        raise InvalidRequest(((f"{path}.type", 'must be "text" or "json_schema"'),))


def _structured_outputs(given: dict[str, Any]) -> Iterator[ParsedConstraint]:
    path = "structured_outputs"
    _only(given, path, "regex", "json", "choice", *_HARMLESS)
    for name, allowed in _HARMLESS.items():
        if given.get(name) not in allowed:
            raise InvalidRequest(((f"{path}.{name}", "is not supported: use regex, json or choice"),))
    for name, form in (("regex", "regex"), ("json", "json_schema"), ("choice", "choice")):
        if given.get(name) is not None:
            yield _of_form(form, given[name], f"{path}.{name}")


def _typed(given: dict[str, Any], path: str) -> ParsedConstraint:
    """TGI's: a type and a value."""
    _only(given, path, "type", "value")
    forms = {"json": "json_schema", "json_object": "json_schema", "json_schema": "json_schema", "regex": "regex"}
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in forms:
        raise InvalidRequest(((f"{path}.type", 'must be "json", "json_schema" or "regex"'),))
    value, inner = _required(given, "value", path), f"{path}.value"
    if kind == "json_schema" and isinstance(value, dict) and isinstance(value.get("schema"), dict):
        value, inner = value["schema"], f"{inner}.schema"  # with a name beside it
    return _of_form(forms[kind], value, inner)


_CHECKS: dict[str, tuple[Callable[[object], bool], str]] = {
    "regex": (lambda value: isinstance(value, str), "must be a pattern: a string"),
    "json_schema": (lambda value: isinstance(value, dict | bool), "must be a JSON schema: an object"),
    "choice": (lambda value: isinstance(value, list) and bool(value), "must be a list of strings"),
}


def _of_form(form: str, value: object, path: str, former: bool = False) -> ParsedConstraint:
    """A constraint of one field; a schema may be written out as a text."""
    if form == "json_schema" and isinstance(value, str):
        try:
            value = read_json(value.encode())
        except InvalidJson as error:
            raise InvalidRequest(((path, str(error)),)) from None
    holds, wanted = _CHECKS[form]
    if not holds(value):
        raise InvalidRequest(((path, wanted),))
    return ParsedConstraint({form: value}, path, form, former)


def _required(given: dict[str, Any], name: str, path: str, kind: type = object) -> Any:
    if given.get(name) is None:
        raise InvalidRequest(((f"{path}.{name}", "field required"),))
    if not isinstance(given[name], kind):
        raise InvalidRequest(((f"{path}.{name}", "must be an object"),))
    return given[name]


def _only(given: dict[str, Any], path: str, *names: str) -> None:
    """Nothing unknown is passed over."""
    for name in given:
        if name not in names:
            raise InvalidRequest(((f"{path}.{name}", f"unknown field: known are {json.dumps(names)[1:-1]}"),))
