"""Reads GBNF, the grammars of llama.cpp (grammars/README.md in its repository).

A grammar is a list of rules `name ::= ...` over Unicode characters; its texts are those of the rule `root`. Terminals
are "literals", [classes] and `.`, any character. There is no lexer and nothing is skipped between terminals.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

from compiler.automata import ANYTHING, CODE_POINTS, CharSet, charset, charset_complement
from compiler.errors import SpecSyntaxError, SpecUnsupported
from compiler.limits import ResourceGuard
from compiler.pushdown import Grammar, call
from compiler.regex import Chars, Node, Repeat, alternation, concat, literal_node

ROOT = "root"
_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_SPACE_OR_NEWLINE = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_NEWLINE = re.compile(r"\r\n?|\n")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_REPEAT = re.compile(r"\{[ \t\r\n]*([0-9]+)[ \t\r\n]*(?:(,)[ \t\r\n]*([0-9]*)[ \t\r\n]*)?\}")
_TOKEN = re.compile(r"!?<")
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]"}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_SHORT_REPEATS = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def read_gbnf(text: str, guard: ResourceGuard) -> Grammar:
    """The grammar of a GBNF text.

    A rule is defined once. Raises SpecSyntaxError (with place and what was expected) for a text that is no GBNF, for a
    rule that is missing or defined twice, and for a text without `root`; SpecUnsupported (with the place) for a token
    such as `<think>`; LimitExceeded over `pattern_chars_max` or `nesting_depth_max`.

    >>> from compiler.limits import DEFAULT_LIMITS
    >>> from compiler.pushdown import build_machine
    >>> guard = ResourceGuard(DEFAULT_LIMITS)
    >>> machine = build_machine(read_gbnf('root ::= "(" root? ")" | [0-9]{1,3}', guard), guard)
    >>> machine.accepts(b"((42))"), machine.accepts(b"((42)")
    (True, False)
    """
    guard.check("pattern_chars_max", len(text))
    with guard.recursion():
        return _Reader(text).grammar()


@dataclass
class _Reader:
    """Reads a text from left to right.

    numbers  of the rules by name, as they are met
    called   where each rule was first called
    """

    text: str
    at: int = 0
    numbers: dict[str, int] = field(default_factory=dict, init=False)
    called: dict[str, int] = field(default_factory=dict, init=False)
    rules: dict[str, Node] = field(default_factory=dict, init=False)

    def grammar(self) -> Grammar:
        self._skip(nested=True)
        while self.at < len(self.text):
            self._rule()
            self._skip(nested=True)
        if ROOT not in self.rules:
            self._fail("the grammar has no rule named root", "root ::= ...")
        for name, place in self.called.items():
            if name not in self.rules:
                self.at = place
                self._fail("a rule is called that the grammar does not define", "the name of a rule")
        names = tuple(self.numbers)
        return Grammar(names, tuple(self.rules[name] for name in names), self.numbers[ROOT])

    def _rule(self) -> None:
        place, name = self.at, self._match(_NAME)
        if name is None:
            self._fail("a rule begins with its name", "the name of a rule")
        self._skip(nested=False)
        if not self._takes("::="):
            self._fail("a rule has no ::= behind its name", "::=")
        if name.group() in self.rules:
            self.at = place
            self._fail("a rule is defined twice", "another name, or an alternative behind | of the first definition")
        self._number(name.group())
        self._skip(nested=True)
        self.rules[name.group()] = self._alternatives(nested=False)
        if self.at < len(self.text) and not self._match(_NEWLINE):
            self._fail("a rule ends with its line", "a newline, | or an element such as \"text\", [a-z] or a rule")

    def _alternatives(self, *, nested: bool) -> Node:
        branches = [self._sequence(nested=nested)]
        while self._takes("|"):
            self._skip(nested=True)
            branches.append(self._sequence(nested=nested))
        return alternation(branches)

    def _sequence(self, *, nested: bool) -> Node:
        elements = list[Node]()
        while (element := self._element()) is not None:
            elements.append(self._repeated(element, nested=nested))
        return concat(elements)

    def _element(self) -> Node | None:
        """What stands here; None where a sequence ends."""
        char = self.text[self.at : self.at + 1]
        if char == '"':
            return self._literal()
        if char == "[":
            return Chars(self._class())
        if char == "(":
            return self._group()
        if self._takes("."):
            return Chars(ANYTHING)
        if _TOKEN.match(self.text, self.at):
            raise SpecUnsupported("tokens in grammars are not supported", construct="token", position=self.at)
        if name := self._match(_NAME):
            self.called.setdefault(name.group(), name.start())
            return call(self._number(name.group()))
        return None

    def _repeated(self, element: Node, *, nested: bool) -> Node:
        """An element with the repetitions and the space behind it."""
        while True:
            self._skip(nested=nested)
            if found := self._match(_REPEAT):
                low, comma, high = found.groups()
                minimum, maximum = int(low), (int(high) if high else None) if comma else int(low)
                if maximum is not None and maximum < minimum:
                    self.at = found.start()
                    self._fail("a repetition has a maximum below its minimum", "{m,n} with m <= n")
            elif (sign := self.text[self.at : self.at + 1]) in _SHORT_REPEATS:
                self.at += 1
                minimum, maximum = _SHORT_REPEATS[sign]
            elif sign == "{":
                self._fail("a repetition is not {m}, {m,} or {m,n}", "{m}, {m,} or {m,n}")
            else:
                return element
            element = Repeat(element, minimum, maximum)

    def _group(self) -> Node:
        place = self.at
        self.at += 1
        self._skip(nested=True)
        node = self._alternatives(nested=True)
        if not self._takes(")"):
            self._fail(f"the bracket that opens at character {place} is not closed", ")")
        return node

    def _literal(self) -> Node:
        self.at += 1
        chars = list[str]()
        while not self._takes('"'):
            chars.append(self._char("a literal"))
        return literal_node("".join(chars), False)

    def _class(self) -> CharSet:
        self.at += 1
        negated = self._takes("^")
        intervals = list[tuple[int, int]]()
        while not self._takes("]"):
            place, low = self.at, self._char("a class of characters")
            high = low
            if self.text.startswith("-", self.at) and not self.text.startswith("-]", self.at):
                self.at += 1
                high = self._char("a class of characters")
            if high < low:
                self.at = place
                self._fail("a range of characters ends before it begins", "the lower character first")
            intervals.append((ord(low), ord(high) + 1))
        return charset_complement(charset(intervals)) if negated else charset(intervals)

    def _char(self, inside: str) -> str:
        """One character of a literal or class, which may be escaped."""
        if self.at == len(self.text):
            self._fail(f"{inside} is not closed", '"' if inside == "a literal" else "]")
        char = self.text[self.at]
        self.at += 1
        if char != "\\":
            return char
        place, escaped = self.at - 1, self.text[self.at : self.at + 1]
        self.at += 1
        if escaped in _ESCAPES and escaped:
            return _ESCAPES[escaped]
        digits = self.text[self.at : self.at + _HEX_DIGITS.get(escaped, 0)]
        if digits and len(digits) == _HEX_DIGITS[escaped] and re.fullmatch("[0-9A-Fa-f]+", digits):
            self.at += len(digits)
            if int(digits, 16) < CODE_POINTS:
                return chr(int(digits, 16))
        self.at = place
        self._fail("an unknown escape", r"\t, \r, \n, \\, \", \[, \], \xXX, \uXXXX or \UXXXXXXXX, at most 0010FFFF")

    def _number(self, name: str) -> int:
        return self.numbers.setdefault(name, len(self.numbers))

    def _skip(self, *, nested: bool) -> None:
        """Skip space and comments. Newlines too inside brackets and where a rule goes on."""
        self._match(_SPACE_OR_NEWLINE if nested else _SPACE)

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found

    def _takes(self, text: str) -> bool:
        if not self.text.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def _fail(self, message: str, expected: str) -> NoReturn:
        raise SpecSyntaxError(message, source=self.text, position=self.at, expected=expected)
