"""Constraints as a tree of all, any and not over leaves. It also has the normal forms that the combination works on.

The leaves are automata, not specs: over the letters of the word trace, over characters, a bound on the length, or a
pushdown machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import chain
from typing import TypeVar

from compiler.automata import (
    CharDfa,
    CharTransducer,
    Dfa,
    char_complement,
    char_intersection,
    char_union,
    complement,
    everything,
    intersection,
    union,
)
from compiler.errors import LimitExceeded
from compiler.grammars import GrammarWarning
from compiler.limits import LISTED_ITEMS, ResourceGuard
from compiler.pushdown import PushdownMachine
from compiler.spec import GrammarSpec, JsonSchemaSpec, Proposition, SequenceSpec

_LISTED = (
    "where `approximate` names uniqueItems, items come in the order of their list: arrays in other orders are allowed, "
    "but never written; lower maxItems, or list fewer values"
)
_FLAT = (
    "beside arrays of unique items in any order, values of undeclared properties nest one level deep; declare the "
    "properties, or set additionalProperties to false"
)
_SEARCHED = (
    "beside other constraints, orders of unique items are found by a bounded search: some that all constraints allow "
    "may never be written; say in the schema what the array has to be, where it can"
)
LetterDfa = Callable[[Sequence[frozenset[str]], ResourceGuard], Dfa]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class WordLeaf:
    """A constraint on the word trace.

    propositions  what its letters are made of, by names that mean the same in every leaf
    build         makes its automaton over a list of letters; the automaton's start is the empty trace
    with_eos      whether its trace has one last step, at which `eos` holds
    with_nomatch  whether it reads the letter at which no proposition holds
    internal      whether its propositions are ours: no caller knows them
    conjuncts     smaller leaves that hold together exactly where this one holds; None where there are none
    """

    propositions: dict[str, Proposition]
    build: LetterDfa
    with_eos: bool = False
    with_nomatch: bool = False
    internal: bool = False
    conjuncts: Callable[[], tuple[WordLeaf, ...]] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CharLeaf:
    """A constraint on the whole text.

    leading_space  None where it does not care about one space before it
    left_out       the bounds of ours that may leave texts out, which a proof that there is none cannot rest on
    approximated   the paths of keywords in a schema that have no effect
    superset       makes an automaton that accepts every text of the constraint, also beyond the bounds
    """

    texts: CharDfa
    leading_space: bool | None
    left_out: tuple[LimitExceeded, ...] = ()
    approximated: tuple[tuple[str, ...], ...] = ()
    _: KW_ONLY
    superset: Callable[[], CharDfa] = everything


@dataclass(frozen=True, slots=True, eq=False)
class LengthLeaf:
    """An upper bound on the number of characters."""

    max_chars: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PushdownLeaf:
    """A context-free constraint on the whole text.

    source        the constraint: equal ones have one language
    field         the field of the outermost constraint that holds it
    warnings      what is probably a mistake in a grammar
    bounded       for a schema, makes the leaf where nesting has a bound of ours
    both          for a schema, makes the leaf of this and another one; None where they are not combined
    rejected      where the machine names or counts tokens, makes the leaf whose complement are the texts it rejects;
                  None where there is none
    The others are as in a CharLeaf.
    """

    machine: PushdownMachine
    source: GrammarSpec | JsonSchemaSpec | SequenceSpec
    leading_space: bool
    field: str
    warnings: tuple[GrammarWarning, ...] = ()
    left_out: tuple[LimitExceeded, ...] = ()
    approximated: tuple[tuple[str, ...], ...] = ()
    superset: Callable[[], CharDfa] = everything
    bounded: Callable[[], ConstraintTree] | None = None
    both: Callable[[JsonSchemaSpec], PushdownLeaf | CharLeaf | None] | None = None
    rejected: Callable[[], ConstraintTree] | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DistinctLeaf:
    """A constraint on the whole text, whose letters no text writes twice. Letter 0 forgets the others.

    transducer  writes the letters; of no text is a space the first character
    start       its state before a text
    letters     how many there are beside letter 0
    listed      makes a leaf without letters, which leaves texts out
    The others are as in a CharLeaf.
    """

    transducer: CharTransducer
    start: int
    letters: int
    leading_space: bool
    left_out: tuple[LimitExceeded, ...]
    approximated: tuple[tuple[str, ...], ...]
    listed: Callable[[], ConstraintTree]


@dataclass(frozen=True, slots=True, eq=False)
class BooleanNode:
    """The conjunction of the parts, or their disjunction."""

    is_and: bool
    parts: tuple[ConstraintTree, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Negation:
    """The complement of the part."""

    part: ConstraintTree


RegularLeaf = WordLeaf | CharLeaf | LengthLeaf
TextLeaf = CharLeaf | PushdownLeaf | DistinctLeaf
Leaf = RegularLeaf | PushdownLeaf | DistinctLeaf
ConstraintTree = Leaf | BooleanNode | Negation
_LeafType = TypeVar("_LeafType", WordLeaf, CharLeaf, LengthLeaf, PushdownLeaf, DistinctLeaf)


def without_bounded_leaves(
    tree: ConstraintTree, negated: bool = False, *, nesting: bool = False
) -> tuple[ConstraintTree, tuple[LimitExceeded, ...]]:
    """The tree without the leaves whose bounds leave texts out.

    Its superset stands in place of such a leaf; the second value has these bounds. Under a negation such a leaf takes
    away less than it could, so there it stays.

    nesting  whether the nesting of schemas has a bound, too
    """
    if isinstance(tree, Negation):
        part, bounds = without_bounded_leaves(tree.part, not negated, nesting=nesting)
        return Negation(part), bounds
    if isinstance(tree, BooleanNode):
        parts = [without_bounded_leaves(part, negated, nesting=nesting) for part in tree.parts]
        return replace(tree, parts=tuple(part for part, _ in parts)), tuple(chain(*(bounds for _, bounds in parts)))
    is_bounded = isinstance(tree, CharLeaf | PushdownLeaf) and bool(tree.left_out)
    is_bounded |= nesting and isinstance(tree, PushdownLeaf) and tree.bounded is not None
    if isinstance(tree, CharLeaf | PushdownLeaf) and is_bounded and not negated:
        return CharLeaf(tree.superset(), tree.leading_space), tree.left_out
    return tree, ()


def with_bounded_nesting(tree: ConstraintTree) -> ConstraintTree | None:
    """The tree with bounds of ours on the nesting of schemas. None where there is none, or a grammar stays."""
    machines = leaves_of_type(tree, PushdownLeaf)
    return map_leaves(tree, _bounded) if machines and all(leaf.bounded for leaf in machines) else None


def _bounded(leaf: Leaf) -> ConstraintTree:
    if not isinstance(leaf, PushdownLeaf):
        return leaf
    assert leaf.bounded is not None
    return leaf.bounded()


def approximated_paths(tree: ConstraintTree) -> list[tuple[str, ...]]:
    """The paths of keywords in schemas that are approximated."""
    return [path for leaf in leaves_of(tree) if isinstance(leaf, TextLeaf) for path in leaf.approximated]


def warnings_of(tree: ConstraintTree) -> tuple[GrammarWarning, ...]:
    """What a caller should know of the leaves."""
    grammars = [warning for leaf in leaves_of_type(tree, PushdownLeaf) for warning in leaf.warnings]
    bounds = [bound for leaf in leaves_of(tree) if isinstance(leaf, TextLeaf) for bound in leaf.left_out]
    listed = [GrammarWarning(_LISTED)] if any(bound.limit == LISTED_ITEMS for bound in bounds) else []
    lettered = [bound for leaf in leaves_of_type(tree, DistinctLeaf) for bound in leaf.left_out]
    flat = [GrammarWarning(_FLAT)] if any(bound.limit == "undeclared_depth" for bound in lettered) else []
    searched = [GrammarWarning(_SEARCHED)] if _searched(tree) else []
    return (*grammars, *listed, *flat, *searched)


def _searched(tree: ConstraintTree) -> bool:
    """Whether distinct letters and something else hold together."""
    if not isinstance(tree, BooleanNode):
        return False
    return any(map(_searched, tree.parts)) or (tree.is_and and bool(leaves_of_type(tree, DistinctLeaf)))


def with_lists(tree: ConstraintTree) -> ConstraintTree:
    """The tree without letters: the leaves that write some leave texts out."""
    return map_leaves(tree, lambda leaf: leaf.listed() if isinstance(leaf, DistinctLeaf) else leaf)


def map_leaves(tree: ConstraintTree, change: Callable[[Leaf], ConstraintTree]) -> ConstraintTree:
    """The tree with each leaf replaced."""
    match tree:
        case BooleanNode():
            return replace(tree, parts=tuple(map_leaves(part, change) for part in tree.parts))
        case Negation():
            return Negation(map_leaves(tree.part, change))
        case _:
            return change(tree)


def leaves_of(tree: ConstraintTree) -> list[Leaf]:
    """The leaves, left to right."""
    if isinstance(tree, BooleanNode):
        return [leaf for part in tree.parts for leaf in leaves_of(part)]
    return leaves_of(tree.part) if isinstance(tree, Negation) else [tree]


def leaves_of_type(tree: ConstraintTree | None, kind: type[_LeafType]) -> list[_LeafType]:
    """The leaves of one class. None of them without a tree."""
    return [] if tree is None else [leaf for leaf in leaves_of(tree) if isinstance(leaf, kind)]


def boolean_dfa(tree: ConstraintTree, leaf_dfa: Callable[[RegularLeaf], Dfa], guard: ResourceGuard) -> Dfa:
    """The DFA of a tree without machines over one alphabet. `leaf_dfa` makes the DFAs of the leaves."""
    match tree:
        case BooleanNode():
            join = intersection if tree.is_and else union
            return join([boolean_dfa(part, leaf_dfa, guard) for part in tree.parts], guard)
        case Negation():
            return complement(boolean_dfa(tree.part, leaf_dfa, guard))
        case PushdownLeaf() | DistinctLeaf():
            raise ValueError("a machine has no DFA, and distinct letters have too large a one")
        case _:
            return leaf_dfa(tree)


def normal_form(tree: ConstraintTree, guard: ResourceGuard) -> ConstraintTree:
    """The tree in negation normal form, with whole-text leaves merged.

    The whole-text leaves of each node become its first part.

    A merged leaf is indifferent to a leading space.
    """
    return _merge_whole_text(negation_normal_form(tree), guard)


def negation_normal_form(tree: ConstraintTree, negated: bool = False) -> ConstraintTree:
    """The tree with negations at the leaves only. No Boolean node stands inside one of its own kind."""
    if isinstance(tree, Negation):
        return negation_normal_form(tree.part, not negated)
    if isinstance(tree, CharLeaf):
        return CharLeaf(char_complement(tree.texts), tree.leading_space) if negated else tree
    if not isinstance(tree, BooleanNode):
        return Negation(tree) if negated else tree
    is_and = tree.is_and is not negated  # De Morgan: a negated conjunction is a disjunction
    parts: list[ConstraintTree] = []
    for part in tree.parts:
        normal = negation_normal_form(part, negated)
        # (a & b) & c is one node, so that all whole-text leaves under it are merged at once.
        parts.extend(normal.parts if isinstance(normal, BooleanNode) and normal.is_and is is_and else (normal,))
    return BooleanNode(is_and, tuple(parts)) if len(parts) > 1 else parts[0]


def _merge_whole_text(tree: ConstraintTree, guard: ResourceGuard) -> ConstraintTree:
    """Merge the whole-text leaves of each Boolean node. The merged leaf comes first."""
    if not isinstance(tree, BooleanNode):
        return tree
    # From the leaves upwards: a node that becomes one leaf is merged again by the node above it.
    parts = [_merge_whole_text(part, guard) for part in tree.parts]
    texts = [part.texts for part in parts if isinstance(part, CharLeaf)]
    merged: list[ConstraintTree] = [part for part in parts if not isinstance(part, CharLeaf)]
    if texts:
        # Automata over characters combine among themselves for little; each one that is left over doubles what a
        # product must remember.
        join = char_intersection if tree.is_and else char_union
        merged.insert(0, CharLeaf(join(texts, guard), None))
    return merged[0] if len(merged) == 1 else BooleanNode(tree.is_and, tuple(merged))


def split_mandatory(tree: ConstraintTree) -> tuple[CharDfa | None, ConstraintTree | None]:
    """Split a normal form into its mandatory whole-text constraint and the rest.

    The mandatory constraint must hold in every case.
    """
    if isinstance(tree, CharLeaf):
        return tree.texts, None
    if isinstance(tree, BooleanNode) and tree.is_and and isinstance(tree.parts[0], CharLeaf):
        parts = tree.parts[1:]
        return tree.parts[0].texts, parts[0] if len(parts) == 1 else BooleanNode(True, parts)
    return None, tree
