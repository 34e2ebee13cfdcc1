"""Writes arguments of calls as parts of a sequence.

Arguments are one JSON object, or single values between markers, or the text of a custom tool.
"""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from app.formats.arguments_reader import PYTHON_VALUES, ArgumentsReader, JsonReader, RawReader, SingleReader
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
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_URI = "urn:abs:tool"
NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


def schema_options(closed_objects: bool) -> dict[str, Any]:
    """The options of schemas in tools and in `response_format`, whose values go to a program.

    A program expects the properties that the schema declares, and makes a set of items that may be equal.
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
        """The schemas in the parts, and the paths in the parameters where they stand."""


@dataclass(frozen=True, slots=True)
class JsonArguments:
    """Arguments as one JSON object between two texts."""

    schema: Mapping[str, Any]
    options: Mapping[str, Any]
    reader: JsonReader

    @property
    def parts(self) -> list[Part]:
        return [self.reader.before, {"json_schema": self.schema, **self.options}, self.reader.after]

    def schemas(self) -> Sequence[tuple[str, object]]:
        return [("", self.schema)]


@dataclass(frozen=True, slots=True)
class RawText:
    """The text of a custom tool, described by a part."""

    part: Part
    reader: RawReader

    @property
    def parts(self) -> list[Part]:
        return [self.reader.before, self.part, self.reader.after]

    def schemas(self) -> Sequence[tuple[str, object]]:
        return []


@dataclass(frozen=True, slots=True)
class _Parameter:
    """One argument. `raw` values are strings without quotation marks, `part` writes a value."""

    name: str
    part: Part
    required: bool
    raw: bool


@dataclass(frozen=True, slots=True)
class SingleArguments:
    """Arguments one by one, in the order of the schema. With separators, the required ones come first.

    split  splits the texts around the values into parts
    """

    parameters: tuple[_Parameter, ...]
    format: ParameterFormat
    split: TextSplit

    @property
    def parts(self) -> list[Part]:
        if not self.format.separator:
            return [self._optional(each, self._written(each)) for each in self.parameters]
        required = [self._written(each) for each in self.parameters if each.required]
        optional = [self._written(each) for each in self.parameters if not each.required]
        if required:
            return [required[0], *(self._after(part) for part in required[1:]), *map(self._further, optional)]
        # Without a required argument any of them may be the first.
        first: list[Part] = [
            {"sequence": [part, *map(self._further, optional[number + 1 :])]} for number, part in enumerate(optional)
        ]
        return [{"optional": {"any": first}}] if first else []

    def _written(self, parameter: _Parameter) -> Part:
        head = self.split.named(self.format.open, parameter.name)
        return {"sequence": [*head, parameter.part, *self.split(self.format.close)]}

    def _after(self, part: Part) -> Part:
        return {"sequence": [self.format.separator, part]}

    def _further(self, part: Part) -> Part:
        return {"optional": self._after(part)}

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
    single = calls.parameters
    if single is None:
        return JsonArguments(schema, options, JsonReader())
    found = _parameters(schema, single, options)
    if found is None:
        return JsonArguments(schema, options, JsonReader(*single.whole))
    return SingleArguments(found, single, split)


def raw_arguments(part: Part, calls: CallFormat) -> Arguments:
    """The text of a custom tool, described by a part."""
    if calls.parameters is None or calls.parameters.python:
        return RawText(part, RawReader(calls.tail or calls.trigger))
    before, after = (text.replace("{name}", "input") for text in (calls.parameters.open, calls.parameters.close))
    return RawText(part, RawReader(calls.tail, before, after))


def _parameters(
    schema: Mapping[str, Any], single: ParameterFormat, options: Mapping[str, Any]
) -> tuple[_Parameter, ...] | None:
    """The parameters of a schema that names them one by one. None if it says more than that."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not _DIVISIBLE.issuperset(schema) or not isinstance(properties, dict) or not isinstance(required, list):
        return None
    further = schema.get("additionalProperties", True)
    if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in (*properties, *required)):
        return None
    if further is False and not set(required) <= set(properties):
        return None
    if single.python and not all(name.isidentifier() for name in (*properties, *required)):
        return None
    schemas = {**properties, **{name: further for name in required if name not in properties}}
    return tuple(
        _parameter(name, value, schema if name in properties else None, name in required, single, options)
        for name, value in schemas.items()
    )


def _parameter(
    name: str, schema: Any, root: Mapping[str, Any] | None, required: bool, single: ParameterFormat,
    options: Mapping[str, Any],
) -> _Parameter:
    texts = _texts(schema, single.close.strip())
    if texts is not None and not single.python:
        return _Parameter(name, texts, required, raw=True)
    if single.python and isinstance(schema, dict) and schema.get("type") == "boolean" and set(schema) <= _ANNOTATIONS:
        return _Parameter(name, {"choice": list(PYTHON_VALUES)}, required, raw=False)
    part: dict[str, Any] = {"json_schema": schema, **options}
    if root is not None and '"$ref"' in json.dumps(schema):
        pointer = urllib.parse.quote(name.replace("~", "~0").replace("/", "~1"))
        part |= {"json_schema": {"$ref": f"{_URI}#/properties/{pointer}"}, "schemas": {_URI: root}}
    return _Parameter(name, part, required, raw=False)


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
