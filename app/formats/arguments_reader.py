"""Reads arguments of calls.

What is read is JSON text, or the text of a custom tool. It grows as an answer is generated: what was read of its
beginning begins it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Discriminator

from app.formats.tool_formats import ParameterFormat

_SCALAR = re.compile(r"[^\s,)\]}<]+")
# A sign, a string of JSON or a word, which is a key before a colon.
_PIECE = re.compile(r'\s*(?:([{}\[\],:])|("(?:[^"\\]|\\.)*")|([^\s,:{}\[\]"<]+)(?:(?=(:))|(?=[\s,}\]])))', re.DOTALL)
_SPACED = {",": ", ", ":": ": "}
MayEnd = Callable[[int], bool]  # whether the arguments of a call may end at a place
PYTHON_VALUES = {"True": "true", "False": "false"}


@dataclass(frozen=True, slots=True)
class JsonReader:
    """Reads one JSON object between two texts."""

    before: str = ""
    after: str = ""
    kind: Literal["json"] = "json"

    def read(self, text: str, at: int, may_end: MayEnd) -> tuple[str, int | None]:
        """The arguments at a place in a text, and where they end.

        The end is None if it is not there yet.
        """
        at += len(self.before)
        end = json_end(text, at)
        if end is None:
            return text[at:], None
        return text[at:end], end + len(self.after) if len(text) >= end + len(self.after) else None


@dataclass(frozen=True, slots=True)
class RawReader:
    """Reads the text of a custom tool, up to another text. Without that one it ends with the answer.

    The text may contain the other one, such as the bracket that closes a call in Python.
    """

    end: str
    before: str = ""
    after: str = ""
    kind: Literal["raw"] = "raw"

    def read(self, text: str, at: int, may_end: MayEnd) -> tuple[str, int | None]:
        """The text at a place, and where it ends; as of `JsonReader`."""
        at += len(self.before)
        ends = self.after + self.end
        end = text.find(ends, at) if ends else -1
        while end >= 0 and not may_end(end + len(self.after)):
            end = text.find(ends, end + 1)
        if end >= 0:
            return text[at:end], end + len(self.after)
        return without_beginning(text[at:], ends), None


@dataclass(frozen=True, slots=True)
class SingleReader:
    """Reads arguments one by one.

    parameters  names, each with whether its values are strings without quotation marks
    """

    parameters: tuple[tuple[str, bool], ...]
    format: ParameterFormat
    kind: Literal["single"] = "single"

    def read(self, text: str, at: int, may_end: MayEnd) -> tuple[str, int | None]:
        """The arguments at a place, and where they end; as of `JsonReader`."""
        members, left = list[str](), dict(self.parameters)
        while True:
            start = at + len(self.format.separator if members else "")
            name = next((each for each in left if text.startswith(self._head(each), start)), None)
            if members and not text.startswith(self.format.separator, at):
                name = None
            if name is None:
                break
            value = self._value(left.pop(name), text, start + len(self._head(name)))
            if value is None:
                return _members(members, open_=True), None
            members.append(f"{json.dumps(name, ensure_ascii=False)}: {value[0]}")
            at = value[1]
        rest = text[at:]
        separator = self.format.separator if members else ""
        heads = [separator + self._head(each) for each in left]
        if any(head.startswith(rest) for head in heads):  # the next argument may begin here
            return _members(members, open_=True), None
        return _members(members, open_=False), at

    def _head(self, name: str) -> str:
        return self.format.open.replace("{name}", name)

    def _value(self, raw: bool, text: str, at: int) -> tuple[str, int] | None:
        """The JSON text of a value, and where its close ends. None if the close is not there yet."""
        close = self.format.close
        end: int | None
        if raw:
            end = text.find(close, at)
            end = None if end < 0 else end
        else:
            end = json_end(text, at)
        if end is None or not text.startswith(close, end):
            return None
        written = text[at:end]
        value = json.dumps(written, ensure_ascii=False) if raw else PYTHON_VALUES.get(written, written)
        return value, end + len(close)


@dataclass(frozen=True, slots=True)
class QuotedReader:
    """Reads an object with bare keys, whose strings stand between quotes. It reads JSON, too."""

    quote: str
    kind: Literal["quoted"] = "quoted"

    def read(self, text: str, at: int, may_end: MayEnd) -> tuple[str, int | None]:
        """The arguments at a place, and where they end; as of `JsonReader`."""
        written, depth = list[str](), 0
        while (piece := self._piece(text, at)) is not None:
            value, at = piece
            written.append(value)
            depth += (value in ("{", "[")) - (value in ("}", "]"))
            if depth == 0:
                return "".join(written), at
        return "".join(written), None

    def _piece(self, text: str, at: int) -> tuple[str, int] | None:
        """The JSON text of a string, word or sign, and its end. None if it is not there yet."""
        if text.startswith(self.quote, at):
            start = at + len(self.quote)
            end = text.find(self.quote, start)
            return None if end < 0 else (json.dumps(text[start:end], ensure_ascii=False), end + len(self.quote))
        found = _PIECE.match(text, at)
        if found is None:
            return None
        sign, string, word, is_key = found.groups()
        return (_SPACED.get(sign, sign) or string or (json.dumps(word) if is_key else word)), found.end()


ArgumentsReader = Annotated[JsonReader | RawReader | SingleReader | QuotedReader, Discriminator("kind")]


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
