r"""General categories of Unicode in patterns, as `\p{Lu}` and `\P{Letter}`.

Python's `re` has no properties. Each is replaced by one character that the pattern does not hold, so that Python's
parser reads it as a character: outside classes, inside them, and under every flag. `unicodedata` defines the characters
of a category.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from compiler.automata import CODE_POINTS, CharSet, charset, charset_complement
from compiler.errors import SpecSyntaxError, SpecUnsupported, did_you_mean

_CATEGORIES = {  # the long names of general categories
    "Letter": "L", "Cased_Letter": "LC", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Titlecase_Letter": "Lt",
    "Modifier_Letter": "Lm", "Other_Letter": "Lo", "Mark": "M", "Nonspacing_Mark": "Mn", "Spacing_Mark": "Mc",
    "Enclosing_Mark": "Me", "Number": "N", "Decimal_Number": "Nd", "digit": "Nd", "Letter_Number": "Nl",
    "Other_Number": "No", "Punctuation": "P", "Connector_Punctuation": "Pc", "Dash_Punctuation": "Pd",
    "Open_Punctuation": "Ps", "Close_Punctuation": "Pe", "Initial_Punctuation": "Pi", "Final_Punctuation": "Pf",
    "Other_Punctuation": "Po", "Symbol": "S", "Math_Symbol": "Sm", "Currency_Symbol": "Sc", "Modifier_Symbol": "Sk",
    "Other_Symbol": "So", "Separator": "Z", "Space_Separator": "Zs", "Line_Separator": "Zl",
    "Paragraph_Separator": "Zp", "Other": "C", "Control": "Cc", "Format": "Cf", "Private_Use": "Co",
    "Unassigned": "Cn",
}  # fmt: skip
_NAMES = _CATEGORIES | {short: short for short in _CATEGORIES.values()}
_CASED = ("Lu", "Ll", "Lt")
_ASCII_END = 128
_PROPERTY = re.compile(r"\\[pP]\{(?:(?:gc|General_Category)=)?(?P<name>[^{}]*)\}")
# A backslash takes the next character with it everywhere, comments included.
_ESCAPE = re.compile(rf"{_PROPERTY.pattern}|\\.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Substitution:
    r"""A pattern in which a character stands for each property.

    text        the pattern for Python's parser
    properties  the spelling of each such character's property, as `\p{Lu}`, by code point
    lengths     of each property in the pattern, by the offset of its character in `text`
    """

    text: str
    properties: Mapping[int, str]
    lengths: Mapping[int, int]

    def offset(self, position: int | None) -> int | None:
        """The offset in the pattern of one in `text`."""
        if position is None:
            return None
        return position + sum(length - 1 for at, length in self.lengths.items() if at < position)

    def restore(self, message: str) -> str:
        """A message with the spellings of properties."""
        return message.translate(dict(self.properties))


def substitute_properties(pattern: str) -> Substitution:
    r"""Put a character in the place of each general category.

    Others stay, since `\p` may stand in a comment, too. Python's parser refuses them elsewhere, as a bad escape.

    >>> ascii(substitute_properties(r"\p{Lu}[^\P{L}]\p{Lu}").text)
    "'\\U0010ffff[^\\U0010fffe]\\U0010ffff'"
    """
    pieces, lengths, done, size = list[str](), dict[int, int](), 0, 0
    chars, codes = dict[str, str](), _absent_code_points(pattern)
    for token in _ESCAPE.finditer(pattern):
        if token["name"] not in _NAMES:
            continue
        if token[0] not in chars:
            chars[token[0]] = chr(next(codes))
        pieces += (pattern[done : token.start()], chars[token[0]])
        size += token.start() - done
        lengths[size] = len(token[0])
        done, size = token.end(), size + 1
    text = "".join([*pieces, pattern[done:]])
    return Substitution(text, {ord(char): spelling for spelling, char in chars.items()}, lengths)


def property_error(pattern: str, position: int) -> SpecSyntaxError | SpecUnsupported:
    """Why the property at an offset was not read.

    It has no name in braces, or is no general category.
    """
    token = _PROPERTY.match(pattern, position)
    if token is None:
        message = r"not a pattern: \p needs a general category in braces, as \p{Lu}"
        return SpecSyntaxError(message, source=pattern, position=position)
    message = r"\p{...} of a pattern names a general category, as \p{Lu}; other properties are not supported"
    hint = did_you_mean(token["name"].capitalize(), _NAMES)
    return SpecUnsupported(message + hint, construct="property", position=position)


def _absent_code_points(pattern: str) -> Iterator[int]:
    r"""Code points that the pattern names nowhere. Beyond U+FFFF an escape has the form \U0010ffff."""
    lowered, chars = pattern.lower(), set(pattern)
    codes = range(sys.maxunicode, 0xFFFF, -1)
    return (code for code in codes if chr(code) not in chars and f"{code:08x}" not in lowered)


@lru_cache(maxsize=256)
def property_set(spelling: str, fold_case: bool = False, ascii_only: bool = False) -> CharSet:
    r"""The characters of a property.

    fold_case   whether Lu, Ll and Lt are all letters that have a case
    ascii_only  whether a category has only its characters in ASCII

    >>> property_set(r"\p{Lu}", ascii_only=True)
    ((65, 91),)
    """
    token = _PROPERTY.fullmatch(spelling)
    assert token is not None
    short = _NAMES[token["name"]]
    names = _CASED if short == "LC" or (fold_case and short in _CASED) else (short,)
    end = _ASCII_END if ascii_only else CODE_POINTS
    characters = charset((low, min(high, end)) for low, high, name in _category_runs() if name.startswith(names))
    return charset_complement(characters) if spelling[1] == "P" else characters


@lru_cache(maxsize=1)
def _category_runs() -> tuple[tuple[int, int, str], ...]:
    """The runs of characters of one general category, half-open."""
    runs, low = [], 0
    for name, group in groupby(map(unicodedata.category, map(chr, range(sys.maxunicode + 1)))):
        high = low + sum(1 for _ in group)
        runs.append((low, high, name))
        low = high
    return tuple(runs)
