"""Compiles a constraint. It becomes an automaton over texts, and from that one over tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias, TypeVar

from compiler.artifact import CompiledConstraint
from compiler.diagnostics import explain_unsatisfiable, missing_characters
from compiler.engines import NATIVE, Engines
from compiler.errors import (
    CompileError,
    LimitExceeded,
    SpecUnsatisfiable,
    SpecUnspellable,
    SpecUnsupported,
    Undecided,
)
from compiler.forms import (
    approximated_keywords,
    capture_readers,
    check_token_names,
    constraint_tree,
    unenforced_keywords,
)
from compiler.lifting import UNREACHABLE, TokenAutomaton, lift
from compiler.limits import DEFAULT_LIMITS, SIZE_LIMITS, Limits, ResourceGuard
from compiler.products import DistinctAutomaton, LazyProduct, Part, lazy_product
from compiler.pushdown import lift_to_tokens
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
    SPLIT_LIMITS,
    AnyText,
    AnyTokens,
    CharLeaf,
    ConstraintTree,
    DistinctLeaf,
    DistinctText,
    Parts,
    PartText,
    ProductText,
    PushdownText,
    TextAutomaton,
    label_automata,
    leaves_of_type,
    may_split,
    to_part_text,
    to_text,
    warnings_of,
    with_bounded_nesting,
    with_lists,
    without_bounded_leaves,
)
from compiler.vocab import Vocabulary

_Made = TypeVar("_Made")
_PartTokens: TypeAlias = tuple[PartText, Part, tuple[int | None, ...]]
_Tokens: TypeAlias = tuple[AnyText, AnyTokens, tuple[int | None, ...]]
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
    guard, left_out = ResourceGuard(limits, cancelled), list[LimitExceeded]()
    try:
        read = _read(spec, guard)
        tree = constraint_tree(read, engines, guard, letters=True)
        if isinstance(read, LabelsSpec):
            return _compile_labels(read, tree, guard)[0]
        made, _ = _within_limits(tree, partial(to_part_text, left_out=left_out), guard, left_out)
        text = _whole_text(made, guard)
        if _is_empty(text.byte_automaton):
            raise SpecUnsatisfiable(_NO_TEXT)
        return text
    except SpecUnsatisfiable as error:
        raise _refusal(error, spec, engines, guard, left_out=left_out) from None


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
    Raises what compile_text raises, SpecUnspellable where texts satisfy it but no tokens spell one, and Undecided where
    none was found in a product that is too large for one automaton.

    >>> from compiler.spec import spec_from_json
    >>> vocabulary = Vocabulary((b"ye", b"s", b"no", b"yes", None), eos_ids=(4,))
    >>> tokens = compile_spec(spec_from_json({"choice": ["yes", "no"]}), vocabulary).tokens
    >>> tokens.min_tokens  # "yes" or "no", and EOS
    2
    """
    guard, left_out = ResourceGuard(limits, cancelled), list[LimitExceeded]()
    try:
        read = _read(spec, guard)
        check_token_names(read, vocabulary, guard)
        tree = constraint_tree(read, engines, guard, letters=True)
        make = partial(_over_tokens, spec=read, vocabulary=vocabulary, left_out=left_out)
        made, tree = _within_limits(tree, make, guard, left_out)
        text, tokens, distances = _joined(made, guard)
        if tokens.min_tokens == UNREACHABLE and not _is_empty(tokens) and leaves_of_type(tree, DistinctLeaf):
            made, tree = _within_limits(with_lists(tree), make, guard, left_out)
            text, tokens, distances = _joined(made, guard)
        if _is_empty(tokens):
            raise _unsatisfiable_error(text, vocabulary, guard)
        if tokens.min_tokens == UNREACHABLE:
            assert isinstance(tokens, LazyProduct)
            raise Undecided(None, tokens.min_tokens_at_least)
    except SpecUnsatisfiable as error:
        raise _refusal(error, spec, engines, guard, left_out=left_out) from None
    return CompiledConstraint(
        spec=read, text=text, tokens=tokens, state_distances=distances, vocabulary=vocabulary.fingerprint,
        not_enforced=unenforced_keywords(read, guard), approximate=approximated_keywords(tree),
        warnings=warnings_of(tree),
        captures=capture_readers(read, engines, guard),
    )


def _within_limits(
    tree: ConstraintTree, make: Callable[[ConstraintTree, ResourceGuard], _Made], guard: ResourceGuard,
    left_out: list[LimitExceeded],
) -> tuple[_Made | Parts[_Made], ConstraintTree]:
    """What is made of a tree, and the tree.

    Where it is too large, its parts are made. Where these are too large, the nesting of its schemas gets a bound, which
    `left_out` receives. Parts that write distinct letters are always made apart, or without letters where these are too
    large.
    """
    if leaves_of_type(tree, DistinctLeaf):
        try:
            return Parts(tree, make, guard), tree
        except LimitExceeded as error:
            if error.limit not in SPLIT_LIMITS:
                raise
            return _within_limits(with_lists(tree), make, guard, left_out)
    try:
        return make(tree, guard), tree
    except LimitExceeded as error:
        if error.limit not in SPLIT_LIMITS:
            raise
        exceeded = error
    if may_split(tree):
        try:
            return Parts(tree, make, guard), tree
        except LimitExceeded as error:
            exceeded = error
    bounded = with_bounded_nesting(tree) if exceeded.limit in SIZE_LIMITS else None
    if bounded is None:
        raise exceeded
    left_out += without_bounded_leaves(bounded)[1]
    return _within_limits(bounded, make, guard, left_out)


