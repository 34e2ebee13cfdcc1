r"""Patterns of ECMAScript, which JSON Schema prescribes, in the syntax of Python.

The classes `\d \w \s` and `.` have the meaning of ECMAScript, whose first two are ASCII alone. Escapes and names of
groups are rewritten; all other syntax is common to both, as are the properties `\p{...}`, which `compiler.regex` adds
to Python's. Knows nothing of schemas and automata.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

_Ranges = tuple[tuple[int, int], ...]  # inclusive
_LAST = sys.maxunicode
_SPACES: _Ranges = (
    (0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F),
    (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
)  # fmt: skip
_CLASSES: dict[str, _Ranges] = {
    "d": ((0x30, 0x39),), "w": ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)), "s": _SPACES,
}  # fmt: skip
_WORD = "[0-9A-Z_a-z]"
_BOUNDARIES = {
    "b": f"(?:(?<={_WORD})(?!{_WORD})|(?<!{_WORD})(?={_WORD}))",
    "B": f"(?:(?<={_WORD})(?={_WORD})|(?<!{_WORD})(?!{_WORD}))",
}
_LINE_ENDS: _Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
_TOKEN = re.compile(
    r"(?P<empty>\[\^?\])|\\(?P<class>[dDwWsS])|\\c(?P<control>[A-Za-z])"
    r"|\\u(?P<high>[dD][89abAB]\w\w)\\u(?P<low>[dD][c-fC-F]\w\w)|\\u\{(?P<code>[0-9A-Fa-f]{1,6})\}|\\(?P<null>0)(?![0-9])"
    r"|\\(?P<slash>/)|\\(?P<boundary>[bB])|(?P<other>\\.)|(?P<name>\(\?<(?![=!]))|(?P<bracket>[\[\].])",
    re.DOTALL,
)


def to_python(pattern: str) -> str:
    r"""The same pattern for Python's `re`. Syntax that is not known is left as it is.

    >>> to_python(r"^\d\/(?<unit>[\w%])\cJ$")
    '^[\\x30-\\x39]/(?P<unit>[\\x30-\\x39\\x41-\\x5a\\x5f\\x61-\\x7a%])\\x0a$'
    """
    pieces, done, inside = [], 0, False
    for token in _TOKEN.finditer(pattern):
        pieces.append(pattern[done : token.start()])
        done = token.end()
        if token["bracket"] or token["empty"]:
            piece, inside = _bracket(token[0], inside)
            pieces.append(piece)
        else:
            pieces.append(_translated(token, inside))
    return "".join([*pieces, pattern[done:]])


def _bracket(text: str, inside: bool) -> tuple[str, bool]:
    """Brackets or a dot, and whether a class is open behind them."""
    if text == ".":
        return "." if inside else f"[{_class(_complement(_LINE_ENDS))}]", inside
    if inside:
        return text.replace("[", "\\["), not text.endswith("]")
    # `[]` matches nothing and `[^]` everything; in Python the bracket would be a member.
    everything = _class(_complement(()))
    return {"[]": f"[^{everything}]", "[^]": f"[{everything}]"}.get(text, text), text == "["


def _translated(token: re.Match[str], inside: bool) -> str:
    ranges: _Ranges | None = None
    if token["class"]:
        ranges = _CLASSES[token["class"].lower()]
        ranges = _complement(ranges) if token["class"].isupper() else ranges
    elif token["control"]:
        return _char(ord(token["control"]) % 32)
    elif token["high"]:
        return f"\\U{0x10000 + (int(token['high'], 16) - 0xD800) * 0x400 + int(token['low'], 16) - 0xDC00:08x}"
    elif token["code"] and int(token["code"], 16) <= _LAST:
        return _char(int(token["code"], 16))
    elif token["null"]:
        return "\\x00"
    elif token["slash"]:
        return "/"
    elif token["boundary"] and not inside:
        return _BOUNDARIES[token["boundary"]]
    elif token["name"]:
        return "(?<" if inside else "(?P<"
    if ranges is None:
        return token[0]
    return _class(ranges) if inside else f"[{_class(ranges)}]"


def _char(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _class(ranges: Iterable[tuple[int, int]]) -> str:
    """The ranges as members of a class."""
    return "".join(_char(low) if low == high else f"{_char(low)}-{_char(high)}" for low, high in ranges)


def _complement(ranges: _Ranges) -> _Ranges:
    edges = [-1, *(edge for pair in ranges for edge in pair), _LAST + 1]
    gaps = zip(edges[::2], edges[1::2], strict=True)
    return tuple((low + 1, high - 1) for low, high in gaps if low + 1 < high)
