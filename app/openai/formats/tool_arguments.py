"""Writes arguments of calls as parts of a sequence, and reads them.

Arguments are one JSON object, or single values between markers, or the text of a custom tool. What is read is JSON text
or that text, and grows as an answer is generated: what was read of its beginning begins it.
"""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from app.api.conversations import NO_ARGUMENTS
from app.openai.formats.tool_formats import CallFormat, ParameterFormat

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
_SCALAR = re.compile(r"[^\s,)\]}<]+")
_PYTHON = {"True": "true", "False": "false"}
_URI = "urn:abs:tool"


class Arguments(Protocol):
    """The arguments of a call of one tool."""

    @property
    def parts(self) -> list[Part]:
        """The parts of a sequence that write them."""

    def read(self, text: str, at: int) -> tuple[str, int | None]:
        """The arguments at a place in a text, and where they end.

        The end is None if it is not there yet.
        """


@dataclass(frozen=True, slots=True)
class JsonArguments:
    """Arguments as one JSON object between two texts."""

    schema: Mapping[str, Any]
    before: str = ""
    after: str = ""

    @property
    def parts(self) -> list[Part]:
        return [self.before, {"json_schema": self.schema}, self.after]

    def read(self, text: str, at: int) -> tuple[str, int | None]:
        at += len(self.before)
        end = json_end(text, at)
        if end is None:
            return text[at:], None
        return text[at:end], end + len(self.after) if len(text) >= end + len(self.after) else None


@dataclass(frozen=True, slots=True)
class RawText:
    """The text of a custom tool, up to another text. Without that one it ends with the answer."""

    part: Part
    end: str
    before: str = ""
    after: str = ""

    @property
    def parts(self) -> list[Part]:
        return [self.before, self.part, self.after]

    def read(self, text: str, at: int) -> tuple[str, int | None]:
        at += len(self.before)
        ends = self.after + self.end
        end = text.find(ends, at) if ends else -1
        if end >= 0:
            return text[at:end], end + len(self.after)
        return without_beginning(text[at:], ends), None


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

    def read(self, text: str, at: int) -> tuple[str, int | None]:
        members, left = list[str](), list(self.parameters)
        while True:
            start = at + len(self.format.separator if members else "")
            name = next((each for each in left if text.startswith(self._head(each), start)), None)
            if members and not text.startswith(self.format.separator, at):
                name = None
            if name is None:
                break
            left.remove(name)
            value = self._value(name, text, start + len(self._head(name)))
            if value is None:
                return _members(members, open_=True), None
            members.append(f"{json.dumps(name.name, ensure_ascii=False)}: {value[0]}")
            at = value[1]
        rest = text[at:]
        separator = self.format.separator if members else ""
        heads = [separator + self._head(each) for each in left]
        if any(head.startswith(rest) for head in heads):  # the next argument may begin here
            return _members(members, open_=True), None
        return _members(members, open_=False), at

    def _head(self, parameter: _Parameter) -> str:
        return self.format.open.replace("{name}", parameter.name)

    def _value(self, parameter: _Parameter, text: str, at: int) -> tuple[str, int] | None:
        """The JSON text of a value, and where its close ends. None if the close is not there yet."""
        close = self.format.close
        end: int | None
        if parameter.raw:
            end = text.find(close, at)
            end = None if end < 0 else end
        else:
            end = json_end(text, at)
        if end is None or not text.startswith(close, end):
            return None
        written = text[at:end]
        value = json.dumps(written, ensure_ascii=False) if parameter.raw else _PYTHON.get(written, written)
        return value, end + len(close)


def _members(members: Sequence[str], open_: bool) -> str:
    """The beginning of a JSON object, or the whole object. Nothing as long as no member is known."""
    if open_:
        return "{" + ", ".join(members) if members else ""
    return "{" + ", ".join(members) + "}"


def json_end(text: str, at: int) -> int | None:
    """Where the JSON value ends that begins at a place. None if its end is not certain yet."""
    if at >= len(text):
        return None
    if text[at] not in '{["':
        found = _SCALAR.match(text, at)
        return found.end() if found and found.end() < len(text) else None
    depth, quoted, position = 0, False, at
    while position < len(text):
        character = text[position]
        if quoted:
            if character == "\\":
                position += 1
            elif character == '"':
                quoted = False
        elif character == '"':
            quoted = True
        else:
            depth += (character in "{[") - (character in "}]")
        position += 1
        if depth == 0 and not quoted:
            return position if position <= len(text) else None
    return None


def without_beginning(text: str, marker: str) -> str:
    """A text without an end that may begin a marker."""
    lengths = (size for size in range(min(len(marker), len(text)), 0, -1) if marker.startswith(text[-size:]))
    return text[: len(text) - next(lengths, 0)]


def schema_arguments(parameters: Mapping[str, Any] | None, calls: CallFormat, split: TextSplit) -> Arguments:
    """The arguments that satisfy the parameters of a function."""
    schema = NO_ARGUMENTS if parameters is None else {"type": "object", **parameters}
    single = calls.parameters
    if single is None:
        return JsonArguments(schema)
    found = _parameters(schema, single)
    return JsonArguments(schema, *single.whole) if found is None else SingleArguments(found, single, split)


def raw_arguments(part: Part, calls: CallFormat) -> Arguments:
    """The text of a custom tool, described by a part."""
    if calls.parameters is None or calls.parameters.python:
        return RawText(part, calls.tail or calls.trigger)
    before, after = (text.replace("{name}", "input") for text in (calls.parameters.open, calls.parameters.close))
    return RawText(part, calls.tail, before, after)


def _parameters(schema: Mapping[str, Any], single: ParameterFormat) -> tuple[_Parameter, ...] | None:
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
        _parameter(name, value, schema if name in properties else None, name in required, single)
        for name, value in schemas.items()
    )


def _parameter(
    name: str, schema: Any, root: Mapping[str, Any] | None, required: bool, single: ParameterFormat
) -> _Parameter:
    texts = _texts(schema, single.close.strip())
    if texts is not None and not single.python:
        return _Parameter(name, texts, required, raw=True)
    if single.python and isinstance(schema, dict) and schema.get("type") == "boolean" and set(schema) <= _ANNOTATIONS:
        return _Parameter(name, {"choice": list(_PYTHON)}, required, raw=False)
    part: dict[str, Any] = {"json_schema": schema}
    if root is not None and '"$ref"' in json.dumps(schema):
        pointer = urllib.parse.quote(name.replace("~", "~0").replace("/", "~1"))
        part = {"json_schema": {"$ref": f"{_URI}#/properties/{pointer}"}, "schemas": {_URI: root}}
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
