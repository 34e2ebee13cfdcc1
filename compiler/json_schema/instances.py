"""Reads the JSON text of an instance (RFC 8259).

Values know where they stand, and numbers are exact decimals. A text with equal keys has two readings, since parsers
keep the last value of such a key or the first. Stricter than most parsers: no NaN, no half of a surrogate pair. Knows
no schema.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from compiler.limits import ResourceGuard

_TOKEN = re.compile(
    r'(?P<space>[ \t\n\r]+)|(?P<mark>[][{},:])|(?P<string>"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*")'
    r"|(?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)|(?P<literal>true|false|null)(?![A-Za-z])"
)
_LITERALS = {"true": True, "false": False, "null": None}
_PARTIAL = re.compile(  # the beginning of a token, at the end of a text
    r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*(?:\\(?:u[0-9A-Fa-f]{0,3})?)?'
    r"|-|\.|[eE][+-]?|t(?:r(?:u)?)?|f(?:a(?:l(?:s)?)?)?|n(?:u(?:l)?)?"
)
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_VALUE, _KEY, _COLON, _COMMA, _END = "a value", "a key", "a colon", "a comma", "the end"  # what may come next
_TOO_EARLY = "the JSON text ends too early"
_SHOWN_CHARS_MAX = 200  # of a path


class InstanceSyntaxError(ValueError):
    """The text is no JSON text. `offset` is where, in characters."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message, self.offset = message, offset


@dataclass(frozen=True, slots=True, eq=False)
class JsonValue:
    """A value, and where it stands. Values are compared by identity.

    value   None, a boolean, a decimal or a string, or a container of such values
    offset  of its first character in the text
    parent  the array or object around it; a key's is that of its object
    step    the key or index there; None for the outermost value and for keys
    """

    value: bool | Decimal | str | list[JsonValue] | dict[str, JsonValue] | None
    offset: int
    parent: JsonValue | None = None
    step: str | int | None = None

    @property
    def depth(self) -> int:
        """How many arrays and objects are around it."""
        count, parent = 0, self.parent
        while parent is not None:
            count, parent = count + 1, parent.parent
        return count

    @property
    def path(self) -> str:
        """The path to it, as `$.items[3].price`. A long path is cut."""
        steps, value = [], self
        while value.parent is not None:
            if isinstance(value.step, int):
                steps.append(f"[{value.step}]")
            elif value.step is not None:
                plain = _NAME.fullmatch(value.step)
                steps.append(f".{value.step}" if plain else f"[{json.dumps(value.step, ensure_ascii=False)}]")
            value = value.parent
        path = "".join(["$", *reversed(steps)])
        return path if len(path) <= _SHOWN_CHARS_MAX else path[:_SHOWN_CHARS_MAX] + "…"


def parse_instance(text: str, guard: ResourceGuard) -> list[JsonValue]:
    """The readings of a JSON text: its value, or two values.

    Where a key occurs twice, they are the value with its last and the value with its first.

    Raises InstanceSyntaxError, LimitExceeded over `compile_s_max`.

    >>> from compiler.limits import Limits
    >>> guard = ResourceGuard(Limits())
    >>> [value] = parse_instance('{"a": [1, 2.50]}', guard)
    >>> value.value["a"].value[1].path
    '$.a[1]'
    >>> [value.value["a"].value for value in parse_instance('{"a": true, "a": null}', guard)]
    [None, True]
    """
    parser = _InstanceParser(text, guard)
    last = parser.parse()
    return [last, _InstanceParser(text, guard, keeps_first=True).parse()] if parser.repeats_keys else [last]


class _InstanceParser:
    """A parser with a stack of its own, for any nesting.

    repeats_keys  whether an object read so far has equal keys
    """

    def __init__(self, text: str, guard: ResourceGuard, *, keeps_first: bool = False) -> None:
        """keeps_first: whether the first of equal keys counts, not the last."""
        self._text, self._guard = text, guard
        self._keeps_first, self.repeats_keys = keeps_first, False
        self._open: list[JsonValue] = []  # the arrays and objects around the current place
        self._key: str | None = None  # the key whose value comes next
        self._root: JsonValue | None = None
        self._expected, self._may_close = _VALUE, False

    def parse(self) -> JsonValue:
        offset = 0
        while offset < len(self._text):
            self._guard.check_time()
            token = _TOKEN.match(self._text, offset)
            if token is None:
                raise self._fault(offset)
            if token.lastgroup != "space":
                self._read(token)
            offset = token.end()
        if self._root is None or self._open:
            raise InstanceSyntaxError(_TOO_EARLY, len(self._text))
        return self._root

    def _fault(self, offset: int) -> InstanceSyntaxError:
        if _PARTIAL.fullmatch(self._text, offset):
            return InstanceSyntaxError(_TOO_EARLY, len(self._text))
        message = f"{self._expected} is expected here in the JSON text"
        if self._text[offset] == '"' and self._expected in (_VALUE, _KEY):
            message = "this string of the JSON text has a wrong escape or character"
        return InstanceSyntaxError(message, offset)

    def _read(self, token: re.Match[str]) -> None:
        kind, text, offset = token.lastgroup, token[0], token.start()
        if kind == "mark" and text not in "[{":
            self._punctuation(text, offset)
        elif self._expected == _KEY and kind == "string":
            self._key, self._expected, self._may_close = self._string(text, offset), _COLON, False
        elif self._expected != _VALUE:
            raise self._fault(offset)
        elif kind == "mark":
            self._add([] if text == "[" else {}, offset)
        elif kind == "string":
            self._add(self._string(text, offset), offset)
        else:
            self._add(_LITERALS[text] if kind == "literal" else self._number(text, offset), offset)

    def _punctuation(self, mark: str, offset: int) -> None:
        within = self._open[-1].value if self._open else None
        closing = "]" if isinstance(within, list) else "}"
        if mark == ":" and self._expected == _COLON:
            self._expected, self._may_close = _VALUE, False
        elif mark == "," and self._expected == _COMMA:
            self._expected, self._may_close = _VALUE if isinstance(within, list) else _KEY, False
        elif self._open and mark == closing and (self._may_close or self._expected == _COMMA):
            self._open.pop()
            self._after_value()
        else:
            raise self._fault(offset)

    def _add(self, value: bool | Decimal | str | list[JsonValue] | dict[str, JsonValue] | None, offset: int) -> None:
        parent = self._open[-1] if self._open else None
        added = JsonValue(value, offset, parent)
        if parent is None:
            self._root = added
        elif isinstance(parent.value, list):
            added = JsonValue(value, offset, parent, len(parent.value))
            parent.value.append(added)
        elif isinstance(parent.value, dict) and self._key is not None:
            added, is_new = JsonValue(value, offset, parent, self._key), self._key not in parent.value
            self.repeats_keys |= not is_new
            if is_new or not self._keeps_first:
                parent.value[self._key] = added
        if isinstance(value, list | dict):
            self._open.append(added)
            self._expected, self._may_close = _VALUE if isinstance(value, list) else _KEY, True
        else:
            self._after_value()

    def _after_value(self) -> None:
        self._expected, self._may_close = (_COMMA if self._open else _END), False

    def _string(self, token: str, offset: int) -> str:
        string: str = json.loads(token)
        if not string.isascii() and any("\ud800" <= char <= "\udfff" for char in string):
            raise InstanceSyntaxError("this string of the JSON text holds half a surrogate pair", offset)
        return string

    def _number(self, token: str, offset: int) -> Decimal:
        try:
            return Decimal(token)
        except InvalidOperation:
            raise InstanceSyntaxError("this number of the JSON text has too large an exponent", offset) from None
