"""Writes parameters with markup of their own, as structural tags name them.

Strings are written without quotation marks, other values as JSON. A line break may stand around parameters and around
values that are no strings, as the models write them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeAlias

from app.errors import InvalidRequest
from compiler.exact_json import dump_json
from compiler.json_schema import NumberSpelling

_Part: TypeAlias = "str | dict[str, Any]"
_BREAK: _Part = {"optional": "\n"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "$comment"})
_DEFINITIONS = ("$defs", "definitions")
_OBJECT = _ANNOTATIONS | {"type", "properties", "required", "additionalProperties", "$schema", *_DEFINITIONS}
_ARRAY = _ANNOTATIONS | {"type", "items", "minItems", "maxItems"}
_JSON_TYPES = frozenset({"integer", "number", "boolean", "null", "array", "object"})
_DEPTH_MAX = 8  # of values with markup inside each other
_ELEMENTS_MAX = 10_000  # definitions that refer to each other multiply


@dataclass(frozen=True, slots=True)
class _Style:
    """The markup of a parameter.

    begin   the text before a value, in pieces between which a line break may stand
    end     the text behind it
    types   what is written for `{type}`, by JSON type; empty if the markup names no types
    tokens  the pieces of markup that are single tokens
    item    of an element of an array; None if arrays and objects are written as JSON
    """

    begin: tuple[str, ...]
    end: str = "</parameter>"
    types: Mapping[str, str] = field(default_factory=dict)
    _: KW_ONLY
    tokens: tuple[str, ...] = ()
    item: str | None = None

    def opening(self, name: str | None, kind: str) -> list[_Part]:
        """The parts before a value of a JSON type. Elements of arrays have no name."""
        parts = list[_Part]()
        for piece in self.begin if name is not None else (self.item or "",):
            text = piece.replace("{name}", name or "").replace("{type}", self.types.get(kind, ""))
            parts += [*([_BREAK] if parts else []), *self.split(text)]
        return parts

    def split(self, text: str) -> list[_Part]:
        """The parts of markup."""
        if not self.tokens:
            return [text]
        pieces = re.split(f"({'|'.join(map(re.escape, self.tokens))})", text)
        return [{"token": piece} if number % 2 else piece for number, piece in enumerate(pieces) if piece]

    @property
    def free(self) -> _Part:
        """A string: any text without the markup that ends it. Text never has special tokens."""
        return {"free": {} if self.tokens else {"without": [self.end]}}


_OTHERS = ("number", "boolean", "null", "array", "object")
_STYLES = {
    "qwen_xml": _Style(("<parameter={name}>",)),
    "minimax_xml": _Style(('<parameter name="{name}">',)),
    "glm_xml": _Style(("<arg_key>{name}</arg_key>", "<arg_value>"), "</arg_value>"),
    "deepseek_xml": _Style(
        ('<｜DSML｜parameter name="{name}" string="{type}">',), "</｜DSML｜parameter>",
        {"string": "true", **dict.fromkeys(_OTHERS, "false")},
    ),
    "cohere_xml": _Style(
        ('<cofl:value name="{name}" type="{type}">',), "</cofl:value>",
        {"string": "raw", **dict.fromkeys(_OTHERS, "json"), "array": "list", "object": "dict"},
        item='<cofl:value type="{type}">',
    ),
    "kimi_k3_xml": _Style(
        ('<|open|>argument key="{name}" type="{type}"<|sep|>',), "<|close|>argument<|sep|>",
        {each: each for each in ("string", *_OTHERS)}, tokens=("<|open|>", "<|close|>", "<|sep|>"),
    ),
}  # fmt: skip
XML_STYLES = tuple(_STYLES)


def xml_parameters(schema: object, style: str, path: str) -> _Part:
    """The parameters of an object that satisfies a schema, in their order. Undeclared ones are left out.

    Raises InvalidRequest for a schema that the style cannot express.

    >>> xml_parameters({"properties": {"a": {"type": "string"}}, "required": ["a"]}, "minimax_xml", "s")["sequence"][1]
    {'sequence': ['<parameter name="a">', {'free': {'without': ['</parameter>']}}, '</parameter>', {'optional': '\\n'}]}
    """
    definitions = {}
    if isinstance(schema, dict):
        definitions = {name: schema[name] for name in _DEFINITIONS if name in schema}
    return {"sequence": _Parameters(style, _STYLES[style], definitions).body(schema, path, 0)}


@dataclass(frozen=True, slots=True)
class _Value:
    """The parts of a value, and its JSON type."""

    kind: str
    parts: list[_Part]


@dataclass(frozen=True, slots=True)
class _Parameters:
    """Writes the parameters of one schema. `definitions` are those that it refers to, `count` counts parameters."""

    name: str
    style: _Style
    definitions: dict[str, Any]
    count: Iterator[int] = field(default_factory=itertools.count)

    def body(self, schema: object, path: str, depth: int) -> list[_Part]:
        """The parameters of an object."""
        if schema is True:
            schema = {}
        if not isinstance(schema, dict) or schema.get("type", "object") != "object" or not set(schema) <= _OBJECT:
            names = "an object with properties, required and additionalProperties alone"
            raise InvalidRequest(((path, f"the style {self.name} takes {names}"),))
        properties, required = schema.get("properties", {}), schema.get("required", [])
        further = schema.get("additionalProperties", True)
        has_names = isinstance(required, list) and all(isinstance(name, str) for name in required)
        if not isinstance(properties, dict) or not has_names:
            raise InvalidRequest(((path, "properties must be an object, required a list of names"),))
        values = {**properties, **{name: further for name in required if name not in properties}}
        written = [_BREAK]
        for name, value in values.items():
            inside = f"{path}.properties.{name}"
            if not _NAME.fullmatch(name):
                message = f"the style {self.name} takes names of letters, digits and _.- alone"
                raise InvalidRequest(((inside, message),))
            part = self._element(name, self._values(value, inside, depth))
            written.append(part if name in required else {"optional": part})
        return written

    def _element(self, name: str | None, values: Sequence[_Value]) -> _Part:
        """A parameter or an element of an array, with these values."""
        if next(self.count) == _ELEMENTS_MAX:
            raise InvalidRequest((("", f"a schema of the style {self.name} has over {_ELEMENTS_MAX} parameters"),))
        end = [*self.style.split(self.style.end), _BREAK]
        if not self.style.types:
            parts = [value.parts for value in values]
            one = parts[0] if len(parts) == 1 else [{"any": [{"sequence": each} for each in parts]}]
            return {"sequence": [*self.style.opening(name, ""), *one, *end]}
        written: list[_Part] = [
            {"sequence": [*self.style.opening(name, value.kind), *value.parts, *end]} for value in values
        ]
        return written[0] if len(written) == 1 else {"any": written}

    def _values(self, schema: object, path: str, depth: int) -> list[_Value]:
        """The alternatives of a value."""
        schema = self._referred(schema)
        if isinstance(schema, dict) and set(schema) - _ANNOTATIONS == {"anyOf"} and isinstance(schema["anyOf"], list):
            return [value for each in schema["anyOf"] for value in self._option(self._referred(each), path, depth)]
        return self._option(schema, path, depth)

    def _referred(self, schema: object) -> object:
        """The definition to which a schema refers, or the schema."""
        if not isinstance(schema, dict) or set(schema) - _ANNOTATIONS != {"$ref"}:
            return schema
        place, _, name = str(schema["$ref"]).removeprefix("#/").partition("/")
        named = self.definitions.get(place)
        return named.get(name, schema) if isinstance(named, dict) else schema

    def _option(self, schema: object, path: str, depth: int) -> list[_Value]:
        """A value without alternatives. Its types, and the values of an enum, may be written in several ways.

        Raises InvalidRequest for a schema that strings with further keywords satisfy.
        """
        node = {} if schema is True else schema
        if isinstance(node, dict):
            keywords = set(node) - _ANNOTATIONS
            if not keywords or (keywords == {"type"} and node["type"] == "string"):
                return [_Value("string", [self.style.free])]
            values = node.get("enum", [node["const"]] if "const" in node else None)
            if isinstance(values, list) and keywords in ({"enum"}, {"const"}, {"enum", "type"}, {"const", "type"}):
                fitting = [each for each in values if keywords <= {"enum", "const"} or _has_type(each, node["type"])]
                if fitting and not any(self.style.end in _text(each) for each in fitting):
                    return self._constants(fitting)
            types = node["type"] if isinstance(node.get("type"), list) else [node.get("type")]
            if keywords == {"type"} and "string" in types and len(types) > 1:
                return [value for each in types for value in self._option({"type": each}, path, depth)]
            names = [each for each in types if isinstance(each, str) and each in _JSON_TYPES]
            if len(names) == len(types) and not self.style.types:
                return [_Value("", self._json(node))]
            if names and len(names) == len(types):
                return [self._typed(node, each, path, depth) for each in names]
        message = "parameters with markup take strings without further keywords, enum, const, and values of other types"
        raise InvalidRequest(((path, message),))

    def _constants(self, values: Sequence[object]) -> list[_Value]:
        """The given values, one alternative for each name of a type."""
        groups = dict[str, tuple[str, dict[str, None]]]()
        for value in values:
            kind = _type_of(value)
            # Arrays and objects of an enum are JSON texts, also where others have markup inside.
            kind = "null" if self.style.item and kind in ("array", "object") else kind
            _, texts = groups.setdefault(self.style.types.get(kind, ""), (kind, {}))
            texts[_text(value)] = None
        return [_Value(kind, [{"any": list(texts)}]) for kind, texts in groups.values()]

    def _json(self, node: dict[str, Any]) -> list[_Part]:
        return [_BREAK, {"json_schema": {**self.definitions, **node}}, _BREAK]

    def _typed(self, node: dict[str, Any], kind: str, path: str, depth: int) -> _Value:
        """A value of one of the types of a schema."""
        shown = "number" if kind == "integer" else kind
        if self.style.item is None or kind not in ("array", "object"):
            return _Value(shown, self._json({**node, "type": kind}))
        if depth == _DEPTH_MAX:
            message = f"the style {self.name} takes at most {_DEPTH_MAX} values inside each other"
            raise InvalidRequest(((path, message),))
        if kind == "object":
            return _Value(shown, self.body({**node, "type": kind}, path, depth + 1))
        if not set(node) <= _ARRAY or "items" not in node:
            message = f"the style {self.name} takes arrays with items, minItems and maxItems alone"
            raise InvalidRequest(((path, message),))
        element = self._element(None, self._values(node["items"], f"{path}.items", depth + 1))
        bounds = {"min": node.get("minItems", 0), **({"max": node["maxItems"]} if "maxItems" in node else {})}
        return _Value(shown, [_BREAK, {"repeat": element, **bounds}])


def _text(value: object) -> str:
    if isinstance(value, float):
        return NumberSpelling().own_text(value, whole=False)
    return value if isinstance(value, str) else dump_json(value, ensure_ascii=False, separators=(", ", ": "))


def _type_of(value: object) -> str:
    """The JSON type of a value. Whole numbers are numbers."""
    name = {str: "string", bool: "boolean", type(None): "null", list: "array", dict: "object"}
    return name.get(type(value), "number")


def _has_type(value: object, types: object) -> bool:
    """Whether a value of an enum has a type of the schema."""
    found = "integer" if type(value) is int else _type_of(value)
    allowed = types if isinstance(types, list) else [types]
    return found in allowed or (found == "integer" and "number" in allowed)
