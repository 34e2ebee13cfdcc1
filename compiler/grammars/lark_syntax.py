"""Parses Lark's grammar files into trees. Names are not resolved here."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TypeAlias

from compiler.grammars.scanner import Escapes, Scanner

_ESCAPES = Escapes(
    {"n": "\n", "f": "\f", "t": "\t", "r": "\r", "\\": "\\", '"': '"'},
    {"x": 2, "u": 4, "U": 8},
    r"\n, \f, \t, \r, \\, \", \xXX, \uXXXX or \UXXXXXXXX",
)
_COMMENT = r"(?://|#)[^\n]*+"
_INLINE = re.compile(rf"(?:[ \t\f]|\\ *\r?\n|{_COMMENT})*")  # a backslash continues a line
_ANYWHERE = re.compile(rf"(?:\s|{_COMMENT})*")
_NEXT_ALTERNATIVE = re.compile(rf"(?:\s|{_COMMENT})*(?=\|)")
_NAME = re.compile(r"_?(?:[a-z][_a-z0-9]*|[A-Z][_A-Z0-9]*)(?![A-Za-z0-9_])")
_MODIFIERS = re.compile(r"[!?]{0,2}(?=[_a-z])")
_PRIORITY = re.compile(r"\.[ \t]*[+-]?[0-9]+")
_ATTRIBUTE = re.compile(r"\[[^\]\n]*\][ \t]*:")
_PATTERN = re.compile(r"/(?!/)((?:\\.|[^/\\])*)/([imslux]*)", re.DOTALL)
_REPEAT = re.compile(r"~[ \t]*([0-9]+)(?:[ \t]*\.\.[ \t]*([0-9]+))?")
_COUNTS = re.compile(r"\{[ \t]*(?:([0-9]+)|(?=,[ \t]*[0-9]))[ \t]*(?:(,)[ \t]*([0-9]*)[ \t]*)?\}")  # of llguidance
_REFUSED = {  # extensions of llguidance, by what they begin with
    "token": re.compile("<"),
    "nested grammar": re.compile("[%@]"),
    "intersection": re.compile("&"),
    "complement": re.compile("~"),
    "parameter": re.compile("::"),
}
_SHORT_REPEATS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_REFUSED_DIRECTIVES = ("declare", "json", "regex", "lark", "llguidance", "grammar_options")
_DIRECTIVE = re.compile(r"%([a-z_]+)")
_PATH = re.compile(r"\.?\.?[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
_ELEMENT = 'a name, "text", /pattern/ or a bracket'

LarkTree: TypeAlias = "LarkPattern | LarkString | LarkRange | LarkName | LarkRepeat | LarkSequence | LarkAlternatives"


@dataclass(frozen=True, slots=True)
class LarkPattern:
    """A regex with its flags. `place` is that of its first character."""

    source: str
    flags: str
    place: int


@dataclass(frozen=True, slots=True)
class LarkString:
    """A string."""

    text: str
    ignore_case: bool


@dataclass(frozen=True, slots=True)
class LarkRange:
    """One character of a range."""

    low: str
    high: str


@dataclass(frozen=True, slots=True)
class LarkName:
    """A name, or the use of a template with arguments."""

    name: str
    arguments: tuple[LarkTree, ...]
    place: int


@dataclass(frozen=True, slots=True)
class LarkRepeat:
    """A tree `minimum` to `maximum` times, None for any number."""

    item: LarkTree
    minimum: int
    maximum: int | None


@dataclass(frozen=True, slots=True)
class LarkSequence:
    """The items one after the other."""

    items: tuple[LarkTree, ...]


@dataclass(frozen=True, slots=True)
class LarkAlternatives:
    """Any one of the branches, each with its place."""

    branches: tuple[tuple[LarkTree, int], ...]


@dataclass(frozen=True, slots=True)
class LarkDefinition:
    """A rule, terminal or template with its parameters. `place` is that of its name."""

    name: str
    parameters: tuple[str, ...]
    body: LarkAlternatives
    place: int


@dataclass(slots=True)
class LarkFile:
    """A parsed grammar file.

    definitions  by name
    imports      the name in `common` of each imported terminal and its place, by its name here
    ignored      what %ignore names
    """

    definitions: dict[str, LarkDefinition] = field(default_factory=dict)
    imports: dict[str, tuple[str, int]] = field(default_factory=dict)
    ignored: list[LarkTree] = field(default_factory=list)


def is_terminal(name: str) -> bool:
    return name.lstrip("_")[:1].isupper()


class LarkParser:
    """Parses a text from left to right."""

    def __init__(self, scanner: Scanner) -> None:
        self._scanner, self._file, self._depth = scanner, LarkFile(), 0

    def file(self) -> LarkFile:
        """The whole text.

        Raises SpecSyntaxError with the place of a fault, SpecUnsupported with that of a construct that is refused.
        """
        scanner = self._scanner
        scanner.match(_ANYWHERE)
        while not scanner.ended:
            if scanner.sees("%"):
                self._directive()
            else:
                self._add(self._definition())
            if not scanner.ended and not scanner.sees("\n") and not scanner.sees("\r"):
                scanner.fail("a definition ends with its line", f"a newline, | or {_ELEMENT}")
            scanner.match(_ANYWHERE)
        return self._file

    def _add(self, definition: LarkDefinition) -> None:
        if definition.name in self._file.definitions or definition.name in self._file.imports:
            message = "a rule or terminal is defined twice"
            self._scanner.fail(message, "another name, %override or %extend", definition.place)
        self._file.definitions[definition.name] = definition

    def _directive(self) -> None:
        scanner, place = self._scanner, self._scanner.at
        found = scanner.match(_DIRECTIVE)
        name = found[1] if found else ""
        self._skip()
        if name == "ignore":
            self._file.ignored.append(self._alternatives())
        elif name == "import":
            self._import(place)
        elif name in ("override", "extend"):
            self._change(self._definition(), extend=name == "extend")
        elif name in _REFUSED_DIRECTIVES:
            scanner.refuse(f"%{name}", f"%{name} is not supported in grammars", place)
        else:
            scanner.fail("an unknown directive", "%ignore, %import, %override or %extend", place)

    def _import(self, place: int) -> None:
        scanner = self._scanner
        path = scanner.match(_PATH)
        self._skip()
        module, _, name = path[0].rpartition(".") if path else ("", "", "")
        names = {name: name}
        if path and scanner.takes("("):
            module, names = path[0], {each: each for each in self._names(")")}
        if path is None or not module:
            scanner.fail("%import names no module or no terminal", "common.NAME or common (NAME, ...)", place)
        if module != "common":
            scanner.refuse("%import", "only %import common is supported in grammars", path.start())
        if scanner.takes("->"):
            self._skip()
            names = {self._name("the new name"): name}
            self._skip()
        for each, imported in names.items():
            if each in self._file.definitions or each in self._file.imports:
                scanner.fail("a rule or terminal is defined twice", "another name", place)
            self._file.imports[each] = imported, place

    def _change(self, definition: LarkDefinition, *, extend: bool) -> None:
        """%override and %extend: another body, or more alternatives."""
        name, definitions = definition.name, self._file.definitions
        before: LarkTree | None = definitions[name].body if name in definitions else None
        if before is None and name in self._file.imports:
            before = LarkName(f"common.{self._file.imports.pop(name)[0]}", (), definition.place)
        if before is None:
            message = "nothing of this name is defined above"
            self._scanner.fail(message, "the name of a rule or terminal", definition.place)
        branches = ((before, definition.place), *definition.body.branches) if extend else definition.body.branches
        definitions[name] = LarkDefinition(name, definition.parameters, LarkAlternatives(branches), definition.place)

    def _definition(self) -> LarkDefinition:
        scanner = self._scanner
        scanner.match(_MODIFIERS)
        place, name = scanner.at, self._name("the name of a rule or terminal")
        parameters = tuple(self._names("}")) if scanner.takes("{") else ()
        priority = scanner.at
        if scanner.match(_PRIORITY):
            scanner.refuse("priority", "priorities are not supported in grammars", priority)
        if scanner.match(_ATTRIBUTE):
            scanner.refuse("rule attribute", "attributes of rules are not supported in grammars", priority)
        self._skip()
        if not scanner.takes(":"):
            scanner.fail("a definition has no : behind its name", ":")
        return LarkDefinition(name, parameters, self._alternatives(), place)

    def _alternatives(self) -> LarkAlternatives:
        self._skip()
        branches = [self._sequence()]
        while self._bar():
            branches.append(self._sequence())
        return LarkAlternatives(tuple(branches))

    def _bar(self) -> bool:
        """Read a bar, which may begin the next line."""
        self._scanner.match(_NEXT_ALTERNATIVE)
        taken = self._scanner.takes("|")
        self._skip()
        return taken

    def _sequence(self) -> tuple[LarkTree, int]:
        scanner, place, items = self._scanner, self._scanner.at, list[LarkTree]()
        while (item := self._value()) is not None:
            items.append(self._repeated(item))
        if scanner.takes("->"):
            self._skip()
            self._name("an alias")
            self._skip()
        return (items[0] if len(items) == 1 else LarkSequence(tuple(items))), place

    def _repeated(self, item: LarkTree) -> LarkTree:
        scanner = self._scanner
        while True:
            self._skip()
            sign = scanner.text[scanner.at : scanner.at + 1]
            if found := scanner.match(_REPEAT):
                low, high = int(found[1]), int(found[2] or found[1])
                item = self._counted(item, low, high, found.start())
            elif found := scanner.match(_COUNTS):
                low, open_end = int(found[1] or 0), found[2] and not found[3]
                item = self._counted(item, low, None if open_end else int(found[3] or low), found.start())
            elif sign == "~":
                scanner.fail("a repetition is not ~ n or ~ n..m", "~ n or ~ n..m")
            elif sign in _SHORT_REPEATS:
                scanner.at += 1
                item = LarkRepeat(item, *_SHORT_REPEATS[sign])
            else:
                return item

    def _counted(self, item: LarkTree, minimum: int, maximum: int | None, place: int) -> LarkTree:
        if maximum is not None and maximum < minimum:
            self._scanner.fail("a repetition has a maximum below its minimum", "~ n..m with n <= m", place)
        return LarkRepeat(item, minimum, maximum)

    def _value(self) -> LarkTree | None:
        """What stands here; None where a sequence ends."""
        scanner = self._scanner
        char = scanner.text[scanner.at : scanner.at + 1]
        if char and char in "([":
            return self._group()
        if char == '"':
            return self._string()
        if found := scanner.match(_PATTERN):
            return LarkPattern(found[1], found[2], found.start(1))
        if char == "/":
            scanner.fail("a pattern is not closed", "/")
        for construct, pattern in _REFUSED.items():
            if pattern.match(scanner.text, scanner.at):
                scanner.refuse(construct, f"the construct {construct} is not supported in grammars")
        place, found = scanner.at, scanner.match(_NAME)
        if found is None:
            return None
        arguments = list[LarkTree]()
        if not _COUNTS.match(scanner.text, scanner.at) and scanner.takes("{"):
            arguments = self._arguments()
        return LarkName(found[0], tuple(arguments), place)

    def _arguments(self) -> list[LarkTree]:
        arguments = list[LarkTree]()
        while True:
            self._scanner.match(_ANYWHERE)
            value = self._value()
            if value is None:
                self._scanner.fail("an argument of a template is missing", _ELEMENT)
            arguments.append(value)
            self._scanner.match(_ANYWHERE)
            if self._scanner.takes("}"):
                return arguments
            if not self._scanner.takes(","):
                self._scanner.fail("the arguments of a template are not closed", ", or }")

    def _group(self) -> LarkTree:
        scanner, place = self._scanner, self._scanner.at
        optional = scanner.takes("[")
        scanner.at += not optional
        self._depth += 1
        node = self._alternatives()
        if not scanner.takes("]" if optional else ")"):
            message = f"the bracket that opens at character {place} is not closed"
            scanner.fail(message, f"{']' if optional else ')'} or {_ELEMENT}")
        self._depth -= 1
        return LarkRepeat(node, 0, 1) if optional else node

    def _string(self) -> LarkTree:
        scanner, place, text = self._scanner, self._scanner.at, self._quoted()
        if scanner.takes(".."):
            high = self._quoted() if scanner.sees('"') else ""
            if len(text) != 1 or len(high) != 1 or high < text:
                scanner.fail("a range is not of two characters in order", '"a".."z"', place)
            return LarkRange(text, high)
        return LarkString(text, scanner.takes("i"))

    def _quoted(self) -> str:
        scanner, chars = self._scanner, list[str]()
        scanner.at += 1
        while not scanner.takes('"'):
            if scanner.sees("\n"):
                scanner.fail("a string is not closed", '"')
            chars.append(scanner.character(_ESCAPES, "a string", '"'))
        return "".join(chars)

    def _names(self, closing: str) -> list[str]:
        """Names between commas, to the closing bracket."""
        names = list[str]()
        while True:
            self._scanner.match(_ANYWHERE)
            names.append(self._name("a name"))
            self._scanner.match(_ANYWHERE)
            if self._scanner.takes(closing):
                self._skip()
                return names
            if not self._scanner.takes(","):
                self._scanner.fail("a list of names is not closed", f", or {closing}")

    def _name(self, expected: str) -> str:
        found = self._scanner.match(_NAME)
        if found is None:
            self._scanner.fail("a name is missing", f"{expected}: lower case for rules, upper case for terminals")
        return found[0]

    def _skip(self) -> None:
        """Skip space and comments. Newlines too inside brackets."""
        self._scanner.match(_ANYWHERE if self._depth else _INLINE)
