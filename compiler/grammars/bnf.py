"""Reads grammars of rules `name ::= ...`: GBNF and W3C EBNF.

A rule is alternatives of sequences of repeated elements. Terminals are literals and classes of characters; nothing is
skipped between them. A `BnfDialect` says how the two differ.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from compiler.automata import ANYTHING, CODE_POINTS, CharSet, charset, charset_complement, single
from compiler.grammars.difference import Differences
from compiler.grammars.rules import ParsedGrammar, RuleTable
from compiler.grammars.scanner import Escapes, Scanner
from compiler.limits import ResourceGuard
from compiler.regex import Chars, Node, Repeat, alternation, concat, literal_node

ROOT = "root"
_NEWLINE = re.compile(r"\r\n?|\n")
_REPEAT = re.compile(r"\{[ \t\r\n]*([0-9]+)[ \t\r\n]*(?:(,)[ \t\r\n]*([0-9]*)[ \t\r\n]*)?\}")
_SHORT_REPEATS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_CODE_POINT = re.compile(r"#x([0-9A-Fa-f]+)")
_TOKEN = re.compile(r"(!?)(<[^<>\r\n]+>)")


@dataclass(frozen=True, slots=True, kw_only=True)
class BnfDialect:
    """How a grammar is written.

    name             the name of a rule
    space            space and comments between elements
    line_space       the same within a line, where a newline ends a rule; None where the next rule ends it
    escapes          in literals
    class_escapes    in classes
    refused          constructs that begin with something of their own, by name
    w3c              whether 'literals' without escapes, `#x20`, `A - B`, names with _ and classes without characters
                     are read
    tokens           whether `<name>` and `!<name>` are read
    """

    name: re.Pattern[str]
    space: re.Pattern[str]
    line_space: re.Pattern[str] | None
    escapes: Escapes
    class_escapes: Escapes
    refused: dict[str, re.Pattern[str]]
    w3c: bool = False
    tokens: bool = False


class BnfReader:
    """Reads a text in a dialect."""

    def __init__(self, text: str, dialect: BnfDialect, guard: ResourceGuard) -> None:
        self._scanner, self._dialect = Scanner(text), dialect
        self._table = RuleTable(self._scanner)
        self._differences = Differences(self._table, self._scanner, guard)
        self._next_rule = re.compile(rf"{dialect.name.pattern}(?:\[[^\]\r\n]*\])?{dialect.space.pattern}::=")
        self._rule_name = ""

    def grammar(self, *, first_is_root: bool) -> ParsedGrammar:
        """The grammar of the text.

        It begins with the rule `root`; without one, with the first rule if that `first_is_root`.
        """
        scanner, names = self._scanner, list[str]()
        scanner.match(self._dialect.space)
        while not scanner.ended:
            names.append(self._rule())
            scanner.match(self._dialect.space)
        self._differences.resolve()
        start = names[0] if first_is_root and names and ROOT not in names else ROOT
        return self._table.grammar(start, f"{ROOT} ::= ...")

    def _rule(self) -> str:
        """Read a rule. Returns its name."""
        scanner, table = self._scanner, self._table
        if self._dialect.line_space is not None and scanner.sees("|"):
            message, expected = "a rule ends with its line, so no line begins with |", "| at the end of the line above"
            scanner.fail(message, f"the name of a rule; write {expected}, or brackets around all alternatives")
        place, name = scanner.at, self._name()
        if name is None:
            scanner.fail("a rule begins with its name", "the name of a rule")
        self._skip(nested=self._dialect.line_space is None)
        self._check_refused()
        if not scanner.takes("::="):
            scanner.fail("a rule has no ::= behind its name", "::=")
        table.begin(name[0], place)
        self._rule_name = name[0]
        self._skip(nested=True)
        table.define(name[0], self._alternatives(nested=False))
        if not scanner.ended and not self._at_rule_end():
            scanner.fail("a rule ends with its line", 'a newline, | or an element such as "text", [a-z] or a rule')
        return name[0]

    def _at_rule_end(self) -> bool:
        if self._dialect.line_space is None:
            return self._next_rule.match(self._scanner.text, self._scanner.at) is not None
        return self._scanner.match(_NEWLINE) is not None

    def _alternatives(self, *, nested: bool) -> Node:
        branches = [self._sequence(nested=nested)]
        while self._scanner.takes("|"):
            self._skip(nested=True)
            branches.append(self._sequence(nested=nested))
        return self._table.alternatives(self._rule_name, branches)

    def _sequence(self, *, nested: bool) -> tuple[Node, int]:
        """A sequence and its place."""
        place, elements = self._scanner.at, list[Node]()
        while (element := self._operand(nested=nested)) is not None:
            elements.append(element)
        return concat(elements), place

    def _operand(self, *, nested: bool) -> Node | None:
        """An element with what is behind it; None where a sequence ends."""
        scanner, left = self._scanner, self._repeated(nested=nested)
        place, without = scanner.at, list[Node]()
        while self._dialect.w3c and left is not None and scanner.takes("-"):
            self._skip(nested=nested)
            right = self._repeated(nested=nested)
            if right is None:
                scanner.fail("nothing stands behind -", 'an element such as "text", [a-z] or a rule')
            without.append(right)
        return self._differences.add(left, alternation(without), place) if left and without else left

    def _repeated(self, *, nested: bool) -> Node | None:
        """An element with its repetitions; None where a sequence ends."""
        scanner, element = self._scanner, self._element()
        while element is not None:
            self._skip(nested=nested)
            if found := scanner.match(_REPEAT):
                low, comma, high = found.groups()
                minimum, maximum = int(low), (int(high) if high else None) if comma else int(low)
                if maximum is not None and maximum < minimum:
                    message = "a repetition has a maximum below its minimum"
                    scanner.fail(message, "{m,n} with m <= n", found.start())
            elif (sign := scanner.text[scanner.at : scanner.at + 1]) in _SHORT_REPEATS:
                scanner.at += 1
                minimum, maximum = _SHORT_REPEATS[sign]
            elif sign == "{":
                scanner.fail("a repetition is not {m}, {m,} or {m,n}", "{m}, {m,} or {m,n}")
            else:
                break
            if self._table.is_other_token(element) and minimum < 2 and maximum is None:
                element = Chars(ANYTHING)  # any number of tokens write any text
            element = Repeat(element, minimum, maximum)
        return element

    def _element(self) -> Node | None:
        """What stands here; None where a sequence ends."""
        scanner, w3c = self._scanner, self._dialect.w3c
        char = scanner.text[scanner.at : scanner.at + 1]
        self._check_refused()
        if char == '"' or (w3c and char == "'"):
            return self._literal(char)
        if char == "[":
            return Chars(self._class())
        if char == "(":
            return self._group()
        if self._dialect.tokens and char and char in "!<":
            return self._token()
        if scanner.takes("."):
            return Chars(ANYTHING)
        if w3c and char == "#":
            return Chars(single(self._code_point()))
        if self._dialect.line_space is None and self._next_rule.match(scanner.text, scanner.at):
            return None
        if name := self._name():
            return self._table.call(name[0], name.start())
        return None

    def _name(self) -> re.Match[str] | None:
        """The name of a rule, if one is here."""
        name = self._scanner.match(self._dialect.name)
        if name and "_" in name[0] and not self._dialect.w3c:
            expected = 'a name of letters, digits and -; grammars whose names have _ are mostly of "syntax": "ebnf"'
            self._scanner.fail("a name in GBNF has no _", expected, name.start())
        return name

    def _token(self) -> Node:
        place, found = self._scanner.at, self._scanner.match(_TOKEN)
        if found is None:
            self._scanner.fail("not a token", "<name> or !<name>")
        negated, name = found.groups()
        return self._table.other_token(name, place) if negated else self._table.token(name, place)

    def _group(self) -> Node:
        scanner, place = self._scanner, self._scanner.at
        scanner.at += 1
        self._skip(nested=True)
        node = self._alternatives(nested=True)
        if not scanner.takes(")"):
            scanner.fail(f"the bracket that opens at character {place} is not closed", ")")
        return node

    def _literal(self, quote: str) -> Node:
        scanner, chars = self._scanner, list[str]()
        scanner.at += 1
        while not scanner.takes(quote):
            if quote == "'" and not scanner.ended:
                chars.append(scanner.text[scanner.at])
                scanner.at += 1
            else:
                chars.append(scanner.character(self._dialect.escapes, "a literal", quote))
        return literal_node("".join(chars), False)

    def _class(self) -> CharSet:
        scanner, begin = self._scanner, self._scanner.at
        scanner.at += 1
        negated = scanner.takes("^")
        intervals = list[tuple[int, int]]()
        while not scanner.takes("]"):
            place, low = scanner.at, self._class_character()
            high = low
            if scanner.sees("-") and not scanner.sees("-]"):
                scanner.at += 1
                high = self._class_character()
            if high < low:
                scanner.fail("a range of characters ends before it begins", "the lower character first", place)
            intervals.append((low, high + 1))
        if not intervals and not self._dialect.w3c:
            expected = '"" for the empty text, . for any character'
            scanner.fail("llama.cpp reads a class without characters as the empty text", expected, begin)
        return charset_complement(charset(intervals)) if negated else charset(intervals)

    def _class_character(self) -> int:
        if self._dialect.w3c and _CODE_POINT.match(self._scanner.text, self._scanner.at):
            return self._code_point()
        return ord(self._scanner.character(self._dialect.class_escapes, "a class of characters", "]"))

    def _code_point(self) -> int:
        """The character that `#x20` spells."""
        place, found = self._scanner.at, self._scanner.match(_CODE_POINT)
        if found is None or int(found[1], 16) >= CODE_POINTS:
            self._scanner.fail("not a character", "#x and its hexadecimal number, at most 10FFFF", place)
        return int(found[1], 16)

    def _check_refused(self) -> None:
        for construct, pattern in self._dialect.refused.items():
            if pattern.match(self._scanner.text, self._scanner.at):
                self._scanner.refuse(construct, f"the construct {construct} is not supported in grammars")

    def _skip(self, *, nested: bool) -> None:
        """Skip space and comments. Newlines too inside brackets and where a rule goes on."""
        space = self._dialect.line_space
        self._scanner.match(self._dialect.space if nested or space is None else space)
