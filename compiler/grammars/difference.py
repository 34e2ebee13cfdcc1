"""Differences `A - B` of terminals.

Their texts are those of A that are no texts of B.
"""

from __future__ import annotations

from compiler.automata import CharDfa, char_complement, char_intersection
from compiler.grammars.rules import RuleTable
from compiler.grammars.scanner import Scanner
from compiler.limits import ResourceGuard
from compiler.pushdown import call, calls_of, replace_calls
from compiler.regex import Node, alternation, node_to_dfa, positions_of


class Differences:
    """The differences of a text. They are resolved when all its rules are known.

    A terminal here is what calls no rule that calls itself.
    """

    def __init__(self, table: RuleTable, scanner: Scanner, guard: ResourceGuard) -> None:
        self._table, self._scanner, self._guard = table, scanner, guard
        self._operands = dict[int, tuple[Node, Node, int]]()
        self._expanded = dict[int, Node]()

    def add(self, left: Node, right: Node, place: int) -> Node:
        """A call for the texts of `left` without those of `right`."""
        number = self._table.helper("a difference")
        self._operands[number] = left, right, place
        return call(number)

    def resolve(self) -> None:
        """Define the rules of all differences.

        Raises SpecUnsupported where an operand is no terminal, LimitExceeded over `nfa_positions_max` or
        `dfa_states_max`.
        """
        for number, (left, right, place) in self._operands.items():
            with_texts, without = (
                CharDfa(*node_to_dfa(self._without_calls(node, place, ()), self._guard)) for node in (left, right)
            )
            rest = char_intersection([with_texts, char_complement(without)], self._guard)
            node = self._table.texts_of("a difference", rest.dfa, rest.minterms)
            self._table.fill(number, node, calls_of(left) | calls_of(right))

    def _without_calls(self, node: Node, place: int, above: tuple[int, ...]) -> Node:
        """The pattern with each rule in place of its calls. `above` are the rules around it."""
        for rule in calls_of(node):
            if rule in above or rule in self._operands:
                self._scanner.refuse("difference", "- stands between terminals, which do not call themselves", place)
            if rule not in self._expanded:
                # A rule that is not defined is refused when all differences are resolved.
                pattern = self._table.rules[rule] or alternation([])
                self._expanded[rule] = self._without_calls(pattern, place, (*above, rule))
        expanded = replace_calls(node, self._expanded.__getitem__)
        self._guard.check("nfa_positions_max", positions_of(expanded))
        return expanded
