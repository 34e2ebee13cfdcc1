"""Prepares the rules of a grammar for a network.

Useless rules and left recursion go, and small rules take the place of their calls.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler.automata import single
from compiler.errors import SpecUnsatisfiable
from compiler.limits import ResourceGuard
from compiler.pushdown.grammar import END_SYMBOL, Grammar, call, calls_of, derives, derives_empty, replace_calls
from compiler.pushdown.left_recursion import without_left_recursion
from compiler.regex import Alternation, Chars, Concat, Node, Repeat, positions_of

_EMPTY_LANGUAGE = Alternation(())


def prepared_rules(grammar: Grammar, inline_growth_max: int, guard: ResourceGuard) -> Grammar:
    """The rules of a network. The first one is the root: the start, then END.

    Rules that derive no text are left out of their callers. A rule that does not call itself replaces its calls while
    all rules together grow by at most `inline_growth_max` positions, so that calls stay only for recursion, and for
    large rules that are used in many places. A call of a rule that derives the empty text becomes optional: what is
    called reads at least one byte. Left recursion is rewritten.
    Raises SpecUnsatisfiable where no text is derived, and SpecUnsupported as `without_left_recursion`.
    """
    with guard.recursion():
        root = len(grammar.rules)
        rules = dict(enumerate((*grammar.rules, Concat((call(grammar.start), Chars(single(END_SYMBOL)))))))
        rules = _useful(rules, root)
        if inline_growth_max:
            rules = _inlined(rules, grammar.terminals | grammar.single_tokens | {root}, inline_growth_max, guard)
        nullable = _closure(rules, derives_empty)

        def optional(called: int) -> Node:
            return Repeat(call(called), 0, 1) if called in nullable else call(called)

        rules = {rule: replace_calls(node, optional) for rule, node in rules.items()}
        names = (*grammar.names, "the text")
        rules = _useful(without_left_recursion(names, rules, guard), root)
        number = {rule: position for position, rule in enumerate(rules)}
        named = tuple(names[rule] if rule < len(names) else "a rest" for rule in rules)
        nodes = tuple(replace_calls(node, lambda called: call(number[called])) for node in rules.values())
        terminals, single_tokens = (
            frozenset(number[rule] for rule in kept if rule in number)
            for kept in (grammar.terminals, grammar.single_tokens)
        )
        return Grammar(named, nodes, 0, terminals, single_tokens=single_tokens, marks=grammar.marks)


def _useful(rules: dict[int, Node], root: int) -> dict[int, Node]:
    """The rules that some text needs, the root first. Raises SpecUnsatisfiable where there is no text."""
    productive = productive_rules(rules)
    if root not in productive:
        raise SpecUnsatisfiable("no text is derived by the grammar")
    return _reachable({
        rule: replace_calls(node, lambda called: call(called) if called in productive else _EMPTY_LANGUAGE)
        for rule, node in rules.items() if rule in productive
    }, root)  # fmt: skip


def productive_rules(rules: dict[int, Node]) -> set[int]:
    """The rules that derive some text."""
    return _closure(rules, lambda node, known: derives(node, True, known))


def _closure(rules: dict[int, Node], holds: Callable[[Node, set[int]], bool]) -> set[int]:
    """The least set of rules whose patterns hold, given the set."""
    callers = _callers(rules)
    known, waiting = set[int](), list(rules)
    while waiting:
        rule = waiting.pop()
        if rule not in known and holds(rules[rule], known):
            known.add(rule)
            waiting += callers[rule]
    return known


def _callers(rules: dict[int, Node]) -> dict[int, set[int]]:
    callers = {rule: set[int]() for rule in rules}
    for rule, node in rules.items():
        for called in calls_of(node):
            callers[called].add(rule)
    return callers


def _reachable(rules: dict[int, Node], root: int) -> dict[int, Node]:
    """The rules that the root needs, as they are met."""
    met, waiting = dict[int, Node](), [root]
    while waiting:
        rule = waiting.pop()
        if rule not in met:
            met[rule] = rules[rule]
            waiting += sorted(calls_of(rules[rule]), reverse=True)
    return met


def _inlined(
    rules: dict[int, Node], kept: frozenset[int], growth: int, guard: ResourceGuard
) -> dict[int, Node]:
    """The rules with callees, except `kept` ones, in place of calls.

    Small rules come first. One pass is enough, since a rule that calls itself goes on to do so.
    """
    callers, rules = _callers(rules), dict(rules)
    size = {rule: positions_of(node) for rule, node in rules.items()}
    for rule in sorted((rule for rule in rules if rule not in kept), key=lambda each: (size[each], each)):
        guard.check_time()
        node = rules[rule]
        # Each caller but one is a copy more, at least.
        if rule in callers[rule] or (len(callers[rule]) - 1) * size[rule] > growth:
            continue
        larger = {caller: replace_calls(rules[caller], _replacing(rule, node)) for caller in callers[rule]}
        sizes = {caller: positions_of(each) for caller, each in larger.items()}
        added = sum(sizes[caller] - size[caller] for caller in larger) - size[rule]
        if added <= growth and max(map(_depth, larger.values())) <= guard.limits.nesting_depth_max:
            growth -= max(added, 0)
            rules.update(larger)
            size.update(sizes)
            del rules[rule]
            for called in calls_of(node):
                callers[called] = callers[called] - {rule} | set(larger)
    return rules


def _depth(node: Node) -> int:
    """How deep a pattern is nested."""
    items = (node.item,) if isinstance(node, Repeat) else node.items if isinstance(node, Concat | Alternation) else ()
    return 1 + max(map(_depth, items), default=0)


def _replacing(rule: int, node: Node) -> Callable[[int], Node]:
    return lambda called: node if called == rule else call(called)
