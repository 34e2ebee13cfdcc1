"""Takes a tree apart where one automaton for it is too large.

The optional space before an answer is the same space for all parts. So a tree in which several parts look at it becomes
a disjunction: the text as it is, or the text behind a space.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

import numpy as np

from compiler.automata import CharDfa, Dfa, char_intersection, charset, common_minterms, minterms
from compiler.errors import LimitExceeded, SpecUnsatisfiable
from compiler.limits import SIZE_LIMITS, ResourceGuard
from compiler.products import Branch, Formula
from compiler.pushdown import after_space
from compiler.text.combination import to_char_dfa
from compiler.text.distinct_text import behind_space, in_both
from compiler.text.tree import (
    BooleanNode,
    CharLeaf,
    ConstraintTree,
    DistinctLeaf,
    Leaf,
    LengthLeaf,
    Negation,
    PushdownLeaf,
    TextLeaf,
    WordLeaf,
    leaves_of,
    leaves_of_type,
    map_leaves,
    negation_normal_form,
)

SPLIT_LIMITS = (*SIZE_LIMITS, "letters_max", "bdd_nodes_max", "nfa_positions_max")  # which parts alone may keep to
_SHARE = 8  # a part that could be taken apart further has this share of the limits of size
_SPACE = ord(" ")
_T = TypeVar("_T")


class Parts(Generic[_T]):
    """The results for the parts of a tree.

    results      of each part
    text_parts   how many of them, the first ones, decide an answer by `text_formula`
    formula      decides a raw text; the further parts read one that begins with a space which is no part of the answer
    strips_space  whether one leading space is no part of an answer
    """

    def __init__(self, tree: ConstraintTree, make: Callable[[ConstraintTree, ResourceGuard], _T], guard: ResourceGuard):
        self._make, self._guard = make, guard
        self.results = list[_T]()
        spaces = {leaf.leading_space for leaf in leaves_of(tree) if isinstance(leaf, TextLeaf)}
        self.strips_space = True in spaces and False not in spaces
        tree = negation_normal_form(tree)
        if self.strips_space and sum(not isinstance(leaf, WordLeaf) for leaf in leaves_of(tree)) > 1:
            self.text_formula, self.formula = self._behind_space(_without_leading_space(tree))
        else:  # at most one leaf looks at the space, and takes care of it itself
            tree = tree if self.strips_space else _without_leading_space(tree)
            self.text_formula = self.formula = _required(self._taken_apart(tree))
            self.text_parts = len(self.results)

    def _behind_space(self, tree: ConstraintTree) -> tuple[Formula, Formula]:
        """The formulas where several leaves look at the space."""
        conjuncts = tree.parts if isinstance(tree, BooleanNode) and tree.is_and else (tree,)
        words = [part for part in conjuncts if all(isinstance(leaf, WordLeaf) for leaf in leaves_of(part))]
        others = [part for part in conjuncts if part not in words]
        shared = [_required(self._formula(_join(True, words)))] if words else []
        answer = self._taken_apart(_join(True, others))
        self.text_parts = len(self.results)
        behind = [CharLeaf(_first_is_space(), False), *(_after_space(part, self._guard) for part in others)]
        raw = self._formula(BooleanNode(True, tuple(behind)))
        alternatives = tuple(each for each in (answer, raw) if each is not None)
        either = alternatives[0] if len(alternatives) == 1 else Branch(False, alternatives)
        if not alternatives or answer is None:
            raise SpecUnsatisfiable("no text satisfies the constraint")
        return Branch(True, (*shared, answer)), Branch(True, (*shared, either))

    def _formula(self, tree: ConstraintTree) -> Formula | None:
        """The formula of a tree, in as few parts as limits allow. None where a part has no text."""
        splits = halves(tree) is not None
        if splits and leaves_of_type(tree, DistinctLeaf):  # one automaton counts the letters of one leaf
            return self._taken_apart(tree)
        guard = _for_parts(self._guard) if splits else self._guard
        try:
            self.results.append(self._make(tree, guard))
        except SpecUnsatisfiable:
            return None
        except LimitExceeded as error:
            if error.limit not in SPLIT_LIMITS or not splits:
                raise
            return self._taken_apart(tree)
        return len(self.results) - 1

    def _taken_apart(self, tree: ConstraintTree) -> Formula | None:
        """The formula of a tree of which no automaton is made."""
        node = halves(tree)
        if node is None:
            return self._formula(tree)
        try:
            joined = self._with_letters(node)
        except SpecUnsatisfiable:
            return None
        if joined is not None:
            return self._formula(joined)
        found = [self._formula(part) for part in node.parts]
        formulas = tuple(each for each in found if each is not None)
        if not formulas or (node.is_and and None in found):
            return None
        return formulas[0] if len(formulas) == 1 else Branch(node.is_and, formulas)

    def _with_letters(self, node: BooleanNode) -> DistinctLeaf | None:
        """One leaf for distinct letters and a regular part that both hold.

        No search has to find texts of both. None where the parts are others, or too large.
        """
        letters, other = node.parts
        is_regular = not any(isinstance(leaf, PushdownLeaf | DistinctLeaf) for leaf in leaves_of(other))
        if not (node.is_and and isinstance(letters, DistinctLeaf) and is_regular):
            return None
        guard = _for_parts(self._guard)
        try:
            return in_both(letters, to_char_dfa(other, guard), guard)
        except LimitExceeded as error:
            if error.limit not in SPLIT_LIMITS:
                raise
            return None


def may_split(tree: ConstraintTree) -> bool:
    """Whether the tree has parts. Parts that name or count tokens would not do so of each other's tokens."""
    if any(leaf.machine.silent_bytes for leaf in leaves_of_type(tree, PushdownLeaf)):
        return False
    return halves(negation_normal_form(tree)) is not None


