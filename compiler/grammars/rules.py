"""The rules of a grammar, collected while its text is read.

Finds undefined and useless rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from compiler.automata import Dfa, Minterms, live_states
from compiler.errors import SpecUnsatisfiable, did_you_mean, shown_name
from compiler.grammars.scanner import Scanner
from compiler.pushdown import (
    Grammar,
    call,
    calls_of,
    derives,
    named_token,
    productive_rules,
    text_of_one_token,
)
from compiler.regex import EMPTY, Chars, Node, alternation, concat


@dataclass(frozen=True, slots=True)
class GrammarWarning:
    """What is probably a mistake, or never written. Line and column of a grammar count from 1."""

    message: str
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, slots=True)
class ParsedGrammar:
    """A grammar, and what is probably wrong with its text.

    token_places  where each token was first named
    """

    grammar: Grammar
    warnings: tuple[GrammarWarning, ...]
    token_places: Mapping[str, int]


class RuleTable:
    """The rules that a text defines and calls. Helper rules have no name in the text.

    rules      by number; None until a rule is defined
    terminals  those of the grammar, by number
    """

    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self.rules: list[Node | None] = []
        self.terminals: set[int] = set()
        self._called: dict[str, int] = {}  # where each rule was first called
        self._defined: dict[str, int] = {}  # where each rule is defined
        self._alternatives: list[tuple[str, list[tuple[Node, int]]]] = []
        self._mentioned: dict[int, set[int]] = {}
        self._token_places: dict[str, int] = {}
        self._other_token: int | None = None

    def token(self, name: str, place: int) -> Node:
        """A named token, which stands at a place."""
        self._token_places.setdefault(name, place)
        return named_token(name)

    def other_token(self, name: str, place: int) -> Node:
        """The call of a rule for one token but the named one."""
        # No text has a token that is named.
        self._token_places.setdefault(name, place)
        if self._other_token is None:
            self._other_token = self.helper("a token")
            self.fill(self._other_token, text_of_one_token())
        return call(self._other_token)

    def is_other_token(self, node: Node) -> bool:
        """Whether the pattern is a call of that rule."""
        return self._other_token is not None and node == call(self._other_token)

    def call(self, name: str, place: int) -> Node:
        """The call of a named rule, which stands at a place."""
        self._called.setdefault(name, place)
        return call(self.number(name))

    def calls(self, name: str) -> bool:
        """Whether some rule calls this one, so far."""
        return name in self._called

    def begin(self, name: str, place: int) -> None:
        """Note that a rule is defined at a place. Raises SpecSyntaxError where it was defined before."""
        if name in self._defined:
            expected = "another name, or an alternative behind | of the first definition"
            self._scanner.fail("a rule is defined twice", expected, place)
        self._defined[name] = place
        self.number(name)

    def define(self, name: str, node: Node, mentioned: Iterable[int] = ()) -> None:
        """Give a named rule its pattern, as `fill` does."""
        self.fill(self.number(name), node, mentioned)

    def helper(self, name: str) -> int:
        """The number of a new rule without a name of its own. Messages call it `name`."""
        self._names.append(name)
        self.rules.append(None)
        return len(self.rules) - 1

    def fill(self, number: int, node: Node, mentioned: Iterable[int] = ()) -> None:
        """Give a rule its pattern. `mentioned` are rules that it needs without a call."""
        self.rules[number] = node
        self._mentioned[number] = set(mentioned)

    def alternatives(self, name: str, branches: list[tuple[Node, int]]) -> Node:
        """Any one of the alternatives of a rule, each with its place."""
        self._alternatives.append((name, branches))
        return alternation([node for node, _ in branches])

    def texts_of(self, name: str, dfa: Dfa, parts: Minterms) -> Node:
        """The call of a rule that has the texts of a DFA.

        Each state is a rule: a character, then the rule of the state behind it. Such calls need no stack.
        """
        live, numbers = live_states(dfa), dict[int, int]()
        for state in live.nonzero()[0].tolist():
            numbers[state] = self.helper(name)
        for state, number in numbers.items():
            symbols = dict[int, list[int]]()
            for symbol, target in enumerate(dfa.next_state[state][dfa.symbol_class].tolist()):
                if live[target]:
                    symbols.setdefault(target, []).append(symbol)
            branches = [
                concat([Chars(parts.charset(chosen)), call(numbers[target])]) for target, chosen in symbols.items()
            ]
            self.rules[number] = alternation(branches + [EMPTY] * bool(dfa.accepting[state]))
        return call(numbers[dfa.start]) if dfa.start in numbers else alternation([])

    def grammar(self, start: str, expected: str, before: Node = EMPTY) -> ParsedGrammar:
        """The grammar, which begins with a rule.

        expected  how that rule is written
        before    what stands before each text
        Raises SpecSyntaxError where a rule is missing, SpecUnsatisfiable where the grammar has no texts.
        """
        if start not in self._defined:
            self._scanner.fail(f"the grammar has no rule named {start}", expected)
        for name, place in self._called.items():
            if name not in self._defined:
                hint = did_you_mean(name, self._defined)
                self._scanner.fail(f"the rule {shown_name(name)} is not defined{hint}", "the name of a rule", place)
        rules = tuple(node or EMPTY for node in self.rules)
        productive = productive_rules(dict(enumerate(rules)))
        if self._numbers[start] not in productive:
            raise SpecUnsatisfiable(f"the grammar has no text: what {start} calls never ends")
        names, first = tuple(self._names), self._numbers[start]
        if before != EMPTY:
            names, rules, first = (*names, "the text"), (*rules, concat([before, call(first)])), len(rules)
        single_tokens = frozenset() if self._other_token is None else frozenset([self._other_token])
        grammar = Grammar(
            names, rules, first, frozenset(self.terminals), single_tokens=single_tokens,
            marks=tuple(self._token_places),
        )  # fmt: skip
        return ParsedGrammar(grammar, self._warnings(grammar, productive), self._token_places)

    def _warnings(self, grammar: Grammar, productive: set[int]) -> tuple[GrammarWarning, ...]:
        found, used = dict[int, str](), self._used(grammar)
        for name, place in self._defined.items():
            if self._numbers[name] not in used:
                found[place] = f"the rule {shown_name(name)} is not used"
            elif self._numbers[name] not in productive:
                found[place] = f"the rule {shown_name(name)} derives no text"
        alive = used & productive
        for name, branches in self._alternatives:
            seen = set[Node]()
            for node, place in branches:
                # A template has no rule of its own.
                if self._numbers.get(name) in alive and not derives(node, True, productive):
                    found.setdefault(place, f"an alternative of {shown_name(name)} derives no text")
                elif node in seen:
                    found.setdefault(place, f"an alternative of {shown_name(name)} is written twice")
                seen.add(node)
        return tuple(self._warning(message, place) for place, message in sorted(found.items()))

    def _used(self, grammar: Grammar) -> set[int]:
        """The rules that the start needs."""
        used, waiting = {grammar.start}, [grammar.start]
        while waiting:
            rule = waiting.pop()
            further = (calls_of(grammar.rules[rule]) | self._mentioned.get(rule, set())) - used
            used |= further
            waiting += further
        return used

    def _warning(self, message: str, place: int) -> GrammarWarning:
        before = self._scanner.text[:place]
        return GrammarWarning(message, before.count("\n") + 1, place - before.rfind("\n"))

    def number(self, name: str) -> int:
        """The number of a named rule."""
        if name not in self._numbers:
            self._numbers[name] = self.helper(name)
        return self._numbers[name]
