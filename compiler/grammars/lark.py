"""Reads Lark's grammar files.

The language is context-free: rules over terminals, which are regexes, with any texts of %ignore before the first
terminal and behind each one. A text is in it if some division into terminals is derived from the rule `start`, in which
no terminal is followed by a character that would make it a longer text of the same terminal. That is what Lark's Earley
parser accepts with the lexer `dynamic`, its default. Its other lexers choose one division by priority and length of all
terminals, and refuse some of these texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from compiler.automata import CharDfa, Dfa, char_intersection, charset, is_empty, live_states
from compiler.errors import SpecSyntaxError, SpecUnsupported, did_you_mean, shown_name
from compiler.grammars.lark_syntax import (
    LarkAlternatives,
    LarkDefinition,
    LarkFile,
    LarkName,
    LarkParser,
    LarkPattern,
    LarkRange,
    LarkRepeat,
    LarkSequence,
    LarkString,
    LarkTree,
    is_terminal,
)
from compiler.grammars.rules import ParsedGrammar, RuleTable
from compiler.grammars.scanner import Scanner
from compiler.limits import ResourceGuard
from compiler.pushdown import call, derives
from compiler.regex import (
    EMPTY,
    Alternation,
    Anchor,
    AtomicGroup,
    Chars,
    Concat,
    Look,
    Node,
    Repeat,
    alternation,
    concat,
    has_condition,
    leaves_of,
    literal_node,
    node_to_dfa,
    parse_pattern,
)

COMMON: Mapping[str, str] = {  # the terminals of Lark's module `common`, as patterns of what they match
    "DIGIT": "[0-9]", "HEXDIGIT": "[0-9A-Fa-f]", "INT": "[0-9]+", "SIGNED_INT": "[+-]?[0-9]+",
    "DECIMAL": r"[0-9]+\.[0-9]*|\.[0-9]+",
    "FLOAT": r"[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
    "SIGNED_FLOAT": r"[+-]?(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)",
    "NUMBER": r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
    "SIGNED_NUMBER": r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
    "ESCAPED_STRING": r'"(?:[^"\\\n]|\\[^\n])*"',
    "LCASE_LETTER": "[a-z]", "UCASE_LETTER": "[A-Z]", "LETTER": "[A-Za-z]", "WORD": "[A-Za-z]+",
    "CNAME": "[A-Za-z_][A-Za-z0-9_]*",
    "WS_INLINE": r"[ \t]+", "WS": r"[ \t\f\r\n]+", "CR": r"\r", "LF": r"\n", "NEWLINE": r"(?:\r?\n)+",
    "SH_COMMENT": r"#[^\n]*", "CPP_COMMENT": r"//[^\n]*", "SQL_COMMENT": r"--[^\n]*",
    "C_COMMENT": r"/\*(?:[^*]|\*+[^*/])*\*+/",
}  # fmt: skip
_START, _COMMON_PREFIX = "start", "common."


def read_lark(text: str, guard: ResourceGuard) -> ParsedGrammar:
    """The grammar of a Lark file.

    Aliases and the signs `?`, `!` and `_` of rules shape trees alone and change nothing here. A pattern with a lazy
    repeat ends at the first place where it may.
    Raises SpecSyntaxError (with place and what was expected) for a text that is no such file, for names that are
    missing or defined twice, a terminal that calls itself or a rule; SpecUnsupported (with the place) for priorities,
    %declare, modules other than `common`, tokens, attributes of rules, look-arounds over the ends of a terminal,
    anchors, and lazy repeats in a terminal that may end in a repeat; SpecUnsatisfiable where no text is derived;
    LimitExceeded over `grammar_chars_max`, `nesting_depth_max` or `nfa_positions_max`.

    >>> from compiler.limits import DEFAULT_LIMITS
    >>> from compiler.pushdown import build_machine
    >>> guard = ResourceGuard(DEFAULT_LIMITS)
    >>> source = 'start: "(" start* ")" | INT' + chr(10) + "%import common.INT" + chr(10) + '%ignore " "'
    >>> machine = build_machine(read_lark(source, guard).grammar, guard)
    >>> machine.accepts(b"( (1 ) 23)"), machine.accepts(b"( (1 )")
    (True, False)
    """
    guard.check("grammar_chars_max", len(text))
    scanner = Scanner(text)
    with guard.recursion():
        return _Resolver(LarkParser(scanner).file(), scanner, guard).grammar()


@dataclass(frozen=True, slots=True)
class _Regex:
    """The pattern of a terminal or of a part of one. `names` are the terminals that it is made of."""

    node: Node
    names: frozenset[str] = frozenset()


class _Resolver:
    """Resolves the names of a file."""

    def __init__(self, file: LarkFile, scanner: Scanner, guard: ResourceGuard) -> None:
        self._file, self._scanner, self._guard = file, scanner, guard
        self._table = RuleTable(scanner)
        self._regexes = dict[str, _Regex]()  # by terminal
        self._open = set[str]()  # terminals whose patterns are being resolved
        self._instances = dict[tuple[str, tuple[Node, ...]], int]()  # of templates, by their arguments
        self._ignored = self._table.helper("what is ignored")

    def grammar(self) -> ParsedGrammar:
        table, file = self._table, self._file
        definitions = [each for each in file.definitions.values() if not each.parameters]
        places = {name: place for name, (_, place) in file.imports.items()}
        places |= {each.name: each.place for each in definitions}
        for name, place in places.items():
            table.begin(name, place)
        for definition in definitions:
            if not is_terminal(definition.name):
                table.define(definition.name, self._rule(definition.body, definition.name, {}))
        for name in filter(is_terminal, places):
            regex = self._named(name, places[name])
            # A part of other terminals alone may be what no terminal in a rule may be.
            node = self._terminal(regex, places[name]) if table.calls(name) else EMPTY
            table.define(name, node, map(table.number, regex.names & places.keys()))
        ignored = [self._regex(tree) for tree in file.ignored]
        names = {table.number(name) for regex in ignored for name in regex.names & places.keys()}
        nodes = [self._alone(regex, 0) for regex in ignored]
        table.fill(self._ignored, Repeat(alternation(nodes), 0, None), names)
        return table.grammar(_START, "start: ...", call(self._ignored) if ignored else EMPTY)

    def _rule(self, tree: LarkTree, name: str, arguments: Mapping[str, Node]) -> Node:
        """The pattern of a part of a rule. `arguments` are those of the template whose body it is."""
        if isinstance(tree, LarkAlternatives):
            branches = [(self._rule(each, name, arguments), place) for each, place in tree.branches]
            return self._table.alternatives(name, branches)
        if isinstance(tree, LarkSequence):
            return concat([self._rule(item, name, arguments) for item in tree.items])
        if isinstance(tree, LarkRepeat):
            return Repeat(self._rule(tree.item, name, arguments), tree.minimum, tree.maximum)
        if not isinstance(tree, LarkName):
            return self._terminal(self._regex(tree), tree.place if isinstance(tree, LarkPattern) else 0)
        if tree.name in arguments:
            return arguments[tree.name]
        definition = self._file.definitions.get(tree.name)
        expected = definition.parameters if definition else ()
        if len(expected) != len(tree.arguments):
            message = f"{shown_name(tree.name)} takes {len(expected)} arguments, not {len(tree.arguments)}"
            self._scanner.fail(message, f"{tree.name}{{{', '.join(expected)}}}" if expected else "a name", tree.place)
        if definition is None or not expected:
            return self._table.call(tree.name, tree.place)
        return self._instance(definition, tuple(self._rule(each, name, arguments) for each in tree.arguments))

    def _instance(self, template: LarkDefinition, arguments: tuple[Node, ...]) -> Node:
        """The call of a template with these arguments."""
        key = template.name, arguments
        if key not in self._instances:
            number = self._instances[key] = self._table.helper(template.name)
            self._guard.check("nfa_positions_max", len(self._instances))
            values = dict(zip(template.parameters, arguments, strict=True))
            self._table.fill(number, self._rule(template.body, template.name, values))
        return call(self._instances[key])

    def _terminal(self, regex: _Regex, place: int) -> Node:
        """A terminal in a rule. What is ignored may follow it."""
        node = self._alone(regex, place)
        return concat([node, call(self._ignored)]) if self._file.ignored else node

    def _alone(self, regex: _Regex, place: int) -> Node:
        """A terminal by itself."""
        node = regex.node
        if any(isinstance(leaf, Anchor) for leaf in leaves_of(node)):
            self._scanner.refuse("anchor", "anchors are not supported in terminals", place)
        if _at_edge(node, False, lambda each: isinstance(each, Look) and each.behind) or _at_edge(
            node, True, lambda each: isinstance(each, Look) and not each.behind
        ):
            self._scanner.refuse("look-around", "a look-around reaches over the end of a terminal", place)
        parts = self._lazy_alternatives(node) if _has_lazy_repeat(node) else (node,)
        nodes = [self._alternative(part, place) for part in parts]
        return alternation(nodes) if len(nodes) > 1 else nodes[0]

    def _lazy_alternatives(self, node: Node) -> tuple[Node, ...]:
        """The alternatives with lazy repeats, and all others together. One node where several may match at a place."""
        branches = _branches(node)
        lazy, greedy = ([each for each in branches if _has_lazy_repeat(each) is kind] for kind in (True, False))
        parts = (*lazy, alternation(greedy)) if greedy else tuple(lazy)
        texts = [CharDfa(*node_to_dfa(part, self._guard)) for part in parts]
        for one, other in permutations(texts, 2):
            beginnings = CharDfa(replace(other.dfa, accepting=live_states(other.dfa)), other.minterms)
            if not is_empty(char_intersection([one, beginnings], self._guard).dfa):
                return (node,)
        return parts

    def _alternative(self, node: Node, place: int) -> Node:
        """The pattern of an alternative, or the call of its rule.

        It is a rule where it may be extended, has look-arounds or lazy repeats.
        """
        is_lazy = _has_lazy_repeat(node)
        if is_lazy and _at_edge(node, True, _is_open_repeat):
            self._scanner.refuse("lazy repeat", "a terminal with a lazy repeat must not end in a repeat", place)
        if not is_lazy and _is_fixed(node):
            return node
        dfa, parts = node_to_dfa(node, self._guard)
        if is_lazy:
            return self._table.texts_of("a terminal", _shortest(dfa), parts)
        extended = dfa.accepting[dfa.next_state[dfa.accepting]][:, dfa.symbol_class].any()
        if not extended and not has_condition(node):
            return node
        number = self._table.helper("a terminal")
        self._table.fill(number, node if dfa.accepting.any() else alternation([]))
        self._table.terminals.add(number)
        return call(number)

    def _regex(self, tree: LarkTree) -> _Regex:
        """The pattern of a part of a terminal."""
        if isinstance(tree, LarkPattern):
            return self._pattern(tree)
        if isinstance(tree, LarkString):
            return _Regex(literal_node(tree.text, tree.ignore_case))
        if isinstance(tree, LarkRange):
            return _Regex(Chars(charset([(ord(tree.low), ord(tree.high) + 1)])))
        if isinstance(tree, LarkName):
            if tree.arguments or not is_terminal(tree.name.removeprefix(_COMMON_PREFIX)):
                self._scanner.fail("a terminal calls a rule", "a terminal: its name in upper case", tree.place)
            return self._named(tree.name, tree.place)
        if isinstance(tree, LarkRepeat):
            item = self._regex(tree.item)
            return replace(item, node=Repeat(item.node, tree.minimum, tree.maximum))
        items = tree.items if isinstance(tree, LarkSequence) else [each for each, _ in tree.branches]
        parts = [self._regex(item) for item in items]
        nodes = [part.node for part in parts]
        node = concat(nodes) if isinstance(tree, LarkSequence) else alternation(nodes)
        names = frozenset[str]().union(*(part.names for part in parts))
        return _Regex(node, names)

    def _named(self, name: str, place: int) -> _Regex:
        """The pattern of a terminal by its name."""
        if name not in self._regexes:
            if name in self._open:
                self._scanner.fail("a terminal calls itself", "other terminals; rules may call themselves", place)
            self._open.add(name)
            if name in self._file.imports or name.startswith(_COMMON_PREFIX):
                regex = self._common(name, place)
            elif name in self._file.definitions:
                regex = self._regex(self._file.definitions[name].body)
            else:
                hint = did_you_mean(name, [*self._file.definitions, *self._file.imports])
                message = f"the terminal {shown_name(name)} is not defined{hint}"
                self._scanner.fail(message, "the name of a terminal", place)
            self._open.remove(name)
            self._regexes[name] = replace(regex, names=regex.names | {name})
        return self._regexes[name]

    def _common(self, name: str, place: int) -> _Regex:
        imported = self._file.imports[name][0] if name in self._file.imports else name.removeprefix(_COMMON_PREFIX)
        if imported not in COMMON:
            hint = did_you_mean(imported, COMMON)
            self._scanner.fail(f"common has no {shown_name(imported)}{hint}", ", ".join(COMMON), place)
        return _Regex(parse_pattern(COMMON[imported], self._guard))

    def _pattern(self, tree: LarkPattern) -> _Regex:
        flags = "".join(sorted(set(tree.flags) - {"u"})).replace("l", "L")
        prefix = f"(?{flags})" if flags else ""
        try:
            node = parse_pattern(prefix + tree.source, self._guard)
        except (SpecSyntaxError, SpecUnsupported) as error:
            place = tree.place + max((error.position or 0) - len(prefix), 0)
            if isinstance(error, SpecUnsupported):
                self._scanner.refuse(error.construct, str(error), place)
            self._scanner.fail(error.message, "a pattern in Python's syntax", place)
        return _Regex(node)


def _shortest(dfa: Dfa) -> Dfa:
    """The texts without a proper beginning that is a text, too."""
    dead = dfa.states
    table = np.vstack([dfa.next_state, np.full(dfa.next_state.shape[1], dead, dtype=np.int32)])
    table[:dead][dfa.accepting] = dead
    return Dfa(dfa.symbol_class, table, np.append(dfa.accepting, False), dfa.start)


def _has_lazy_repeat(node: Node) -> bool:
    """Whether a repeat takes as few turns as it can."""
    if isinstance(node, Repeat):
        return (node.lazy and node.minimum != node.maximum) or _has_lazy_repeat(node.item)
    return isinstance(node, Concat | Alternation) and any(map(_has_lazy_repeat, node.items))


def _branches(node: Node) -> list[Node]:
    """The alternatives of a pattern. Common beginnings stand in each of them."""
    if isinstance(node, Alternation):
        return [branch for item in node.items for branch in _branches(item)]
    if isinstance(node, Concat) and node.items and isinstance(node.items[-1], Alternation):
        return [concat([*node.items[:-1], branch]) for branch in _branches(node.items[-1])]
    return [node]


def _is_fixed(node: Node) -> bool:
    """Whether the node is a sequence of characters. Then no text of it continues another."""
    return isinstance(node, Chars) or (isinstance(node, Concat) and all(map(_is_fixed, node.items)))


def _is_open_repeat(node: Node) -> bool:
    return isinstance(node, Repeat) and node.minimum != node.maximum


def _at_edge(node: Node, last: bool, holds: Callable[[Node], bool]) -> bool:
    """Whether a node that holds may begin a text, or end it."""
    if holds(node):
        return True
    if isinstance(node, Concat):
        for item in reversed(node.items) if last else node.items:
            if _at_edge(item, last, holds):
                return True
            if not derives(item, False, set()):
                return False
    if isinstance(node, Repeat | AtomicGroup):
        return _at_edge(node.item, last, holds)
    return isinstance(node, Alternation) and any(_at_edge(item, last, holds) for item in node.items)
