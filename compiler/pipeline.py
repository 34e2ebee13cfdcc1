"""Compiles a constraint. It becomes an automaton over texts, and from that one over tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from compiler.artifact import CompiledConstraint
from compiler.diagnostics import explain_unsatisfiable, missing_characters
from compiler.engines import NATIVE, Engines
from compiler.errors import CompileError, LimitExceeded, SpecError, SpecUnsatisfiable, SpecUnspellable, SpecUnsupported
from compiler.forms import approximated_keywords, constraint_tree, unenforced_keywords
from compiler.lifting import UNREACHABLE, TokenAutomaton, lift
from compiler.limits import DEFAULT_LIMITS, SIZE_LIMITS, Limits, ResourceGuard
from compiler.pushdown import PushdownAutomaton, lift_to_tokens
from compiler.spec import (
    GrammarSpec,
    LabelsSpec,
    LengthSpec,
    Spec,
    check_input_size,
    drop_unused_propositions,
    leaves,
)
from compiler.text import (
    AnyText,
    CharLeaf,
    ConstraintTree,
    PushdownLeaf,
    PushdownText,
    TextAutomaton,
    label_automata,
    leaves_of_type,
    to_text,
    with_bounded_nesting,
    without_bounded_leaves,
)
from compiler.vocab import Vocabulary

_T = TypeVar("_T")
_NO_TEXT = "no text satisfies the constraint"


def compile_text(
    spec: Spec,
    limits: Limits = DEFAULT_LIMITS,
    cancelled: Callable[[], bool] | None = None,
    engines: Engines = NATIVE,
) -> AnyText:
    """The automaton over texts of a constraint.

    Raises SpecSyntaxError or SpecUnsupported where it cannot be read, SpecUnsatisfiable where no text satisfies it,
    LimitExceeded where it outgrows a limit.

    >>> from compiler.spec import spec_from_json
    >>> from compiler.text import check_text
    >>> text = compile_text(spec_from_json({"keywords": ["dog", "ball"], "ordered": True}))
    >>> check_text(text, "A dog with a ball.").satisfied, check_text(text, "A ball for a dog.").satisfied
    (True, False)
    """
    guard = ResourceGuard(limits, cancelled)
    try:
        read = _read(spec, guard)
        tree = constraint_tree(read, engines, guard)
        if isinstance(read, LabelsSpec):
            return _compile_labels(read, tree, guard)[0]
        text, _ = _within_limits(tree, lambda each: to_text(each, guard))
        if text.byte_automaton.min_tokens == UNREACHABLE:
            raise SpecUnsatisfiable(_NO_TEXT)
        return text
    except SpecUnsatisfiable as error:
        raise _refusal(error, spec, engines, guard) from None


def compile_spec(
    spec: Spec,
    vocabulary: Vocabulary,
    limits: Limits = DEFAULT_LIMITS,
    cancelled: Callable[[], bool] | None = None,
    *,
    engines: Engines = NATIVE,
) -> CompiledConstraint:
    """A constraint compiled for a vocabulary.

    cancelled  called at short intervals; the compilation raises CompileCancelled when it returns True
    Raises what compile_text raises, and SpecUnspellable where texts satisfy it but no tokens spell one.

    >>> from compiler.spec import spec_from_json
    >>> vocabulary = Vocabulary((b"ye", b"s", b"no", b"yes", None), eos_ids=(4,))
    >>> tokens = compile_spec(spec_from_json({"choice": ["yes", "no"]}), vocabulary).tokens
    >>> tokens.min_tokens  # "yes" or "no", and EOS
    2
    """
    guard = ResourceGuard(limits, cancelled)
    try:
        read = _read(spec, guard)
        tree = constraint_tree(read, engines, guard)
        made, tree = _within_limits(tree, lambda each: _over_tokens(each, read, vocabulary, guard))
        text, tokens, distances = made
        if tokens.min_tokens == UNREACHABLE:
            raise _unsatisfiable_error(text, vocabulary, guard)
    except SpecUnsatisfiable as error:
        raise _refusal(error, spec, engines, guard) from None
    return CompiledConstraint(
        spec=read, text=text, tokens=tokens, state_distances=distances, vocabulary=vocabulary.fingerprint,
        not_enforced=unenforced_keywords(read, guard), approximate=approximated_keywords(tree),
        warnings=tuple(warning for leaf in leaves_of_type(tree, PushdownLeaf) for warning in leaf.warnings),
    )


def _within_limits(tree: ConstraintTree, make: Callable[[ConstraintTree], _T]) -> tuple[_T, ConstraintTree]:
    """What is made of a tree, and the tree. Where nesting is bounded, schemas may keep to the limits of size."""
    try:
        return make(tree), tree
    except LimitExceeded as error:
        bounded = with_bounded_nesting(tree) if error.limit in SIZE_LIMITS else None
        if bounded is None:
            raise
    return make(bounded), bounded


def _over_tokens(
    tree: ConstraintTree, spec: Spec, vocabulary: Vocabulary, guard: ResourceGuard
) -> tuple[AnyText, TokenAutomaton | PushdownAutomaton, tuple[int | None, ...]]:
    """The automata over texts and tokens, and the distances of displayed states."""
    if isinstance(spec, LabelsSpec):  # over ids of its own: the vocabulary is only the one it is stored for
        text, tokens = _compile_labels(spec, tree, guard)
    else:
        any_text = to_text(tree, guard)
        if isinstance(any_text, PushdownText):
            return any_text, lift_to_tokens(any_text.machine, vocabulary, guard), ()
        text = any_text
        # From bytes to tokens; the distances to acceptance are computed with it.
        # The expensive step; its cost grows with the vocabulary, all others only with the constraint.
        tokens = lift(text.transducer, text.letters, vocabulary, guard)
    return text, tokens, text.state_distances(tokens)


def _read(spec: Spec, guard: ResourceGuard) -> Spec:
    """The constraint without parts that have no effect. Its size is checked first."""
    # Length before content: a constraint that is too long is not parsed.
    check_input_size(spec, guard.limits)
    # Unused propositions would make the word trace larger for nothing.
    return drop_unused_propositions(spec, guard)


def _refusal(error: SpecUnsatisfiable, spec: Spec, engines: Engines, guard: ResourceGuard) -> CompileError:
    """The error of a constraint for which nothing can be written.

    It names a bound of ours if texts may satisfy the constraint beyond it, else the parts that contradict each other.
    """
    if isinstance(spec, GrammarSpec):  # it has no parts that could contradict each other
        return error
    bound = None if isinstance(spec, LabelsSpec) else _bound_in_the_way(_read(spec, guard), engines, guard)
    return bound or explain_unsatisfiable(spec, engines, guard)


def _bound_in_the_way(spec: Spec, engines: Engines, guard: ResourceGuard) -> LimitExceeded | None:
    """A bound of ours beyond which texts may satisfy the constraint."""
    whole = constraint_tree(spec, engines, guard)
    if isinstance(whole, CharLeaf):  # what a leaf by itself leaves out is what is in the way
        return whole.left_out[0] if whole.left_out else None
    tree, bounds = without_bounded_leaves(whole)
    if not bounds or not _has_texts(tree, guard):
        return None
    # Without the bounds that only keep automata small, less is left to doubt.
    longer = constraint_tree(spec, engines, guard, shortens=False)
    tree, others = without_bounded_leaves(longer)
    if _has_texts(longer, guard):
        names = {bound.limit for bound in others}
        return next((bound for bound in bounds if bound.limit not in names), bounds[0])
    return others[0] if others and _has_texts(tree, guard) else None


def _has_texts(tree: ConstraintTree, guard: ResourceGuard) -> bool:
    return to_text(tree, guard).byte_automaton.min_tokens != UNREACHABLE


def _compile_labels(
    spec: LabelsSpec, tree: ConstraintTree, guard: ResourceGuard
) -> tuple[TextAutomaton, TokenAutomaton]:
    if any(isinstance(leaf, LengthSpec) and leaf.sentences is not None for leaf in leaves(spec)):
        raise SpecUnsupported("labels make up no sentences", construct="sentences", field="sentences")
    # Labels are symbols themselves: no bytes, no vocabulary and no lift.
    text, tokens = label_automata(tree, spec.labels, guard)
    if tokens.min_tokens == UNREACHABLE:
        raise SpecUnsatisfiable("no sequence of the labels satisfies the constraint")
    return text, tokens


def _unsatisfiable_error(text: AnyText, vocabulary: Vocabulary, guard: ResourceGuard) -> SpecError:
    """The reason why no tokens satisfy the constraint.

    Either no text does, or the vocabulary cannot spell those that do.
    """
    if text.byte_automaton.min_tokens == UNREACHABLE:
        return SpecUnsatisfiable(_NO_TEXT)
    # Texts exist, so the vocabulary is at fault: the characters that it cannot spell are named.
    characters = missing_characters(text.byte_automaton, vocabulary, guard)
    if not characters:
        return SpecUnspellable("texts satisfy the constraint, but the model's tokens cannot spell one")
    listed = ", ".join(f"{character!r} (U+{ord(character):04X})" for character in characters)
    return SpecUnspellable(
        f"no token of the model can spell {listed}, which the constraint needs", characters=characters
    )
