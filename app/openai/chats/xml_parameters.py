"""Writes parameters with markup of their own, as structural tags name them.

Strings are written without quotation marks, other values as JSON. A line break may stand around parameters and around
values that are no strings, as the models write them.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeAlias

from app.errors import InvalidRequest

_Part: TypeAlias = "str | dict[str, Any]"
_OPEN = {"qwen_xml": "<parameter={}>", "minimax_xml": '<parameter name="{}">'}
XML_STYLES = tuple(_OPEN)
_CLOSE = "</parameter>"
_BREAK: _Part = {"optional": "\n"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "$comment"})
_DEFINITIONS = ("$defs", "definitions")
_OBJECT = _ANNOTATIONS | {"type", "properties", "required", "additionalProperties", "$schema", *_DEFINITIONS}
_JSON_TYPES = frozenset({"integer", "number", "boolean", "null", "array", "object"})


def xml_parameters(schema: object, style: str, path: str) -> _Part:
    """The parameters of an object that satisfies a schema, in their order. Undeclared ones are left out.

    Raises InvalidRequest for a schema that the style cannot express.

    >>> xml_parameters({"properties": {"a": {"type": "string"}}, "required": ["a"]}, "minimax_xml", "s")["sequence"][1]
    {'sequence': ['<parameter name="a">', {'free': {'without': ['</parameter>']}}, '</parameter>', {'optional': '\\n'}]}
    """
    if schema is True:
        schema = {}
    if not isinstance(schema, dict) or schema.get("type", "object") != "object" or not set(schema) <= _OBJECT:
        names = "an object with properties, required and additionalProperties alone"
        raise InvalidRequest(((path, f"the style {style} takes {names}"),))
    properties, required = schema.get("properties", {}), schema.get("required", [])
    further = schema.get("additionalProperties", True)
    has_names = isinstance(required, list) and all(isinstance(name, str) for name in required)
    if not isinstance(properties, dict) or not has_names:
        raise InvalidRequest(((path, "properties must be an object, required a list of names"),))
    values = {**properties, **{name: further for name in required if name not in properties}}
    definitions = {name: schema[name] for name in _DEFINITIONS if name in schema}
    written = [_BREAK]
    for name, value in values.items():
        inside = f"{path}.properties.{name}"
        if not _NAME.fullmatch(name):
            message = f"the style {style} takes names of letters, digits and _.- alone"
            raise InvalidRequest(((inside, message),))
        part = {"sequence": [_OPEN[style].format(name), *_value(value, definitions, inside), _CLOSE, _BREAK]}
        written.append(part if name in required else {"optional": part})
    return {"sequence": written}


def _value(schema: object, definitions: dict[str, Any], path: str) -> list[_Part]:
    """The parts of a value."""
    schema = _referred(schema, definitions)
    if isinstance(schema, dict) and set(schema) - _ANNOTATIONS == {"anyOf"} and isinstance(schema["anyOf"], list):
        options = [_option(_referred(each, definitions), definitions, path) for each in schema["anyOf"]]
        return [{"any": [{"sequence": option} for option in options]}]
    return _option(schema, definitions, path)


def _referred(schema: object, definitions: dict[str, Any]) -> object:
    """The definition to which a schema refers, or the schema."""
    if not isinstance(schema, dict) or set(schema) - _ANNOTATIONS != {"$ref"}:
        return schema
    place, _, name = str(schema["$ref"]).removeprefix("#/").partition("/")
    named = definitions.get(place)
    return named.get(name, schema) if isinstance(named, dict) else schema


def _option(schema: object, definitions: dict[str, Any], path: str) -> list[_Part]:
    """The parts of a value without alternatives.

    Raises InvalidRequest for a schema that strings with further keywords satisfy.
    """
    node = {} if schema is True else schema
    if isinstance(node, dict):
        keywords = set(node) - _ANNOTATIONS
        if not keywords or (keywords == {"type"} and node["type"] == "string"):
            return [{"free": {"without": [_CLOSE]}}]
        values = node.get("enum", [node["const"]] if "const" in node else None)
        if isinstance(values, list) and keywords in ({"enum"}, {"const"}, {"enum", "type"}, {"const", "type"}):
            fitting = [each for each in values if keywords <= {"enum", "const"} or _has_type(each, node["type"])]
            texts = [each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in fitting]
            if texts and not any(_CLOSE in text for text in texts):
                return [{"any": list(dict.fromkeys(texts))}]
        types = node["type"] if isinstance(node.get("type"), list) else [node.get("type")]
        if all(isinstance(each, str) and each in _JSON_TYPES for each in types):
            return [_BREAK, {"json_schema": {**definitions, **node}}, _BREAK]
    message = "parameters with markup take strings without further keywords, enum, const, and values of other types"
    raise InvalidRequest(((path, message),))


def _has_type(value: object, types: object) -> bool:
    """Whether a value of an enum has a type of the schema."""
    name = {str: "string", bool: "boolean", type(None): "null", list: "array", dict: "object", int: "integer"}
    found = name.get(type(value), "number")
    allowed = types if isinstance(types, list) else [types]
    return found in allowed or (found == "integer" and "number" in allowed)