def _required(formula: Formula | None) -> Formula:
    if formula is None:
        raise SpecUnsatisfiable("no text satisfies the constraint")
    return formula


def _for_parts(guard: ResourceGuard) -> ResourceGuard:
    """A guard with lower limits of size. Smaller parts take less time, and their product is not multiplied out."""
    lower = {limit: getattr(guard.limits, limit) // _SHARE for limit in SIZE_LIMITS}
    return guard.with_limits(**lower)


def halves(tree: ConstraintTree) -> BooleanNode | None:
    """The tree as a conjunction or disjunction of two smaller ones. None where it has no parts.

    Distinct letters stand apart from other parts. Machines do from regular ones: products with them are the largest.
    """
    match tree:
        case BooleanNode():
            middle = (len(tree.parts) + 1) // 2
            groups = list(tree.parts[:middle]), list(tree.parts[middle:])
            machines = [part for part in tree.parts if leaves_of_type(part, PushdownLeaf)]
            distinct = [part for part in tree.parts if leaves_of_type(part, DistinctLeaf)]
            for apart in (machines, distinct):
                if 0 < len(apart) < len(tree.parts):
                    groups = apart, [part for part in tree.parts if part not in apart]
            return BooleanNode(tree.is_and, tuple(_join(tree.is_and, group) for group in groups))
        case WordLeaf() if tree.conjuncts is not None:
            return halves(BooleanNode(True, tree.conjuncts()))
        case Negation(part) if isinstance(part, WordLeaf) and part.conjuncts is not None:
            return halves(BooleanNode(False, tuple(map(Negation, part.conjuncts()))))
        case _:
            return None


def _join(is_and: bool, parts: Sequence[ConstraintTree]) -> ConstraintTree:
    return parts[0] if len(parts) == 1 else BooleanNode(is_and, tuple(parts))


def _without_leading_space(tree: ConstraintTree) -> ConstraintTree:
    """The tree whose leaves allow no space before the text."""

    def change(leaf: Leaf) -> ConstraintTree:
        return replace(leaf, leading_space=False) if isinstance(leaf, TextLeaf) else leaf

    return map_leaves(tree, change)


def _after_space(tree: ConstraintTree, guard: ResourceGuard) -> ConstraintTree:
    """The tree of the texts behind one space more. Of other texts it may hold or not."""

    def change(leaf: Leaf) -> ConstraintTree:
        match leaf:
            case CharLeaf():
                return replace(leaf, texts=_space_before(leaf.texts, guard))
            case PushdownLeaf():
                bounded = leaf.bounded
                return replace(
                    leaf, machine=after_space(leaf.machine), both=None,
                    bounded=None if bounded is None else lambda: _after_space(_without_leading_space(bounded()), guard),
                )
            case DistinctLeaf():
                transducer, start = behind_space(leaf.transducer, leaf.start, optional=False)
                return replace(leaf, transducer=transducer, start=start)
            case LengthLeaf():
                return LengthLeaf(leaf.max_chars + 1)
            case WordLeaf():
                return leaf

    return map_leaves(tree, change)


def _first_is_space() -> CharDfa:
    """The texts that begin with a space."""
    table = np.array([[1, 2], [1, 1], [2, 2]], dtype=np.int32)  # before the first character, refused, accepted
    family = minterms([charset([(_SPACE, _SPACE + 1)])])
    (space,) = family.members[0]
    symbols = (np.arange(family.count) == space).astype(np.int32)
    return CharDfa(Dfa(symbols, table, np.array([False, False, True])), family)


def _space_before(texts: CharDfa, guard: ResourceGuard) -> CharDfa:
    """The texts behind one space more."""
    first = _first_is_space()
    family, (symbol, is_space) = common_minterms([texts.minterms, first.minterms])
    read = texts.dfa.next_state[:, texts.dfa.symbol_class[symbol]]  # [S, M]
    start = len(read)  # all characters but a space lead from it to a state of no texts, behind it
    begin = np.where(first.dfa.symbol_class[is_space] == 1, texts.dfa.start, start + 1)
    table = np.vstack([read, begin, np.full(len(begin), start + 1)]).astype(np.int32)
    accepting = np.append(texts.dfa.accepting, [False, False])
    moved = CharDfa(Dfa(np.arange(table.shape[1], dtype=np.int32), table, accepting, start), family)
    return char_intersection([moved, first], guard)
