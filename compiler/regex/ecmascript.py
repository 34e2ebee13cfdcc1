r"""Parses patterns of JSON Schema into trees. These are patterns of ECMAScript 2025 with the flag u.

Some syntax that `u` refuses is read as ECMAScript reads it without `u`, where no common dialect means something else:
`\-`, `\_`, `{x}`, `a]`, `[\w-.]`. Syntax of other dialects is refused by name, with what to write in its place. Owns
the syntax, the flags and the refusals. Knows nothing of automata.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from compiler.automata import ANYTHING, CharSet, charset, contains, single
from compiler.errors import SpecSyntaxError, SpecUnsupported
from compiler.limits import ResourceGuard
from compiler.regex.ecmascript_sets import NO_LINE_END, class_set, fold_case, named_set
from compiler.regex.nodes import Anchor, Chars, Look, Node, Repeat, alternation, concat, word_boundary
from compiler.regex.properties import property_set, read_property

_Flags: TypeAlias = frozenset[str]  # of i, m and s

_HEX = "[0-9A-Fa-f]"
_UNICODE = (
    rf"u(?P<high>[dD][89abAB]{_HEX}{{2}})\\u(?P<low>[dD][c-fC-F]{_HEX}{{2}})|u(?P<four>{_HEX}{{4}})"
    rf"|u\{{0*(?P<many>(?:10|{_HEX}?){_HEX}{{4}}|{_HEX}{{1,4}})\}}"
)
_NAME_ESCAPE = re.compile(rf"\\(?:{_UNICODE})")
_ESCAPE = re.compile(
    r"\\(?:(?P<set>[dDsSwW])|(?P<property>[pP])|(?P<control>[bfnrtv]|0(?![0-9]))|c(?P<letter>[A-Za-z])"
    rf"|x(?P<two>{_HEX}{{2}})|{_UNICODE}|(?P<itself>[^A-Za-z0-9]))",
    re.DOTALL,
)
_CONTROLS = {"0": 0, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
_BOUNDARY = re.compile(r"\\([bB])")
_LOOK = re.compile(r"\(\?(<?)([=!])")
_GROUP = re.compile(r"\((?!\?)|\(\?(?:<(?P<name>[^=!>][^>]*)>|(?P<on>[ims]*)(?:-(?P<off>[ims]*))?:)")
_CLASS = re.compile(r"\[(\^?)")
_HYPHEN = re.compile(r"-(?!\])")
_REPEAT = re.compile(r"(?:[*?+]|\{(?P<low>[0-9]+)(?P<open>,(?P<high>[0-9]*))?\})(?:\?|(?P<possessive>\+))?")
_COUNT_LIKE = re.compile(r"\{(?=[^}]*[0-9,])[0-9,\s]*\}")
_SIGNS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_DIGITS_MAX = 20  # more make a count that is above every limit

_BACK_REFERENCE = "write out the texts that it may repeat"
_GROUPS = [  # of other dialects: how each begins, its name, and what to write in its place
    (r"\(\?(?:P<|')", "named group of another dialect", "write (?<name>...)"),
    (r"\(\?P=", "back-reference", _BACK_REFERENCE),
    (r"\(\?(?:P>|&|R|[-+]?[0-9])", "recursion", "write out as many levels as are needed"),
    (r"\(\?#", "comment", "leave it out"),
    (r"\(\?>", "atomic group", "write the pattern without it"),
    (r"\(\?\(", "conditional group", "write both cases as alternatives"),
    (r"\(\?\|", "branch reset", "write (?:...)"),
    (r"\(\?[a-zA-Z^-]+\)", "inline flags", "write (?i:...) around what they apply to; the flags are i, m and s"),
    (r"\(\?[a-zA-Z^-]+:", "flags of a group", "the flags are i, m and s, each once, as in (?i-s:...)"),
]
_ESCAPES = {  # of other dialects, by their letter
    "a": r"write \x07",
    "e": r"write \x1b",
    "A": "write ^",
    "Z": "write $",
    "z": "write $",
    "G": "leave it out",
    "h": r"write [ \t]",
    "H": r"write [^ \t]",
    "V": r"write [^\n\v\f\r]",
    "R": r"write (?:\r\n|\n|\r)",
    "N": r"write [^\n], or a character itself in place of its name",
    "X": r"write \P{M}\p{M}*",
    "K": "write (?<=...) around what stands before it",
    "g": _BACK_REFERENCE,
    "Q": "write a backslash before each character of syntax",
    "E": "leave it out",
    "U": r"write \u{1F600}",
    "u": r"write four hexadecimal digits, as \u00e9, or \u{1F600}",
    "x": r"write two hexadecimal digits, as \xe9, or \u{1F600}",
    "c": r"write \cA to \cZ",
}


def parse_ecmascript(pattern: str, guard: ResourceGuard) -> Node:
    r"""The tree of a pattern.

    Raises SpecSyntaxError (with the offset) for what is no pattern; SpecUnsupported (with the offset) for syntax of
    other dialects, back-references and unknown properties; LimitExceeded over `pattern_chars_max` or
    `nesting_depth_max`.
    """
    guard.check("pattern_chars_max", len(pattern))
    with guard.recursion():
        return _EcmaScriptReader(pattern, guard).read()


class _EcmaScriptReader:
    """Reads a pattern from left to right. `flags`: those in force where it is; `depth`: the groups around it."""

    def __init__(self, pattern: str, guard: ResourceGuard) -> None:
        self._pattern, self._guard, self._at = pattern, guard, 0
        # Groups that can take part in a match with what is read next. These may not have its name.
        self._names: frozenset[str] = frozenset()
        self._nodes: dict[CharSet, Chars] = {}  # `alternation` compares nodes, and equal ones are then identical
        self._nests_classes = False  # whether a class was read that another dialect would read as a longer one

    def read(self) -> Node:
        node = self._disjunction(frozenset(), 0)
        if self._at < len(self._pattern):
            raise self._error("unbalanced parenthesis", self._at)
        return node

    def _disjunction(self, flags: _Flags, depth: int) -> Node:
        self._guard.check("nesting_depth_max", depth)
        self._guard.check_time()
        before = names = self._names
        branches = [self._alternative(flags, depth)]
        while self._take("|"):
            # Of two alternatives only one takes part in a match, so both may have a group of one name.
            names |= self._names
            self._names = before
            branches.append(self._alternative(flags, depth))
        self._names |= names
        return alternation(branches) if len(branches) > 1 else branches[0]

    def _alternative(self, flags: _Flags, depth: int) -> Node:
        items = list[Node]()
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            items.append(self._assertion(flags, depth) or self._repeated(self._atom(flags, depth)))
        return concat(items)

    def _assertion(self, flags: _Flags, depth: int) -> Node | None:
        """A condition on a place."""
        start = self._at
        if (char := self._take("^") or self._take("$")) and "m" in flags:
            return Look(Chars(NO_LINE_END), behind=char == "^", negative=True)
        if char:
            return Anchor("start" if char == "^" else "end")
        if boundary := self._match(_BOUNDARY):
            return word_boundary(named_set("w", "i" in flags), at_boundary=boundary[1] == "b")
        if look := self._match(_LOOK):
            node = Look(self._body(flags, depth, start), behind=bool(look[1]), negative=look[2] == "!")
            return node if node.behind else self._repeated(node)  # without `u`, a look-ahead may be repeated
        return None

    def _atom(self, flags: _Flags, depth: int) -> Node:
        start, char = self._at, self._pattern[self._at]
        if char == "(":
            return self._group(flags, depth)
        if char == "[":
            return self._chars(self._class(flags), frozenset())
        if char == "\\":
            return self._chars(self._escape(flags), flags)
        if _REPEAT.match(self._pattern, start):
            raise self._error("nothing to repeat", start)
        if _COUNT_LIKE.match(self._pattern, start):
            advice = r"write {0,3} for {,3}, without spaces, and \{ for the character"
            raise self._refusal("repeat count", advice, start)
        if char == "]" and self._nests_classes:
            advice = r"write \] for the character, and no class inside a class: [A-Za-z_] for [[:alpha:]_]"
            raise self._refusal("lone bracket", advice, start)
        self._at += 1
        if char == ".":
            return self._chars(ANYTHING if "s" in flags else NO_LINE_END, frozenset())
        return self._chars(ord(char), flags)

    def _repeated(self, node: Node) -> Node:
        start = self._at
        repeat = self._match(_REPEAT)
        if repeat is None:
            return node
        if repeat["possessive"]:
            raise self._refusal("possessive repeat", "write the pattern without it", start)
        if repeat["low"] is None:
            return Repeat(node, *_SIGNS[repeat[0][0]])
        low = _count(repeat["low"])
        high: int | None = low
        if repeat["open"]:
            high = _count(repeat["high"]) if repeat["high"] else None
        if high is not None and high < low:
            raise self._error("min repeat greater than max repeat", start)
        return Repeat(node, low, high)

    def _group(self, flags: _Flags, depth: int) -> Node:
        start = self._at
        group = self._match(_GROUP)
        if group is None:
            raise self._group_refusal(start)
        if group["name"] is not None:
            self._add_name(group["name"], group.start("name"))
        elif group["on"] is not None:
            on, off = group["on"], group["off"] or ""
            if len({*on, *off}) < len(on + off) or group[0] == "(?-:":
                raise self._group_refusal(start)
            flags = flags.union(on).difference(off)
        return self._body(flags, depth, start)

    def _body(self, flags: _Flags, depth: int, start: int) -> Node:
        """What stands in a group that begins at an offset."""
        node = self._disjunction(flags, depth + 1)
        if not self._take(")"):
            raise self._error("missing ), unterminated group", start)
        return node

    def _add_name(self, name: str, start: int) -> None:
        name = _NAME_ESCAPE.sub(lambda token: chr(_code_point(token)), name)
        starts, continues = property_set(r"\p{ID_Start}"), property_set(r"\p{ID_Continue}")
        if not (name[0] in "$_" or contains(starts, ord(name[0]))) or not all(
            char in "$\u200c\u200d" or contains(continues, ord(char)) for char in name[1:]
        ):
            raise self._error("bad group name", start)
        if name in self._names:
            raise self._error("two groups of one alternative have the same name", start)
        self._names |= {name}

    def _class(self, flags: _Flags) -> CharSet:
        start, ignore_case = self._at, "i" in flags
        opened = self._match(_CLASS)
        assert opened is not None
        sets = list[CharSet]()
        while not self._take("]"):
            place = self._at
            item = self._class_item(flags, start)
            if not self._match(_HYPHEN):
                sets.append(_set_of(item))
                continue
            last = self._class_item(flags, start)
            source = self._pattern[place : self._at]
            if isinstance(item, int) and isinstance(last, int):
                if last < item:
                    raise self._error(f"bad character range {source}", place)
                sets.append(charset(((item, last + 1),)))
            elif r"\p" in source.lower():
                raise self._refusal("range of a property", r"write \- for the hyphen", place)
            else:  # a hyphen beside an escape such as \w is itself, as without `u`
                sets += (_set_of(item), single(ord("-")), _set_of(last))
        self._nests_classes |= not sets
        self._guard.check_time()
        return class_set(tuple(sets), ignore_case, bool(opened[1]))

    def _class_item(self, flags: _Flags, start: int) -> int | CharSet:
        if self._at == len(self._pattern):
            raise self._error("unterminated character class", start)
        char = self._pattern[self._at]
        if char == "\\":
            return self._escape(flags, in_class=True)
        self._nests_classes |= char == "["
        self._at += 1
        return ord(char)

    def _escape(self, flags: _Flags, *, in_class: bool = False) -> int | CharSet:
        """The character of an escape, or the set that it names."""
        start = self._at
        token = self._match(_ESCAPE)
        if token is None:
            raise self._escape_refusal(start, in_class)
        if token["property"]:
            spelling = read_property(self._pattern, start)
            self._at = start + len(spelling)
            return property_set(spelling)
        if token["set"]:
            return named_set(token["set"], "i" in flags)
        if token["control"]:
            return _CONTROLS[token["control"]]
        if token["letter"]:
            return ord(token["letter"]) % 32
        if token["two"]:
            return int(token["two"], 16)
        return ord(token["itself"]) if token["itself"] else _code_point(token)

    def _chars(self, characters: int | CharSet, flags: _Flags) -> Node:
        found = _set_of(characters)
        if "i" in flags:
            found = fold_case(found)
        return self._nodes.setdefault(found, Chars(found))

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """What stands here, which is then read."""
        match = pattern.match(self._pattern, self._at)
        if match:
            self._at = match.end()
        return match

    def _take(self, char: str) -> str:
        """A character, if it stands here. It is then read."""
        if not self._pattern.startswith(char, self._at):
            return ""
        self._at += 1
        return char

    def _error(self, message: str, position: int) -> SpecSyntaxError:
        return SpecSyntaxError(f"not a pattern: {message}", source=self._pattern, position=position)

    def _refusal(self, construct: str, advice: str, position: int) -> SpecUnsupported:
        message = f"the construct {construct} is not supported in a pattern of a schema: {advice}"
        return SpecUnsupported(message, construct=construct, position=position)

    def _group_refusal(self, start: int) -> SpecUnsupported | SpecSyntaxError:
        for mark, construct, advice in _GROUPS:
            if re.match(mark, self._pattern[start:]):
                return self._refusal(construct, advice, start)
        return self._error("unknown extension after (?", start)

    def _escape_refusal(self, start: int, in_class: bool) -> SpecUnsupported | SpecSyntaxError:
        char = self._pattern[start + 1 : start + 2]
        if not char:
            return self._error("bad escape (end of pattern)", start)
        if char.isdigit() and (in_class or char == "0"):
            return self._refusal("octal escape", r"write \x and two hexadecimal digits", start)
        if char.isdigit() or re.match(r"\\k[<{']", self._pattern[start:]):
            return self._refusal("back-reference", _BACK_REFERENCE, start)
        return self._refusal(f"\\{char}", _ESCAPES.get(char, f"write {char} for the letter"), start)


def _set_of(characters: int | CharSet) -> CharSet:
    return single(characters) if isinstance(characters, int) else characters


def _code_point(token: re.Match[str]) -> int:
    """The code point of an escape, or of a surrogate pair."""
    if token["high"]:
        return 0x10000 + (int(token["high"], 16) - 0xD800) * 0x400 + int(token["low"], 16) - 0xDC00
    return int(token["four"] or token["many"], 16)


def _count(digits: str) -> int:
    return int(digits.lstrip("0")[:_DIGITS_MAX] or "0")
