"""Writes arguments of calls as parts of a sequence.

Arguments are one JSON object, or single values between markers, or the text of a custom tool.
"""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from app.formats.arguments_reader import (
    PYTHON_VALUES,
    ArgumentsReader,
    JsonReader,
    QuotedReader,
    RawReader,
    SingleReader,
)
from app.formats.tool_formats import CallFormat, ParameterFormat

Part: TypeAlias = "str | dict[str, Any]"


class TextSplit(Protocol):
    """Splits text into literal text and single tokens of a vocabulary."""

    def __call__(self, text: str) -> list[Part]:
        """The parts of a sequence for a text."""

    def named(self, text: str, name: str) -> list[Part]:
        """The same with a name in place of `{name}`."""


_DIVISIBLE = frozenset({
    "type", "properties", "required", "additionalProperties", "title", "description", "$defs", "definitions",
    "$schema", "$comment", "default", "examples", "strict",
})  # fmt: skip
_ANNOTATIONS = frozenset({"type", "title", "description", "default", "examples", "$comment"})
_ARRAY = frozenset({"items", "minItems", "maxItems"})
_DEPTH_MAX = 12  # of parts around a quoted object or array; constraints nest at most 32 deep
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_URI = "urn:abs:tool"
NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


def schema_options(closed_objects: bool) -> dict[str, Any]:
    """The options of schemas in tools and in `response_format`.

    Their values go to a program. It expects the properties that the schema declares, and makes a set of items that may
    be equal.
    """
    return {"closed_objects": closed_objects, "approximate": ["uniqueItems"]}


class Arguments(Protocol):
    """The arguments of a call of one tool."""

    @property
    def parts(self) -> list[Part]:
        """The parts of a sequence that write them."""

    @property
    def reader(self) -> ArgumentsReader:
        """Reads them."""

    def schemas(self) -> Sequence[tuple[str, object]]:
        """The schemas in the parts, with their paths in the parameters."""


@dataclass(frozen=True, slots=True)
class WholeArguments:
    """Arguments as one object, or the text of a custom tool."""

    parts: list[Part]
    reader: ArgumentsReader
    schema: Mapping[str, Any] | None = None

    def schemas(self) -> Sequence[tuple[str, object]]:
        inside = {id(each) for each in _schemas_in(self.parts)}
        return [(path.removesuffix("."), each) for path, each in parts_of(self.schema, inside)]


@dataclass(frozen=True, slots=True)
class _Parameter:
    """One argument. `raw` values are strings without quotation marks, `part` writes a value."""

    name: str
    part: Part
    required: bool
    raw: bool


@dataclass(frozen=True, slots=True)
class SingleArguments:
    """Arguments one by one.

    split  splits the texts around the values into parts
    """

    parameters: tuple[_Parameter, ...]
    format: ParameterFormat
    split: TextSplit

    @property
    def parts(self) -> list[Part]:
        if not self.format.separator:
            return [self._optional(each, self._written(each)) for each in self.parameters]
        # Any argument up to the first required one may be the first.
        last = next((at for at, each in enumerate(self.parameters) if each.required), None)
        first = self.parameters if last is None else self.parameters[: last + 1]
        written = [
            [self._written(each), *map(self._further, self.parameters[at + 1 :])] for at, each in enumerate(first)
        ]
        if len(written) == 1 and last is not None:
            return written[0]
        either: Part = {"any": [{"sequence": parts} for parts in written]}
        return [either] if last is not None else [{"optional": either}] if written else []

    def _written(self, parameter: _Parameter) -> Part:
        head = self.split.named(self.format.open, parameter.name)
        return {"sequence": [*head, parameter.part, *self.split(self.format.close)]}

    def _further(self, parameter: _Parameter) -> Part:
        return self._optional(parameter, {"sequence": [self.format.separator, self._written(parameter)]})

    def _optional(self, parameter: _Parameter, part: Part) -> Part:
        return part if parameter.required else {"optional": part}

    def schemas(self) -> Sequence[tuple[str, object]]:
        parts = [(each.name, each.part) for each in self.parameters if isinstance(each.part, dict)]
        single = [(f"properties.{name}", part.get("json_schema")) for name, part in parts]
        return [*single, *(("", part["schemas"][_URI]) for _, part in parts if "schemas" in part)]

    @property
    def reader(self) -> SingleReader:
        return SingleReader(tuple((each.name, each.raw) for each in self.parameters), self.format)


def schema_arguments(
    parameters: Mapping[str, Any] | None, calls: CallFormat, split: TextSplit, options: Mapping[str, Any]
) -> Arguments:
    """The arguments that satisfy the parameters of a function. `options` are those of its schemas."""
    # Parameters without properties are those of a function without arguments.
    schema = NO_ARGUMENTS if parameters is None else {"type": "object", "properties": {}, **parameters}
    whole: Part = {"json_schema": schema, **options}
    single = calls.parameters
    if single is None:
        return WholeArguments([whole], JsonReader(), schema)
    values = _Values(single, split, options)
    if single.quote:
        return WholeArguments([values.quoted(schema)], QuotedReader(single.quote), schema)
    found = values.parameters(schema)
    if found is None:
        before, after = single.whole
        return WholeArguments([before, whole, after], JsonReader(before, after), schema)
    return SingleArguments(found, single, split)


