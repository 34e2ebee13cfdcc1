"""Reads ISO 14977, the standard's EBNF."""

from __future__ import annotations

import re

from compiler.grammars.difference import Differences
from compiler.grammars.rules import ParsedGrammar, RuleTable
from compiler.grammars.scanner import Scanner
from compiler.limits import ResourceGuard
from compiler.regex import EMPTY, Node, Repeat, concat, literal_node

_SPACE = re.compile(r"(?:\s|\(\*(?:[^*]|\*(?!\)))*\*\))*")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*(?:\s+[A-Za-z0-9_]+)*")
_FACTOR = re.compile(r"([0-9]+)\s*\*(?!\))")
_BAR = re.compile(r"[|!]|/(?!\))")
_END = re.compile(r"[;.]")
_BRACKETS = {"(/": ("/)", 0, 1), "(:": (":)", 0, None), "[": ("]", 0, 1), "{": ("}", 0, None), "(": (")", 1, 1)}
_ROOT = "root"
_EXPECTED = "a name, a literal, a bracket, or one of the signs , | - ;"


class IsoReader:
    """Reads rules `name = definitions;`.

    Definitions are separated by `|`, `/` or `!`, and their parts by commas. Brackets are `[ ]` or `(/ /)` for an
    option, `{ }` or `(: :)` for any number, `( )` for a group; a rule ends with `;` or a full stop. `3 * x` is x three
    times, `x - y` a difference of terminals, `{ x } -` at least one x. A name may hold spaces.
    """

    def __init__(self, text: str, guard: ResourceGuard) -> None:
        self._scanner = Scanner(text)
        self._table = RuleTable(self._scanner)
        self._differences = Differences(self._table, self._scanner, guard)
        self._rule_name = ""

    def grammar(self) -> ParsedGrammar:
        """The grammar of the text. It begins with the rule `root`, or without one with the first rule."""
        names = list[str]()
        self._skip()
        while not self._scanner.ended:
            names.append(self._rule())
        self._differences.resolve()
        return self._table.grammar(_ROOT if _ROOT in names else names[0], f"{_ROOT} = ...;")

    def _rule(self) -> str:
        scanner, place = self._scanner, self._scanner.at
        self._rule_name = self._name()
        if not self._rule_name:
            scanner.fail("a rule begins with its name", "the name of a rule")
        if not scanner.takes("="):
            scanner.fail("a rule has no = behind its name", "=")
        self._table.begin(self._rule_name, place)
        self._table.define(self._rule_name, self._definitions())
        if not scanner.match(_END):
            scanner.fail("a rule does not end here", f"{_EXPECTED} at the end of a rule")
        self._skip()
        return self._rule_name

    def _definitions(self) -> Node:
        branches = [self._definition()]
        while self._scanner.match(_BAR):
            branches.append(self._definition())
        return self._table.alternatives(self._rule_name, branches)

    def _definition(self) -> tuple[Node, int]:
        """A definition and its place."""
        self._skip()
        place, terms = self._scanner.at, [self._term()]
        while self._scanner.takes(","):
            terms.append(self._term())
        return concat(terms), place

    def _term(self) -> Node:
        """A factor, perhaps less another one."""
        scanner, factor = self._scanner, self._factor()
        place = scanner.at
        if not scanner.takes("-"):
            return factor
        exception = self._factor()
        if exception == EMPTY and isinstance(factor, Repeat) and (factor.minimum, factor.maximum) == (0, None):
            return Repeat(factor.item, 1, None)
        return self._differences.add(factor, exception, place)

    def _factor(self) -> Node:
        self._skip()
        count = self._scanner.match(_FACTOR)
        self._skip()
        item = self._primary()
        self._skip()
        return Repeat(item, int(count[1]), int(count[1])) if count else item

    def _primary(self) -> Node:
        scanner, place = self._scanner, self._scanner.at
        char = scanner.text[place : place + 1]
        if char and char in "'\"":
            return self._literal(char)
        if char == "?":
            scanner.refuse("special sequence", "special sequences ? ... ? are not supported in grammars")
        opening = next((opening for opening in _BRACKETS if scanner.takes(opening)), None)
        if opening is not None:
            closing, minimum, maximum = _BRACKETS[opening]
            node = self._definitions()
            if not scanner.takes(closing):
                scanner.fail(f"the bracket that opens at character {place} is not closed", f"{_EXPECTED} or {closing}")
            return node if minimum else Repeat(node, minimum, maximum)
        name = self._name()
        return self._table.call(name, place) if name else EMPTY

    def _literal(self, quote: str) -> Node:
        scanner = self._scanner
        end = scanner.text.find(quote, scanner.at + 1)
        if end < 0:
            scanner.at = len(scanner.text)
            scanner.fail("a literal is not closed", quote)
        text, scanner.at = scanner.text[scanner.at + 1 : end], end + 1
        return literal_node(text, False)

    def _name(self) -> str:
        """The name that stands here, or nothing. A gap in it is one space."""
        found = self._scanner.match(_NAME)
        self._skip()
        return " ".join(found[0].split()) if found else ""

    def _skip(self) -> None:
        self._scanner.match(_SPACE)
