"""Context-free grammars whose rules are patterns, and their preparation for a network.

A rule is a pattern over characters and calls of rules. A call is a symbol behind the last code point, so that the
trees, automata and constructions of `compiler.regex` serve rules too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compiler.automata import CODE_POINTS, CharSet, single
from compiler.errors import SpecUnsatisfiable, SpecUnsupported
from compiler.limits import ResourceGuard
from compiler.regex import Alternation, Anchor, Chars, Concat, Look, Node, Repeat, Words, leaves_of, positions_of

END_SYMBOL = CODE_POINTS  # the end of the text, which only the root reads
_FIRST_RULE = CODE_POINTS + 1
_EMPTY_LANGUAGE = Alternation(())


def call(rule: int) -> Node:
    """The pattern that calls a rule, given by its number."""
    return Chars(single(_FIRST_RULE + rule))


def symbol_of(charset: CharSet) -> int | None:
    """END_SYMBOL, or the number of the called rule behind it. None for a set of characters."""
    first = charset[0][0] if charset else 0
    return first if first >= CODE_POINTS else None


def rule_of(charset: CharSet) -> int | None:
    """The rule that a set of symbols calls, if it does."""
    symbol = symbol_of(charset)
    return None if symbol is None or symbol == END_SYMBOL else symbol - _FIRST_RULE


@dataclass(frozen=True, slots=True)
class Grammar:
    """A context-free grammar. `rules[i]` is named `names[i]`; the texts are those of rule `start`.

    Rules hold neither anchors nor look-arounds. Raises ValueError where they do, or a call names no rule.

    >>> from compiler.regex import literal_node
    >>> nested = Concat((literal_node("(", False), Repeat(call(0), 0, 1), literal_node(")", False)))
    >>> Grammar(("brackets",), (nested,)).start
    0
    """

    names: tuple[str, ...]
    rules: tuple[Node, ...]
    start: int = 0

    def __post_init__(self) -> None:
        count = len(self.rules)
        if len(self.names) != count or not 0 <= self.start < count:
            raise ValueError("each rule has a name, and start is one of them")
        if any(_has_conditions(rule) for rule in self.rules):
            raise ValueError("rules hold neither anchors nor look-arounds")
        if any(called >= count for rule in self.rules for called in calls_of(rule)):
            raise ValueError("a call names no rule")


def _has_conditions(node: Node) -> bool:
    if isinstance(node, Repeat):
        return _has_conditions(node.item)
    if isinstance(node, Concat | Alternation):
        return any(map(_has_conditions, node.items))
    return isinstance(node, Anchor | Look)


def calls_of(node: Node) -> set[int]:
    """The rules that a pattern calls."""
    found = set[int]()
    for leaf in leaves_of(node):
        sets = leaf.letters if isinstance(leaf, Words) else (leaf.charset,) if isinstance(leaf, Chars) else ()
        found.update(rule for rule in map(rule_of, sets) if rule is not None)
    return found


def prepared_rules(grammar: Grammar, inline_growth_max: int, guard: ResourceGuard) -> tuple[list[str], list[Node]]:
    """The names and patterns of the rules that a network needs. The first is the root: the start, then END.

    Rules that derive no text are left out of their callers. A rule that does not call itself replaces its calls while
    all rules together grow by at most `inline_growth_max` positions, so that calls stay only for recursion, and for
    large rules that are used in many places. A call of a rule that derives the empty text becomes optional: what is
    called reads at least one byte.
    Raises SpecUnsatisfiable where no text is derived, and SpecUnsupported for a left-recursive rule.
    """
    with guard.recursion():
        root = len(grammar.rules)
        rules = dict(enumerate((*grammar.rules, Concat((call(grammar.start), Chars(single(END_SYMBOL)))))))
        productive = _closure(rules, _derives_text)
        if root not in productive:
            raise SpecUnsatisfiable("no text is derived by the grammar")
        rules = {
            rule: _with_calls(node, lambda called: call(called) if called in productive else _EMPTY_LANGUAGE)
            for rule, node in rules.items()
            if rule in productive
        }
        rules = _reachable(rules, root)
        _refuse_left_recursion(rules, _closure(rules, _derives_empty), grammar.names)
        if inline_growth_max:
            rules = _inlined(rules, root, inline_growth_max, guard)
        nullable = _closure(rules, _derives_empty)
        kept = [root, *(rule for rule in rules if rule != root)]
        number = {rule: position for position, rule in enumerate(kept)}

        def renumbered(called: int) -> Node:
            node = call(number[called])
            return Repeat(node, 0, 1) if called in nullable else node

        names = (*grammar.names, "the text")
        return [names[rule] for rule in kept], [_with_calls(rules[rule], renumbered) for rule in kept]


def _with_calls(node: Node, replace: Callable[[int], Node]) -> Node:
    """The pattern with each call replaced."""
    if isinstance(node, Chars):
        rule = rule_of(node.charset)
        return node if rule is None else replace(rule)
    if isinstance(node, Repeat):
        return Repeat(_with_calls(node.item, replace), node.minimum, node.maximum)
    if isinstance(node, Words):
        return _with_calls(node.spelled(), replace) if calls_of(node) else node
    if isinstance(node, Concat | Alternation):
        return type(node)(tuple(_with_calls(item, replace) for item in node.items))
    return node


def _derives(node: Node, of_characters: bool, known: set[int]) -> bool:
    """Whether a pattern derives a text from the rules in `known`. Characters are allowed with `of_characters`."""
    if isinstance(node, Chars):
        rule = rule_of(node.charset)
        return of_characters and bool(node.charset) if rule is None else rule in known
    if isinstance(node, Repeat):
        return node.minimum == 0 or _derives(node.item, of_characters, known)
    if isinstance(node, Words):
        return node.nullable or _derives(node.spelled(), of_characters, known)
    if isinstance(node, Alternation):
        return any(_derives(item, of_characters, known) for item in node.items)
    return all(_derives(item, of_characters, known) for item in node.items) if isinstance(node, Concat) else True


def _derives_text(node: Node, known: set[int]) -> bool:
    return _derives(node, True, known)


def _derives_empty(node: Node, known: set[int]) -> bool:
    return _derives(node, False, known)


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


def _refuse_left_recursion(rules: dict[int, Node], nullable: set[int], names: Sequence[str]) -> None:
    """Raise SpecUnsupported where a rule can call itself before it reads."""
    first = {rule: _first_calls(node, nullable) for rule, node in rules.items()}
    done = set[int]()
    for rule in rules:
        # Depth-first search without recursion: a chain of rules may be long. `path` is the way to the rule on top.
        path, waiting = dict[int, None](), [(rule, False)]
        while waiting:
            at, left = waiting.pop()
            if left:
                del path[at]
                done.add(at)
            elif at in path:
                cycle = [*path][[*path].index(at) :]
                shown = " -> ".join(names[each] for each in (*cycle, at))
                raise SpecUnsupported(f"left recursion is not supported: {shown}", construct="left recursion")
            elif at not in done:
                path[at] = None
                waiting += [(at, True), *((called, False) for called in sorted(first[at]))]


def _first_calls(node: Node, nullable: set[int]) -> set[int]:
    """The rules that a pattern may call before it reads a character."""
    if isinstance(node, Chars | Words):
        return _first_calls(node.spelled(), nullable) if isinstance(node, Words) and calls_of(node) else calls_of(node)
    if isinstance(node, Repeat):
        return _first_calls(node.item, nullable) if node.maximum != 0 else set()
    found = set[int]()
    for item in node.items if isinstance(node, Concat | Alternation) else ():
        found |= _first_calls(item, nullable)
        if isinstance(node, Concat) and not _derives_empty(item, nullable):
            break
    return found


def _inlined(rules: dict[int, Node], root: int, growth: int, guard: ResourceGuard) -> dict[int, Node]:
    """The rules with callees put in place of their calls.

    Small rules come first. One pass is enough, since a rule that calls itself goes on to do so.
    """
    callers, rules = _callers(rules), dict(rules)
    size = {rule: positions_of(node) for rule, node in rules.items()}
    for rule in sorted((rule for rule in rules if rule != root), key=lambda each: (size[each], each)):
        guard.check_time()
        node = rules[rule]
        # Each caller but one is a copy more, at least.
        if rule in callers[rule] or (len(callers[rule]) - 1) * size[rule] > growth:
            continue
        larger = {caller: _with_calls(rules[caller], _replacing(rule, node)) for caller in callers[rule]}
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
