"""Context-free grammars whose rules are patterns.

A rule is a pattern over characters and calls of rules. A call is a symbol behind the last code point, so that the
trees, automata and constructions of `compiler.regex` serve rules too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from compiler.automata import ANYTHING, CODE_POINTS, CharSet, single
from compiler.regex import (
    Alternation,
    AtomicGroup,
    Chars,
    Concat,
    Node,
    Repeat,
    Words,
    concat,
    has_condition,
    leaves_of,
    literal_node,
)

END_SYMBOL = CODE_POINTS  # the end of the text, which only the root reads
MARK_SYMBOL = CODE_POINTS + 1  # stands before and behind the name of a token
SPENT_SYMBOL = CODE_POINTS + 2  # stands where the last token of a budget ends
_FIRST_RULE = CODE_POINTS + 3


def call(rule: int) -> Node:
    """The pattern that calls a rule, given by its number."""
    return Chars(single(_FIRST_RULE + rule))


def named_token(name: str) -> Node:
    """The token of a name. A text has the name itself."""
    mark = Chars(single(MARK_SYMBOL))
    return concat([mark, literal_node(name, False), mark])


def text_of_one_token() -> Node:
    """Some text, as a rule in `Grammar.single_tokens`."""
    return concat([Repeat(Chars(ANYTHING), 1, None), Repeat(Chars(single(SPENT_SYMBOL)), 0, None)])


def symbol_of(charset: CharSet) -> int | None:
    """END_SYMBOL, one of those behind it, or a called rule behind these. None for a set of characters."""
    first = charset[0][0] if charset else 0
    return first if first >= CODE_POINTS else None


def rule_of(charset: CharSet) -> int | None:
    """The rule that a set of symbols calls, if it does."""
    symbol = symbol_of(charset)
    return None if symbol is None or symbol < _FIRST_RULE else symbol - _FIRST_RULE


@dataclass(frozen=True, slots=True)
class Grammar:
    """A context-free grammar. `rules[i]` is named `names[i]`; the texts are those of rule `start`.

    terminals  rules without calls, whose anchors and look-arounds speak of their own text alone. A text of a terminal,
               unless it is empty, ends only where the next character would not make it a longer one. Beyond ASCII this
               holds where it is so for all characters with the same first byte.
    single_tokens  rules without calls whose texts at most one token writes, as `text_of_one_token`
    marks      the names of the tokens that are named
    Other rules hold neither anchors nor look-arounds. Raises ValueError where a rule is not as it should be, or a call
    names no rule.

    >>> from compiler.regex import literal_node
    >>> nested = Concat((literal_node("(", False), Repeat(call(0), 0, 1), literal_node(")", False)))
    >>> Grammar(("brackets",), (nested,)).start
    0
    """

    names: tuple[str, ...]
    rules: tuple[Node, ...]
    start: int = 0
    terminals: frozenset[int] = frozenset()
    _: KW_ONLY
    single_tokens: frozenset[int] = frozenset()
    marks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.rules)
        if len(self.names) != count or not 0 <= self.start < count:
            raise ValueError("each rule has a name, and start is one of them")
        if any(has_condition(rule) for number, rule in enumerate(self.rules) if number not in self.terminals):
            raise ValueError("rules hold neither anchors nor look-arounds nor atomic groups")
        if any(calls_of(self.rules[number]) for number in self.terminals | self.single_tokens):
            raise ValueError("terminals and rules of one token call no rule")
        if any(called >= count for rule in self.rules for called in calls_of(rule)):
            raise ValueError("a call names no rule")


def calls_of(node: Node) -> set[int]:
    """The rules that a pattern calls."""
    found = set[int]()
    for leaf in leaves_of(node):
        sets = leaf.letters if isinstance(leaf, Words) else (leaf.charset,) if isinstance(leaf, Chars) else ()
        found.update(rule for rule in map(rule_of, sets) if rule is not None)
    return found


def replace_calls(node: Node, replace: Callable[[int], Node]) -> Node:
    """The pattern with `replace` of the rule in place of each call."""
    if isinstance(node, Chars):
        rule = rule_of(node.charset)
        return node if rule is None else replace(rule)
    if isinstance(node, Repeat):
        return Repeat(replace_calls(node.item, replace), node.minimum, node.maximum)
    if isinstance(node, Words):
        return replace_calls(node.spelled(), replace) if calls_of(node) else node
    if isinstance(node, Concat | Alternation):
        return type(node)(tuple(replace_calls(item, replace) for item in node.items))
    return node


def derives(node: Node, of_characters: bool, known: set[int]) -> bool:
    """Whether a pattern derives a text from the rules in `known`. Characters are allowed with `of_characters`."""
    if isinstance(node, Chars):
        rule = rule_of(node.charset)
        return of_characters and bool(node.charset) if rule is None else rule in known
    if isinstance(node, Repeat):
        return node.minimum == 0 or derives(node.item, of_characters, known)
    if isinstance(node, AtomicGroup):
        return derives(node.item, of_characters, known)
    if isinstance(node, Words):
        return node.nullable or derives(node.spelled(), of_characters, known)
    if isinstance(node, Alternation):
        return any(derives(item, of_characters, known) for item in node.items)
    return all(derives(item, of_characters, known) for item in node.items) if isinstance(node, Concat) else True


def derives_empty(node: Node, known: set[int]) -> bool:
    """Whether a pattern derives the empty text, given the rules that do."""
    return derives(node, False, known)
