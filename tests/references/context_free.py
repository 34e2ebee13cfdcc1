"""Recognizes and draws texts of context-free grammars, straight off their rules.

Shares the types of rules with the compiler and nothing else.
"""

from __future__ import annotations

import math
import random
import re
from functools import cache

from compiler.automata import contains
from compiler.limits import DEFAULT_LIMITS, ResourceGuard
from compiler.pushdown import Grammar, call
from compiler.regex import (
    Alternation,
    AtomicGroup,
    Chars,
    Concat,
    Look,
    Node,
    Repeat,
    Words,
    node_to_dfa,
    parse_pattern,
)

_CALL = 0xE000  # in patterns, the first of the private characters that stand for calls
_SURROGATES = range(0xD800, 0xE000)


def grammar_of(**rules: str) -> Grammar:
    """A grammar of patterns in which `<name>` calls a rule. The first is the start.

    >>> derives(grammar_of(s="a<s>?b"), "aabb"), derives(grammar_of(s="a<s>?b"), "aab")
    (True, False)
    """
    names = tuple(rules)
    guard = ResourceGuard(DEFAULT_LIMITS)
    private = {f"<{name}>": chr(_CALL + rule) for rule, name in enumerate(names)}
    patterns = [re.sub("<[a-z_]+>", lambda found: private[found[0]], text) for text in rules.values()]
    return Grammar(names, tuple(_with_calls(parse_pattern(pattern, guard), len(names)) for pattern in patterns))


def _with_calls(node: Node, rules: int) -> Node:
    """The pattern with calls in place of their private characters."""
    if isinstance(node, Chars):
        # The parser joins alternatives of one character, so a set may hold several calls.
        named = [pair for pair in node.charset if pair[0] >= _CALL and pair[1] <= _CALL + rules]
        calls = [call(symbol - _CALL) for low, end in named for symbol in range(low, end)]
        rest = tuple(pair for pair in node.charset if pair not in named)
        items = [*calls, Chars(rest)] if rest else calls
        return items[0] if len(items) == 1 else Alternation(tuple(items))
    if isinstance(node, Words):
        return _with_calls(node.spelled(), rules)
    if isinstance(node, Repeat):
        return Repeat(_with_calls(node.item, rules), node.minimum, node.maximum)
    assert isinstance(node, Concat | Alternation)
    return type(node)(tuple(_with_calls(item, rules) for item in node.items))


@cache
def _called(node: Chars) -> int | None:
    return next((rule for rule in range(256) if node == call(rule)), None)


def derives(grammar: Grammar, text: str) -> bool:
    """Whether the grammar derives the text. Memoised recursive descent finds the ends of each rule.

    It is repeated while it finds more: a left-recursive rule has the ends of the turn before.
    """
    terminals = {rule: node_to_dfa(grammar.rules[rule], ResourceGuard(DEFAULT_LIMITS)) for rule in grammar.terminals}
    memo, seen = dict[tuple[int, int], frozenset[int]](), set[tuple[int, int]]()

    def longest(rule: int, at: int) -> frozenset[int]:
        dfa, parts = terminals[rule]
        found = {end for end in range(at, len(text) + 1) if dfa.accepts(parts.word(text[at:end]))}
        return frozenset(end for end in found if end == at or end + 1 not in found)

    def ends(node: Node, at: int) -> frozenset[int]:
        if isinstance(node, Chars):
            rule = _called(node)
            if rule is not None:
                if (rule, at) not in seen:
                    seen.add((rule, at))
                    memo[rule, at] = longest(rule, at) if rule in grammar.terminals else ends(grammar.rules[rule], at)
                return memo.get((rule, at), frozenset())
            reads = at < len(text) and contains(node.charset, ord(text[at])) and ord(text[at]) not in _SURROGATES
            return frozenset({at + 1} if reads else ())
        if isinstance(node, Words):
            return ends(node.spelled(), at)
        if isinstance(node, Alternation):
            return frozenset().union(*(ends(item, at) for item in node.items))
        reached = frozenset({at})
        if isinstance(node, Repeat):
            found, count = set(reached) if node.minimum == 0 else set[int](), 0
            while reached and count != node.maximum:
                count += 1
                reached = frozenset().union(*(ends(node.item, place) for place in reached))
                reached = reached - found if count > node.minimum else reached
                found |= reached if count >= node.minimum else set()
            return frozenset(found)
        assert isinstance(node, Concat)
        for item in node.items:
            reached = frozenset().union(*(ends(item, place) for place in reached))
        return reached

    while True:
        before = dict(memo)
        seen.clear()
        found = ends(grammar.rules[grammar.start], 0)
        if memo == before:
            return len(text) in found


def random_text(grammar: Grammar, draw: random.Random, node: Node | None = None, depth: int = 0) -> str:
    """A text of a grammar without look-arounds and atomic groups.

    Deep inside, alternatives whose calls end soonest are taken.
    """
    node = grammar.rules[grammar.start] if node is None else node
    if isinstance(node, Chars):
        rule = _called(node)
        if rule is not None:
            return random_text(grammar, draw, grammar.rules[rule], depth + 1)
        low, end = draw.choice(node.charset)
        return chr(draw.randrange(low, min(end, low + 100)))
    if isinstance(node, Words):
        return random_text(grammar, draw, node.spelled(), depth)
    if isinstance(node, Look):  # the text may fail it
        return ""
    if isinstance(node, AtomicGroup):
        return random_text(grammar, draw, node.item, depth)
    if isinstance(node, Repeat):
        most = node.minimum + 2 if node.maximum is None else node.maximum
        endless = _height(node.item, _heights(grammar)) == math.inf
        count = node.minimum if depth > 4 or endless else draw.randint(node.minimum, min(most, node.minimum + 2))
        return "".join(random_text(grammar, draw, node.item, depth) for _ in range(count))
    if isinstance(node, Alternation):
        height = {item: _height(item, _heights(grammar)) for item in node.items}
        few = [item for item in node.items if height[item] == min(height.values())]
        finite = [item for item in node.items if height[item] < math.inf]
        return random_text(grammar, draw, draw.choice(few if depth > 4 else finite), depth)
    assert isinstance(node, Concat)
    return "".join(random_text(grammar, draw, item, depth) for item in node.items)


@cache
def _heights(grammar: Grammar) -> tuple[float, ...]:
    """How deep the calls of each rule are nested at least."""
    heights = (math.inf,) * len(grammar.rules)
    for _ in grammar.rules:
        heights = tuple(_height(rule, heights) for rule in grammar.rules)
    return heights


def _height(node: Node, heights: tuple[float, ...]) -> float:
    if isinstance(node, Chars):
        rule = _called(node)
        return 0 if rule is None else 1 + heights[rule]
    if isinstance(node, Words):
        return _height(node.spelled(), heights)
    if isinstance(node, Repeat):
        return _height(node.item, heights) if node.minimum else 0
    if isinstance(node, Alternation):
        return min(_height(item, heights) for item in node.items)
    return max((_height(item, heights) for item in node.items), default=0) if isinstance(node, Concat) else 0


def mutated(text: str, draw: random.Random, alphabet: str) -> str:
    """The text with up to three random edits."""
    for _ in range(draw.randint(1, 3)):
        at = draw.randint(0, len(text))
        text = text[:at] + draw.choice(("", draw.choice(alphabet))) + text[at + draw.randint(0, 2) :]
    return text
