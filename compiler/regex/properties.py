r"""Properties of Unicode in patterns, as `\p{Lu}`, `\P{Letter}`, `\p{Script=Greek}` and `\p{Emoji}`.

Python's `re` has no properties. Each is replaced by one character that the pattern does not hold, so that Python's
parser reads it as a character: outside classes, inside them, and under every flag. `unicodedata` defines the characters
of a general category, the package `regex` those of a script or a binary property. The names are ECMAScript's (ECMA-262,
tables 67 to 70).
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import regex

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
    "Unassigned": "Cn", "Combining_Mark": "M", "cntrl": "Cc", "punct": "P",
}  # fmt: skip
_NAMES = _CATEGORIES | {short: short for short in _CATEGORIES.values()}
_CASED = ("Lu", "Ll", "Lt")
# ECMAScript has one more, Changes_When_NFKC_Casefolded.
_BINARY_NAMES = """
    AHex ASCII ASCII_Hex_Digit Alpha Alphabetic Any Assigned Bidi_C Bidi_Control Bidi_M Bidi_Mirrored CI CWCF CWCM CWL
    CWT CWU Case_Ignorable Cased Changes_When_Casefolded Changes_When_Casemapped Changes_When_Lowercased
    Changes_When_Titlecased Changes_When_Uppercased DI Dash Default_Ignorable_Code_Point Dep Deprecated Dia Diacritic
    EBase EComp EMod EPres Emoji Emoji_Component Emoji_Modifier Emoji_Modifier_Base Emoji_Presentation Ext ExtPict
    Extended_Pictographic Extender Gr_Base Gr_Ext Grapheme_Base Grapheme_Extend Hex Hex_Digit IDC IDS IDSB IDST
    IDS_Binary_Operator IDS_Trinary_Operator ID_Continue ID_Start Ideo Ideographic Join_C Join_Control LOE
    Logical_Order_Exception Lower Lowercase Math NChar Noncharacter_Code_Point Pat_Syn Pat_WS Pattern_Syntax
    Pattern_White_Space QMark Quotation_Mark RI Radical Regional_Indicator SD STerm Sentence_Terminal Soft_Dotted Term
    Terminal_Punctuation UIdeo Unified_Ideograph Upper Uppercase VS Variation_Selector White_Space XIDC XIDS
    XID_Continue XID_Start space
