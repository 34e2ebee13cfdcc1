"""Rewrites left-recursive rules.

In A = B | A C the rule A is B C*. Rules that begin with each other are a system of such equations. In its solution, the
left-corner transform, a rule begins with a text that no rule of the system begins, and new rules say how to go on.
(Rosenkrantz and Lewis 1970; Moore, "Removing left recursion from context-free grammars", 2000.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from compiler.errors import SpecUnsupported
from compiler.limits import ResourceGuard
from compiler.pushdown.grammar import call, calls_of, derives_empty, rule_of
from compiler.regex import EMPTY, Alternation, Chars, Concat, Node, Repeat, Words, alternation, concat, positions_of


def without_left_recursion(names: Sequence[str], rules: dict[int, Node], guard: ResourceGuard) -> dict[int, Node]:
    """Rules with the same texts, of which none is left-recursive.

    New ones get numbers behind the others.

    A call stands for the texts of a rule that are not empty. `names` are those of the rules, by number.
    Raises SpecUnsupported, with a cycle, where the new rules would have more than `nfa_positions_max` positions.
    """
    rules = dict(rules)
    while cycle := _cycle(rules):
        first = {rule: _first_calls(node) for rule, node in rules.items()}
        callers = {rule: set[int]() for rule in rules}
        for rule, called in first.items():
            for each in called:
                callers[each].add(rule)
        members = sorted(_reached(cycle[0], first) & _reached(cycle[0], callers))
        size = 0
        for rule, node in _System(rules, members, max(max(rules) + 1, len(names))).rewritten():
            guard.check_time()
            rules[rule] = node
            size += positions_of(node)
            if size > guard.limits.nfa_positions_max:
                shown = " -> ".join(names[rule] for rule in (*cycle, cycle[0]))
                raise SpecUnsupported(f"left recursion is too large to rewrite: {shown}", construct="left recursion")
    return rules


def _cycle(rules: dict[int, Node]) -> list[int]:
    """Rules that call each other in turn before they read, or none."""
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
                return [*path][[*path].index(at) :]
            elif at not in done:
                path[at] = None
                waiting += [(at, True), *((called, False) for called in sorted(_first_calls(rules[at])))]
    return []


def _reached(rule: int, edges: dict[int, set[int]]) -> set[int]:
    reached, waiting = {rule}, [rule]
    while waiting:
        further = edges[waiting.pop()] - reached
        reached |= further
        waiting += further
    return reached


def _first_calls(node: Node) -> set[int]:
    """The rules that a pattern may call before it reads a character."""
    if isinstance(node, Chars | Words):
        return _first_calls(node.spelled()) if isinstance(node, Words) and calls_of(node) else calls_of(node)
    if isinstance(node, Repeat):
        return _first_calls(node.item) if node.maximum != 0 else set()
    found = set[int]()
    for item in node.items if isinstance(node, Concat | Alternation) else ():
        found |= _first_calls(item)
        if isinstance(node, Concat) and not derives_empty(item, set()):
            break
    return found


class _System:
    """Rules that begin with each other.

    begins  by rule, the parts of its pattern that begin with no rule of the system
    behind  by rule i and rule j, what follows in texts of i that begin with j
    """

    def __init__(self, rules: dict[int, Node], members: list[int], next_rule: int) -> None:
        self._members = members
        self._next_rule = next_rule
        self.begins = dict[int, list[Node]]()
        self.behind = dict[int, dict[int, list[Node]]]()
        for rule in members:
            self.begins[rule], self.behind[rule] = _split(rules[rule], members)
        # A rule that is another, then nothing, ends where the other does.
        whole = {
            rule: {other for other in members if any(map(_may_be_empty, self.behind[other].get(rule, ())))}
            for rule in members
        }
        self._also = {rule: _reached(rule, whole) for rule in members}
        self._tails, self._pairs = dict[tuple[int, int], int](), list[tuple[int, int]]()

    def rewritten(self) -> Iterator[tuple[int, Node]]:
        """The rules of the system and the new ones, by number."""
        if len(self._members) == 1:
            only = self._members[0]
            repeated = Repeat(alternation(self._further(only, only)), 0, None)
            yield only, concat([alternation(self.begins[only]), repeated])
            return
        for rule in self._members:
            yield rule, alternation([
                concat([alternation(self.begins[first]), self._tail(first, rule)])
                for first in self._members if self.begins[first]
            ])  # fmt: skip
        # The list grows while it is read.
        for over, rule in self._pairs:
            yield self._tails[over, rule], alternation([
                concat([alternation(further), self._tail(next_over, rule)])
                for next_over in self._members if (further := self._further(over, next_over))
            ])  # fmt: skip

    def _tail(self, over: int, rule: int) -> Node:
        """What follows a text of `over` in texts of `rule`."""
        number = self._tails.setdefault((over, rule), self._next_rule + len(self._tails))
        if len(self._tails) > len(self._pairs):
            self._pairs.append((over, rule))
        return Repeat(call(number), 0, 1) if rule in self._also[over] else call(number)

    def _further(self, over: int, rule: int) -> list[Node]:
        """What makes texts of `over` texts of `rule`, in one step."""
        parts = [part for each in sorted(self._also[over]) for part in self.behind[rule].get(each, ())]
        return [part for behind in parts for part in (_split(behind, ())[0] if _may_be_empty(behind) else [behind])]


def _may_be_empty(node: Node) -> bool:
    return derives_empty(node, set())


def _split(node: Node, members: Collection[int]) -> tuple[list[Node], dict[int, list[Node]]]:
    """The texts of a pattern that are not empty.

    They are those that begin with a call of a member, by member what follows the call, and before these the others.
    """
    if isinstance(node, Chars):
        rule = rule_of(node.charset)
        return ([], {rule: [EMPTY]}) if rule is not None and rule in members else ([node], {})
    if isinstance(node, Words) and not calls_of(node):
        return ([replace(node, nullable=False)], {})
    begins, behind = list[Node](), dict[int, list[Node]]()
    for first, rest in _beginnings(node.spelled() if isinstance(node, Words) else node):
        other, called = _split(first, members)
        begins += [concat([each, rest]) for each in other]
        for rule, parts in called.items():
            behind.setdefault(rule, []).extend(concat([each, rest]) for each in parts)
    return begins, behind


def _beginnings(node: Node) -> list[tuple[Node, Node]]:
    """The items that a text may begin with, and what follows each."""
    if isinstance(node, Alternation):
        return [(item, EMPTY) for item in node.items]
    if isinstance(node, Repeat):
        if node.maximum in (0, 1):
            return [(node.item, EMPTY)] * node.maximum
        most = None if node.maximum is None else node.maximum - 1
        return [(node.item, Repeat(node.item, max(node.minimum - 1, 0), most))]
    found, items = list[tuple[Node, Node]](), node.items if isinstance(node, Concat) else ()
    for place, item in enumerate(items):
        found.append((item, concat(items[place + 1 :])))
        if not _may_be_empty(item):
            break
    return found