def _product_text(parts: Parts[_Made], texts: list[PartText], guard: ResourceGuard) -> ProductText:
    return ProductText(
        parts=tuple(texts[: parts.text_parts]), formula=parts.text_formula, strips_space=parts.strips_space,
        limits=guard.limits,
    )


def _over_tokens(
    tree: ConstraintTree, guard: ResourceGuard, *, spec: Spec, vocabulary: Vocabulary, left_out: list[LimitExceeded]
) -> _PartTokens:
    """The automata over texts and tokens, and the distances of displayed states. `left_out` is that of `to_text`."""
    if isinstance(spec, LabelsSpec):  # over ids of its own: the vocabulary is only the one it is stored for
        text, tokens = _compile_labels(spec, tree, guard)
    else:
        any_text = to_part_text(tree, guard, left_out)
        if isinstance(any_text, PushdownText):
            return any_text, lift_to_tokens(any_text.machine, vocabulary, guard), ()
        if isinstance(any_text, DistinctText):
            return any_text, any_text.over(vocabulary, guard), ()
        text = any_text
        # From bytes to tokens; the distances to acceptance are computed with it.
        # The expensive step; its cost grows with the vocabulary, all others only with the constraint.
        tokens = lift(text.transducer, text.letters, vocabulary, guard)
    return text, tokens, text.state_distances(tokens)


def _joined(made: _PartTokens | Parts[_PartTokens], guard: ResourceGuard) -> _Tokens:
    """The automata of a tree. Those of its parts are joined."""
    if isinstance(made, Parts):
        text = _product_text(made, [text for text, _, _ in made.results], guard)
        return text, lazy_product([part for _, part, _ in made.results], made.formula, guard), ()
    whole, tokens, distances = made
    assert not isinstance(tokens, DistinctAutomaton)  # it is a part
    return _whole_text(whole, guard), tokens, distances


def _whole_text(made: PartText | Parts[PartText], guard: ResourceGuard) -> AnyText:
    if isinstance(made, Parts):
        return _product_text(made, made.results, guard)
    assert not isinstance(made, DistinctText)  # it is a part
    return made


def _read(spec: Spec, guard: ResourceGuard) -> Spec:
    """The constraint without parts that have no effect. Its size is checked first."""
    # Length before content: a constraint that is too long is not parsed.
    check_input_size(spec, guard.limits)
    # Unused propositions would make the word trace larger for nothing.
    return drop_unused_propositions(spec, guard)


def _refusal(
    error: SpecUnsatisfiable, spec: Spec, engines: Engines, guard: ResourceGuard, *, left_out: list[LimitExceeded]
) -> CompileError:
    """The error of a constraint for which nothing can be written.

    It names a bound of ours if texts may satisfy the constraint beyond it, else the parts that contradict each other.
    """
    if isinstance(spec, GrammarSpec):  # it has no parts that could contradict each other
        return error
    bound = None if isinstance(spec, LabelsSpec) else _bound_in_the_way(_read(spec, guard), engines, guard, left_out)
    return bound or explain_unsatisfiable(spec, engines, guard)


def _bound_in_the_way(
    spec: Spec, engines: Engines, guard: ResourceGuard, left_out: list[LimitExceeded]
) -> LimitExceeded | None:
    """A bound of ours beyond which texts may satisfy the constraint. `left_out` are those that combinations got."""
    whole = constraint_tree(spec, engines, guard)
    if isinstance(whole, CharLeaf):  # what a leaf by itself leaves out is what is in the way
        return whole.left_out[0] if whole.left_out else None
    if left_out and _may_have_texts(without_bounded_leaves(whole, nesting=True)[0], guard):
        return left_out[0]
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


def _may_have_texts(tree: ConstraintTree, guard: ResourceGuard) -> bool:
    """False where it is proven that there are none, within the limits."""
    try:
        return _has_texts(tree, guard)
    except LimitExceeded:
        return True


def _has_texts(tree: ConstraintTree, guard: ResourceGuard) -> bool:
    try:
        return to_text(tree, guard).byte_automaton.min_tokens != UNREACHABLE
    except SpecUnsatisfiable:
        return False


def _is_empty(tokens: AnyTokens) -> bool:
    """Whether it is proven that no sequence of tokens is accepted."""
    return (tokens.min_tokens_at_least if isinstance(tokens, LazyProduct) else tokens.min_tokens) == UNREACHABLE


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


def _unsatisfiable_error(text: AnyText, vocabulary: Vocabulary, guard: ResourceGuard) -> CompileError:
    """The reason why no tokens satisfy the constraint.

    Either no text does, or the vocabulary cannot spell those that do.
    """
    over_bytes = text.byte_automaton
    if _is_empty(over_bytes):
        return SpecUnsatisfiable(_NO_TEXT)
    if isinstance(over_bytes, LazyProduct) and over_bytes.min_tokens == UNREACHABLE:
        return Undecided(None, over_bytes.min_tokens_at_least)
    # Texts exist, so the vocabulary is at fault: the characters that it cannot spell are named.
    characters = () if isinstance(over_bytes, LazyProduct) else missing_characters(over_bytes, vocabulary, guard)
    if not characters:
        return SpecUnspellable("texts satisfy the constraint, but the model's tokens cannot spell one")
    listed = ", ".join(f"{character!r} (U+{ord(character):04X})" for character in characters)
    return SpecUnspellable(
        f"no token of the model can spell {listed}, which the constraint needs", characters=characters
    )