"""
_BINARY = frozenset(_BINARY_NAMES.split())
_SCRIPT = re.compile("(?:[A-Z][a-z]+_)*(?:[A-Z][a-z]+|SignWriting)")  # `regex` takes other spellings, too
_CATEGORY_KEYS, _SCRIPT_KEYS = ("gc", "General_Category"), ("sc", "Script", "scx", "Script_Extensions")
_ASCII_END = 128
_PROPERTY = re.compile(r"\\[pP]\{(?:(?P<key>\w+)=)?(?P<name>[^{}]*)\}")
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
    r"""Put a character in the place of each property.

    Unknown ones stay, since `\p` may stand in a comment, too. Python's parser refuses them elsewhere, as a bad escape.

    >>> ascii(substitute_properties(r"\p{Lu}[^\P{L}]\p{Lu}").text)
    "'\\U0010ffff[^\\U0010fffe]\\U0010ffff'"
    """
    pieces, lengths, done, size = list[str](), dict[int, int](), 0, 0
    chars, codes = dict[str, str](), _absent_code_points(pattern)
    for token in _ESCAPE.finditer(pattern):
        if token["name"] is None or not _is_property(token["key"], token["name"]):
            continue
        if token[0] not in chars:
            chars[token[0]] = chr(next(codes))
        pieces += (pattern[done : token.start()], chars[token[0]])
        size += token.start() - done
        lengths[size] = len(token[0])
        done, size = token.end(), size + 1
    text = "".join([*pieces, pattern[done:]])
    return Substitution(text, {ord(char): spelling for spelling, char in chars.items()}, lengths)


def _is_property(key: str | None, name: str) -> bool:
    if key in _SCRIPT_KEYS:
        return _is_script(name)
    return name in _NAMES if key in _CATEGORY_KEYS else key is None and (name in _NAMES or name in _BINARY)


@lru_cache(maxsize=256)
def _is_script(name: str) -> bool:
    if not _SCRIPT.fullmatch(name):
        return False
    try:
        regex.compile(rf"\p{{Script={name}}}")
    except regex.error:
        return False
    return True


def read_property(pattern: str, position: int) -> str:
    """The spelling of the property at an offset. Raises as `property_error` says."""
    token = _PROPERTY.match(pattern, position)
    if token is None or not _is_property(token["key"], token["name"]):
        raise property_error(pattern, position)
    return token[0]


def property_error(pattern: str, position: int) -> SpecSyntaxError | SpecUnsupported:
    """Why the property at an offset was not read.

    It has no name in braces, or Unicode has none of that name.
    """
    token = _PROPERTY.match(pattern, position)
    if token is None:
        message = r"not a pattern: \p needs a property in braces, as \p{Lu}"
        return SpecSyntaxError(message, source=pattern, position=position)
    message = r"\p{...} of a pattern names a general category, a script or a binary property of ECMAScript"
    message += r", as \p{Lu}, \p{Script=Greek} and \p{Emoji}"
    name = "_".join(map(str.capitalize, token["name"].split("_")))
    if token["key"] in (None, *_SCRIPT_KEYS) and _is_script(name):
        hint = f"; did you mean {token['key'] or 'Script'}={name}?"
    else:
        hint = did_you_mean(name, _NAMES if token["key"] in _CATEGORY_KEYS else [*_NAMES, *_BINARY])
    return SpecUnsupported(message + hint, construct="property", position=position)


def _absent_code_points(pattern: str) -> Iterator[int]:
    r"""Code points that the pattern names nowhere. Beyond U+FFFF an escape has the form \U0010ffff."""
    lowered, chars = pattern.lower(), set(pattern)
    codes = range(sys.maxunicode, 0xFFFF, -1)
    return (code for code in codes if chr(code) not in chars and f"{code:08x}" not in lowered)


@lru_cache(maxsize=256)
def property_set(spelling: str, fold_case: bool = False, ascii_only: bool = False) -> CharSet:
    r"""The characters of a property.

    fold_case   whether Lu, Ll, Lt, Lowercase and Uppercase are all letters that have a case
    ascii_only  whether a property has only its characters in ASCII

    >>> property_set(r"\p{Lu}", ascii_only=True)
    ((65, 91),)
    """
    token = _PROPERTY.fullmatch(spelling)
    assert token is not None
    runs = _named_runs(token["key"], token["name"], fold_case)
    end = _ASCII_END if ascii_only else CODE_POINTS
    characters = charset((low, min(high, end)) for low, high in runs)
    return charset_complement(characters) if spelling[1] == "P" else characters


def _named_runs(key: str | None, name: str, fold_case: bool) -> Iterator[tuple[int, int]]:
    """The runs of characters of a property, half-open."""
    if key not in _SCRIPT_KEYS and name in _NAMES:
        short = _NAMES[name]
        names = _CASED if short == "LC" or (fold_case and short in _CASED) else (short,)
        return ((low, high) for low, high, category in _category_runs() if category.startswith(names))
    spelling = f"{key}={name}" if key else name
    matcher = regex.compile(rf"\p{{{spelling}}}+", regex.IGNORECASE if fold_case else 0)
    return (found.span() for found in matcher.finditer(_all_characters()))


@lru_cache(maxsize=1)
def _all_characters() -> str:
    """All code points in order, each at its offset."""
    return "".join(map(chr, range(sys.maxunicode + 1)))


@lru_cache(maxsize=1)
def _category_runs() -> tuple[tuple[int, int, str], ...]:
    """The runs of characters of one general category, half-open, with its name."""
    runs, low = [], 0
    for name, group in groupby(map(unicodedata.category, _all_characters())):
        high = low + sum(1 for _ in group)
        runs.append((low, high, name))
        low = high
    return tuple(runs)
