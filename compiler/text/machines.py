"""Combines trees whose leaves include pushdown machines.

A tree becomes a disjunction. Each part of it has at most one machine, or the complement of one, and a tree of the other
leaves, all of which are regular. So a part is a product of a machine with one DFA, and the whole is a union.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from compiler.automata import everything, is_empty
from compiler.errors import LimitExceeded, SpecUnsatisfiable, SpecUnsupported
from compiler.lifting import UNREACHABLE
from compiler.limits import ResourceGuard
from compiler.pushdown import PushdownMachine, complement, intersect, regular_machine, unite
from compiler.spec import GrammarSpec, JsonSchemaSpec, SequenceSpec
from compiler.text.combination import to_char_dfa, to_text_automaton
from compiler.text.distinct_text import distinct_text
from compiler.text.product_text import PartText
from compiler.text.pushdown_text import PushdownText, pushdown_text
from compiler.text.text_automaton import TextAutomaton
from compiler.text.tree import (
    BooleanNode,
    CharLeaf,
    ConstraintTree,
    DistinctLeaf,
    Negation,
    PushdownLeaf,
    leaves_of,
    leaves_of_type,
)

_Literal: TypeAlias = tuple[PushdownLeaf, bool]  # a machine, and whether it is negated
# By literal, the regular constraint that holds beside it; None for no constraint, and for no literal.
_Parts: TypeAlias = dict[_Literal | None, ConstraintTree | None]
_Part: TypeAlias = tuple[_Literal | None, ConstraintTree | None]


def to_text(
    tree: ConstraintTree, guard: ResourceGuard, left_out: list[LimitExceeded] | None = None
) -> TextAutomaton | PushdownText:
    """The texts of a tree. Raises what `combine` and the operations on machines raise.

    Raises SpecUnsupported where a conjunction needs two stacks, or where an ambiguous grammar is negated. A schema then
    nests within a bound of ours instead; LimitExceeded tells where that leaves no text.

    left_out  receives these bounds instead; where it is not empty, that there is no text is no proof
    """
    if not leaves_of_type(tree, PushdownLeaf):
        return to_text_automaton(tree, guard)
    spaces = {leaf.leading_space for leaf in leaves_of(tree) if isinstance(leaf, CharLeaf | PushdownLeaf)}
    disjunction = _Disjunction(guard)
    parts = disjunction.parts(tree, negated=False)
    made = [_machine(literal, regular, guard) for literal, regular in parts.items()]
    found = [machine for machine in made if machine is not None]
    if left_out is not None:
        left_out += disjunction.left_out
    bound = next(iter(disjunction.left_out), None) if left_out is None else None
    if not found:
        raise bound or SpecUnsatisfiable("no text satisfies the constraint")
    text = pushdown_text(unite(found, guard), True in spaces and False not in spaces, guard)
    if bound is not None and text.byte_automaton.min_tokens == UNREACHABLE:
        raise bound
    return text


def to_part_text(
    tree: ConstraintTree, guard: ResourceGuard, left_out: list[LimitExceeded] | None = None
) -> PartText:
    """As `to_text`, also of a leaf of distinct letters. It is a part of a product, be it the only one."""
    return distinct_text(tree, guard) if isinstance(tree, DistinctLeaf) else to_text(tree, guard, left_out)


class _Disjunction:
    """Takes a tree apart.

    left_out  the bounds that leave texts out, where the nesting of a schema got one
    """

    def __init__(self, guard: ResourceGuard) -> None:
        self._guard = guard
        self.left_out = list[LimitExceeded]()
        self._bounded: dict[PushdownLeaf, ConstraintTree] = {}
        self._leaves: dict[GrammarSpec | JsonSchemaSpec | SequenceSpec, PushdownLeaf] = {}  # one for each constraint
        self._both: dict[frozenset[PushdownLeaf], PushdownLeaf | CharLeaf | None] = {}

    def parts(self, tree: ConstraintTree, *, negated: bool) -> _Parts:
        """The parts of a tree, or of its negation."""
        if not leaves_of_type(tree, PushdownLeaf):
            return {None: Negation(tree) if negated else tree}
        match tree:
            case PushdownLeaf():
                return self._of_leaf(tree, negated)
            case Negation():
                return self.parts(tree.part, negated=not negated)
            case BooleanNode():
                found = [self.parts(part, negated=negated) for part in tree.parts]
                joined = found[0]
                for other in found[1:]:
                    joined = self._and(joined, other) if tree.is_and is not negated else _or(joined, other)
                return joined
        raise AssertionError(tree)

    def _of_leaf(self, leaf: PushdownLeaf, negated: bool) -> _Parts:
        leaf = self._leaves.setdefault(replace(leaf.source, leading_space="strip"), leaf)
        if not negated:
            return {(leaf, negated): None}
        if leaf.rejected is not None:
            return {None: Negation(leaf.rejected())}
        if not leaf.machine.conflicts() and not leaf.machine.silent_bytes:
            return {(leaf, negated): None}
        if leaf.bounded is not None:
            return {None: Negation(self._with_bound(leaf))}
        kind = "sequence" if isinstance(leaf.source, SequenceSpec) else "grammar"
        if kind == "grammar" and leaf.machine.silent_bytes:
            message = "the grammar names tokens, and no text tells where they are, so it cannot be negated"
            raise SpecUnsupported(message, construct="negation of a grammar with tokens", field=leaf.field)
        message = f"the {kind} is ambiguous: a text may have several readings, so it cannot be negated"
        raise SpecUnsupported(message, construct=f"negation of an ambiguous {kind}", field=leaf.field)

    def _with_bound(self, leaf: PushdownLeaf) -> ConstraintTree:
        if leaf not in self._bounded:
            assert leaf.bounded is not None
            self._bounded[leaf] = bounded = leaf.bounded()
            if isinstance(bounded, CharLeaf):
                self.left_out += bounded.left_out
        return self._bounded[leaf]

    def _and(self, left: _Parts, right: _Parts) -> _Parts:
        joined = _Parts()
        for one, beside in left.items():
            for other, further in right.items():
                both = self._literals(one, other)
                if both is not None:
                    literal, regular = both
                    regular = _join(True, _join(True, beside, further), regular)
                    joined = _or(joined, {literal: regular})
        return joined

    def _literals(self, one: _Literal | None, other: _Literal | None) -> _Part | None:
        """The conjunction of two literals. None where no text satisfies it."""
        if one is None or other is None or one == other:
            return one or other, None
        (leaf, negated), (further, also) = one, other
        if leaf is further:
            return None
        if not negated and not also and (both := self._schemas(leaf, further)) is not None:
            return ((both, False), None) if isinstance(both, PushdownLeaf) else (None, both)
        # The machine of a grammar, or of the first schema, remains; the other schema becomes a DFA.
        for (kept, is_kept_negated), (bounded, is_negated) in ((one, other), (other, one)):
            if bounded.bounded is not None:
                regular = self._with_bound(bounded)
                return (kept, is_kept_negated), Negation(regular) if is_negated else regular
        message = "two grammars, or sequences with tokens or grammars, cannot hold together: nothing decides whether "
        message += "they have a text in common"
        raise SpecUnsupported(message, construct="two grammars in a conjunction", field=further.field)

    def _schemas(self, left: PushdownLeaf, right: PushdownLeaf) -> PushdownLeaf | CharLeaf | None:
        """The leaf of two schemas. None where one of them is none, or they are not combined."""
        key = frozenset((left, right))
        if key not in self._both and left.both is not None and isinstance(right.source, JsonSchemaSpec):
            both = left.both(right.source)
            if isinstance(both, PushdownLeaf):
                both = replace(both, approximated=(*left.approximated, *right.approximated))
            elif both is not None:
                self.left_out += both.left_out
            self._both[key] = both
        return self._both.get(key)


def _or(left: _Parts, right: _Parts) -> _Parts:
    joined = dict(left)
    for literal, regular in right.items():
        joined[literal] = _join(False, joined[literal], regular) if literal in joined else regular
    return joined


def _join(is_and: bool, left: ConstraintTree | None, right: ConstraintTree | None) -> ConstraintTree | None:
    """The conjunction or disjunction of two trees. None has all texts."""
    if left is None or right is None:
        return (left or right) if is_and else None
    return BooleanNode(is_and, (left, right))


def _machine(literal: _Literal | None, regular: ConstraintTree | None, guard: ResourceGuard) -> PushdownMachine | None:
    """The machine of a part. None without a text."""
    if literal is not None and not literal[1] and regular is None:
        return literal[0].machine
    texts = everything() if regular is None else to_char_dfa(regular, guard)
    if is_empty(texts.dfa):
        return None
    if literal is None:
        return regular_machine(texts, guard)
    leaf, negated = literal
    beside = regular_machine(texts, guard, beside=leaf.machine)
    return intersect(complement(leaf.machine) if negated else leaf.machine, beside, guard)