def raw_arguments(part: Part, calls: CallFormat, split: TextSplit) -> Arguments:
    """The text of a custom tool, described by a part."""
    if calls.parameters is None or calls.parameters.python:
        return WholeArguments([part], RawReader(calls.tail or calls.trigger))
    before, after = calls.parameters.around_input
    return WholeArguments([*split(before), part, *split(after)], RawReader(calls.tail, before, after))


@dataclass(frozen=True, slots=True)
class _Values:
    """Writes the values that schemas describe. `depth` counts the parts around quoted ones."""

    format: ParameterFormat
    split: TextSplit
    options: Mapping[str, Any]
    depth: int = 0

    def parameters(self, schema: Mapping[str, Any]) -> tuple[_Parameter, ...] | None:
        """The parameters of a schema that names them one by one. None if it says more than that.

        They have the order of the schema. With separators the required ones come first, with quotes all are sorted.
        """
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if not _DIVISIBLE.issuperset(schema) or not isinstance(properties, dict) or not isinstance(required, list):
            return None
        further = schema.get("additionalProperties", True)
        if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in (*properties, *required)):
            return None
        if further is False and not set(required) <= set(properties):
            return None
        if self.format.python and not all(name.isidentifier() for name in (*properties, *required)):
            return None
        schemas = {**properties, **{name: further for name in required if name not in properties}}
        names = sorted(schemas, key=str.lower) if self.format.quote else [*schemas]
        if self.format.python:
            names.sort(key=lambda name: name not in required)
        roots = dict.fromkeys(properties, schema)
        return tuple(self._parameter(name, schemas[name], roots.get(name), name in required) for name in names)

    def _parameter(self, name: str, schema: Any, root: Mapping[str, Any] | None, required: bool) -> _Parameter:
        refers = '"$ref"' in json.dumps(schema)
        if self.format.quote and not refers:
            return _Parameter(name, self.quoted(schema), required, raw=False)
        texts = None if self.format.python or self.format.quote else _texts(schema, self.format.close.strip())
        if texts is not None:
            return _Parameter(name, texts, required, raw=True)
        plain = isinstance(schema, dict) and set(schema) <= _ANNOTATIONS
        if self.format.python and plain and schema.get("type") == "boolean":
            return _Parameter(name, {"choice": list(PYTHON_VALUES)}, required, raw=False)
        part = self._json(schema)
        if root is not None and refers:
            pointer = urllib.parse.quote(name.replace("~", "~0").replace("/", "~1"))
            part |= {"json_schema": {"$ref": f"{_URI}#/properties/{pointer}"}, "schemas": {_URI: root}}
        return _Parameter(name, part, required, raw=False)

    def quoted(self, schema: Any) -> Part:
        """A value whose strings stand between quotes. It is JSON where its schema says more than that can express."""
        if not isinstance(schema, dict):
            return self._json(schema)
        texts = _texts(schema, self.format.quote)
        if texts is not None:
            return {"sequence": [*self.split(self.format.quote), texts, *self.split(self.format.quote)]}
        if self.depth > _DEPTH_MAX:
            return self._json(schema)
        types, options, said = schema.get("type"), schema.get("anyOf"), set(schema) - _ANNOTATIONS
        if isinstance(types, list) and types:
            return {"any": [self._inside(1).quoted({**schema, "type": each}) for each in types]}
        if isinstance(options, list) and options and said == {"anyOf"} and types is None:
            return {"any": [self._inside(1).quoted(each) for each in options]}
        if types == "object" and (found := self._inside(6).parameters(schema)) is not None:
            return {"sequence": ["{", *SingleArguments(found, self.format, self.split).parts, "}"]}
        least, *most = bounds = [schema.get("minItems", 0), *([schema["maxItems"]] if "maxItems" in schema else [])]
        if types == "array" and said <= _ARRAY and all(type(each) is int and each >= least >= 0 for each in bounds):
            repeated = {"repeat": self._inside(2).quoted(schema.get("items", True)), "separator": self.format.separator}
            return {"sequence": ["[", {**repeated, "min": least, **({"max": most[0]} if most else {})}, "]"]}
        return self._json(schema)

    def _json(self, schema: Any) -> dict[str, Any]:
        return {"json_schema": schema, **self.options}

    def _inside(self, levels: int) -> _Values:
        return replace(self, depth=self.depth + levels)


def parts_of(value: object, ids: Collection[int], path: str = "") -> Iterator[tuple[str, object]]:
    """The parts of a value with certain ids, and their paths."""
    if id(value) in ids:
        yield path, value
        return
    fields = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in fields:
        yield from parts_of(each, ids, f"{path}{name}.")


def _schemas_in(part: object) -> Iterator[object]:
    """The schemas in a part, without those that are true or false."""
    if isinstance(part, list):
        for each in part:
            yield from _schemas_in(each)
    elif isinstance(part, dict) and "json_schema" in part:
        yield from (each for each in (part["json_schema"], *part.get("schemas", {}).values()) if isinstance(each, dict))
    elif isinstance(part, dict):
        yield from _schemas_in([*part.values()])


def _texts(schema: Any, close: str) -> Part | None:
    """The part of the strings that a schema describes, without quotation marks. None if other values satisfy it.

    Schemas that say more of their strings are written as JSON: None.
    """
    if not isinstance(schema, dict):
        return None
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    said = set(schema) - _ANNOTATIONS
    if isinstance(values, list) and said in ({"enum"}, {"const"}):
        fits = values and all(isinstance(each, str) and each and close not in each for each in values)
        return {"choice": values} if fits and schema.get("type", "string") == "string" else None
    if schema.get("type") == "string" and not said:
        return {"free": {"without": [close]}}
    return None
